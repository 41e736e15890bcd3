# SPDX-License-Identifier: Apache-2.0
"""Pointwise operators, on tensors and on the plain numbers that shape arithmetic uses the same names for."""

from __future__ import annotations

import math
import operator as python
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ModelError, ShapeError
from ..layout import broadcast, dim_of, elementwise_strides
from ..recorder import DataDependent, Recorder
from ..registry import operator
from ..values import HostValue, Number, Tensor

_RANKS = {
    "bool": 0,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "float16": 6,
    "bfloat16": 6,
    "float32": 7,
    "float64": 8,
}
_RANKS |= {"complex64": 10, "complex128": 11}


def _category(dtype: str) -> int:
    rank = _RANKS.get(dtype, 7)
    return 0 if rank == 0 else 1 if rank < 6 else 2 if rank < 10 else 3


def _of_number(value: Any) -> str:
    return "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"


def _wider(first: str, second: str) -> str:
    if first == second:
        return first
    if {first, second} in ({"float16", "bfloat16"},):
        return "float32"
    if {first, second} == {"uint8", "int8"}:
        return "int16"
    return first if _RANKS.get(first, 7) >= _RANKS.get(second, 7) else second


def promoted(operands: Sequence[Any]) -> str:
    """The element type PyTorch computes in: tensors with dimensions first, then scalars of a higher category."""
    result = ""
    for ranked in (True, False):
        kinds = [x.dtype for x in operands if isinstance(x, Tensor) and (x.rank > 0) == ranked and not _is_number(x)]
        for dtype in kinds:
            if not result or (ranked or _category(dtype) > _category(result)):
                result = _wider(result, dtype) if result else dtype
    for number in operands:
        dtype = number.dtype if isinstance(number, Tensor) else _of_number(number)
        if dtype == "float64" and isinstance(number, Tensor) and _is_number(number):
            dtype = "float32"  # a wrapped Python float takes the default type
        if (not isinstance(number, Tensor) or _is_number(number)) and (not result or _category(dtype) > _category(result)):
            result = dtype
    return result


def is_host(value: Any) -> bool:
    """Numbers that the host knows, wrapped in a tensor: arithmetic on them launches nothing."""
    return isinstance(value, Tensor) and value.value is not None


def _is_number(value: Tensor) -> bool:
    return value.rank == 0 and value.value is not None


def checked(value: Any) -> Any:
    """A result of arithmetic, if it is a number TorchScript can hold."""
    if type(value) is int and not -(1 << 63) <= value < 1 << 63:
        raise ModelError("arithmetic leaves the range of 64-bit integers")
    return value


def pointwise(run: Recorder, kind: str, operands: Sequence[Tensor], dtype: str, params: dict[str, Any] | None = None) -> Tensor:
    """Launch one pointwise kernel over tensors that broadcast."""
    shape = operands[0].shape if len(operands) == 1 else broadcast([x.shape for x in operands])
    output = run.tensor(shape, dtype, elementwise_strides(shape, operands))
    return run.launch(kind, operands, output, params)


def host_tensor(value: HostValue, dtype: str | None = None) -> Tensor:
    """A tensor whose contents the host knows: one number, or a row of them."""
    if isinstance(value, tuple):
        return Tensor((len(value),), dtype or (_of_number(value[0]) if value else "float32"), value=value)
    return Tensor((), dtype or _of_number(value), value=value)


def host_map(run: Recorder, kind: str, compute: Callable[..., Any], operands: Sequence[Any]) -> Tensor:
    """Apply an operator to numbers the host knows, row by row where there are rows."""
    run.host(kind)
    values = [x.value if isinstance(x, Tensor) else x for x in operands]
    lengths = {len(value) for value in values if isinstance(value, tuple)}
    if not lengths:
        return host_tensor(checked(compute(*values)))
    if len(lengths - {1}) > 1:
        raise ShapeError("rows of different lengths do not broadcast")
    length = max(lengths)
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    rows = [row * length if len(row) == 1 else row for row in rows]
    return host_tensor(tuple(checked(compute(*column)) for column in zip(*rows, strict=True)))


def binary(
    run: Recorder, kind: str, first: Any, second: Any, compute: Callable[[Any, Any], Any], dtype: str | None = None
) -> Any:
    """A pointwise operator of two operands, each a tensor or a number."""
    if not isinstance(first, Tensor) and not isinstance(second, Tensor):
        return checked(compute(_plain(first), _plain(second)))
    if not all(isinstance(x, (Tensor, int, float)) for x in (first, second)):
        raise TypeError(f"{kind} of a tensor and something that is no number")
    if not any(isinstance(x, Tensor) and not is_host(x) for x in (first, second)):
        return host_map(run, kind, compute, (first, second))
    tensors = [x for x in (first, second) if isinstance(x, Tensor) and not (is_host(x) and x.rank == 0)]
    name = kind if len(tensors) == 2 else f"{kind}_scalar"
    return pointwise(run, name, tensors, dtype or promoted((first, second)))


def _plain(value: Any) -> Any:
    """An operand that is no tensor. Containers within containers are refused: comparing them can take forever."""
    if isinstance(value, (list, tuple, dict)) and any(isinstance(item, (list, tuple, dict)) for item in value):
        raise ShapeError("containers of containers are not compared")
    return value


def _add(first: Any, second: Any) -> Any:
    return first + second


def _division(first: Any, second: Any) -> Any:
    return first / second


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int):
        if abs(base) > 1 and exponent > 64:
            raise ModelError("arithmetic leaves the range of 64-bit integers")
        return base**exponent if exponent >= 0 else float(base) ** exponent
    return math.pow(base, exponent)


@operator("add", "add_")
def add(run: Recorder, self: Any, other: Any, alpha: Number = 1) -> Any:
    if isinstance(self, (list, str, tuple)):
        run.meter.items(len(self) + len(other))
        return self + other
    return binary(run, "add", self, other, _add)


@operator("sub", "sub_", "subtract")
def sub(run: Recorder, self: Any, other: Any, alpha: Number = 1) -> Any:
    return binary(run, "sub", self, other, python.sub)


@operator("rsub")
def rsub(run: Recorder, self: Any, other: Any, alpha: Number = 1) -> Any:
    return binary(run, "rsub", self, other, lambda a, b: b - a)


@operator("mul", "mul_", "multiply")
def mul(run: Recorder, self: Any, other: Any) -> Any:
    if isinstance(other, (list, str, tuple)):
        raise TypeError("a number times a list")
    if isinstance(self, (list, str, tuple)):
        run.meter.items(len(self) * max(int(other), 0))
        return self * other
    return binary(run, "mul", self, other, python.mul)


@operator("div", "div_", "divide", "true_divide")
def div(run: Recorder, self: Any, other: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode == "floor":
        return binary(run, "div", self, other, python.floordiv)
    if rounding_mode == "trunc":
        return binary(run, "div", self, other, lambda a, b: int(a / b))
    dtype = None
    if isinstance(self, Tensor) or isinstance(other, Tensor):
        dtype = promoted((self, other))
        dtype = dtype if _category(dtype) >= 2 else "float32"
    return binary(run, "div", self, other, _division, dtype)


@operator("floor_divide", "floor_divide_", "floordiv")
def floor_divide(run: Recorder, self: Any, other: Any) -> Any:
    return binary(run, "floor_divide", self, other, python.floordiv)


@operator("remainder", "remainder_")
def remainder(run: Recorder, self: Any, other: Any) -> Any:
    if isinstance(self, str):
        return self
    return binary(run, "remainder", self, other, python.mod)


@operator("pow", "pow_")
def pow_(run: Recorder, self: Any, exponent: Any) -> Any:
    return binary(run, "pow", self, exponent, _power)


def _named(name: str, compute: Callable[[Any, Any], Any], *spellings: str) -> None:
    @operator(name, *spellings)
    def rule(run: Recorder, self: Any, other: Any) -> Any:
        return binary(run, name, self, other, compute)


_named("maximum", max)
_named("minimum", min)
_named("atan2", math.atan2)
_named("bitwise_and", python.and_, "__and__", "__iand__")
_named("bitwise_or", python.or_, "__or__", "__ior__")


def _shifted(value: int, by: int) -> int:
    if not 0 <= by <= 64:
        raise ModelError("arithmetic leaves the range of 64-bit integers")
    return value << by


_named("bitwise_left_shift", _shifted, "__lshift__")
_named("bitwise_right_shift", python.rshift, "__rshift__")
_named("bitwise_xor", python.xor, "__xor__")


def _comparison(name: str, compute: Callable[[Any, Any], Any], *spellings: str) -> None:
    @operator(name, *spellings)
    def rule(run: Recorder, self: Any, other: Any) -> Any:
        return binary(run, name, self, other, compute, "bool")


_comparison("eq", python.eq, "eq_")
_comparison("ne", python.ne, "ne_", "not_equal")
_comparison("lt", python.lt, "less")
_comparison("le", python.le)
_comparison("gt", python.gt, "greater")
_comparison("ge", python.ge)
_comparison("logical_and", lambda a, b: bool(a) and bool(b))
_comparison("logical_or", lambda a, b: bool(a) or bool(b))


def unary(run: Recorder, kind: str, x: Tensor, *, floating: bool = False, params: dict[str, Any] | None = None) -> Tensor:
    """A pointwise operator of one tensor; ``floating`` ones turn integers into float32."""
    dtype = "float32" if floating and _category(x.dtype) < 2 else x.dtype
    if kind in ("abs", "angle") and x.dtype.startswith("complex"):
        dtype = "float64" if x.dtype == "complex128" else "float32"
    return run.launch(kind, [x], run.tensor(x.shape, dtype, elementwise_strides(x.shape, (x,))), params)


def _unary(name: str, *spellings: str, compute: Callable[[Any], Any] | None = None, floating: bool = False) -> None:
    """Register a one-operand operator and its in-place form; ``compute`` is for plain numbers."""

    @operator(name, f"{name}_", *spellings)
    def rule(run: Recorder, self: Any, *arguments: Any, **further: Any) -> Any:
        if compute is not None and is_host(self):
            return host_map(run, name, compute, (self,))
        if compute is not None and not isinstance(self, Tensor):
            return checked(compute(self))
        return unary(run, name, self, floating=floating)


for _name in (
    "relu",
    "silu",
    "hardswish",
    "hardsigmoid",
    "mish",
    "elu",
    "leaky_relu",
    "softplus",
    "threshold",
    "celu",
    "hardshrink",
    "softshrink",
):
    _unary(_name)
for _name in (
    "sigmoid",
    "tanh",
    "erf",
    "log2",
    "log1p",
    "expm1",
    "sinh",
    "cosh",
    "asin",
    "acos",
    "erfinv",
):
    _unary(_name, floating=True)
_unary("gelu")
_unary("log_sigmoid")
_unary("reciprocal", compute=lambda value: 1 / value, floating=True)
_unary("rsqrt", compute=lambda value: 1 / math.sqrt(value), floating=True)
_unary("exp", compute=math.exp, floating=True)
_unary("log", compute=math.log, floating=True)
_unary("sqrt", compute=math.sqrt, floating=True)
_unary("sin", compute=math.sin, floating=True)
_unary("cos", compute=math.cos, floating=True)
_unary("tan", compute=math.tan, floating=True)
_unary("atan", compute=math.atan, floating=True)
_unary("floor", compute=math.floor)
_unary("ceil", compute=math.ceil)
_unary("trunc", compute=math.trunc)
_unary("round", compute=round)
_unary("abs", "absolute", compute=abs)
_unary("neg", "negative", compute=python.neg)
_unary("sign", compute=lambda value: (value > 0) - (value < 0))
_unary("bitwise_not", compute=python.invert)


@operator("hardtanh", "hardtanh_", "relu6", "relu6_")
def hardtanh(run: Recorder, self: Tensor, min_val: Number = -1, max_val: Number = 1) -> Tensor:
    """``relu6`` is dispatched as this."""
    return unary(run, "hardtanh", self)


@operator("selu", "selu_")
def selu(run: Recorder, self: Tensor) -> Tensor:
    return unary(run, "elu", self)


@operator("square")
def square(run: Recorder, self: Tensor) -> Tensor:
    return unary(run, "pow_scalar", self)


@operator("positive")
def positive(run: Recorder, self: Any) -> Any:
    return self


@operator("logical_not")
def test(run: Recorder, self: Tensor) -> Tensor:
    return pointwise(run, "logical_not", [self], "bool")


@operator("prelu")
def prelu(run: Recorder, self: Tensor, weight: Tensor) -> Tensor:
    return run.launch("prelu", [self], run.tensor(self.shape, self.dtype), {}, (weight,))


def _between(value: Any, least: Any, most: Any) -> Any:
    value = value if least is None or value >= least else least
    return value if most is None or value <= most else most


@operator("clamp", "clamp_", "clip")
def clamp(run: Recorder, self: Any, min: Any = None, max: Any = None) -> Tensor:
    if is_host(self) and not any(isinstance(bound, Tensor) for bound in (min, max)):
        return host_map(run, "clamp", lambda value: _between(value, min, max), (self,))
    bounds = [x for x in (min, max) if isinstance(x, Tensor) and not is_host(x)]
    return pointwise(run, "clamp", [self, *bounds], promoted([x for x in (self, min, max) if x is not None]))


def _side(kind: str) -> None:
    @operator(kind, f"{kind}_")
    def rule(run: Recorder, self: Tensor, bound: Any) -> Tensor:
        return unary(run, kind, self)


_side("clamp_min")
_side("clamp_max")


def _fused_update(kind: str) -> None:
    @operator(kind, f"{kind}_")
    def rule(run: Recorder, self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Number = 1) -> Tensor:
        return pointwise(run, kind, [self, tensor1, tensor2], promoted((self, tensor1, tensor2)))


_fused_update("addcmul")
_fused_update("addcdiv")


@operator("lerp")
def lerp(run: Recorder, self: Tensor, end: Tensor, weight: Any) -> Tensor:
    return pointwise(run, "lerp", [x for x in (self, end, weight) if isinstance(x, Tensor)], self.dtype)


@operator("where")
def where(run: Recorder, condition: Tensor, self: Any = None, other: Any = None) -> Tensor:
    if self is None or other is None:
        raise DataDependent("which elements are true decides the shape")
    return pointwise(run, "where", [x for x in (condition, self, other) if isinstance(x, Tensor)], promoted((self, other)))


@operator("masked_fill", "masked_fill_")
def masked_fill(run: Recorder, self: Tensor, mask: Tensor, value: Any) -> Tensor:
    return pointwise(run, "masked_fill", [self, mask], self.dtype)


@operator("glu")
def glu(run: Recorder, self: Tensor, dim: int = -1) -> Tensor:
    place = dim_of(self.rank, dim)
    shape = tuple(size // 2 if d == place else size for d, size in enumerate(self.shape))
    return run.launch("glu", [self], run.tensor(shape, self.dtype))


def _no_drop(*names: str) -> None:
    @operator(*names)
    def rule(run: Recorder, input: Tensor, p: float = 0.5, train: bool = False, *_: Any) -> Tensor:
        """Dropout passes its input through unless the network is being trained."""
        if train and p > 0:
            raise ModelError("dropout in training mode: save the model after calling its eval()")
        run.host("dropout")
        return input


_no_drop(
    "dropout", "dropout_", "feature_dropout", "feature_dropout_", "alpha_dropout", "alpha_dropout_", "feature_alpha_dropout"
)
