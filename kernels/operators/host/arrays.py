# SPDX-License-Identifier: Apache-2.0
"""Small arrays of known numbers."""

from __future__ import annotations

import itertools
import operator as python
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...errors import BudgetExceeded, ShapeError
from ...network import Shape, numel
from ..layout import broadcast, dim_of, show
from ..values import Number, Tensor, contiguous_strides

#: Only few numbers are followed: shapes, axes, factors.
FEW = 4096
#: Most steps through an empty array: the dimensions before the empty one count too.
_STEPS = 1 << 16


def is_large(shape: Sequence[int]) -> bool:
    """True if an array has too many numbers, or too many places."""
    return numel(shape) > FEW or numel([max(size, 1) for size in shape]) > _STEPS


def converted(dtype: str, items: Iterable[Number]) -> tuple[Number, ...]:
    """Numbers converted to an element type. Raises ShapeError beyond 64-bit integers."""
    if dtype == "bool":
        return tuple([bool(item) for item in items])
    if "float" in dtype:
        return tuple([float(item) for item in items])
    whole = tuple([int(item) for item in items])
    if any(not -(1 << 63) <= item < 1 << 63 for item in whole):
        raise ShapeError("arithmetic leaves the range of 64-bit integers")
    return whole


def array(shape: Sequence[int], dtype: str, items: Sequence[Number], *, parameter: bool = False) -> Tensor:
    """Tensor held by the host.

    Raises:
        BudgetExceeded: more than a few thousand numbers, or an empty huge shape.
        ShapeError: a number beyond 64-bit integers, or a wrong count.
    """
    if len(items) > FEW:
        raise BudgetExceeded(f"the model computes with an array of {len(items)} numbers; at most {FEW} are followed")
    if len(items) != numel(shape):
        raise ShapeError(f"{len(items)} numbers do not fill an array of shape {show(shape)}")
    if is_large(shape):
        raise _too_many(shape)
    return Tensor(tuple(shape), dtype, parameter=parameter, value=converted(dtype, items))


def like(x: Tensor, shape: Sequence[int], items: Sequence[Number]) -> Tensor:
    return array(shape, x.dtype, items, parameter=x.parameter)


def numbers(x: Tensor) -> tuple[Number, ...]:
    if x.value is None:
        raise TypeError("the host does not hold this tensor")
    return x.value


def strided(items: Sequence[Number], shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> list[Number]:
    """Numbers in a view with these strides. Raises BudgetExceeded beyond a few thousand."""
    if is_large(shape):
        raise _too_many(shape)
    ranges = [range(size) for size in shape]
    return [items[offset + sum(map(python.mul, place, strides))] for place in itertools.product(*ranges)]


def _too_many(shape: Sequence[int]) -> BudgetExceeded:
    return BudgetExceeded(f"the model computes with an array of shape {show(shape)}; at most {FEW} numbers are followed")


def spread(x: Tensor, shape: Shape) -> Sequence[Number]:
    if x.shape == shape:
        return numbers(x)
    lead = len(shape) - x.rank
    own = zip(x.shape, contiguous_strides(x.shape), strict=True)
    return strided(numbers(x), shape, (0,) * lead + tuple(0 if size == 1 else step for size, step in own))


def each(compute: Callable[..., Any], dtype: str, operands: Sequence[Any]) -> Tensor | None:
    """Pointwise function of broadcast arrays and plain numbers; ``None`` if too large."""
    arrays = [x for x in operands if isinstance(x, Tensor)]
    shape = broadcast([x.shape for x in arrays])
    if is_large(shape):
        return None
    count = numel(shape)
    columns = [spread(x, shape) if isinstance(x, Tensor) else (x,) * count for x in operands]
    parameter = any(x.parameter for x in arrays)
    return array(shape, dtype, [compute(*row) for row in zip(*columns, strict=True)], parameter=parameter)


def permuted(x: Tensor, order: Sequence[int]) -> Tensor:
    if sorted(order) != list(range(x.rank)):
        raise ShapeError(f"an array of shape {show(x.shape)} cannot be permuted by {list(order)[:16]}")
    strides = contiguous_strides(x.shape)
    shape = [x.shape[d] for d in order]
    return like(x, shape, strided(numbers(x), shape, [strides[d] for d in order]))


def joined(parts: Sequence[Tensor], axis: int, dtype: str) -> Tensor:
    """Arrays concatenated along an axis. Raises ShapeError if other sizes differ."""
    first = parts[0]
    place = dim_of(first.rank, axis)
    others = {(*x.shape[:place], *x.shape[place + 1 :]) for x in parts}
    if len(others) > 1 or any(x.rank != first.rank for x in parts):
        raise ShapeError(f"arrays of shapes {', '.join(show(x.shape) for x in parts[:8])} are not joined along {place}")
    items: list[Number] = []
    for lead in range(numel(first.shape[:place])):
        for x in parts:
            block = numel(x.shape[place:])
            items += numbers(x)[lead * block : (lead + 1) * block]
    shape = (*first.shape[:place], sum(x.shape[place] for x in parts), *first.shape[place + 1 :])
    return array(shape, dtype, items, parameter=any(x.parameter for x in parts))


def picked(x: Tensor, axis: int, indices: Iterable[int], shape: Sequence[int]) -> Tensor:
    """Slices at these indices of an axis, which ``shape`` replaces. Raises ShapeError."""
    place = dim_of(x.rank, axis)
    length, block = x.shape[place], numel(x.shape[place + 1 :])
    wanted = list(indices)
    if any(not -length <= index < length for index in wanted):
        raise ShapeError(f"index {wanted[:8]} into an array of shape {show(x.shape)}; an input has another rank?")
    if numel(x.shape[:place]) * len(wanted) * block > FEW:
        raise _too_many(shape)
    items: list[Number] = []
    for lead in range(numel(x.shape[:place])):
        for index in wanted:
            start = (lead * length + index % length) * block
            items += numbers(x)[start : start + block]
    return like(x, (*x.shape[:place], *shape, *x.shape[place + 1 :]), items)


def rows(x: Tensor, axis: int) -> tuple[Shape, list[Sequence[Number]]]:
    place = dim_of(x.rank, axis)
    if not x.rank:
        return (), [numbers(x)]
    rest = (*x.shape[:place], *x.shape[place + 1 :])
    moved = numbers(permuted(x, [*(d for d in range(x.rank) if d != place), place]))
    length = x.shape[place]
    return rest, [moved[row * length : (row + 1) * length] for row in range(numel(rest))]


def along(x: Tensor, axis: int, dtype: str, compute: Callable[[Sequence[Number]], Sequence[Number]]) -> Tensor:
    place = dim_of(x.rank, axis)
    rest, before = rows(x, axis)
    after = [compute(row) for row in before]
    if not x.rank:
        return array((), dtype, after[0], parameter=x.parameter)
    length = len(after[0]) if after else x.shape[place]
    made = array((*rest, length), dtype, [item for row in after for item in row], parameter=x.parameter)
    last = x.rank - 1
    return permuted(made, [*range(place), last, *range(place, last)])


def padded(x: Tensor, pairs: Sequence[tuple[int, int]], filler: Number) -> Tensor:
    """Numbers added or removed at the ends of each dimension."""
    made = x
    for axis, (before, after) in enumerate(pairs):
        if before < 0 or after < 0:
            length = made.shape[axis]
            kept = range(max(-before, 0), length - max(-after, 0))
            made = picked(made, axis, kept, (len(kept),))
        parts = [made]
        for count, place in ((before, 0), (after, 1)):
            if count > 0:
                shape = (*made.shape[:axis], count, *made.shape[axis + 1 :])
                if numel(shape) > FEW:
                    raise BudgetExceeded(f"the model pads an array by {count}; at most {FEW} numbers are followed")
                parts.insert(len(parts) if place else 0, like(x, shape, [filler] * numel(shape)))
        made = joined(parts, axis, x.dtype)
    return made
