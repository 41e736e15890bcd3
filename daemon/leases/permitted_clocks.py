# SPDX-License-Identifier: Apache-2.0
"""Permitted clocks: the board's offered levels within the operator's limits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from ...kernels.grid import FrequencyConfiguration, FrequencyGrid, neighbours
from ...kernels.units import AXES, CLOCKS, mhz_text
from ..config import Config
from ..errors import UsageError
from ..hardware.applied_setting import AppliedSetting
from ..hardware.baseline.baseline import RestoreReport
from ..hardware.clocks.driver import Reading
from ..hardware.offered_levels import OfferedLevels
from ..planning.limits import Limits, PowerBudget, permitted
from ..system.journal import TROUBLE, RepeatedLog, fields
from .demand import LeaseProcesses
from .demand_floors import Demand, FloorRules, Floors

KEPT_S = 5.0
"""Lifetime of offered levels, which seldom change and take a dozen files to read."""
STUCK_S = 60.0
"""Time for which a clock that ignores requests counts as fixed."""


class ClockSource(Protocol):
    @property
    def touched(self) -> bool: ...

    @property
    def leader(self) -> str | None: ...

    def offered(self) -> OfferedLevels: ...

    def levels(self, axis: str) -> tuple[int, ...]: ...

    def read(self) -> dict[str, tuple[Reading, ...]]: ...

    def throttled(self) -> tuple[str, ...]: ...

    def gpu_load(self) -> float | None: ...

    def apply(
        self,
        configuration: FrequencyConfiguration,
        reason: str,
        clusters: Mapping[str, int] | None = None,
        offered: OfferedLevels | None = None,
        governed: Collection[str] = (),
    ) -> AppliedSetting: ...

    def keep_memory(self) -> bool: ...

    def keep_baseline(self) -> str: ...

    def restore(self, longest_s: float = 0.0) -> RestoreReport: ...


class DemandSource(Protocol):
    rules: FloorRules

    @property
    def notes(self) -> tuple[str, ...]: ...

    def sample(self, leased: LeaseProcesses) -> None: ...

    def demand(self) -> Demand: ...


class BoardSetting(NamedTuple):
    configuration: FrequencyConfiguration
    clusters: Mapping[str, int]
    governed: frozenset[str] = frozenset()

    def is_requested(self, applied: AppliedSetting | None) -> bool:
        if applied is None or applied.differs(self.configuration, self.governed):
            return False
        return self.clusters == {name: level.requested for name, level in applied.clusters.items()}


class PermittedClocks:
    """Permitted clocks, by levels read up to :data:`KEPT_S` ago. For one thread.

    Methods that read levels raise HardwareBusy or HardwareRefused if the board's tables cannot be read.
    """

    def __init__(self, board: ClockSource, config: Config, monotonic: Callable[[], float], repeated_log: RepeatedLog) -> None:
        self.config = config
        self.missed: tuple[str, ...] = ()
        self.budget: PowerBudget | None = None
        self._board = board
        self._monotonic = monotonic
        self._said = repeated_log
        self._reading: tuple[float, OfferedLevels] | None = None
        self._stuck: dict[str, int] = {}
        self._stuck_s = 0.0

    def read(self) -> OfferedLevels:
        offered = self._board.offered()
        self._reading = (self._monotonic(), offered)
        self.missed = tuple(self.config.limits.missed(offered.levels))
        for text in self.missed:
            self._said.say(logging.WARNING, text, fields(TROUBLE))
        return offered

    def offered(self) -> OfferedLevels:
        fresh = self._reading is not None and self._monotonic() - self._reading[0] < KEPT_S
        return self._reading[1] if self._reading is not None and fresh else self.read()

    @property
    def last_offered(self) -> OfferedLevels | None:
        return None if self._reading is None else self._reading[1]

    def allowed(self) -> FrequencyGrid:
        return self.config.limits.within(self.offered().grid)

    def limits(self, floors: Floors) -> Limits:
        return permitted(self.offered().grid, self.config.limits, floors, self.budget, self._stuck)

    def last_limits(self, floors: Floors) -> Limits | None:
        if self._reading is None:
            return None
        return permitted(self._reading[1].grid, self.config.limits, floors, self.budget, self._stuck)

    def stick(self, levels: Mapping[str, int]) -> bool:
        """Plan for the levels at which axes are stuck; True if that changes the limits."""
        new = {axis: level for axis, level in levels.items() if axis not in self._stuck}
        if new:
            self._stuck |= new
            self._stuck_s = self._monotonic()
        return bool(new)

    def unstick(self, moved: bool) -> bool:
        """Free stuck clocks once they moved or after :data:`STUCK_S`; True if there are any."""
        if not self._stuck or not (moved or self._monotonic() - self._stuck_s > STUCK_S):
            return False
        self._stuck = {}
        return True

    def check(self, configuration: FrequencyConfiguration) -> None:
        allowed = self.allowed()
        for axis in AXES:
            level, levels = getattr(configuration, axis), allowed.levels(axis)
            if level not in levels:
                given = f"{CLOCKS[axis]} {mhz_text(axis, level)} MHz"
                raise UsageError(f"{given} may not be set; nearest: {neighbours(axis, level, levels)}")

    def setting(self, needed: FrequencyConfiguration, floors: Floors, governed: frozenset[str] = frozenset()) -> BoardSetting:
        """Setting nearest to the needed clocks within the limits.

        A cluster without inference gets its lowest permitted level: its clock adds power, and no speed.
        """
        offered, allowed = self.offered(), self.allowed()
        nearest = (min(allowed.levels(axis), key=lambda one: abs(one - getattr(needed, axis))) for axis in AXES)
        clusters = {}
        for policy, levels in offered.clusters.items() if "cpu_khz" not in governed else ():
            inside, least = self.config.limits.allowed(policy, levels), floors.least(policy)
            clusters[policy] = next((level for level in inside if level >= least), inside[-1])
        return BoardSetting(FrequencyConfiguration(*nearest), clusters, governed)
