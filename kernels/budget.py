# SPDX-License-Identifier: Apache-2.0
"""Limits on the cost of reading one model file; a caller may only lower them."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable

from msgspec import Struct

from .errors import BudgetExceeded


class Budget(Struct, frozen=True):
    """Hard limits of one decomposition; exceeding one raises :class:`BudgetExceeded`.

    Attributes:
        directory_bytes: the archive's table of contents.
        entry_bytes, total_bytes: decompressed size of any one entry read (without weights), and of all.
        graph_bytes: part of an exported graph parsed at a time, which takes many times as much in memory.
        piece_bytes: statements parsed at a time; their syntax can take 500 times as much.
        ast_depth, ast_nodes: nesting in one function, and syntax nodes of all.
        pickle_steps: opcodes in one pickle.
        steps: statements and operator calls interpreted.
        items: length of a list, tuple, dictionary or string that the model builds.
        tree_objects: objects in the module tree.
        cpu_s: processor time of the reading thread, as a busy machine takes longer.
        memory_bytes: growth of the whole process, checked now and then.
    """

    entries: int = 100_000
    directory_bytes: int = 16 << 20
    entry_bytes: int = 16 << 20
    graph_bytes: int = 5 << 20
    total_bytes: int = 64 << 20
    source_bytes: int = 4 << 20
    piece_bytes: int = 192 << 10
    ast_depth: int = 100
    ast_nodes: int = 1_000_000
    pickle_steps: int = 1_000_000
    steps: int = 2_000_000
    recursion: int = 48
    rank: int = 16
    elements: int = 1 << 40
    items: int = 65_536
    calls: int = 200_000
    tree_objects: int = 200_000
    cpu_s: float = 10.0
    memory_bytes: int = 128 << 20

    def __post_init__(self) -> None:
        for name, most in zip(self.__struct_fields__, self.__struct_defaults__, strict=True):
            if not 0 < (value := getattr(self, name)) <= most:
                raise BudgetExceeded(f"budget {name}={value}: expected more than 0 and at most {most}")


#: Memory of a graph while read, in multiples of its text.
_TIMES = 5
_PAGE = resource.getpagesize()


def resident_bytes() -> int:
    try:
        file = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        return 0  # without /proc, only the other limits apply
    try:
        return int(os.read(file, 100).split()[1]) * _PAGE
    finally:
        os.close(file)


class Account:
    #: Steps between two checks of the clock.
    STRIDE = 512
    #: List items that cost as much as a step.
    ITEMS = 64

    def __init__(
        self, budget: Budget, clock: Callable[[], float] = time.thread_time, resident: Callable[[], int] = resident_bytes
    ) -> None:
        self.budget = budget
        self._clock = clock
        self._deadline = clock() + budget.cpu_s
        self._resident = resident
        self._ceiling = resident() + budget.memory_bytes
        self._steps = 0
        self._pause = self.STRIDE
        self._nodes = 0
        self._unseen = 0

    def node(self) -> None:
        self._nodes += 1
        if self._nodes > self.budget.ast_nodes:
            raise BudgetExceeded(f"the model's code has more than {self.budget.ast_nodes} syntax nodes")

    def step(self) -> None:
        self._pause -= 1
        if self._pause <= 0:
            self._pause = self.STRIDE
            self._steps += self.STRIDE
            if self._steps >= self.budget.steps:
                raise BudgetExceeded(f"the model takes more than {self.budget.steps} interpreter steps")
            self.check()

    def check(self) -> None:
        if self._clock() > self._deadline:
            raise BudgetExceeded(f"reading the model takes more than {self.budget.cpu_s:g} s of processor time")
        if self._resident() > self._ceiling:
            raise BudgetExceeded(f"reading the model takes more than {self.budget.memory_bytes >> 20} MB of memory")

    def room(self) -> int:
        """Bytes of a graph's text that fit, with the objects made of it, into the remaining memory."""
        left = self._ceiling - self._resident()
        return max(min(left // _TIMES, self.budget.total_bytes), 0)

    def items(self, count: int) -> int:
        """A requested length, checked against its limit; long ones cause more checks of the clock."""
        if count > self.budget.items:
            raise BudgetExceeded(f"the model builds a value of {count} items; at most {self.budget.items} are read")
        if count > self.ITEMS:
            self._unseen += count
            if self._unseen > self.STRIDE * self.ITEMS:
                self._unseen = 0
                self.check()
        return count
