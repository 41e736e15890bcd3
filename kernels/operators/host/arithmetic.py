# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on numbers known to the host, for every front end, by ATen's names."""

from __future__ import annotations

import itertools
import math
import operator as python
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ModelError
from ...network import numel
from ..elementwise import as_floating, promoted, type_named
from ..layout import dim_of
from ..registry import host_operator
from ..values import Number, Tensor
from .arrays import FEW, along, array, each, like, numbers, permuted


def _division(first: Any, second: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode == "floor":
        return first // second
    if rounding_mode == "trunc":
        quotient = abs(first) // abs(second)
        return quotient if (first < 0) == (second < 0) else -quotient
    return first / second


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int):
        if abs(base) > 1 and exponent > 64:
            raise ModelError("arithmetic leaves the range of 64-bit integers")
        return base**exponent if exponent >= 0 else float(base) ** exponent
    return math.pow(base, exponent)


def _shifted(value: int, by: int) -> int:
    if not 0 <= by <= 64:
        raise ModelError("arithmetic leaves the range of 64-bit integers")
    return value << by


def _between(value: Any, least: Any = None, most: Any = None) -> Any:
    value = value if least is None or value >= least else least
    return value if most is None or value <= most else most


def _sigmoid(value: Number) -> float:
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))


#: Of one number.
UNARY: dict[str, Callable[[Any], Any]] = {
    "abs": abs,
    "neg": python.neg,
    "sign": lambda x: (x > 0) - (x < 0),
    "floor": lambda x: x if math.isinf(x) or math.isnan(x) else math.floor(x),
    "ceil": lambda x: x if math.isinf(x) or math.isnan(x) else math.ceil(x),
    "trunc": lambda x: x if math.isinf(x) or math.isnan(x) else math.trunc(x),
    "round": lambda x: x if math.isinf(x) or math.isnan(x) else round(x),
    "relu": lambda x: max(x, 0),
    "bitwise_not": lambda x: not x if isinstance(x, bool) else ~x,
}
#: Of one number, always in floating point.
FLOATING: dict[str, Callable[[Any], Any]] = {
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "sigmoid": _sigmoid,
    **{name: getattr(math, name) for name in ("exp", "expm1", "log", "log2", "log10", "log1p", "sqrt", "erf")},
    **{name: getattr(math, name) for name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh")},
}
#: Tests of one number.
TESTS: dict[str, Callable[[Any], Any]] = {
    "logical_not": python.not_,
    "isnan": math.isnan,
    "isinf": math.isinf,
    "isfinite": math.isfinite,
}
#: Of two numbers.
BINARY: dict[str, Callable[..., Any]] = {
    "add": lambda a, b, alpha=1: a + alpha * b,
    "sub": lambda a, b, alpha=1: a - alpha * b,
    "rsub": lambda a, b, alpha=1: b - alpha * a,
    "mul": python.mul,
    "div": _division,
    "floor_divide": python.floordiv,
    "remainder": python.mod,
    "fmod": lambda a, b: int(math.fmod(a, b)) if isinstance(a, int) and isinstance(b, int) else math.fmod(a, b),
    "pow": _power,
    "maximum": max,
    "minimum": min,
    "atan2": math.atan2,
    "bitwise_and": python.and_,
    "bitwise_or": python.or_,
    "bitwise_xor": python.xor,
    "bitwise_left_shift": _shifted,
    "bitwise_right_shift": python.rshift,
}
#: Comparisons of two numbers.
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    **{name: getattr(python, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "logical_and": lambda a, b: bool(a) and bool(b),
    "logical_or": lambda a, b: bool(a) or bool(b),
    "logical_xor": lambda a, b: bool(a) != bool(b),
}
#: Other spellings.
_SPELLINGS: dict[str, tuple[str, ...]] = {
    "sub": ("subtract",),
    "mul": ("multiply",),
    "div": ("divide", "true_divide"),
    "floor_divide": ("floordiv",),
    "abs": ("absolute",),
    "neg": ("negative",),
    "ne": ("not_equal",),
    "lt": ("less",),
    "gt": ("greater",),
    "bitwise_and": ("__and__",),
    "bitwise_or": ("__or__",),
    "bitwise_xor": ("__xor__",),
    "bitwise_left_shift": ("__lshift__",),
    "bitwise_right_shift": ("__rshift__",),
}


def _unary(name: str, compute: Callable[[Any], Any], dtype_of: Callable[[str], str]) -> None:
    @host_operator(name, *_SPELLINGS.get(name, ()))
    def rule(self: Tensor, *_: Any, **__: Any) -> Tensor:
        return array(self.shape, dtype_of(self.dtype), [compute(x) for x in numbers(self)], parameter=self.parameter)


for _name, _function in UNARY.items():
    _unary(_name, _function, lambda dtype: dtype)
for _name, _function in FLOATING.items():
    _unary(_name, _function, as_floating)
for _name, _function in TESTS.items():
    _unary(_name, _function, lambda dtype: "bool")


def _binary(name: str, compute: Callable[..., Any], dtype: str = "") -> None:
    @host_operator(name, *_SPELLINGS.get(name, ()))
    def rule(self: Any, other: Any, *more: Any, **options: Any) -> Tensor | None:
        if not all(isinstance(x, (Tensor, int, float)) for x in (self, other)):
            raise TypeError(f"{name} of a tensor and something that is not a number")
        wanted = dtype or promoted((self, other))
        if name == "div" and not more and options.get("rounding_mode") is None:
            wanted = as_floating(wanted)
        return each(lambda a, b: compute(a, b, *more, **options), wanted, (self, other))


for _name, _pair in BINARY.items():
    _binary(_name, _pair)
for _name, _pair in COMPARISONS.items():
    _binary(_name, _pair, "bool")


@host_operator("clamp", "clip")
def clamp(self: Tensor, min: Any = None, max: Any = None) -> Tensor | None:
    return each(_between, promoted([x for x in (self, min, max) if x is not None]), (self, min, max))


host_operator("clamp_min")(clamp)
host_operator("clamp_max")(lambda self, max: clamp(self, None, max))


@host_operator("where")
def where(condition: Tensor, self: Any = None, other: Any = None) -> Tensor | None:
    if self is None or other is None:
        return None
    return each(lambda test, one, another: one if test else another, promoted((self, other)), (condition, self, other))


@host_operator("masked_fill")
def masked_fill(self: Tensor, mask: Tensor, value: Any) -> Tensor | None:
    return each(lambda test, one, another: one if test else another, self.dtype, (mask, value, self))


# Along dimensions


def _dims(x: Tensor, dim: Any) -> set[int]:
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return set(range(x.rank))
    return {dim_of(x.rank, place) for place in ([dim] if isinstance(dim, int) else dim)} if x.rank else set()


def _reduced(x: Tensor, dim: Any, keepdim: bool, dtype: str, compute: Callable[[Sequence[Number]], Number]) -> Tensor:
    dims = _dims(x, dim)
    kept = [d for d in range(x.rank) if d not in dims]
    block = numel([x.shape[d] for d in dims])
    moved = numbers(permuted(x, [*kept, *sorted(dims)]))
    shape = [1 if d in dims else size for d, size in enumerate(x.shape)] if keepdim else [x.shape[d] for d in kept]
    items = [compute(moved[row * block : (row + 1) * block]) for row in range(numel(shape))]
    return array(shape, dtype, items, parameter=x.parameter)


def _reduction(name: str, compute: Callable[[Sequence[Number]], Number], dtype_of: Callable[[str], str]) -> None:
    @host_operator(name)
    def rule(self: Tensor, dim: Any = None, keepdim: bool = False, dtype: int | None = None) -> Tensor:
        return _reduced(self, dim, keepdim, type_named(dtype, dtype_of(self.dtype)), compute)


def _summed(dtype: str) -> str:
    return dtype if "float" in dtype else "int64"


def _largest(row: Sequence[Number]) -> int:
    return max(range(len(row)), key=row.__getitem__)


def _smallest(row: Sequence[Number]) -> int:
    return min(range(len(row)), key=row.__getitem__)


_reduction("sum", sum, _summed)
_reduction("prod", math.prod, _summed)
_reduction("mean", lambda row: sum(row) / len(row), as_floating)
_reduction("amax", max, lambda dtype: dtype)
_reduction("amin", min, lambda dtype: dtype)
_reduction("any", any, lambda dtype: "bool")
_reduction("all", all, lambda dtype: "bool")
_reduction("argmax", _largest, lambda dtype: "int64")
_reduction("argmin", _smallest, lambda dtype: "int64")


def _extremum(name: str, compute: Callable[..., Any], place: Callable[[Sequence[Number]], int]) -> None:
    @host_operator(name)
    def rule(self: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
        """Over all elements, two operands, or rows along a dimension, with indices."""
        if isinstance(dim, Tensor):
            return each(compute, promoted((self, dim)), (self, dim))
        made = _reduced(self, dim, keepdim, self.dtype, compute)
        return made if dim is None else (made, _reduced(self, dim, keepdim, "int64", place))


_extremum("max", max, _largest)
_extremum("min", min, _smallest)


@host_operator("cumsum")
def cumsum(self: Tensor, dim: int, dtype: int | None = None) -> Tensor:
    return along(self, dim, type_named(dtype, _summed(self.dtype)), lambda row: list(itertools.accumulate(row)))


@host_operator("cumprod")
def cumprod(self: Tensor, dim: int, dtype: int | None = None) -> Tensor:
    return along(self, dim, type_named(dtype, _summed(self.dtype)), lambda row: list(itertools.accumulate(row, python.mul)))


def _order(row: Sequence[Number], descending: bool) -> list[int]:
    return sorted(range(len(row)), key=row.__getitem__, reverse=descending)


@host_operator("topk")
def topk(self: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    def first(row: Sequence[Number]) -> list[Number]:
        return [*_order(row, bool(largest))[:k]]

    return along(self, dim, self.dtype, lambda row: [row[int(place)] for place in first(row)]), along(self, dim, "int64", first)


@host_operator("sort")
def sort(self: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    return topk(self, self.shape[dim_of(self.rank, dim)] if self.rank else 1, dim, descending)


host_operator("argsort")(lambda self, dim=-1, descending=False: sort(self, dim, descending)[1])


@host_operator("nonzero")
def nonzero(self: Tensor) -> Tensor:
    places = [place for place, x in zip(itertools.product(*map(range, self.shape)), numbers(self), strict=True) if x]
    return array((len(places), self.rank), "int64", [index for place in places for index in place], parameter=self.parameter)


@host_operator("one_hot")
def one_hot(self: Tensor, num_classes: int = -1) -> Tensor | None:
    count = num_classes if num_classes >= 0 else max(numbers(self), default=0) + 1
    if count * self.numel > FEW:
        return None
    return array((*self.shape, int(count)), "int64", [int(x == c) for x in numbers(self) for c in range(int(count))])


def _corner(name: str, kept: Callable[[int, int], bool]) -> None:
    @host_operator(name)
    def rule(self: Tensor, diagonal: int = 0) -> Tensor:
        places = itertools.product(*map(range, self.shape))
        items = [x if kept(place[-1] - place[-2], diagonal) else 0 for place, x in zip(places, numbers(self), strict=True)]
        return like(self, self.shape, items)


_corner("tril", lambda distance, diagonal: distance <= diagonal)
_corner("triu", lambda distance, diagonal: distance >= diagonal)
