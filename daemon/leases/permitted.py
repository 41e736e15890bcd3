# SPDX-License-Identifier: Apache-2.0
"""Which clocks may be set: what the board offers now, within the operator's limits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from ...kernels.grid import FrequencyConfiguration, FrequencyGrid, beside
from ...kernels.units import AXES, CLOCKS, mhz_text
from ..config import Bounds, Config
from ..errors import UsageError
from ..planning.constraints import Budget
from ..planning.limits import Limits
from ..system.journal import TROUBLE, fields
from ..system.repeated import Repeated
from .demand.floors import Floors
from .seams import Board, BoardSetting

KEPT_S = 5.0
"""For how long the levels offered are taken to stand; they are seldom others, and reading them takes a dozen of the board's
files."""


class Permitted:
    """For one thread. What was looked at up to :data:`KEPT_S` ago counts as what is offered now.

    Attributes:
        config: the operator's, as it is in force.
        budget: what the board may draw; None for anything.
        missed: the operator's limits that no level of the board met when it was looked at last, one line each.
    """

    def __init__(self, board: Board, config: Config, monotonic: Callable[[], float], said: Repeated) -> None:
        self.config = config
        self.missed: tuple[str, ...] = ()
        self.budget: Budget | None = None
        self._board = board
        self._monotonic = monotonic
        self._said = said
        self._grid: tuple[float, FrequencyGrid] | None = None

    def look(self) -> FrequencyGrid:
        """Read which levels the board offers.

        Raises:
            HardwareBusy, HardwareRefused: its tables cannot be read.
        """
        grid = self._board.grid()
        self._grid = (self._monotonic(), grid)
        levels = {axis: grid.levels(axis) for axis in AXES}
        self.missed = tuple(self.config.limits.missed({**levels, **self._board.clusters()}))
        for text in self.missed:
            self._said.say(logging.WARNING, text, fields(TROUBLE))
        return grid

    def offered(self) -> FrequencyGrid:
        """The levels that the board offers.

        Raises:
            HardwareBusy, HardwareRefused: as for :meth:`look`.
        """
        fresh = self._grid is not None and self._monotonic() - self._grid[0] < KEPT_S
        return self._grid[1] if self._grid is not None and fresh else self.look()

    def allowed(self) -> FrequencyGrid:
        """The levels that the board offers and the operator allows.

        Raises:
            HardwareBusy, HardwareRefused: as for :meth:`look`.
        """
        grid = self.offered()
        return FrequencyGrid(**{axis: self.inside(axis, grid.levels(axis)) for axis in AXES})

    def inside(self, clock: str, levels: tuple[int, ...]) -> tuple[int, ...]:
        """Those of a clock's levels that the operator allows."""
        bounds: Bounds = getattr(self.config.limits, clock)
        return bounds.allowed(levels)

    def limits(self, floors: Floors) -> Limits:
        """Within which may be planned, with what is kept up for other work.

        Raises:
            HardwareBusy, HardwareRefused: the board's tables cannot be read.
        """
        return self._within(self.offered(), floors)

    def last_limits(self, floors: Floors) -> Limits | None:
        """The same by what the board was seen to offer last; None where that was never seen."""
        return None if self._grid is None else self._within(self._grid[1], floors)

    def check(self, configuration: FrequencyConfiguration) -> None:
        """Refuse a configuration that is not offered, or outside the operator's limits.

        Raises:
            UsageError: it is; the text says what is nearest.
        """
        grid = self.offered()
        for axis in AXES:
            level, allowed = getattr(configuration, axis), self.inside(axis, grid.levels(axis))
            if level not in allowed:
                given = f"{CLOCKS[axis]} {mhz_text(axis, level)} MHz"
                raise UsageError(f"{given} may not be set; nearest: {beside(axis, level, allowed)}")

    def _within(self, grid: FrequencyGrid, floors: Floors) -> Limits:
        allowed = {axis: self.inside(axis, grid.levels(axis)) for axis in AXES}
        # Where the operator's upper limit is below what other work needs, it stands.
        ranges = {axis: (max(one[0], min(floors.least(axis), one[-1])), one[-1]) for axis, one in allowed.items()}
        limits, budget = Limits.within(ranges), self.budget
        return limits if budget is None else replace(limits, power_mw=budget.power_mw, because=budget.reason)


def nearest_setting(wish: FrequencyConfiguration, permitted: Permitted, board: Board, floors: Floors) -> BoardSetting:
    """What is needed, each clock moved into what is allowed and offered now, as little as possible.

    A cluster that the inference does not run on has no part in its latency, and its power only grows with its clock: the
    lowest level that limits and other work allow is best, whatever the other clocks are.
    """
    grid = permitted.allowed()
    nearest = (min(grid.levels(axis), key=lambda one: abs(one - getattr(wish, axis))) for axis in AXES)
    clusters = {}
    for policy, levels in board.clusters().items():
        allowed = permitted.inside("cpu_khz", levels)
        least = floors.least(policy)
        clusters[policy] = next((level for level in allowed if level >= least), allowed[-1])
    return BoardSetting(FrequencyConfiguration(*nearest), clusters)
