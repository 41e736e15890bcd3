# SPDX-License-Identifier: Apache-2.0
"""The code as the passes of PyTorch's JIT see it, noted while it runs: constant numbers, branches not taken."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, field

from ..operators.recorder import Recorder
from ..operators.tracking import UNREPEATABLE, PassState
from ..operators.values import Storage, Tensor, tensors_in
from ..optimizing import DataFlow
from .closures import Expression, Frame, Runtime, Statement, truth


def flow_of(tracking: PassState, result: Any) -> DataFlow:
    """Launches that the results need, and replacements of launches, as far as the JIT's caution allows."""
    given = list(tensors_in(result))
    return DataFlow(
        results={tensor.memory.writer for tensor in given if tensor.memory.writer >= 0}
        | tracking.lasting
        | tracking.containers.needed(),
        together=tracking.together,
        needs=tracking.needs,
        before=tracking.before,
        either=tracking.either,
        same=_standing(tracking, given),
        joinable=_joinable(tracking),
    )


def _joinable(tracking: PassState) -> dict[int, tuple[int, int]]:
    """Block and dimension (as written) of every ``cat`` whose list is never changed; two that join must agree in both."""
    return {
        launch: (note.block, note.dim)
        for launch, note in tracking.joined.items()
        if type(note.dim) is int and not tracking.containers.has_changed(note.parts)
    }


class _Aliases:
    def __init__(self, handed_out: Iterable[Storage]) -> None:
        self._same: dict[int, Storage] = {}
        self._seen = {id(memory) for memory in handed_out}
        self._overwritten: set[int] = set()

    def _one(self, memory: Storage) -> Storage:
        while id(memory) in self._same:
            memory = self._same[id(memory)]
        return memory

    def unite(self, first: Storage, second: Storage) -> None:
        first, second = self._one(first), self._one(second)
        if first is second:
            return
        if self._is_seen(second):
            self._seen.add(id(first))
        if self.is_overwritten(second):
            self._overwritten.add(id(first))
        self._same[id(second)] = first

    def is_overwritten(self, memory: Storage) -> bool:
        memory = self._one(memory)
        return memory.overwritten or id(memory) in self._overwritten

    def _is_seen(self, memory: Storage) -> bool:
        memory = self._one(memory)
        return memory.outside or id(memory) in self._seen

    def may_become_one(self, first: Storage, second: Storage) -> bool:
        if self.is_overwritten(first) or self.is_overwritten(second):
            return False
        return not (self._is_seen(first) and self._is_seen(second))


def _standing(tracking: PassState, given: Sequence[Tensor]) -> dict[int, int]:
    aliases = _Aliases(tensor.memory for tensor in given)
    for group in tracking.alias:
        for memory in group[1:]:
            aliases.unite(group[0], memory)
    mixed = {id(memory) for memory in tracking.containers.mixed()}
    same: dict[int, int] = {}
    for folded in tracking.folded:
        if not any(map(aliases.is_overwritten, folded.memory)):
            same.update(dict.fromkeys(folded.launches, -1))
    for note in tracking.neutral:
        if not {id(note.source), id(note.made)} & mixed and aliases.may_become_one(note.source, note.made):
            same[note.launch] = note.writer
            aliases.unite(note.source, note.made)
    for alike in tracking.alike:
        if not any(map(aliases.is_overwritten, alike.read)) and all(aliases.may_become_one(*pair) for pair in alike.made):
            same.update({alike.second + place: alike.first + place for place in range(alike.count)})
            for pair in alike.made:
                aliases.unite(*pair)
    return same


#: The integer that changes nothing, by operator; a division may change the element type.
_NEUTRAL = {"add": 0, "sub": 0, "mul": 1}
_CONSTANT_CALLS = frozenset(("device", "Device"))
#: Operators not evaluated ahead though their arguments are constants (constant_propagation.cpp).
_LEFT_ALONE = UNREPEATABLE | {"dequantize", "dropout"}


def is_literal(node: ast.expr) -> bool:
    """True if an expression is a constant to the JIT by its looks alone."""
    if isinstance(node, ast.UnaryOp):
        return is_literal(node.operand)
    if isinstance(node, (ast.List, ast.Tuple)):
        return all(map(is_literal, node.elts))
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr in _CONSTANT_CALLS and all(map(is_literal, node.args))
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.value.id == "torch"
    return isinstance(node, ast.Constant)


def watched(
    runtime: Runtime, name: str, node: ast.Call, args: Sequence[Expression], kwargs: Sequence[tuple[str, Expression]]
) -> Expression:
    recorder, tracking = runtime.recorder, runtime.recorder.tracking
    computed = [place for place, argument in enumerate(node.args) if not is_literal(argument)]
    named = [keyword.arg or "" for keyword in node.keywords if not is_literal(keyword.value)]
    in_place = name.endswith("_") and not name.endswith("__")
    folds = name not in _LEFT_ALONE and not in_place and "::" not in name
    neutral = _changes_nothing(runtime, name, node)

    def call(frame: Frame) -> Any:
        values = [argument(frame) for argument in args]
        options = {key: value(frame) for key, value in kwargs} if kwargs else {}
        start = len(recorder.reads)
        made = runtime.operate(name, values, options)
        if neutral:
            tracking.changes_nothing(values[0], made, range(start, len(recorder.reads)))
        if folds:
            for place in computed:
                if not _is_constant(values[place]):
                    return made
            if all(_is_constant(options[key]) for key in named):
                given = [*(values[place] for place in computed), *(options[key] for key in named)]
                tracking.fold(given, made, range(start, len(recorder.reads)))
        return made

    if name == "addmm" and len(args) == 3 and all(_is_one(keyword.value) for keyword in node.keywords):
        return lambda frame: _product_and_sum(runtime, [argument(frame) for argument in args])
    return call


def _is_constant(value: Any) -> bool:
    if type(value) is Tensor:
        return value.constant
    return isinstance(value, (list, tuple)) and bool(value) and all(map(_is_constant, value))


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1


def _changes_nothing(runtime: Runtime, name: str, node: ast.Call) -> bool:
    """True if the code adds the integer 0, or multiplies by 1; other numbers may change the element type.

    Traces keep numbers as constants without dimensions.
    """
    if name not in _NEUTRAL or len(node.args) != 2 or node.keywords:
        return False
    number = node.args[1]
    if isinstance(number, ast.Attribute) and isinstance(number.value, ast.Name) and number.value.id == "CONSTANTS":
        value = runtime.constant(number.attr)
        return isinstance(value, Tensor) and (value.rank, value.dtype, value.value) == (0, "int64", (_NEUTRAL[name],))
    return isinstance(number, ast.Constant) and type(number.value) is int and number.value == _NEUTRAL[name]


def _product_and_sum(runtime: Runtime, args: Sequence[Any]) -> Any:
    """``addmm`` as the JIT decomposes it (decompose_ops.cpp)."""
    bias, left, right = args
    return runtime.operate("add", [bias, runtime.operate("mm", [left, right], {})], {})


def watched_branches(recorder: Recorder, node: ast.If, test: Expression, then: Statement, otherwise: Statement) -> Statement:
    """Two branches of which one runs: the reads of the other one are needed as well."""
    tracking = recorder.tracking

    def execute(frame: Frame) -> Any:
        taken = truth(test(frame))
        stored = names_in(node).stored
        other = names_in(node, "orelse" if taken else "body")
        if other.kept:
            tracking.keep([frame[name] for name in other.kept if name in frame])
        untaken = [frame[name] for name in other.loaded if name in frame]
        start = len(recorder.reads)
        outcome = then(frame) if taken else otherwise(frame)
        rename(frame, stored)
        tracking.branch(range(start, len(recorder.reads)), [frame[name] for name in stored if name in frame], untaken)
        return outcome

    return execute


def rename(frame: Frame, variables: Iterable[str]) -> None:
    """Mark the variables that a block sets as unknown, as it may not run, or runs again."""
    for name in variables:
        value = frame.get(name)
        if isinstance(value, Tensor):
            frame[name] = value.renamed()


class NameUses(Struct):
    """Names in a piece of code: those it reads, those it sets, and those it reads in parts that the JIT keeps anyway.

    Such parts are errors, and a branch with loops. A name used only for its number of dimensions is not read.
    """

    loaded: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    loops: bool = False

    def add(self, other: NameUses) -> None:
        self.loaded |= other.loaded
        self.stored |= other.stored
        self.kept |= other.kept
        self.loops |= other.loops


def names_in(node: ast.stmt, part: str = "") -> NameUses:
    if "names" not in vars(node):
        _collect(node)
    found: dict[str, NameUses] = vars(node)["names"]
    return found[part]


def _collect(node: ast.stmt) -> NameUses:
    whole, parts = NameUses(), {}
    for part in ("body", "orelse"):
        names = parts[part] = NameUses()
        for statement in getattr(node, part, ()):
            if isinstance(statement, (ast.If, ast.For, ast.While, ast.With, ast.FunctionDef)):
                names.add(_collect(statement))
                names.loops |= isinstance(statement, (ast.For, ast.While))
            elif isinstance(statement, ast.Raise):
                own = NameUses()
                _read(statement, own)
                names.kept |= own.loaded
            else:
                _read(statement, names)
        if names.loops:
            names.kept |= names.loaded
        whole.add(names)
    for head in ("test", "iter", "target"):
        if hasattr(node, head):
            _read(getattr(node, head), whole)
    vars(node)["names"] = {"": whole, **parts}
    return whole


def _read(node: ast.AST, names: NameUses) -> None:
    waiting: list[ast.AST] = [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            (names.loaded if isinstance(node.ctx, ast.Load) else names.stored).add(node.id)
        elif isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Attribute):
                waiting.append(node.func)
            elif node.func.attr == "dim":
                continue
            else:
                waiting.append(node.func.value)
            waiting += node.args
            waiting += [keyword.value for keyword in node.keywords]
        elif isinstance(node, ast.Attribute):
            waiting.append(node.value)
        elif not isinstance(node, ast.Constant):
            waiting += ast.iter_child_nodes(node)
