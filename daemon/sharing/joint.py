# SPDX-License-Identifier: Apache-2.0
"""One configuration for several applications on one GPU: every deadline kept given all of them, at the least energy.

Where nothing keeps them all, as many as possible are kept, and those that are not come as close as they can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...kernels.grid import FrequencyConfiguration, FrequencyGrid
from ...kernels.units import AXES
from ..planning.limits import TIE, Limits, lowest_clocks
from .interference import Work, responses_ms, together

KEPT = 1 + 1e-9
"""A limit is kept up to this part of it: figures are sums."""


@dataclass(frozen=True)
class Joint:
    """What was found.

    Attributes:
        configuration: the one.
        attained: whether all deadlines are kept there.
    """

    configuration: FrequencyConfiguration
    attained: bool


def jointly(works: Sequence[Work], limits: Limits, least: FrequencyConfiguration | None = None) -> Joint:
    """Choose for all of them.

    Args:
        works: at least one, all of one grid.
        limits: the range each clock must stay in, and what the board may draw.
        least: clocks that are needed at least, as far as the limits leave them.

    Raises:
        UsageError: the limits leave nothing.
    """
    grid, both = works[0].surface.grid, together(works)
    permitted = limits.permits(grid)
    affordable = permitted & limits.affords(both.power_mw)
    permitted = affordable if affordable.any() else permitted & (both.power_mw <= both.power_mw[permitted].min())
    if least is not None:
        raised = permitted & _at_least(grid, least, permitted)
        permitted = raised if raised.any() else permitted
    responses = {one: responses_ms(works, one) for one in {work.confidence for work in works}}
    over = [responses[work.confidence][place] / work.limit_ms for place, work in enumerate(works) if work.limit_ms is not None]
    kept = np.sum([one <= KEPT for one in over], axis=0) if over else np.zeros(grid.shape)
    among = permitted & (kept == kept[permitted].max())
    attained = bool(kept[permitted].max() == len(over))
    if not attained:
        farthest = np.max(over, axis=0)
        among &= farthest <= farthest[among].min() * (1 + TIE)
    among &= both.energy_mj <= both.energy_mj[among].min() * (1 + TIE)
    return Joint(grid.configuration(lowest_clocks(grid, among)), attained)


def fare_ms(works: Mapping[str, Work], configuration: FrequencyConfiguration) -> dict[str, float]:
    """How long frames of each take at most at a configuration.

    Raises:
        GridError: it is none of the grid.
    """
    found = tuple(works.values())
    index = found[0].surface.grid.index(configuration)
    return {name: float(responses_ms(found, work.confidence)[place][index]) for place, (name, work) in enumerate(works.items())}


def _at_least(grid: FrequencyGrid, least: FrequencyConfiguration, permitted: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Where no clock is below what is needed of it; a need above all that is permitted counts as the highest of that."""
    mask = np.ones(grid.shape, bool)
    for axis, name in enumerate(AXES):
        levels = np.array(grid.levels(name))
        others = tuple({0, 1, 2} - {axis})
        highest = levels[permitted.any(axis=others)].max()
        shape = [-1 if one == axis else 1 for one in range(3)]
        mask &= (levels >= min(getattr(least, name), highest)).reshape(shape)
    return mask
