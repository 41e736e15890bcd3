# SPDX-License-Identifier: Apache-2.0
"""Simulated board with a real one's frames, at the nearest measured configuration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...kernels.grid import FrequencyConfiguration, FrequencyGrid
from ...kernels.network import Network
from ..board import load_board
from ..timing import Clock, SystemClock
from .measured.tables import MeasuredTable
from .silicon.chip import AMBIENT_DIE_C, Array, Clocks
from .silicon.silicon import Execution, Silicon
from .simulated_board import SimulatedBoard
from .variant import installed

# Idle power is missing in the tables: it is the simulated board's, up to this part of a frame's power.
_MOST_IDLE = 0.8
# Least busy share of CPU and GPU in a frame.
_LEAST_SHARE = 0.1


class ReplayedSilicon(Silicon):
    """Silicon with frames from a table; its shunts are exact."""

    def __init__(self, table: MeasuredTable) -> None:
        description = installed(load_board(table.board))
        super().__init__(0, description)
        self._energy_rails = description.energy_rails
        self._table = table

    def idle_rails_w(
        self, clocks: Clocks, temperature_c: float = AMBIENT_DIE_C, cluster_hz: Sequence[Array] | None = None
    ) -> dict[str, Array]:
        rails = super().idle_rails_w(clocks, temperature_c, cluster_hz)
        _, power_w = self.measured(clocks)
        drawn = sum((rails[rail] for rail in self._energy_rails), np.zeros(len(clocks)))
        share = np.minimum(1.0, _MOST_IDLE * power_w / drawn)
        return {rail: watts * share for rail, watts in rails.items()}

    def sensed(self, rails: dict[str, Array]) -> dict[str, Array]:
        return rails

    def measured(self, clocks: Clocks) -> tuple[Array, Array]:
        """Time in s and power in W of a frame at each of the clocks."""
        table, grid = self._table, self._table.grid
        asked = (clocks.cpu_hz / 1e3, clocks.gpu_hz, clocks.emc_hz)
        places = np.array(
            [_nearest(grid, axis, levels) for axis, levels in zip(FrequencyConfiguration._fields, asked, strict=True)]
        ).T
        cells = [tuple(place) if table.measured[tuple(place)] else table.nearest(tuple(place)) for place in places]
        return (
            np.array([table.latency_ms[cell] for cell in cells]) / 1e3,
            np.array([table.power_mw[cell] for cell in cells]) / 1e3,
        )

    def frame(self, network: Network, silicon: object, clocks: Clocks, temperature_c: float) -> Execution:
        """One frame at each of the clocks; its power goes to the energy rails."""
        latency_s, power_w = self.measured(clocks)
        idle = self.idle_rails_w(clocks)
        whole = sum((idle[rail] for rail in self._energy_rails), np.zeros(len(clocks)))
        energy = {rail: watts * latency_s for rail, watts in idle.items()}
        energy |= {rail: idle[rail] / whole * power_w * latency_s for rail in self._energy_rails}
        host = self._host_share(clocks)
        return Execution(latency_s, energy, host * latency_s, (1 - host) * latency_s, np.zeros(len(clocks)))

    def _host_share(self, clocks: Clocks) -> Array:
        """CPU part of a frame, by its time's elasticity in the CPU clock."""
        levels, step = np.log(clocks.cpu_hz), 0.3
        low, high = (
            np.log(self.measured(Clocks(np.exp(levels + way), clocks.gpu_hz, clocks.emc_hz))[0]) for way in (-step, step)
        )
        return np.clip((low - high) / (2 * step), _LEAST_SHARE, 1 - _LEAST_SHARE)


def replay_board(table: MeasuredTable, clock: Clock | None = None) -> SimulatedBoard:
    """Board with frames of a table. Raises BoardDescriptionError, TwinError."""
    silicon = ReplayedSilicon(table)
    return SimulatedBoard(installed(load_board(table.board)), silicon, clock or SystemClock(), silicon.frame)


def _nearest(grid: FrequencyGrid, axis: str, values: Array) -> NDArray[np.intp]:
    levels = np.log(np.array(grid.levels(axis), np.float64))
    nearest: NDArray[np.intp] = np.abs(np.log(np.maximum(values, 1.0))[:, None] - levels[None, :]).argmin(axis=1)
    return nearest
