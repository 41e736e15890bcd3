# SPDX-License-Identifier: Apache-2.0
"""What other work asks of the board: measured before the first lease and while leases are held, apart from the leases' own.

CPU: a core is busy while it does not idle; what ran for a lease's process, its children and this daemon is taken off. Pressure:
the share of time in which some task waited. Both from :mod:`.counters`. EMC: the activity monitor counts everybody; see
:mod:`.memory_demand`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ....profiles.board import BoardDescription
from ...hardware.files import Files
from .counters import TICKS_PER_S, Counters, read_counters
from .floors import Demand, FloorRules
from .memory_demand import MemoryDemand

_SHORTEST_S = 0.2
_PRESSURE_HELD = 6  # times hold_s: pressure is gone as soon as the clock is raised, which does not mean that it may be lowered
# A core that other work fills does not tell how much more there is; half as much again is tried, and seen next time.
_SATURATED, _BEYOND = 0.95, 1.5


class BoardActivity(Protocol):
    """What is asked of :class:`jetdvfs.daemon.hardware.hardware.Hardware`."""

    def memory_hz(self) -> int: ...

    def gpu_load(self) -> float | None: ...


@dataclass(frozen=True)
class Leased:
    """Whose demand is not other work's.

    Attributes:
        pids: processes that hold leases.
        paced: all of them leave the memory alone for at least half of the time.
    """

    pids: frozenset[int] = frozenset()
    paced: bool = False


@dataclass(frozen=True)
class _Moment:
    """The counters at one moment, and whose leases were in force."""

    time_s: float
    leased: Leased
    counters: Counters


@dataclass(frozen=True)
class _Window:
    """What was found between two moments: kHz of other work by policy, shares of the time waited for CPUs and memory."""

    time_s: float
    used_khz: Mapping[str, float]
    waited: Mapping[str, float]
    held_khz: Mapping[str, int]
    held_hz: int


class DemandMonitor:
    """Follows the demand of other work; :meth:`sample` is to be called every few seconds at most.

    Args:
        board: tells the memory clock and how busy the GPU is.
    """

    def __init__(
        self,
        files: Files,
        description: BoardDescription,
        monotonic: Callable[[], float],
        board: BoardActivity,
        rules: FloorRules,
    ) -> None:
        self._files = files
        self._monitors: Sequence[str] = description.section("emc").get("activity", ())
        self._monotonic = monotonic
        self._board = board
        self.rules = rules
        self._last: _Moment | None = None
        self._windows: deque[_Window] = deque()
        self._pressed: deque[_Window] = deque()
        self._calm: deque[_Window] = deque()
        self._memory = MemoryDemand()
        self._blind = False
        self._cpus: dict[str, tuple[str, ...]] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """What of other work cannot be seen, as of the last sample."""
        if not self._blind:
            return ()
        named = " and ".join(self._monitors) or "memory activity"
        return (f"{named} cannot be read: no memory clock is kept up for other work",)

    def sample(self, leased: Leased) -> None:
        """Read the counters, and learn from what they did since the last time."""
        now = self._monotonic()
        if self._last is not None and now - self._last.time_s < _SHORTEST_S:
            return
        counters = read_counters(self._files, {os.getpid(), *leased.pids})
        before, self._last = self._last, _Moment(now, leased, counters)
        same = before is not None and before.leased.pids == leased.pids
        if before is not None and same:
            self._learn(before, self._last)
        self._follow_memory(now, leased, same)

    def demand(self) -> Demand:
        """What other work was last seen to ask for, at most."""
        used: dict[str, float] = {}
        for window in self._windows:
            for policy, khz in window.used_khz.items():
                used[policy] = max(khz, used.get(policy, 0.0))
        calm = {what: max((one.waited[what] for one in self._calm), default=0.0) for what in ("cpu", "memory")}
        worst = max(self._pressed, key=lambda one: max(one.waited.values()), default=None)
        return Demand(
            cpu_khz=used,
            emc_hz=self._memory.others_hz,
            cpu_waiting=worst.waited["cpu"] - calm["cpu"] if worst else 0.0,
            memory_waiting=worst.waited["memory"] - calm["memory"] if worst else 0.0,
            held_khz=worst.held_khz if worst else {},
            held_hz=worst.held_hz if worst else 0,
        )

    def _learn(self, before: _Moment, now: _Moment) -> None:
        """Keep what happened between two moments."""
        last, seen = before.counters, now.counters
        seconds = now.time_s - before.time_s
        ticks = seconds * TICKS_PER_S
        # A counter that starts anew while it is looked at (a core that came back) says nothing.
        idled = {cpu: idle - last.idle[cpu] for cpu, idle in seen.idle.items() if cpu in last.idle}
        busy = {cpu: min(max(ticks - idle, 0.0), ticks) for cpu, idle in idled.items() if idle >= 0}
        own: dict[str, float] = {}
        for thread, (spent, cpu) in seen.threads.items():
            own[cpu] = own.get(cpu, 0.0) + spent - last.threads.get(thread, (0, ""))[0]
        # A thread counts as having run where it ran last; where it moved, no core is busier by others than all are together.
        together = max(sum(busy.values()) - max(seen.own - last.own, 0), 0.0)
        used, held = {}, {}
        for policy, khz in seen.khz.items():
            cpus = self._cpus_of(policy)
            shares = [min(max(busy[cpu] - own.get(cpu, 0.0), 0.0), together) / ticks for cpu in cpus if cpu in busy]
            name, share = policy.rpartition("/")[2], max(shares, default=0.0)
            held[name] = max(khz, last.khz.get(policy, 0))
            used[name] = held[name] * (share if share < _SATURATED else _BEYOND)
        waited = {what: (seen.waited_us[what] - last.waited_us[what]) / 1e6 / seconds for what in seen.waited_us}
        # The firmware takes its time to say where the memory clock stands.
        held_hz = self._board.memory_hz() if waited["memory"] > self.rules.pressure else 0
        window = _Window(now.time_s, used, waited, held, held_hz)
        _keep(self._windows, window, self.rules.hold_s)
        if now.leased.pids:
            _keep(self._pressed, window, _PRESSURE_HELD * self.rules.hold_s)
        else:
            self._pressed.clear()
            _keep(self._calm, window, self.rules.hold_s)

    def _cpus_of(self, policy: str) -> tuple[str, ...]:
        """The CPUs whose clock a policy sets, offline ones too: they stay the same."""
        known = self._cpus.get(policy)
        if not known:
            known = self._cpus[policy] = tuple((self._files.find_text(f"{policy}/related_cpus") or "").split())
        return known

    def _follow_memory(self, now: float, leased: Leased, same: bool) -> None:
        counted = self._memory_khz()
        self._blind = counted is None
        if counted is None:
            return
        if not same:
            self._memory.forget()
            return
        held, hold_s = bool(leased.pids), self.rules.hold_s
        self._memory.see(now, 1e3 * counted, self._board.gpu_load(), hold_s, leased=held, paced=leased.paced)

    def _memory_khz(self) -> int | None:
        """The memory clock in use, as the running kernel's monitor counts it; None where none can be read."""
        return next((khz for path in self._monitors if (khz := self._files.find_rate(path)) is not None), None)


def _keep(windows: deque[_Window], window: _Window, seconds: float) -> None:
    windows.append(window)
    while window.time_s - windows[0].time_s > seconds:
        windows.popleft()
