# SPDX-License-Identifier: Apache-2.0
"""What a simulated board does, without measuring it: a network's true surface, and the mean of several boards'.

No profile can know a board that it was not trained on better than those it was trained on: predictions from the mean of their
true surfaces are the floor of every error.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....kernels.grid import FrequencyGrid
from ....kernels.network import Network
from ....kernels.surface import Surface
from ...twin.silicon.chip import AMBIENT_DIE_C, Array, Clocks
from ...twin.silicon.execution import execute
from ...twin.silicon.silicon import Silicon


def true_surface(
    network: Network, silicon: Silicon, grid: FrequencyGrid, rails: Sequence[str], temperature_c: float = AMBIENT_DIE_C
) -> Surface:
    """A network's latency, and its power and energy as the board's shunts have them, at every configuration.

    Raises:
        TwinError: the silicon does not know one of the network's kinds.
    """
    clocks = Clocks.of(list(grid))
    run = execute(network, silicon, clocks, temperature_c)
    energy_mj = 1e3 * _together(silicon.sensed(run.rail_energy_j), rails).reshape(grid.shape)
    latency_ms = 1e3 * run.latency_s.reshape(grid.shape)
    idle_mw = 1e3 * _together(silicon.sensed(silicon.idle_rails_w(clocks, temperature_c)), rails).reshape(grid.shape)
    return _certain(grid, latency_ms, energy_mj, idle_mw, "true")


def mean_surface(surfaces: Sequence[Surface]) -> Surface:
    """The mean of several boards' surfaces of one network."""
    latency_ms, energy_mj, idle_mw = (
        np.mean([getattr(one, figure) for one in surfaces], axis=0) for figure in ("latency_ms", "energy_mj", "idle_mw")
    )
    return _certain(surfaces[0].grid, latency_ms, energy_mj, idle_mw, "floor")


def _certain(grid: FrequencyGrid, latency_ms: Array, energy_mj: Array, idle_mw: Array, method: str) -> Surface:
    nothing = np.zeros(grid.shape)
    return Surface(grid, latency_ms, energy_mj / latency_ms * 1e3, energy_mj, idle_mw, nothing, nothing, method)


def _together(figures: dict[str, Array], rails: Sequence[str]) -> Array:
    return np.asarray(np.sum([figures[rail] for rail in rails], axis=0))
