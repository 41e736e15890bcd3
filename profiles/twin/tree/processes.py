# SPDX-License-Identifier: Apache-2.0
"""The applications on a simulated board as processes of one thread each (proc_pid_stat(5)): their CPU time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from .attributes import Attribute, Tree

_TICKS_PER_S = 100
_FIELDS = 52
_UTIME, _CPU = 14, 39  # counted from 1


class Processes:
    """How much CPU time each process has used. Applications run on the first core."""

    def __init__(self) -> None:
        self._alive = Counter[int]()
        self._spent_s: dict[int, float] = {}

    @contextmanager
    def alive(self, pid: int, tree: Tree) -> Iterator[None]:
        """Show a process in ``/proc`` for as long as the context lasts."""
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
        """Let the CPU work for a process that long."""
        if pid in self._spent_s:
            self._spent_s[pid] += seconds

    def _is_alive(self, pid: int) -> bool:
        return self._alive[pid] > 0

    def _stat(self, pid: int) -> str:
        fields = [str(pid), "(application)", "S", *["0"] * (_FIELDS - 3)]
        fields[_UTIME - 1] = str(int(self._spent_s[pid] * _TICKS_PER_S))
        fields[_CPU - 1] = "0"
        return " ".join(fields)
