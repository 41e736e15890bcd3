# SPDX-License-Identifier: Apache-2.0
"""What the passes of PyTorch's JIT see in the code, noted while it runs: numbers that stand there, branches not taken."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any

from ..operators.recorder import Recorder
from ..operators.tracking import UNREPEATABLE
from ..operators.values import Tensor
from .closures import Expression, Frame, Runtime, Statement, truth

#: The integer that changes nothing, by operator; a division may change the element type.
_NEUTRAL = {"add": 0, "sub": 0, "mul": 1}
_CONSTANT_CALLS = frozenset(("device", "Device"))
#: What is not worked out ahead though its arguments are constants (constant_propagation.cpp).
_LEFT_ALONE = UNREPEATABLE | {"dequantize", "dropout"}


def is_literal(node: ast.expr) -> bool:
    """Whether an expression is a constant to the JIT by its looks alone."""
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
    """An operator's call, with notes on what stands in the code."""
    recorder, tracking = runtime.recorder, runtime.recorder.tracking
    computed = [place for place, argument in enumerate(node.args) if not is_literal(argument)]
    named = [keyword.arg or "" for keyword in node.keywords if not is_literal(keyword.value)]
    in_place = name.endswith("_") and not name.endswith("__")
    folds = name not in _LEFT_ALONE and not in_place and "::" not in name
    neutral = _changes_nothing(name, node)

    def call(frame: Frame) -> Any:
        values = [argument(frame) for argument in args]
        options = {key: value(frame) for key, value in kwargs}
        start = len(recorder.reads)
        made = runtime.operate(name, values, options)
        launches = range(start, len(recorder.reads))
        if neutral:
            tracking.changes_nothing(values[0], made, launches)
        given = [*(values[place] for place in computed), *(options[key] for key in named)]
        if folds and all(map(_is_constant, given)):
            tracking.fold(given, made, launches)
        return made

    if name == "addmm" and len(args) == 3 and all(_is_one(keyword.value) for keyword in node.keywords):
        return lambda frame: _product_and_sum(runtime, [argument(frame) for argument in args])
    return call


def _is_constant(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.constant
    return isinstance(value, (list, tuple)) and bool(value) and all(map(_is_constant, value))


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1


def _changes_nothing(name: str, node: ast.Call) -> bool:
    """Whether the code adds the integer 0, or multiplies by 1; other numbers may change the element type."""
    if name not in _NEUTRAL or len(node.args) != 2 or node.keywords:
        return False
    number = node.args[1]
    return isinstance(number, ast.Constant) and type(number.value) is int and number.value == _NEUTRAL[name]


def _product_and_sum(runtime: Runtime, args: Sequence[Any]) -> Any:
    """``addmm`` as the JIT takes it apart (decompose_ops.cpp)."""
    bias, left, right = args
    return runtime.operate("add", [bias, runtime.operate("mm", [left, right], {})], {})


def watched_branches(recorder: Recorder, node: ast.If, test: Expression, then: Statement, otherwise: Statement) -> Statement:
    """Two branches of which one runs: what the other one reads is needed as well."""
    tracking = recorder.tracking
    known: dict[bool, tuple[frozenset[str], ...]] = {}

    def execute(frame: Frame) -> Any:
        taken = truth(test(frame))
        if taken not in known:
            stored = names((*node.body, *node.orelse), ast.Store)
            other = node.orelse if taken else node.body
            known[taken] = stored, names(other, ast.Load), names(_kept(other), ast.Load)
        stored, loaded, kept = known[taken]
        tracking.keep([frame[name] for name in kept if name in frame])
        untaken = [frame[name] for name in loaded if name in frame]
        start = len(recorder.reads)
        outcome = then(frame) if taken else otherwise(frame)
        rename(frame, stored)
        tracking.branch(range(start, len(recorder.reads)), [frame[name] for name in stored if name in frame], untaken)
        return outcome

    return execute


def rename(frame: Frame, variables: Iterable[str]) -> None:
    """Where code may have run or not, or runs again, nobody knows any longer what the variables are that it sets."""
    for name in variables:
        value = frame.get(name)
        if isinstance(value, Tensor):
            frame[name] = value.renamed()


def _kept(nodes: Sequence[ast.stmt]) -> list[ast.AST]:
    """What the JIT keeps of a branch for its own sake: errors, or all of it if loops are in it."""
    within = [node for statement in nodes for node in ast.walk(statement)]
    if any(isinstance(node, (ast.For, ast.While)) for node in within):
        return list(nodes)
    return [node for node in within if isinstance(node, ast.Raise)]


def names(nodes: Iterable[ast.AST], context: type[ast.expr_context]) -> frozenset[str]:
    """The names that code reads or sets; a name of which only the number of dimensions is asked is not read."""
    found: set[str] = set()
    waiting: list[ast.AST] = list(nodes)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, context):
            found.add(node.id)
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "dim"):
            waiting += ast.iter_child_nodes(node)
    return frozenset(found)
