# SPDX-License-Identifier: Apache-2.0
"""What the passes of PyTorch's JIT have to know of a running network: who writes what, and which calls repeat others.

The JIT works on a graph before it runs; here the same is found out as it runs, with the JIT's own caution: what is ever written
into a second time is left alone (torch/csrc/jit/ir/alias_analysis.cpp).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .values import Memory, Tensor

#: Operators whose calls are never the same as others.
_NEVER_ALIKE = frozenset(
    (
        "rand",
        "randn",
        "rand_like",
        "randn_like",
        "randint",
        "multinomial",
        "bernoulli",
        "normal",
        "rrelu",
        "empty",
        "empty_like",
    )
)
#: The number that changes nothing, by operator.
NEUTRAL: dict[str, int] = {"add": 0, "sub": 0, "mul": 1, "div": 1}


@dataclass(frozen=True)
class Alike:
    """Launches that repeat others, and the memory that must not have been written into again for that to be so."""

    first: int
    second: int
    count: int
    read: tuple[Memory, ...]
    made: tuple[tuple[Memory, Memory], ...]


@dataclass(frozen=True)
class Neutral:
    """A launch that changes nothing, and whose result stands for what it read."""

    launch: int
    writer: int
    source: Memory
    made: Memory


@dataclass
class Tracking:
    """Notes on one forward pass.

    Attributes:
        together: for each launch, the first one of the operator call it belongs to: a call is needed as a whole.
        before: for launches that write into what others wrote before, who did.
        lasting: launches whose effect stays: they write into what was there before the network ran, or into its state.
        alike: launches that repeat others.
        neutral: launches that change nothing.
        comparing: whether repeated calls are looked for, which takes time.
    """

    together: list[int] = field(default_factory=list)
    before: dict[int, list[int]] = field(default_factory=dict)
    lasting: set[int] = field(default_factory=set)
    alike: list[Alike] = field(default_factory=list)
    neutral: list[Neutral] = field(default_factory=list)
    comparing: bool = False
    _blocks: list[dict[Any, tuple[list[Tensor], int, int, Any]]] = field(default_factory=lambda: [{}])

    def enter(self) -> None:
        """A block that may not run, or runs again: what is computed in it is not known outside."""
        self._blocks.append({})

    def leave(self) -> None:
        self._blocks.pop()

    def keep(self, value: Any) -> None:
        """A value that stays when the network has run."""
        self.lasting.update(tensor.memory.writer for tensor in tensors_in(value) if tensor.memory.writer >= 0)

    def settle(self, start: int, end: int, made: Any, written: Tensor | None) -> None:
        """An operator's call has launched: of what it returns, the new tensors are its own, others it has written into.

        Args:
            start: its first launch.
            end: the one after its last.
            made: what it returns.
            written: the tensor that it works on in place, if it does.
        """
        self.together += [start] * (end - start)
        if written is not None and isinstance(made, Tensor) and made.memory is not written.memory:
            self._overwritten(written.memory, end - 1)
            made.memory = written.memory
        for tensor in tensors_in(made):
            memory = tensor.memory
            if memory.writer < 0 and not memory.outside:
                memory.writer = end - 1
            elif not start <= memory.writer < end:
                self._overwritten(memory, end - 1)

    def _overwritten(self, memory: Memory, launch: int) -> None:
        if memory.writer >= 0:
            self.before.setdefault(launch, []).append(memory.writer)
        if memory.outside:
            self.lasting.add(launch)
        memory.overwritten = True
        memory.writer = launch

    def rewritten(self, memory: Memory, launch: int) -> None:
        """A launch is about to write into memory that was there before it."""
        if memory.writer >= 0 or memory.outside:
            self._overwritten(memory, launch)

    def compare(self, name: str, args: Sequence[Any], start: int, end: int, made: Any) -> None:
        """Note a call, or that it repeats an earlier one."""
        key = _key((name, *args)) if name not in _NEVER_ALIKE and name[-1] != "_" and "::" not in name else None
        if key is None:
            return
        results = list(tensors_in(made))
        for block in reversed(self._blocks):
            if key in block:
                earlier, first, count, _ = block[key]
                if count == end - start and len(earlier) == len(results):
                    for one, other in zip(earlier, results, strict=True):
                        other.same = one.same or one
                    read = tuple(tensor.memory for tensor in tensors_in(args))
                    pairs = tuple((one.memory, other.memory) for one, other in zip(earlier, results, strict=True))
                    if count:
                        self.alike.append(Alike(first, start, count, read, pairs))
                return
        # The arguments are held, so that no other tensor takes their identity.
        self._blocks[-1][key] = (results, start, end - start, args)

    def changes_nothing(self, source: Any, made: Any, start: int, end: int) -> None:
        """Note that a call added nothing, or multiplied by one."""
        if not isinstance(source, Tensor) or not isinstance(made, Tensor) or end != start + 1:
            return
        if (source.shape, source.dtype) == (made.shape, made.dtype):
            made.same = source.same or source
            self.neutral.append(Neutral(start, source.memory.writer, source.memory, made.memory))


def tensors_in(value: Any, depth: int = 0) -> Iterator[Tensor]:
    """The tensors in a value: itself, or in lists, tuples and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()), depth)
    elif isinstance(value, (list, tuple)) and depth < 8:
        for item in value:
            yield from tensors_in(item, depth + 1)


def _key(values: Iterable[Any], depth: int = 0) -> tuple[Any, ...] | None:
    """What a call's arguments are, or ``None`` where that cannot be said."""
    made: list[Any] = []
    for value in values:
        if isinstance(value, Tensor):
            made.append(id(value.same or value))
        elif isinstance(value, (list, tuple)) and depth < 3 and len(value) <= 64:
            inner = _key(value, depth + 1)
            if inner is None:
                return None
            made.append(inner)
        elif value is None or isinstance(value, (bool, int, float, str)):
            made.append((type(value), value))
        else:
            return None
    return tuple(made)
