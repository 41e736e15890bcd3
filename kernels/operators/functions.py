# SPDX-License-Identifier: Apache-2.0
"""Special functions, losses and statistics, as ATen dispatches them."""

from __future__ import annotations

from typing import Any

from . import pointwise
from .elementwise import launch_pointwise, promoted, type_named, unary
from .memory.creation import cast
from .recorder import Recorder
from .reduction import reduce, reduced
from .registry import operator
from .values import Tensor

# Pointwise


def _function(name: str, *spellings: str, floating: bool = True, dtype: str | None = None) -> None:
    @operator(name, f"{name}_", *spellings)
    def rule(recorder: Recorder, self: Tensor, *_: Any, **__: Any) -> Tensor:
        return launch_pointwise(recorder, name, [self], dtype) if dtype else unary(recorder, name, self, floating=floating)


for _name in ("exp2", "log10", "erfc", "lgamma", "digamma", "deg2rad", "rad2deg", "logit", "sinc"):
    _function(_name)
for _name in ("asinh", "acosh", "atanh"):
    _function(_name, f"arc{_name[1:]}")
for _name in ("i0", "angle"):
    _function(_name)
for _name in ("frac", "sgn", "nan_to_num"):
    _function(_name, floating=False)
for _name in ("isnan", "isinf", "isneginf", "isposinf", "signbit"):
    _function(_name, dtype="bool")


def _pair(name: str, dtype: str | None = None) -> None:
    @operator(name, f"{name}_")
    def rule(recorder: Recorder, self: Any, other: Any) -> Tensor:
        tensors = [x for x in (self, other) if isinstance(x, Tensor)]
        kind = name if len(tensors) == 2 else f"{name}_scalar"
        number = len(tensors) == 1
        return launch_pointwise(recorder, kind, tensors, dtype or promoted((self, other)), beside_number=number)


for _name in (
    "fmax",
    "fmin",
    "fmod",
    "hypot",
    "logaddexp",
    "logaddexp2",
    "xlogy",
    "copysign",
    "heaviside",
    "nextafter",
    "ldexp",
):
    _pair(_name)
_pair("logical_xor", "bool")
_pair("polar", "complex64")


@operator("isfinite")
def isfinite(recorder: Recorder, self: Tensor) -> Any:
    size = unary(recorder, "abs", self)
    bounded = launch_pointwise(recorder, "ne_scalar", [size], "bool")
    return pointwise.mul(recorder, launch_pointwise(recorder, "eq", [self, self], "bool"), bounded)


@operator("float_power")
def float_power(recorder: Recorder, self: Any, exponent: Any) -> Any:
    wide = [cast(recorder, x, "float64") if isinstance(x, Tensor) else x for x in (self, exponent)]
    return pointwise.pow_(recorder, *wide)


@operator("rrelu", "rrelu_")
def rrelu(
    recorder: Recorder, self: Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, *_: Any
) -> Tensor:
    noise = recorder.tensor(self.shape, self.dtype)
    return launch_pointwise(recorder, "rrelu_with_noise", [self, noise], self.dtype)


@operator("cosine_similarity")
def cosine_similarity(recorder: Recorder, x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Any:
    lengths = []
    for x in (x1, x2):
        length = reduce(recorder, "norm", x, dim, True)
        lengths.append(recorder.launch("clone", [length], recorder.tensor(length.shape, length.dtype)))
    limit = recorder.tensor((), x1.dtype)
    lengths = [launch_pointwise(recorder, "clamp_min", [length, limit], x1.dtype) for length in lengths]
    one, other = (pointwise.div(recorder, x, length) for x, length in zip((x1, x2), lengths, strict=True))
    product = pointwise.mul(recorder, one, other)
    return reduce(recorder, "sum", product, dim, False)


@operator("pairwise_distance")
def pairwise_distance(
    recorder: Recorder, x1: Tensor, x2: Tensor, p: float = 2, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    difference = pointwise.add(recorder, pointwise.sub(recorder, x1, x2), eps)
    return reduce(recorder, "norm", difference, -1, keepdim)


def _loss(kind: str) -> None:
    @operator(kind)
    def rule(recorder: Recorder, self: Tensor, target: Tensor, *more: Any, **_: Any) -> Tensor:
        reduction = next((item for item in more if type(item) is int), 1)
        return recorder.launch(kind, [self, target], recorder.tensor(() if reduction else self.shape, self.dtype))


for _name in ("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits"):
    _loss(_name)


@operator("l1_loss")
def l1_loss(recorder: Recorder, self: Tensor, target: Tensor, reduction: int = 1) -> Any:
    difference = unary(recorder, "abs", pointwise.sub(recorder, self, target))
    return difference if not reduction else reduce(recorder, "mean" if reduction == 1 else "sum", difference, None, False)


# Along dimensions


def _statistic(kind: str, dtype: str | None = None, outputs: int = 1) -> None:
    @operator(kind)
    def rule(recorder: Recorder, self: Tensor, dim: Any = None, *more: Any, keepdim: bool = False, **_: Any) -> Any:
        keep = keepdim or bool(more and more[-1] is True)
        axes = None if isinstance(dim, bool) else dim
        made = recorder.launch(kind, [self], recorder.tensor(reduced(self, axes, keep)[1], dtype or self.dtype))
        return made if outputs == 1 else (made, *(recorder.tensor(made.shape, made.dtype) for _ in range(outputs - 1)))


_statistic("nansum")
_statistic("count_nonzero", "int64")
_statistic("var_mean", outputs=2)
_statistic("std_mean", outputs=2)
_statistic("aminmax", outputs=2)


def _ranked(kind: str) -> None:
    @operator(kind)
    def rule(recorder: Recorder, self: Tensor, *arguments: Any, keepdim: bool = False, **_: Any) -> Any:
        """Over all elements, or a dimension with indices; ``kthvalue`` has its index before the dimension."""
        numbers = [item for item in arguments if type(item) is int]
        dim = numbers[-1] if len(numbers) > (kind == "kthvalue") else None if kind == "median" else -1
        keep = keepdim or bool(arguments and arguments[-1] is True)
        made = recorder.launch(kind, [self], recorder.tensor(reduced(self, dim, keep)[1], self.dtype))
        return made if dim is None else (made, recorder.tensor(made.shape, "int64"))


for _name in ("median", "kthvalue", "mode"):
    _ranked(_name)


def _running(kind: str, pair: bool = False) -> None:
    @operator(kind)
    def rule(recorder: Recorder, self: Tensor, dim: int, dtype: int | None = None) -> Any:
        made = recorder.launch(kind, [self], recorder.tensor(self.shape, type_named(dtype, self.dtype)))
        return (made, recorder.tensor(made.shape, "int64")) if pair else made


_running("cumprod")
_running("logcumsumexp")
_running("cummax", pair=True)
_running("cummin", pair=True)


@operator("histc")
def histc(recorder: Recorder, self: Tensor, bins: int = 100, *_: Any, **__: Any) -> Tensor:
    return recorder.launch("histc", [self], recorder.tensor((bins,), self.dtype))


@operator("searchsorted")
def searchsorted(recorder: Recorder, sorted_sequence: Tensor, self: Tensor, *_: Any, **__: Any) -> Tensor:
    return recorder.launch("searchsorted", [sorted_sequence, self], recorder.tensor(self.shape, "int64"))
