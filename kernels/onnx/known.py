# SPDX-License-Identifier: Apache-2.0
"""Small arrays whose numbers the host knows: what ONNX writes as nodes where PyTorch computes with sizes in Python."""

from __future__ import annotations

import itertools
import math
import operator as python
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import BudgetExceeded, ShapeError
from ..network import Shape, numel
from ..operators.layout import broadcast, dim_of, inferred, show
from ..operators.values import Number, contiguous_strides
from .model import FEW


class Known:
    """An array with its numbers, at most a few thousand, in row-major order.

    Raises:
        BudgetExceeded: it would be larger.
        ShapeError: a number leaves the range of 64-bit integers, or there are too few or many.
    """

    __slots__ = ("dtype", "items", "shape")

    def __init__(self, shape: Shape, dtype: str, items: Sequence[Number]) -> None:
        if len(items) > FEW:
            raise BudgetExceeded(f"the model computes with an array of {len(items)} numbers; at most {FEW} are followed")
        if len(items) != numel(shape):
            raise ShapeError(f"{len(items)} numbers do not fill an array of shape {show(shape)}")
        if any(type(item) is int and not -(1 << 63) <= item < 1 << 63 for item in items):
            raise ShapeError("arithmetic leaves the range of 64-bit integers")
        self.shape = shape
        self.dtype = dtype
        self.items = tuple(items)

    @property
    def rank(self) -> int:
        return len(self.shape)

    def integers(self) -> list[int]:
        return [int(item) for item in self.items]

    def number(self) -> Number:
        """Its one number.

        Raises:
            ShapeError: it has none or several.
        """
        if len(self.items) != 1:
            raise ShapeError(f"one number was expected, not an array of shape {show(self.shape)}")
        return self.items[0]


def _strided(items: Sequence[Number], shape: Shape, strides: Sequence[int], offset: int = 0) -> list[Number]:
    """The numbers that a view with these strides shows."""
    if numel(shape) > FEW:
        raise BudgetExceeded(f"the model computes with an array of shape {show(shape)}; at most {FEW} numbers are followed")
    ranges = [range(size) for size in shape]
    return [items[offset + sum(map(python.mul, place, strides))] for place in itertools.product(*ranges)]


def _spread(x: Known, shape: Shape) -> list[Number]:
    """The numbers of an array broadcast to a shape."""
    if x.shape == shape:
        return list(x.items)
    lead = len(shape) - x.rank
    own = zip(x.shape, contiguous_strides(x.shape), strict=True)
    return _strided(x.items, shape, (0,) * lead + tuple(0 if size == 1 else step for size, step in own))


def expand(x: Known, sizes: Sequence[int]) -> Known:
    shape = broadcast([x.shape, tuple(sizes)])
    return Known(shape, x.dtype, _spread(x, shape))


def each(compute: Callable[..., Any], dtype: str, *operands: Known) -> Known:
    """A pointwise operation on arrays that broadcast."""
    shape = broadcast([x.shape for x in operands])
    items = [compute(*numbers) for numbers in zip(*(_spread(x, shape) for x in operands), strict=True)]
    return Known(shape, dtype, items)


def transpose(x: Known, order: Sequence[int]) -> Known:
    if sorted(order) != list(range(x.rank)):
        raise ShapeError(f"an array of shape {show(x.shape)} cannot be permuted by {list(order)[:16]}")
    strides = contiguous_strides(x.shape)
    shape = tuple(x.shape[d] for d in order)
    return Known(shape, x.dtype, _strided(x.items, shape, [strides[d] for d in order]))


def reshape(x: Known, sizes: Sequence[int]) -> Known:
    return Known(inferred(sizes, len(x.items)), x.dtype, x.items)


def concatenate(parts: Sequence[Known], axis: int) -> Known:
    first = parts[0]
    place = dim_of(first.rank, axis)
    if any(x.rank != first.rank for x in parts):
        raise ShapeError("arrays of different ranks are not joined")
    chunks: list[Number] = []
    for lead in range(numel(first.shape[:place])):
        for x in parts:
            block = numel(x.shape[place:])
            chunks += x.items[lead * block : (lead + 1) * block]
    total = sum(x.shape[place] for x in parts)
    return Known((*first.shape[:place], total, *first.shape[place + 1 :]), first.dtype, chunks)


def gather(x: Known, indices: Known, axis: int) -> Known:
    place = dim_of(x.rank, axis)
    length, block = x.shape[place], numel(x.shape[place + 1 :])
    items: list[Number] = []
    for lead in range(numel(x.shape[:place])):
        for index in indices.integers():
            if not -length <= index < length:
                raise ShapeError(f"index {index} into an array of shape {show(x.shape)}; an input has another rank?")
            start = (lead * length + index % length) * block
            items += x.items[start : start + block]
    return Known((*x.shape[:place], *indices.shape, *x.shape[place + 1 :]), x.dtype, items)


def cut(x: Known, axis: int, start: int, end: int, step: int) -> Known:
    """A slice along one axis, with any step."""
    place = dim_of(x.rank, axis)
    picked = range(*slice(start, end, step).indices(x.shape[place])) if step else range(0)
    if step < 0 and end < -x.shape[place]:
        picked = range(min(start, x.shape[place] - 1) if start >= 0 else start + x.shape[place], -1, step)
    return gather(x, Known((len(picked),), "int64", list(picked)), place)


def reduce(x: Known, axes: Sequence[int] | None, keep: bool, compute: Callable[[Sequence[Number]], Number]) -> Known:
    dims = set(range(x.rank)) if not axes else {dim_of(x.rank, axis) for axis in axes}
    kept = [d for d in range(x.rank) if d not in dims]
    moved = transpose(x, [*kept, *sorted(dims)])
    block = numel([x.shape[d] for d in dims])
    rows = [moved.items[start : start + block] for start in range(0, len(moved.items), block)] if block else []
    shape = tuple(1 if d in dims else size for d, size in enumerate(x.shape)) if keep else tuple(x.shape[d] for d in kept)
    return Known(shape, x.dtype, [compute(row) for row in rows])


def _quotient(first: Number, second: Number) -> Number:
    if isinstance(first, int) and isinstance(second, int):
        return int(first / second) if abs(first) < 1 << 52 else first // second
    return first / second


def _power(first: Number, second: Number) -> Number:
    if isinstance(first, int) and isinstance(second, int):
        if not 0 <= second <= 64:
            raise ShapeError("arithmetic leaves the range of 64-bit integers")
        return int(first**second)
    return math.pow(first, second)


#: Pointwise operators of ONNX as the host computes them on numbers it knows.
ARITHMETIC: dict[str, Callable[..., Any]] = {
    "Add": python.add,
    "Sub": python.sub,
    "Mul": python.mul,
    "Div": _quotient,
    "Mod": python.mod,
    "Pow": _power,
    "Max": lambda *each: max(each),  # of one array, too
    "Min": lambda *each: min(each),
    "Neg": python.neg,
    "Abs": abs,
    "Sqrt": math.sqrt,
    "Floor": math.floor,
    "Ceil": math.ceil,
    "Reciprocal": lambda x: 1 / x,
    "Exp": math.exp,
    "Log": math.log,
    "Sign": lambda x: (x > 0) - (x < 0),
}
TESTS: dict[str, Callable[..., Any]] = {
    "Equal": python.eq,
    "Less": python.lt,
    "LessOrEqual": python.le,
    "Greater": python.gt,
    "GreaterOrEqual": python.ge,
    "And": lambda a, b: bool(a) and bool(b),
    "Or": lambda a, b: bool(a) or bool(b),
    "Not": python.not_,
}
REDUCTIONS: dict[str, Callable[[Sequence[Number]], Number]] = {
    "ReduceProd": math.prod,
    "ReduceSum": sum,
    "ReduceMax": max,
    "ReduceMin": min,
}
