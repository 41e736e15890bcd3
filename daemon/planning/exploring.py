# SPDX-License-Identifier: Apache-2.0
"""Next configuration to explore for a program, without missing its target."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ...kernels.correction.correct import correct, information
from ...kernels.correction.observation import CorrectedSurface, Observation
from ...kernels.correction.pinning import pinned
from ...kernels.grid import FrequencyConfiguration
from ...kernels.surface import Surface
from ...kernels.units import AXES
from ..errors import TargetNotAttainable
from .lease_plan import SAFE
from .limits import Limits
from .plan import in_time, longest_ms, outlook, plan, requirements
from .targets import Target, parse_target

# Configurations observed before potential gains are tried, and before exploration may end.
_FIRST, _LOOKED_AT = 4, 10
# Least relative gain worth another trial; standard deviations hoped for.
_WORTH, _HOPE = 0.01, 1.5
# Degrees of freedom of Student's t for an unpredicted program, plus one per observed configuration: few prove little.
_FREEDOM = 6
# Number of observed configurations up to which each step lowers one clock, which shows the clock that a program waits for.
_ONE_BY_ONE = 3
# Slowdown by noise alone, for configurations safe by their clocks.
_NOISE = 0.02
# Lowest clock of an unpredicted program, relative to its lowest observed one.
_STEP = 0.5
_MOST_CERTAIN = 1 - 1e-9


class ExplorationStep(Struct, frozen=True):
    """Next configuration and reason; ``exploring`` for a trial, False for the final plan."""

    configuration: FrequencyConfiguration
    reason: str
    exploring: bool
    corrected: CorrectedSurface | None = None


def next_configuration(
    surface: Surface,
    target: Target | str,
    observations: Sequence[Observation],
    *,
    fps: float | None = None,
    confidence: float | None = None,
    limits: Limits | None = None,
    most: int = 20,
) -> ExplorationStep:
    """Choose the next configuration; raises UsageError.

    First the highest permitted clocks. Later ones keep the target (and the period) with the probability :data:`SAFE`, or by
    their clocks: no frame slows by more than the clock lowered most. The first are the most informative; from the fourth on,
    the potentially best, alternating for a predicted network. Exploration ends after ten if no gain of 1% is left, or after
    ``most``.

    Args:
        surface: as predicted, or :func:`jetdvfs.kernels.correction.flat.flat_surface`.
    """
    target = parse_target(target) if isinstance(target, str) else target
    permitted = (limits or Limits()).permits(surface.grid)
    if not observations:
        return ExplorationStep(
            surface.grid.configuration(_top(permitted)), "nothing was observed yet: the highest clocks", True
        )
    corrected = correct(surface, observations)
    now = corrected.surface
    seen = np.zeros(surface.grid.shape, bool)
    for one in observations:
        seen[surface.grid.index(one.configuration)] = True
    expected = outlook(now, fps)
    affordable = permitted if limits is None else permitted & limits.affords(expected.power_mw)
    sure = max(confidence or 0.0, SAFE)
    count = int(seen.sum())
    safe = _safe(now, target, fps, sure)
    unpredicted = surface.terms is not None and surface.terms.unpredicted
    if unpredicted:
        safe &= _safe(now, target, fps, _with_tails(sure, _FREEDOM + count))
        safe |= _never_late(surface, target, fps, observations)
    safe &= affordable & ~_far_below(surface, seen) & ~_below_late(surface, target, fps, observations)
    try:
        chosen = plan(pinned(now, observations), target, fps=fps, confidence=confidence, limits=limits)
    except TargetNotAttainable as error:
        top = surface.grid.configuration(_top(permitted))
        return ExplorationStep(top, f"the highest clocks: {error}", False, corrected)
    open_cells = safe & ~seen
    if count >= most or not open_cells.any():
        return ExplorationStep(chosen.configuration, chosen.reason, False, corrected)
    objective = target.objective(expected)
    hoped = objective * np.exp(-_HOPE * target.sigma(now))
    best = objective[seen & safe].min(initial=np.inf)
    promising = open_cells & (hoped < best * (1 - _WORTH))
    if count >= _LOOKED_AT and not promising.any():
        return ExplorationStep(chosen.configuration, chosen.reason, False, corrected)
    turn = unpredicted or count % 2 == 0 or count >= _LOOKED_AT
    if count >= _FIRST and turn and promising.any():
        cell = np.where(promising, hoped, np.inf).argmin()
        return _at(surface, int(cell), "it may be better than the plan", corrected)
    if unpredicted and count < _ONE_BY_ONE:
        near = open_cells & _one_axis_apart(seen)
        open_cells = near if near.any() else open_cells
    middling = _safe(now, target, fps, 0.5)
    wanted = np.where(middling, 1.0, 0.1)
    gained = information(surface, observations, open_cells, wanted)
    return _at(surface, int(gained.argmax()), "it tells most of all that keep the target", corrected)


def _safe(surface: Surface, target: Target, fps: float | None, confidence: float) -> NDArray[np.bool_]:
    cautious = outlook(surface, fps, confidence)
    safe = in_time(cautious, fps)
    for bound in requirements(target, fps):
        safe = safe & (getattr(cautious, bound.figure) <= bound.limit)
    return safe


def _with_tails(confidence: float, freedom: int) -> float:
    """Confidence whose normal quantile equals Student's t quantile at the given one.

    First terms of Fisher's expansion (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5).
    """
    normal = NormalDist()
    x = normal.inv_cdf(confidence)
    further = (x**3 + x) / (4 * freedom) + (5 * x**5 + 16 * x**3 + 3 * x) / (96 * freedom**2)
    return min(normal.cdf(x + further), _MOST_CERTAIN)


def _never_late(surface: Surface, target: Target, fps: float | None, observations: Sequence[Observation]) -> NDArray[np.bool_]:
    """Mask of configurations with late frames by noise only: no frame slows by more than the clock lowered most."""
    never, limit_ms = np.zeros(surface.grid.shape, bool), longest_ms(target, fps)
    clocks = [np.array(surface.grid.levels(axis), np.float64) for axis in AXES]
    for one in observations:
        if limit_ms is not None and one.latency_ms is not None and not one.disturbed:
            places = surface.grid.index(one.configuration)
            cpu, gpu, emc = (np.maximum(levels[place] / levels, 1.0) for levels, place in zip(clocks, places, strict=True))
            lower = np.maximum(np.maximum(cpu[:, None, None], gpu[:, None]), emc)
            never |= one.latency_ms * lower * (1 + _NOISE) <= limit_ms
    return never


def _below_late(surface: Surface, target: Target, fps: float | None, observations: Sequence[Observation]) -> NDArray[np.bool_]:
    below, limit_ms = np.zeros(surface.grid.shape, bool), longest_ms(target, fps)
    for one in observations:
        if limit_ms is not None and one.latency_ms is not None and one.latency_ms > limit_ms and not one.disturbed:
            cpu, gpu, emc = surface.grid.index(one.configuration)
            below[: cpu + 1, : gpu + 1, : emc + 1] = True
    return below


def _far_below(surface: Surface, observed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    far = np.zeros(surface.grid.shape, bool)
    if surface.terms is None or not surface.terms.unpredicted:
        return far
    for axis, levels in enumerate(surface.grid.to_json().values()):
        clocks = np.array(levels, np.float64)
        lowest = clocks[np.flatnonzero(observed.any(axis=tuple({0, 1, 2} - {axis})))[0]]
        shape = [-1 if one == axis else 1 for one in range(3)]
        far |= (clocks < lowest * _STEP).reshape(shape)
    return far


def _one_axis_apart(observed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    lines = [np.broadcast_to(observed.any(axis=axis, keepdims=True), observed.shape) for axis in range(observed.ndim)]
    return np.asarray(np.logical_or.reduce(lines) & ~observed)


def _at(surface: Surface, cell: int, reason: str, corrected: CorrectedSurface) -> ExplorationStep:
    return ExplorationStep(surface.grid.at(cell), reason, True, corrected)


def _top(permitted: NDArray[np.bool_]) -> tuple[int, int, int]:
    cpu, gpu, emc = (int(places[-1]) for places in np.nonzero(permitted))
    return cpu, gpu, emc
