# SPDX-License-Identifier: Apache-2.0
"""Pointwise operators on tensors, and on plain numbers in shape arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ModelError
from .elementwise import as_floating, binary, checked, is_host, launch_pointwise, promoted, unary
from .host.arithmetic import BINARY, COMPARISONS, FLOATING, UNARY
from .layout import dim_of
from .recorder import DataDependent, Recorder
from .registry import answered, operator
from .values import Number, Tensor


@operator("add", "add_")
def add(recorder: Recorder, self: Any, other: Any, alpha: Number = 1) -> Any:
    if isinstance(self, (list, str, tuple)):
        recorder.account.items(len(self) + len(other))
        return self + other
    return binary(recorder, "add", self, other, BINARY["add"])


@operator("mul", "mul_", "multiply")
def mul(recorder: Recorder, self: Any, other: Any) -> Any:
    if isinstance(other, (list, str, tuple)):
        raise TypeError("a number times a list")
    if isinstance(self, (list, str, tuple)):
        recorder.account.items(len(self) * max(int(other), 0))
        return self * other
    return binary(recorder, "mul", self, other, BINARY["mul"])


@operator("div", "div_", "divide", "true_divide")
def div(recorder: Recorder, self: Any, other: Any, rounding_mode: str | None = None) -> Any:
    dtype = None
    if rounding_mode is None and (isinstance(self, Tensor) or isinstance(other, Tensor)):
        dtype = as_floating(promoted((self, other)))
    return binary(recorder, "div", self, other, lambda a, b: BINARY["div"](a, b, rounding_mode), dtype)


@operator("pow", "pow_")
def pow_(recorder: Recorder, self: Any, exponent: Any) -> Any:
    return binary(recorder, "pow", self, exponent, BINARY["pow"])


@operator("remainder", "remainder_")
def remainder(recorder: Recorder, self: Any, other: Any) -> Any:
    if isinstance(self, str):
        return self
    return binary(recorder, "remainder", self, other, BINARY["remainder"])


def _named(name: str, *spellings: str) -> Callable[..., Any]:
    @operator(name, *spellings)
    def rule(recorder: Recorder, self: Any, other: Any, alpha: Number = 1) -> Any:
        return binary(recorder, name, self, other, BINARY[name])

    return rule


sub = _named("sub", "sub_", "subtract")
_named("rsub")
_named("floor_divide", "floor_divide_", "floordiv")
_named("maximum")
_named("minimum")
_named("atan2", "arctan2")
_named("bitwise_and", "__and__", "__iand__")
_named("bitwise_or", "__or__", "__ior__")
_named("bitwise_xor", "__xor__")
_named("bitwise_left_shift", "__lshift__")
_named("bitwise_right_shift", "__rshift__")


def _comparison(name: str, *spellings: str) -> None:
    @operator(name, *spellings)
    def rule(recorder: Recorder, self: Any, other: Any) -> Any:
        return binary(recorder, name, self, other, COMPARISONS[name], "bool")


_comparison("eq", "eq_")
_comparison("ne", "ne_", "not_equal")
_comparison("lt", "less")
_comparison("le", "less_equal")
_comparison("gt", "greater")
_comparison("ge", "greater_equal")
_comparison("logical_and")
_comparison("logical_or")


def _unary(name: str, *spellings: str, floating: bool = False) -> None:
    """Register a one-operand operator and its in-place form; computed for a plain number."""
    compute = UNARY.get(name) or FLOATING.get(name)

    @operator(name, f"{name}_", *spellings)
    def rule(recorder: Recorder, self: Any, *arguments: Any, **further: Any) -> Any:
        if compute is not None and not isinstance(self, Tensor):
            return checked(compute(self))
        return unary(recorder, name, self, floating=floating)


for _name in ("silu", "hardswish", "hardsigmoid", "mish", "elu", "leaky_relu", "softplus", "threshold", "celu", "hardshrink"):
    _unary(_name)
for _name in ("softshrink", "gelu", "log_sigmoid", *(name for name in UNARY if name not in ("abs", "neg"))):
    _unary(_name)
for _name in ("erfinv", *(name for name in FLOATING if name not in ("log10",))):
    # torch.export keeps the author's spelling: acos may be arccos there
    _unary(_name, *([f"arc{_name[1:]}"] if _name in ("acos", "asin", "atan") else ()), floating=True)
_unary("abs", "absolute")
_unary("neg", "negative")


@operator("hardtanh", "hardtanh_", "relu6", "relu6_")
def hardtanh(recorder: Recorder, self: Tensor, min_val: Number = -1, max_val: Number = 1) -> Tensor:
    """``relu6`` is dispatched as this."""
    return unary(recorder, "hardtanh", self)


@operator("selu", "selu_")
def selu(recorder: Recorder, self: Tensor) -> Tensor:
    return unary(recorder, "elu", self)


@operator("square")
def square(recorder: Recorder, self: Tensor) -> Tensor:
    return unary(recorder, "pow_scalar", self)


answered(lambda self: self, "positive")


@operator("logical_not")
def logical_not(recorder: Recorder, self: Tensor) -> Tensor:
    return launch_pointwise(recorder, "logical_not", [self], "bool")


@operator("prelu")
def prelu(recorder: Recorder, self: Tensor, weight: Tensor) -> Tensor:
    return recorder.launch("prelu", [self], recorder.tensor(self.shape, self.dtype), {}, (weight,))


@operator("clamp", "clamp_", "clip")
def clamp(recorder: Recorder, self: Any, min: Any = None, max: Any = None) -> Tensor:
    bounds = [x for x in (min, max) if isinstance(x, Tensor) and not is_host(x)]
    return launch_pointwise(recorder, "clamp", [self, *bounds], promoted([x for x in (self, min, max) if x is not None]))


def _side(kind: str) -> None:
    @operator(kind, f"{kind}_")
    def rule(recorder: Recorder, self: Tensor, bound: Any) -> Tensor:
        return unary(recorder, kind, self)


_side("clamp_min")
_side("clamp_max")


def _fused_update(kind: str) -> None:
    @operator(kind, f"{kind}_")
    def rule(recorder: Recorder, self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Number = 1) -> Tensor:
        return launch_pointwise(recorder, kind, [self, tensor1, tensor2], promoted((self, tensor1, tensor2)))


_fused_update("addcmul")
_fused_update("addcdiv")


@operator("lerp")
def lerp(recorder: Recorder, self: Tensor, end: Tensor, weight: Any) -> Tensor:
    return launch_pointwise(recorder, "lerp", [x for x in (self, end, weight) if isinstance(x, Tensor)], self.dtype)


@operator("where")
def where(recorder: Recorder, condition: Tensor, self: Any = None, other: Any = None) -> Tensor:
    if self is None or other is None:
        raise DataDependent("which elements are true decides the shape")
    tensors = [x for x in (condition, self, other) if isinstance(x, Tensor) and not (is_host(x) and x.rank == 0)]
    return launch_pointwise(recorder, "where", tensors, promoted((self, other)), beside_number=len(tensors) < 3)


@operator("masked_fill", "masked_fill_")
def masked_fill(recorder: Recorder, self: Tensor, mask: Tensor, value: Any) -> Tensor:
    return launch_pointwise(recorder, "masked_fill", [self, mask], self.dtype)


@operator("glu")
def glu(recorder: Recorder, self: Tensor, dim: int = -1) -> Tensor:
    place = dim_of(self.rank, dim)
    shape = tuple(size // 2 if d == place else size for d, size in enumerate(self.shape))
    return recorder.launch("glu", [self], recorder.tensor(shape, self.dtype))


def _no_drop(*names: str) -> None:
    @operator(*names)
    def rule(recorder: Recorder, input: Tensor, p: float = 0.5, train: bool = False, *_: Any) -> Tensor:
        if train and p > 0:
            raise ModelError("dropout in training mode: save the model after calling its eval()")
        recorder.host("dropout")
        return input


_no_drop(
    "dropout", "dropout_", "feature_dropout", "feature_dropout_", "alpha_dropout", "alpha_dropout_", "feature_alpha_dropout"
)
