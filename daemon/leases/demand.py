# SPDX-License-Identifier: Apache-2.0
"""Demand of other work, measured before and during leases.

CPU: time not idle, less that of lease processes, their children and this daemon. Pressure: share of time in which some task
waited.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from ...profiles.board import BoardDescription
from ..hardware.clocks.cpu import POLICIES
from ..hardware.files import Files
from .demand_floors import Demand, FloorRules

TICKS_PER_S = 100  # USER_HZ, the same on every architecture of Jetsons

_MOST_PROCESSES = 64
_SOON_S, _TRIES = 0.01, 3  # for /proc/stat, which a busy board shows late
# Columns of /proc/PID/stat after the command's name: user and system time, also with awaited children's, last CPU.
_OWN_TIMES, _ALL_TIMES, _LAST_CPU = slice(11, 13), slice(11, 15), 36


class LoadCounters(Struct, frozen=True):
    """Counters of a moment.

    Attributes:
        idle: ticks idled, by CPU, read in ``since_s`` to ``until_s``.
        threads: ticks run and last CPU, by process and thread.
        own: ticks of these processes and awaited children.
        waited_us: microseconds in which some task waited.
    """

    since_s: float
    until_s: float
    idle: Mapping[str, int]
    threads: Mapping[tuple[str, str], tuple[int, str]]
    own: int
    khz: Mapping[str, int]
    waited_us: Mapping[str, int]


def read_counters(files: Files, pids: Collection[int], monotonic: Callable[[], float]) -> LoadCounters:
    """Read the counters, with the threads of processes and their descendants; unreadable ones count as 0."""
    for _ in range(_TRIES):
        since_s, stat, until_s = monotonic(), files.find_text("/proc/stat"), monotonic()
        if stat is None or until_s - since_s <= _SOON_S:
            break
    with files.together("counters"):
        return _counters(files, pids, since_s, until_s, stat or "")


def _counters(files: Files, pids: Collection[int], since_s: float, until_s: float, stat: str) -> LoadCounters:
    idle = {}
    for line in stat.splitlines():
        if match := re.match(r"cpu(\d{1,9})(?: \d+){3} (\d{1,18}) (\d{1,18})\b", line):
            idle[match[1]] = int(match[2]) + int(match[3])
    threads: dict[tuple[str, str], tuple[int, str]] = {}
    own = 0
    for pid in _tree(files, pids):
        own += sum(_times(files, f"/proc/{pid}/stat")[_ALL_TIMES])
        for thread in files.list_names(f"/proc/{pid}/task"):
            times = _times(files, f"/proc/{pid}/task/{thread}/stat")
            if len(times) > _LAST_CPU:
                threads[pid, thread] = (sum(times[_OWN_TIMES]), str(times[_LAST_CPU]))
    khz = {policy: files.find_rate(f"{policy}/scaling_cur_freq") or 0 for policy in files.glob(POLICIES)}
    waited_us = {what: _waited_us(files, what) for what in ("cpu", "memory")}
    return LoadCounters(since_s, until_s, idle, threads, own, khz, waited_us)


def _tree(files: Files, pids: Collection[int]) -> Iterator[str]:
    todo, seen = [str(pid) for pid in pids], set[str]()
    while todo and len(seen) < _MOST_PROCESSES:
        pid = todo.pop()
        if pid in seen or not files.exists(f"/proc/{pid}/stat"):
            continue
        seen.add(pid)
        yield pid
        for thread in files.list_names(f"/proc/{pid}/task"):
            todo += (files.find_text(f"/proc/{pid}/task/{thread}/children") or "").split()


def _times(files: Files, path: str) -> list[int]:
    """Numbers of a stat file after the command's name, the state letter as zero; empty without a process."""
    words = (files.find_text(path) or "").rpartition(")")[2].split()
    return [0, *(int(word) for word in words[1:] if len(word) < 20 and word.lstrip("-").isdecimal())] if words else []


def _waited_us(files: Files, what: str) -> int:
    match = re.match(r"some .*\btotal=(\d{1,18})\b", files.find_text(f"/proc/pressure/{what}") or "")
    return int(match[1]) if match else 0


_GAP_S = 5.0  # a pause of the leases' memory traffic
_IDLE = 0.1  # GPU load below which it idles
_ALMOST = 0.9  # of hold_s, as samples do not come on the second


class _Sample(NamedTuple):
    time_s: float
    hz: float
    idle: bool | None


class MemoryDemand:
    def __init__(self) -> None:
        self._counted: deque[_Sample] = deque()
        self._others: deque[tuple[float, float]] = deque()

    @property
    def others_hz(self) -> float | None:
        return max((hz for _, hz in self._others), default=None)

    def forget(self) -> None:
        """Drop the samples, averaged over an application's start or end."""
        self._counted.clear()

    def see(self, now: float, hz: float, gpu_load: float | None, hold_s: float, *, leased: bool, paced: bool) -> None:
        idle = None if gpu_load is None else gpu_load < _IDLE
        before = self._counted[-1] if self._counted else None
        self._counted.append(_Sample(now, hz, idle))
        # A sample covers the time until the next, which may be seconds later.
        while len(self._counted) > 1 and now - self._counted[1].time_s >= hold_s:
            self._counted.popleft()
        since = now - self._counted[0].time_s
        long = since >= _ALMOST * hold_s
        if idle and (not leased or (before is not None and before.idle)):
            found: float | None = hz
        elif not leased:
            waiting = long and not any(one.idle for one in self._counted)
            found = hz if idle is None else min(one.hz for one in self._counted) if waiting else None
        elif paced and since >= _GAP_S:
            found = min(one.hz for one in self._counted if now - one.time_s <= _GAP_S)
        else:
            most = max(one.hz for one in self._counted)
            found = most if long and most < (self.others_hz or 0.0) else None
        if found is not None:
            self._others.append((now, found))
            while now - self._others[0][0] > hold_s:
                self._others.popleft()


_SHORTEST_S = 0.2
_PRESSURE_HELD = 6  # times hold_s: raising the clock ends the pressure, not the need
# A core that other work fills hides further demand: try half as much again.
_SATURATED, _BEYOND = 0.95, 1.5


class BoardActivity(Protocol):
    def memory_hz(self) -> int: ...

    def gpu_load(self) -> float | None: ...


class LeaseProcesses(Struct, frozen=True):
    """Lease processes; ``paced`` if they do not use the memory for at least half of the time."""

    pids: frozenset[int] = frozenset()
    paced: bool = False


class _DemandSample(Struct, frozen=True):
    leased: LeaseProcesses
    counters: LoadCounters


class _Window(Struct, frozen=True):
    time_s: float
    used_khz: Mapping[str, float]
    waited: Mapping[str, float]
    held_khz: Mapping[str, int]
    held_hz: int


class DemandMonitor:
    """Follows the demand of other work; call :meth:`sample` every few seconds."""

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
        self._last: _DemandSample | None = None
        self._windows: deque[_Window] = deque()
        self._pressed: deque[_Window] = deque()
        self._calm: deque[_Window] = deque()
        self._memory = MemoryDemand()
        self._blind = False
        self._cpus: dict[str, tuple[str, ...]] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        if not self._blind:
            return ()
        named = " and ".join(self._monitors) or "memory activity"
        return (f"{named} cannot be read: no memory clock is kept up for other work",)

    def sample(self, leased: LeaseProcesses) -> None:
        now = self._monotonic()
        if self._last is not None and now - self._last.counters.until_s < _SHORTEST_S:
            return
        counters = read_counters(self._files, {os.getpid(), *leased.pids}, self._monotonic)
        before, self._last = self._last, _DemandSample(leased, counters)
        same = before is not None and before.leased.pids == leased.pids
        if before is not None and same:
            self._learn(before, self._last)
        self._follow_memory(now, leased, same)

    def demand(self) -> Demand:
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

    def _learn(self, before: _DemandSample, now: _DemandSample) -> None:
        last, seen = before.counters, now.counters
        seconds = seen.until_s - last.since_s
        ticks = seconds * TICKS_PER_S
        # A counter that starts anew (a core that came back) is ignored.
        idled = {cpu: idle - last.idle[cpu] for cpu, idle in seen.idle.items() if cpu in last.idle}
        busy = {cpu: min(max(ticks - idle, 0.0), ticks) for cpu, idle in idled.items() if idle >= 0}
        own: dict[str, float] = {}
        for thread, (spent, cpu) in seen.threads.items():
            own[cpu] = own.get(cpu, 0.0) + spent - last.threads.get(thread, (0, ""))[0]
        # A thread counts for its last CPU; in case it moved, no core's other work exceeds that of all cores together.
        together = max(sum(busy.values()) - max(seen.own - last.own, 0), 0.0)
        used, held = {}, {}
        for policy, khz in seen.khz.items():
            cpus = self._cpus_of(policy)
            shares = [min(max(busy[cpu] - own.get(cpu, 0.0), 0.0), together) / ticks for cpu in cpus if cpu in busy]
            name, share = policy.rpartition("/")[2], max(shares, default=0.0)
            held[name] = max(khz, last.khz.get(policy, 0))
            used[name] = held[name] * (share if share < _SATURATED else _BEYOND)
        waited = {what: (seen.waited_us[what] - last.waited_us[what]) / 1e6 / seconds for what in seen.waited_us}
        # Reading the memory clock from the firmware is slow.
        held_hz = self._board.memory_hz() if waited["memory"] > self.rules.pressure else 0
        window = _Window(seen.until_s, used, waited, held, held_hz)
        _keep(self._windows, window, self.rules.hold_s)
        if now.leased.pids:
            _keep(self._pressed, window, _PRESSURE_HELD * self.rules.hold_s)
        else:
            self._pressed.clear()
            _keep(self._calm, window, self.rules.hold_s)

    def _cpus_of(self, policy: str) -> tuple[str, ...]:
        """CPUs of a policy, also offline ones; they never change."""
        known = self._cpus.get(policy)
        if not known:
            known = self._cpus[policy] = tuple((self._files.find_text(f"{policy}/related_cpus") or "").split())
        return known

    def _follow_memory(self, now: float, leased: LeaseProcesses, same: bool) -> None:
        counted = next((khz for path in self._monitors if (khz := self._files.find_rate(path)) is not None), None)
        self._blind = counted is None
        if counted is None:
            return
        if not same:
            self._memory.forget()
            return
        held, hold_s = bool(leased.pids), self.rules.hold_s
        self._memory.see(now, 1e3 * counted, self._board.gpu_load(), hold_s, leased=held, paced=leased.paced)


def _keep(windows: deque[_Window], window: _Window, seconds: float) -> None:
    windows.append(window)
    while window.time_s - windows[0].time_s > seconds:
        windows.popleft()
