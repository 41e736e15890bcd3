# SPDX-License-Identifier: Apache-2.0
"""What reading one model file may cost. Every limit of the reader stands here; a caller may only make them smaller."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, fields

from .errors import BudgetExceeded


@dataclass(frozen=True)
class Budget:
    """Hard limits of one decomposition; crossing any of them raises :class:`BudgetExceeded`.

    Attributes:
        entries: files in the archive.
        directory_bytes: size of the archive's table of contents.
        entry_bytes: decompressed size of any one entry that is read (weights are not read).
        graph_bytes: size of what is parsed of an exported graph at a time, which takes many times as much in memory.
        total_bytes: decompressed size of all entries read.
        source_bytes: size of one file of source text.
        piece_bytes: size of what is parsed at a time: a statement, or a few. Its syntax can take 500 times as much in memory.
        ast_depth: nesting of expressions and statements in one function.
        ast_nodes: syntax nodes of all functions together.
        pickle_steps: opcodes in one pickle.
        steps: statements and operator calls interpreted.
        recursion: depth of nested function calls.
        rank: dimensions of a tensor.
        elements: elements of a tensor.
        items: length of a list, tuple, dictionary or string the model builds.
        calls: kernel invocations and host-only calls recorded.
        tree_objects: objects in the module tree.
        cpu_s: processor time of the thread that reads: a busy machine takes longer for the same file.
        memory_bytes: by how much the whole process grows meanwhile; looked at now and then, like the clock.

    Raises:
        BudgetExceeded: a limit is larger than the default one, or not positive.
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
        for limit in fields(self):
            value = getattr(self, limit.name)
            if not 0 < value <= limit.default:
                raise BudgetExceeded(f"budget {limit.name}={value}: expected more than 0 and at most {limit.default}")


#: How much memory a graph takes while it is read, in times its text.
_TIMES = 5
_PAGE = resource.getpagesize()


def resident_bytes() -> int:
    """The memory this process holds."""
    try:
        file = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        return 0  # without /proc, the other limits stand alone
    try:
        return int(os.read(file, 100).split()[1]) * _PAGE
    finally:
        os.close(file)


class Account:
    """Counts what one decomposition has used of its budget."""

    #: How many steps pass between two looks at the clock.
    STRIDE = 512
    #: How many items of a list take as much as a step.
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
        """One node of the model's syntax."""
        self._nodes += 1
        if self._nodes > self.budget.ast_nodes:
            raise BudgetExceeded(f"the model's code has more than {self.budget.ast_nodes} syntax nodes")

    def step(self) -> None:
        """One statement or operator call."""
        self._pause -= 1
        if self._pause <= 0:
            self._pause = self.STRIDE
            self._steps += self.STRIDE
            if self._steps >= self.budget.steps:
                raise BudgetExceeded(f"the model takes more than {self.budget.steps} interpreter steps")
            self.look()

    def look(self) -> None:
        """At the clock and at the memory.

        Raises:
            BudgetExceeded: the time is up, or the process has grown too large.
        """
        if self._clock() > self._deadline:
            raise BudgetExceeded(f"reading the model takes more than {self.budget.cpu_s:g} s of processor time")
        if self._resident() > self._ceiling:
            raise BudgetExceeded(f"reading the model takes more than {self.budget.memory_bytes >> 20} MB of memory")

    def room(self) -> int:
        """The bytes of a graph that may be read, in the memory that is left: its text, and what is made of it."""
        left = self._ceiling - self._resident()
        return max(min(left // _TIMES, self.budget.total_bytes), 0)

    def items(self, count: int) -> int:
        """A length the model asked for, if it is within bounds; for long ones there are more looks, as they take longer."""
        if count > self.budget.items:
            raise BudgetExceeded(f"the model builds a value of {count} items; at most {self.budget.items} are read")
        if count > self.ITEMS:
            self._unseen += count
            if self._unseen > self.STRIDE * self.ITEMS:
                self._unseen = 0
                self.look()
        return count
