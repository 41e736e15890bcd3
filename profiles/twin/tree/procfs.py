# SPDX-License-Identifier: Apache-2.0
"""Core load in ``/proc/stat`` and ``/proc/pressure`` (Linux, Documentation/accounting/psi.rst)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from .attributes import Attribute, Nodes, Tree, constant
from .clocks.cpufreq import SimulatedCores, SimulatedCpuPolicy

_TICKS_PER_S = 100
_FIELDS = 52
_UTIME, _CPU = 14, 39  # counted from 1


class Processes:
    """CPU time of each process. Applications run on the first core."""

    def __init__(self) -> None:
        self._alive = Counter[int]()
        self._spent_s: dict[int, float] = {}

    @contextmanager
    def alive(self, pid: int, tree: Tree) -> Iterator[None]:
        if pid not in self._spent_s:
            self._spent_s[pid] = 0.0
            for path in (f"/proc/{pid}/stat", f"/proc/{pid}/task/{pid}/stat"):
                tree.put(path, Attribute(partial(self._stat, pid), present=partial(self._is_alive, pid)))
        self._alive[pid] += 1
        try:
            yield
        finally:
            self._alive[pid] -= 1

    def add(self, pid: int, seconds: float) -> None:
        if pid in self._spent_s:
            self._spent_s[pid] += seconds

    def _is_alive(self, pid: int) -> bool:
        return self._alive[pid] > 0

    def _stat(self, pid: int) -> str:
        fields = [str(pid), "(application)", "S", *["0"] * (_FIELDS - 3)]
        fields[_UTIME - 1] = str(int(self._spent_s[pid] * _TICKS_PER_S))
        fields[_CPU - 1] = "0"
        return " ".join(fields)


_WINDOWS_S = (10, 60, 300)
_NOTHING = " ".join((*(f"avg{window}=0.00" for window in _WINDOWS_S), "total=0"))


class ProcessorTime:
    """Busy time of each core; ``pressure`` is True with pressure-stall information (from 4.20 on)."""

    def __init__(self, cores: SimulatedCores, policies: Sequence[SimulatedCpuPolicy], *, pressure: bool) -> None:
        self._cores = cores
        self._policies = tuple(policies)
        self._pressure = pressure
        self._busy_s = [0.0] * len(cores.online)
        self._idle_s = [0.0] * len(cores.online)
        self._waited_s = 0.0
        self._averages = [0.0] * len(_WINDOWS_S)

    def add(self, seconds: float, busy_cores: Mapping[str, float]) -> None:
        """Let time pass with busy cores by policy; the excess over online cores waits."""
        waiting = False
        for policy in self._policies:
            left = busy_cores.get(policy.name, 0.0)
            for cpu in policy.online:
                share = min(left, 1.0)
                left -= share
                self._busy_s[cpu] += seconds * share
                self._idle_s[cpu] += seconds * (1.0 - share)
            waiting = waiting or left > 1e-9
        if not self._pressure:
            return
        self._waited_s += seconds if waiting else 0.0
        for index, window in enumerate(_WINDOWS_S):
            near = 1.0 - math.exp(-seconds / window)
            self._averages[index] += near * (100.0 * waiting - self._averages[index])

    def _stat(self) -> str:
        lines = [self._line("cpu ", sum(self._busy_s), sum(self._idle_s))]
        for cpu, online in enumerate(self._cores.online):
            if online:
                lines.append(self._line(f"cpu{cpu}", self._busy_s[cpu], self._idle_s[cpu]))
        return "\n".join(lines)

    @staticmethod
    def _line(name: str, busy_s: float, idle_s: float) -> str:
        return f"{name} {int(busy_s * _TICKS_PER_S)} 0 0 {int(idle_s * _TICKS_PER_S)} 0 0 0 0 0 0"

    def _some(self) -> str:
        averages = " ".join(f"avg{window}={value:.2f}" for window, value in zip(_WINDOWS_S, self._averages, strict=True))
        return f"some {averages} total={round(1e6 * self._waited_s)}\nfull {_NOTHING}"

    def nodes(self) -> Nodes:
        yield "/proc/stat", Attribute(self._stat)
        if self._pressure:
            yield "/proc/pressure/cpu", Attribute(self._some)
            # Nothing here ever waits for pages.
            for name in ("memory", "io"):
                yield f"/proc/pressure/{name}", constant(f"some {_NOTHING}\nfull {_NOTHING}")
