# SPDX-License-Identifier: Apache-2.0
"""A small surface on which a faster host leaves less of the memory, and observations of it."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from jetdvfs.kernels.correction.flat import flat_surface
from jetdvfs.kernels.correction.observation import Observation
from jetdvfs.kernels.grid import FrequencyConfiguration, FrequencyGrid
from jetdvfs.kernels.surface import Surface

GRID = FrequencyGrid(
    cpu_khz=(500_000, 1_000_000, 2_000_000), gpu_hz=(300_000_000, 900_000_000), emc_hz=(600_000_000, 2_100_000_000)
)


def crowded() -> Surface:
    """A network whose kernels wait for the memory the longer the faster the host takes its part of it."""
    flat = flat_surface(GRID)
    crowding = np.array([0.0, 0.1, 0.3])[:, None, None] * np.array([1.0, 0.0])
    return replace(flat, latency_ms=flat.latency_ms[-1:] * (1 + crowding))


def seen_at(surface: Surface, configuration: FrequencyConfiguration, slower: float = 1.0) -> Observation:
    return Observation(configuration, latency_ms=slower * surface.at(configuration).latency_ms, frames=30)
