# SPDX-License-Identifier: Apache-2.0
"""Data for the passes of PyTorch's JIT: launches that need, and repeat, each other.

The JIT works on a graph before it runs. Its caution is kept: memory written twice is left alone
(torch/csrc/jit/ir/alias_analysis.cpp), and so is a value that code of an untaken branch may have needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from .values import Containers, Storage, Tensor, tensors_in

#: Operators whose calls never equal other calls, nor earlier ones.
UNREPEATABLE = frozenset(
    (
        "rand",
        "randn",
        "rand_like",
        "randn_like",
        "randint",
        "randperm",
        "multinomial",
        "bernoulli",
        "normal",
        "rrelu",
        "empty",
        "empty_like",
    )
)
#: The JIT unrolls a loop with at most this number of operators and of repetitions (loop_unrolling.cpp).
_SMALL_BODY, _FEW_REPEATS, _TOGETHER = 32, 64, 8
#: Types compared by value and type.
_COMPARED = frozenset((bool, int, float, str))
#: Questions about a value that do not read the tensor.
_ASKS_NOTHING = frozenset(("__is__", "__isnot__"))


class RepeatedLaunches(Struct, frozen=True):
    """Launches that repeat earlier ones, and the memory that must not have been written since."""

    first: int
    second: int
    count: int
    read: tuple[Storage, ...]
    made: tuple[tuple[Storage, Storage], ...]


class NeutralLaunch(Struct, frozen=True):
    """Launch that changes nothing, so that its input can replace its result."""

    launch: int
    writer: int
    source: Storage
    made: Storage


class ConstantLaunches(Struct, frozen=True):
    """Launches on constants alone, which the JIT runs before the network."""

    launches: range
    memory: tuple[Storage, ...]


class Concatenation(Struct, frozen=True):
    """``cat``: its block, its dimension as written, and its list of operands."""

    block: int
    dim: Any
    parts: Any


class _Loop(Struct):
    ordinals: Counter[tuple[str, str]] = field(default_factory=Counter)
    carried: list[Storage] = field(default_factory=list)
    start: int = 0
    small: bool = False
    unrolled: bool = False


class PassState(Struct):
    """Data of one forward pass.

    Attributes:
        comparing: False disables collection, which takes time.
        together: for each launch, the first of its group needed as a whole: an operator's call, or its repetitions in a loop.
        needs: for these first ones, the launches whose results they read.
        before: for launches that overwrite results, the earlier writers.
        lasting: launches needed in any case: they write into earlier memory or the network's state.
        alias: memory that one name may denote after a branch or a loop.
        either: for branches, launches of which one is needed, then launches that the untaken branch would have needed.
    """

    comparing: bool = False
    together: list[int] = field(default_factory=list)
    needs: dict[int, list[int]] = field(default_factory=dict)
    before: dict[int, list[int]] = field(default_factory=dict)
    lasting: set[int] = field(default_factory=set)
    alias: list[tuple[Storage, ...]] = field(default_factory=list)
    either: list[tuple[set[int], set[int]]] = field(default_factory=list)
    alike: list[RepeatedLaunches] = field(default_factory=list)
    neutral: list[NeutralLaunch] = field(default_factory=list)
    folded: list[ConstantLaunches] = field(default_factory=list)
    joined: dict[int, Concatenation] = field(default_factory=dict)
    containers: Containers = field(default_factory=Containers)
    _blocks: list[dict[Any, tuple[list[Tensor], int, int, Any]]] = field(default_factory=lambda: [{}])
    _places: list[int] = field(default_factory=lambda: [0])
    _entered: int = 0
    _loops: list[_Loop] = field(default_factory=list)
    _path: list[int] = field(default_factory=list)
    _groups: dict[Any, int] = field(default_factory=dict)
    _operated: int = 0

    # Blocks of code

    def enter(self) -> None:
        """Enter a block that may not run, or runs again: its results are unknown outside."""
        self._blocks.append({})
        self._place()

    def leave(self) -> None:
        self._blocks.pop()
        self._places.pop()

    def apart(self, task: Callable[[], Any]) -> Any:
        """Run a task of ``fork``: a separate graph, needed as a whole."""
        outer, self._blocks = self._blocks, [{}]
        self._place()
        made = task()
        self._blocks = outer
        self._places.pop()
        writers = writers_of([made]) if self.comparing else ()
        for writer in writers:
            self.needs.setdefault(self.together[writer], []).extend(writers)
        return made

    def _place(self) -> None:
        self._entered += 1
        self._places.append(self._entered)

    def enter_loop(self, loop: int) -> None:
        self._loops.append(_Loop())
        self._path.append(loop)
        self.enter()

    def repeat(self, number: int, count: int | None, fixed: bool, carried: Iterable[Any]) -> bool:
        """Begin a repetition of the innermost loop; return True if the code before it is not its only predecessor.

        Args:
            number: from 0 on.
            count: of repetitions; None if known only at run time.
            fixed: True if the count is in the code.
            carried: values from the last repetition.
        """
        loop = self._loops[-1]
        loop.carried += [tensor.memory for value in carried for tensor in tensors_in(value)]
        loop.ordinals.clear()
        if number == 0:
            loop.start = self._operated
            return False
        if number == 1:
            loop.small = count is not None and self._operated - loop.start <= _SMALL_BODY
            if fixed and loop.small and (count or 0) < _FEW_REPEATS:
                loop.unrolled = True
                self._path.pop()
                first = self._blocks.pop()
                self._blocks[-1].update(first)
        self._places.pop()
        self._place()
        whole = (count or 0) // _TOGETHER * _TOGETHER
        if loop.unrolled or (loop.small and number < whole and number % _TOGETHER):
            return False
        self._blocks[-1] = {}
        return True

    def leave_loop(self, carried: Iterable[Any], first: Iterable[Any], last: Sequence[Any]) -> bool:
        """Leave a loop; return True if it might have run more or less often.

        ``carried`` are the last values handed on; ``first`` and ``last`` the earlier and current values of the variables it
        sets.
        """
        self._places.pop()
        loop = self._loops.pop()
        if not loop.unrolled:
            self._blocks.pop()
            self._path.pop()
            memory = (*loop.carried, *(tensor.memory for value in carried for tensor in tensors_in(value)))
            self.alias.append(memory)
            self.lasting |= {one.writer for one in memory if one.writer >= 0}
            self.branch(range(0), last, list(first))
        return not loop.unrolled

    def branch(self, launches: range, outcome: Sequence[Any], untaken: Sequence[Any]) -> None:
        """Record a branch that has run: its launches, and values of the names that either branch sets.

        ``untaken`` are earlier values of the names that the other branch reads.
        """
        before = [tensor for value in untaken for tensor in tensors_in(value)]
        after = [tensor for value in outcome for tensor in tensors_in(value)]
        memory = {id(tensor.memory): tensor.memory for tensor in (*after, *before)}
        if len(memory) > 1:
            self.alias.append(tuple(memory.values()))
        others = {tensor.memory.writer for tensor in before if tensor.memory.writer >= 0}
        if others:
            written = (tensor.memory.writer for tensor in after if tensor.memory.writer >= 0)
            self.either.append(({*launches, *written}, others))

    # Values

    def keep(self, value: Any) -> None:
        self.lasting |= writers_of([value])

    def settle(self, start: int, end: int, made: Any, written: Tensor | None) -> None:
        """Assign launches ``start`` to ``end - 1`` to an operator: new tensors in its result are its own, the rest overwritten.

        ``written`` is the tensor that it works on in place, if any.
        """
        if written is not None and isinstance(made, Tensor) and made.memory is not written.memory:
            self.overwritten(written.memory, end - 1)
            made.memory = written.memory
        for tensor in tensors_in(made):
            memory = tensor.memory
            if memory.writer < 0 and not memory.outside:
                memory.writer = end - 1
            elif not start <= memory.writer < end:
                self.overwritten(memory, end - 1)

    def overwritten(self, memory: Storage, launch: int) -> None:
        if memory.writer >= 0:
            self.before.setdefault(launch, []).append(memory.writer)
        if memory.outside:
            self.lasting.add(launch)
        memory.overwritten = True
        memory.writer = launch

    def given(self, name: str, args: Sequence[Any]) -> list[int]:
        """Launches whose results an operator's arguments are, before its call."""
        self._operated += 1
        writers: list[int] = []
        in_container = False
        for value in args:
            if type(value) is Tensor:
                if value.memory.writer >= 0:
                    writers.append(value.memory.writer)
            elif isinstance(value, (list, tuple, dict)):
                in_container = True
                writers += [tensor.memory.writer for tensor in tensors_in(value) if tensor.memory.writer >= 0]
        if in_container:
            self.containers.given(name, args, straight=len(self._blocks) == 1)
        return writers

    def called(
        self,
        name: str,
        scope: str,
        args: Sequence[Any],
        options: Mapping[str, Any],
        given: list[int],
        launches: range,
        made: Any,
    ) -> None:
        """Record a call: its needs, and an earlier call that it repeats."""
        if launches:
            first = launches.start
            if self._path:
                ordinals = self._loops[-1].ordinals
                ordinals[scope, name] += 1
                first = self._groups.setdefault((tuple(self._path), scope, name, ordinals[scope, name]), first)
            self.together += [first] * len(launches)
            self.needs.setdefault(first, []).extend(given)
            if name == "cat":
                dim = args[1] if len(args) > 1 else options.get("dim", 0)
                self.joined[launches.start] = Concatenation(self._places[-1], dim, args[0])
        elif name in ("builtin::print", "Print"):
            self.lasting.update(given)
        elif given and made is not None and name not in _ASKS_NOTHING and not tensors_in(made):
            # The use of a size is not followed: a tensor whose size is read stays.
            self.lasting |= writers_of([value for value in args if isinstance(value, Tensor)])
        if name not in UNREPEATABLE and name[-1] != "_" and "::" not in name:
            self._compare((name, *args, *options.items()), launches, made)

    def _compare(self, call: tuple[Any, ...], launches: range, made: Any) -> None:
        key = _key(call)
        if key is None:
            return
        for block in reversed(self._blocks):
            if key in block:
                results = tensors_in(made)
                earlier, first, count, _ = block[key]
                if count == len(launches) and len(earlier) == len(results):
                    for one, other in zip(earlier, results, strict=True):
                        other.same = one.same or one
                    read = tuple(tensor.memory for tensor in tensors_in(call))
                    pairs = tuple((one.memory, other.memory) for one, other in zip(earlier, results, strict=True))
                    if count:
                        self.alike.append(RepeatedLaunches(first, launches.start, count, read, pairs))
                return
        # Equal numbers may come from different tensors. The arguments are held, so that no other tensor takes their identity.
        if tensors_in(call):
            self._blocks[-1][key] = (tensors_in(made), launches.start, len(launches), call)

    def changes_nothing(self, source: Any, made: Any, launches: range) -> None:
        if not isinstance(source, Tensor) or not isinstance(made, Tensor) or len(launches) != 1:
            return
        if (source.shape, source.dtype) == (made.shape, made.dtype):
            made.same = source.same or source
            self.neutral.append(NeutralLaunch(launches.start, source.memory.writer, source.memory, made.memory))

    def fold(self, args: Sequence[Any], made: Any, launches: range) -> None:
        results = tensors_in(made)
        for tensor in results:
            tensor.constant = True
        if launches:
            self.folded.append(ConstantLaunches(launches, tuple(tensor.memory for tensor in (*tensors_in(args), *results))))


def writers_of(values: Iterable[Any]) -> set[int]:
    return {tensor.memory.writer for value in values for tensor in tensors_in(value) if tensor.memory.writer >= 0}


def _key(values: Iterable[Any], depth: int = 0) -> tuple[Any, ...] | None:
    made: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is Tensor:
            made.append(id(value.same or value))
        elif value is None or kind in _COMPARED:
            made.append((kind, value))
        elif isinstance(value, (list, tuple)) and depth < 3 and len(value) <= 64:
            inner = _key(value, depth + 1)
            if inner is None:
                return None
            made.append(inner)
        else:
            return None
    return tuple(made)
