# SPDX-License-Identifier: Apache-2.0
"""Operators on numbers that the host knows: they launch nothing, as PyTorch computes with sizes in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ShapeError
from ..network import numel
from ..operators.layout import broadcast, dim_of
from . import known
from .call import NodeCall
from .known import Known
from .model import FEW, TYPES


def on_host(call: NodeCall) -> Any:
    """The result of an operator whose inputs the host knows, or ``None`` where it is work for the device."""
    name = call.node.key
    inputs = [value for value in call.inputs if value is not None]
    if name == "CastLike" and isinstance(inputs[0], Known):
        return _cast(inputs[0], inputs[1].dtype)
    if not inputs or not all(isinstance(value, Known) for value in inputs):
        return None
    if name in known.ARITHMETIC or name in known.TESTS or name == "Where":
        return _each(name, inputs)
    if name in known.REDUCTIONS:
        axes = call.integers("axes", 1)
        return known.reduce(inputs[0], axes, bool(call.attribute("keepdims", 1)), known.REDUCTIONS[name])
    rule = _RULES.get(name)
    return None if rule is None else rule(call, inputs)


def _each(name: str, inputs: list[Known]) -> Known | None:
    if numel(broadcast([x.shape for x in inputs])) > FEW:
        return None
    if name == "Where":
        return known.each(lambda test, one, other: one if test else other, inputs[1].dtype, *inputs)
    if name in known.TESTS:
        return known.each(known.TESTS[name], "bool", *inputs)
    return known.each(known.ARITHMETIC[name], inputs[0].dtype, *inputs)


def _cast(x: Known, dtype: str) -> Known:
    convert: Callable[[Any], Any] = bool if dtype == "bool" else float if "float" in dtype else int
    return Known(x.shape, dtype, [convert(item) for item in x.items])


def _cast_to(call: NodeCall, inputs: list[Known]) -> Known | None:
    dtype = TYPES.get(call.attribute("to", 0), "")
    return None if dtype in ("", "complex64", "complex128") else _cast(inputs[0], dtype)


def _concat(call: NodeCall, inputs: list[Known]) -> Known:
    return known.concatenate(inputs, call.attribute("axis", 0))


def _gather(call: NodeCall, inputs: list[Known]) -> Known:
    return known.gather(inputs[0], inputs[1], call.attribute("axis", 0))


def _slice(call: NodeCall, inputs: list[Known]) -> Known:
    made = inputs[0]
    starts, ends = call.integers("starts", 1) or [], call.integers("ends", 2) or []
    axes = call.integers("axes", 3) or list(range(len(starts)))
    steps = call.integers("steps", 4) or [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        made = known.cut(made, axis, start, end, step)
    return made


def _unsqueeze(call: NodeCall, inputs: list[Known]) -> Known:
    axes = call.integers("axes", 1) or []
    rank = inputs[0].rank + len(axes)
    places = {dim_of(rank, axis) for axis in axes}
    if len(places) != len(axes):
        raise ShapeError(f"Unsqueeze with an axis twice: {axes[:8]}")
    rest = iter(inputs[0].shape)
    return Known(tuple(1 if d in places else next(rest) for d in range(rank)), inputs[0].dtype, inputs[0].items)


def _squeeze(call: NodeCall, inputs: list[Known]) -> Known:
    x = inputs[0]
    axes = call.integers("axes", 1)
    places = {dim_of(x.rank, axis) for axis in axes} if axes else set(range(x.rank))
    return Known(tuple(size for d, size in enumerate(x.shape) if d not in places or size != 1), x.dtype, x.items)


def _reshape(call: NodeCall, inputs: list[Known]) -> Known:
    sizes = inputs[1].integers()
    if not call.attribute("allowzero", 0):
        sizes = [inputs[0].shape[place] if size == 0 else size for place, size in enumerate(sizes)]
    return known.reshape(inputs[0], sizes)


def _transpose(call: NodeCall, inputs: list[Known]) -> Known:
    return known.transpose(inputs[0], call.attribute("perm", list(range(inputs[0].rank))[::-1]))


def _expand(call: NodeCall, inputs: list[Known]) -> Known | None:
    sizes = inputs[1].integers()
    return known.expand(inputs[0], sizes) if 0 <= numel(broadcast([inputs[0].shape, tuple(sizes)])) <= FEW else None


def _same(call: NodeCall, inputs: list[Known]) -> Known:
    return inputs[0]


_RULES: dict[str, Callable[[NodeCall, list[Known]], Known | None]] = {
    "Cast": _cast_to,
    "Concat": _concat,
    "Gather": _gather,
    "Slice": _slice,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Expand": _expand,
    "Identity": _same,
}
