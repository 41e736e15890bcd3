# SPDX-License-Identifier: Apache-2.0
"""How much what is observed at some clocks says of others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..grid import FrequencyGrid
from ..units import AXES

Array = NDArray[np.float64]

# How far apart clocks are (in natural logarithms) that have what the rates do not explain in common.
_REACH = 1.0


def nearness(grid: FrequencyGrid, cells: NDArray[np.intp]) -> Array:
    """How much each configuration of a grid and those at some places have in common, ``(grid.size, cells)``, up to 1."""
    places = np.unravel_index(cells, grid.shape)
    cpu, gpu, emc = (near[:, at] for near, at in zip(of_levels(grid), places, strict=True))
    product: Array = (cpu[:, None, None] * (gpu[:, None] * emc[None])).reshape(grid.size, len(cells))
    return product


def of_levels(grid: FrequencyGrid) -> list[Array]:
    """How alike the levels of each axis are, ``(levels, levels)``: Matern's function with 3/2, which lets clocks have steps."""
    logs = [np.log(np.array(grid.levels(axis), np.float64)) for axis in AXES]
    apart = [np.sqrt(3) / _REACH * np.abs(one[:, None] - one[None, :]) for one in logs]
    return [(1 + one) * np.exp(-one) for one in apart]
