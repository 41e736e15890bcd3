# SPDX-License-Identifier: Apache-2.0
"""Surface of an unknown program: time falls and power rises with three clocks."""

from __future__ import annotations

import numpy as np

from ..grid import FrequencyGrid
from ..surface import Surface, Terms
from ..units import AXES

# Standard deviations of logarithms: a frame's time and power are unknown; each of the three terms is at most a few times
# another at the top clocks, or irrelevant.
ANYTHING, RATE = 4.0, 1.2
METHOD = "flat"


def flat_surface(grid: FrequencyGrid, top_ms: float = 10.0, top_mw: float = 10_000.0) -> Surface:
    """A surface to correct if no model applies.

    Latency is an overlap of three terms, each inverse to a clock and equal at the top; power is a constant plus parts that grow
    with the clocks. An axis of one level has no term. One observation replaces the guesses ``top_ms`` and ``top_mw``.
    """
    parts = [np.array(grid.levels(axis), np.float64) / grid.levels(axis)[-1] for axis in AXES]
    host, compute, memory = (
        np.broadcast_to((float(len(part) > 1) / part).reshape([-1 if one == axis else 1 for one in range(3)]), grid.shape)
        for axis, part in enumerate(parts)
    )
    latency_ms = top_ms * np.maximum(np.maximum(host, compute), np.maximum(memory, 1.0))
    power_mw = np.full(grid.shape, top_mw)
    unknown = np.full(grid.shape, ANYTHING)
    return Surface(
        grid=grid,
        latency_ms=latency_ms,
        power_mw=power_mw,
        energy_mj=latency_ms * power_mw / 1e3,
        idle_mw=power_mw / 2,
        latency_sigma=unknown,
        energy_sigma=unknown,
        method=METHOD,
        terms=Terms(
            compute_ms=(top_ms * compute).astype(np.float32),
            memory_ms=(top_ms * memory).astype(np.float32),
            host_ms=(top_ms * host).astype(np.float32),
            compute_sigma=RATE,
            memory_sigma=RATE,
            host_sigma=RATE,
            all_sigma=ANYTHING,
            idle_sigma=ANYTHING,
            dynamic_sigma=ANYTHING,
            unpredicted=True,
        ),
    )
