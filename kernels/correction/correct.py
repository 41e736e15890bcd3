# SPDX-License-Identifier: Apache-2.0
"""Correction of a surface by observations, and a fit of observations alone.

From three configurations on, a fit of the observations alone is combined with the corrected prediction. Both weigh by the
probability they give each nearby observation from the rest (a pseudo Bayesian average; Yao et al. 2018, Using stacking to
average Bayesian predictive distributions), and by their certainty. So a partly wrong prediction remains where it holds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ..errors import CostModelError
from ..grid import FrequencyGrid
from ..surface import Surface
from ..units import AXES, CLOCKS, mhz_text
from .correction_run import CorrectionResult, CorrectionRun, Evidence, mean_error
from .fitting import nearness
from .flat import flat_surface
from .observation import CorrectedSurface, Observation

__all__ = ["correct"]

Array = NDArray[np.float64]

_FEW = 3  # configurations; a fit of fewer is useless alone
_LEAST_VARIANCE = 1e-6
_CERTAIN = 50.0  # larger log odds count as certainty
_BEFORE = 2.0  # log odds of the prediction before any evidence
_MOST_LEAKED = 0.9  # of an observed power


def correct(surface: Surface, observations: Sequence[Observation]) -> CorrectedSurface:
    """Correct a surface; latency or power without observations stays (power follows the latency).

    Args:
        surface: predicted, or :func:`.flat.flat_surface`; never a corrected one, which has no terms.
        observations: all so far, in any order; best one per configuration, of many frames.

    Raises:
        CostModelError: no observation; GridError for one outside the surface.

    Examples:
        >>> from jetdvfs.kernels.correction.observation import Observation
        >>> network = jetdvfs.decompose("model.pt", "1x3x224x224")
        >>> surface = jetdvfs.load_profile("agx-xavier-sim").surface(network)
        >>> corrected = correct(surface, [Observation(surface.grid.top, 8.0)])
        >>> corrected.correction.configurations
        1
    """
    if not observations:
        raise CostModelError("correction: expected at least one observation")
    surface = replace(surface, execution_note=_noted(surface, observations))
    predicted = CorrectionRun(surface, observations).result()
    unpredicted = surface.terms is not None and surface.terms.unpredicted
    if unpredicted or predicted.correction.configurations < _FEW:
        return CorrectedSurface(predicted.surface, predicted.correction)
    # A fit alone cannot split power over the frames' period into idle and dynamic power.
    paced = any(one.power_mw and one.period_ms for one in observations)
    alone = CorrectionRun(flat_surface(surface.grid), _as_cool(surface, observations), powered=not paced).result()
    return _averaged(predicted, alone)


def _noted(surface: Surface, observations: Sequence[Observation]) -> str:
    lowest = zip(AXES, map(min, zip(*(one.configuration for one in observations), strict=True)), strict=True)
    below = [f"{CLOCKS[axis]} {mhz_text(axis, level)} MHz" for axis, level in lowest if level > surface.grid.levels(axis)[0]]
    note = f"not observed below {', '.join(below)}" if below else ""
    return "; ".join(filter(None, (surface.execution_note, note)))


def _averaged(predicted: CorrectionResult, alone: CorrectionResult) -> CorrectedSurface:
    surface, correction = predicted.surface, predicted.correction
    latency = _Average.of(predicted.latency, alone.latency, surface.grid)
    power = _Average.of(predicted.power, alone.power, surface.grid)
    idle_mw = np.minimum(surface.idle_mw, power.value)
    together = replace(
        surface,
        latency_ms=latency.value,
        power_mw=power.value,
        energy_mj=power.value * latency.value / 1e3,
        idle_mw=idle_mw,
        leakage_mw=surface.leakage_mw * idle_mw / np.maximum(surface.idle_mw, 1e-9),
        latency_sigma=np.sqrt(latency.variance),
        energy_sigma=np.sqrt(latency.variance + power.variance),
    )
    told = replace(
        correction,
        prediction_counts=(latency.counts, power.counts),
        latency_error=(correction.latency_error[0], latency.error),
        power_error=(correction.power_error[0], power.error),
    )
    return CorrectedSurface(together, told)


class _Average(Struct, frozen=True, eq=False):
    """Average of the prediction's and the fit's figure; ``counts`` is the mean weight of the prediction."""

    counts: float
    value: Array
    variance: Array
    error: float

    @classmethod
    def of(cls, predicted: Evidence, alone: Evidence, grid: FrequencyGrid) -> _Average:
        if len(np.unique(alone.cells)) < _FEW:
            return cls(1.0, predicted.value, predicted.variance, mean_error(predicted.left))
        gained = predicted.densities - alone.densities
        odds = np.clip(nearness(grid, predicted.cells) @ gained + _BEFORE, -_CERTAIN, _CERTAIN).reshape(grid.shape)
        ours, theirs = (1 / np.maximum(told.variance, _LEAST_VARIANCE) for told in (predicted, alone))
        share = 1 / (1 + np.exp(-odds) * theirs / ours)
        apart = np.log(alone.value / predicted.value)
        there = share.ravel()[predicted.cells]
        return cls(
            float(share.mean()),
            predicted.value * np.exp((1 - share) * apart),
            share * predicted.variance + (1 - share) * alone.variance + share * (1 - share) * apart**2,
            mean_error(there * predicted.left + (1 - there) * alone.left),
        )


def _as_cool(surface: Surface, observations: Sequence[Observation]) -> list[Observation]:
    """Observations reduced to the surface's temperature: a fit of them alone ignores heat."""
    cooled = []
    for one in observations:
        if one.power_mw is not None and one.temperature_c is not None and surface.heat is not None:
            leaked_mw = float(
                surface.leakage_mw[surface.grid.index(one.configuration)] * surface.heat.growth(one.temperature_c)
            )
            one = replace(one, power_mw=one.power_mw - min(leaked_mw, _MOST_LEAKED * one.power_mw))
        cooled.append(one)
    return cooled


MOST_CELLS = 250
"""Number of sampled cells, and of candidates, on larger grids."""
_NOISE = 0.01


def information(
    surface: Surface, observations: Sequence[Observation], candidates: NDArray[np.bool_], wanted: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Mean fall of the variance of the latency's and power's logarithms by a further observation; -1 if impossible or untried.

    Args:
        candidates: possible places, of the grid's shape.
        wanted: weight of each configuration's figures, of the grid's shape.
    """
    correcting = CorrectionRun(surface, observations)
    grid = surface.grid
    tried = _some(np.flatnonzero(candidates))
    for_all = _some(np.arange(grid.size))
    cells = np.concatenate([tried, for_all])
    places = np.array(np.unravel_index(cells, grid.shape)).T
    own = correcting.alike(places, places)
    weights = wanted.ravel()[for_all]
    timed, timing = correcting.timing()
    powering = correcting.powering(None if timing is None else timing.unknowns, np.exp(correcting.latency(timed, timing)[0]))
    metered, drawing = correcting.drawing(powering)
    fall = np.zeros(len(tried))
    for rows, found, model in ((timed, timing, correcting.latency_model(cells)), (metered, drawing, powering.model(cells))):
        if found is None:
            continue
        covariance = found.together(model, correcting.alike(places, correcting.places[rows]), own)
        shared = covariance[: len(tried), len(tried) :]
        gained = shared**2 / (np.diag(covariance)[: len(tried), None] + _NOISE**2)
        # An unknown place has a huge variance that would dominate: limit each to its whole.
        known = np.diag(covariance)[len(tried) :] + _NOISE**2
        fall += (gained / (1 + known)) @ weights / weights.sum()
    result = np.full(grid.size, -1.0)
    result[tried] = fall
    return result.reshape(grid.shape)


def _some(cells: NDArray[np.intp]) -> NDArray[np.intp]:
    if len(cells) <= MOST_CELLS:
        return cells
    # A step that shares no factor with the axes' lengths visits all their levels.
    return cells[np.linspace(0, len(cells) - 1, MOST_CELLS).round().astype(np.intp)]
