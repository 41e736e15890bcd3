# SPDX-License-Identifier: Apache-2.0
"""What to observe next: where the plans of some networks are least certain.

A plan is a configuration on the front of latency and energy, wherever a target puts it. What a configuration's figures matter
is therefore how likely it is to be on that front, as its network's corrected surface has it; observed next is what lowers
the uncertainty there most (:func:`jetdvfs.kernels.correction.informing.information`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...kernels.correction.correct import correct
from ...kernels.correction.informing import information
from ...kernels.correction.observation import Observation
from ...kernels.grid import FrequencyConfiguration, FrequencyGrid
from ...kernels.surface import Surface
from ...kernels.units import AXES

_LEAST_SIGMA = 0.02  # nothing is taken to be known better than this when the front is looked for


@dataclass(frozen=True)
class Choice:
    """What to observe next.

    Attributes:
        network: which one, by position.
        configuration: where.
        uncertainty: the standard deviation of log(measured / predicted), of latency or energy, whichever is larger, in the mean
            over what plans may choose, of the network that it is largest of; infinite before each was observed.
    """

    network: int
    configuration: FrequencyConfiguration
    uncertainty: float


def next_observation(
    surfaces: Sequence[Surface],
    observed: Sequence[Sequence[Observation]],
    tried: Sequence[Collection[FrequencyConfiguration]],
    offered: FrequencyGrid,
) -> Choice | None:
    """Choose a network and a configuration; None where everything was tried.

    Args:
        surfaces: of each network, as it was predicted, with its terms.
        observed: what was observed of each.
        tried: where each was run, whether that counted or not: these are not chosen again.
        offered: the levels that can be set now.
    """
    left = [_left(surface, offered, done) for surface, done in zip(surfaces, tried, strict=True)]
    for number, seen in enumerate(observed):
        if not seen and left[number].any():
            places = np.flatnonzero(left[number])
            middle = _at(surfaces[number].grid, int(places[len(places) // 2]))
            return Choice(number, middle if tried[number] else offered.top, float("inf"))
    known = [number for number, seen in enumerate(observed) if seen]
    now = {number: correct(surfaces[number], observed[number]).surface for number in known}
    wanted = {number: on_front(surface) for number, surface in now.items()}
    each = {number: plan_uncertainty(surface, wanted[number]) for number, surface in now.items()}
    for number in sorted(known, key=lambda number: -each[number]):
        if left[number].any():
            gain = information(surfaces[number], observed[number], left[number], wanted[number])
            return Choice(number, _at(surfaces[number].grid, int(np.argmax(gain))), max(each.values()))
    return None


def on_front(surface: Surface) -> NDArray[np.float64]:
    """How likely each configuration is one that a plan chooses, relative to the likeliest, over the grid.

    One is on the front of latency and energy where nothing that is as fast takes less energy.
    """
    latency, energy = surface.latency_ms.ravel(), np.log(surface.energy_mj.ravel())
    order = np.argsort(latency, kind="stable")
    least = np.empty(len(order))
    least[order] = np.minimum.accumulate(energy[order])
    sigma = np.maximum(surface.energy_sigma.ravel(), _LEAST_SIGMA)
    likely: NDArray[np.float64] = np.exp(-0.5 * ((energy - least) / sigma) ** 2)
    return likely.reshape(surface.grid.shape)


def plan_uncertainty(surface: Surface, weights: NDArray[np.float64]) -> float:
    """The standard deviation of latency's or energy's logarithm, whichever is larger, in the weighted mean."""
    return float(max(np.average(sigma, weights=weights) for sigma in (surface.latency_sigma, surface.energy_sigma)))


def _left(surface: Surface, offered: FrequencyGrid, tried: Collection[FrequencyConfiguration]) -> NDArray[np.bool_]:
    """Where a network can still be run, over the grid."""
    grid = surface.grid
    cpu, gpu, emc = (np.isin(grid.levels(axis), offered.levels(axis)) for axis in AXES)
    left: NDArray[np.bool_] = cpu[:, None, None] & gpu[None, :, None] & emc[None, None, :]
    for one in tried:
        left[grid.index(one)] = False
    return left


def _at(grid: FrequencyGrid, flat: int) -> FrequencyConfiguration:
    return grid.configuration([int(at) for at in np.unravel_index(flat, grid.shape)])
