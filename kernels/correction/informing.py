# SPDX-License-Identifier: Apache-2.0
"""Which configuration would tell most if it was observed next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..surface import Surface
from .correcting import Correcting
from .observation import Observation

MOST_CELLS = 250
"""Of larger grids, as many cells stand for all, and as many candidates for theirs."""
_NOISE = 0.01


def information(
    surface: Surface, observations: Sequence[Observation], candidates: NDArray[np.bool_], wanted: NDArray[np.float64]
) -> NDArray[np.float64]:
    """By how much an observation would lower the variance of the latency's and the power's logarithms, on average.

    Args:
        surface, observations: as of :func:`.correct.correct`.
        candidates: where one could be made, of the grid's shape.
        wanted: how much each configuration's figures matter, of the grid's shape.

    Returns:
        The fall of the mean variance, of the grid's shape: -1 where none can be made or, of larger grids, was tried.
    """
    correcting = Correcting(surface, observations)
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
        # Where nothing is known a variance is huge, and would hide all others: of each place, no more than the whole counts.
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
