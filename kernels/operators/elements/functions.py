# SPDX-License-Identifier: Apache-2.0
"""Special functions, losses and statistics, each as ATen dispatches it."""

from __future__ import annotations

from typing import Any

from ..memory.creation import cast
from ..recorder import Recorder
from ..registry import operator
from ..values import Tensor
from . import pointwise
from .pointwise import promoted, unary
from .reduction import reduce, reduced, type_named

# Pointwise


def _function(name: str, *, floating: bool = True, dtype: str | None = None) -> None:
    @operator(name, f"{name}_")
    def rule(run: Recorder, self: Tensor, *_: Any, **__: Any) -> Tensor:
        return pointwise.pointwise(run, name, [self], dtype) if dtype else unary(run, name, self, floating=floating)


for _name in ("exp2", "log10", "erfc", "lgamma", "digamma", "asinh", "acosh", "atanh", "deg2rad", "rad2deg", "logit", "sinc"):
    _function(_name)
for _name in ("i0", "angle"):
    _function(_name)
for _name in ("frac", "sgn", "nan_to_num"):
    _function(_name, floating=False)
for _name in ("isnan", "isinf", "isneginf", "isposinf", "signbit"):
    _function(_name, dtype="bool")


def _pair(name: str, dtype: str | None = None) -> None:
    @operator(name, f"{name}_")
    def rule(run: Recorder, self: Any, other: Any) -> Tensor:
        tensors = [x for x in (self, other) if isinstance(x, Tensor)]
        kind = name if len(tensors) == 2 else f"{name}_scalar"
        return pointwise.pointwise(run, kind, tensors, dtype or promoted((self, other)))


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
def isfinite(run: Recorder, self: Tensor) -> Any:
    size = unary(run, "abs", self)
    bounded = pointwise.pointwise(run, "ne_scalar", [size], "bool")
    return pointwise.mul(run, pointwise.pointwise(run, "eq", [self, self], "bool"), bounded)


@operator("float_power")
def float_power(run: Recorder, self: Any, exponent: Any) -> Any:
    wide = [cast(run, x, "float64") if isinstance(x, Tensor) else x for x in (self, exponent)]
    return pointwise.pow_(run, *wide)


@operator("rrelu", "rrelu_")
def rrelu(run: Recorder, self: Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, *_: Any) -> Tensor:
    noise = run.tensor(self.shape, self.dtype)
    return pointwise.pointwise(run, "rrelu_with_noise", [self, noise], self.dtype)


@operator("cosine_similarity")
def cosine_similarity(run: Recorder, x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Any:
    lengths = []
    for x in (x1, x2):
        length = reduce(run, "norm", x, dim, True)
        lengths.append(run.launch("clone", [length], run.tensor(length.shape, length.dtype)))
    limit = run.tensor((), x1.dtype)
    lengths = [pointwise.pointwise(run, "clamp_min", [length, limit], x1.dtype) for length in lengths]
    one, other = (pointwise.div(run, x, length) for x, length in zip((x1, x2), lengths, strict=True))
    product = pointwise.mul(run, one, other)
    return reduce(run, "sum", product, dim, False)


@operator("pairwise_distance")
def pairwise_distance(run: Recorder, x1: Tensor, x2: Tensor, p: float = 2, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    difference = pointwise.add(run, pointwise.sub(run, x1, x2), eps)
    return reduce(run, "norm", difference, -1, keepdim)


def _loss(kind: str) -> None:
    @operator(kind)
    def rule(run: Recorder, self: Tensor, target: Tensor, *more: Any, **_: Any) -> Tensor:
        reduction = next((item for item in more if type(item) is int), 1)
        return run.launch(kind, [self, target], run.tensor(() if reduction else self.shape, self.dtype))


for _name in ("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits"):
    _loss(_name)


@operator("l1_loss")
def l1_loss(run: Recorder, self: Tensor, target: Tensor, reduction: int = 1) -> Any:
    difference = unary(run, "abs", pointwise.sub(run, self, target))
    return difference if not reduction else reduce(run, "mean" if reduction == 1 else "sum", difference, None, False)


# Along dimensions


def _statistic(kind: str, dtype: str | None = None, outputs: int = 1) -> None:
    @operator(kind)
    def rule(run: Recorder, self: Tensor, dim: Any = None, *more: Any, keepdim: bool = False, **_: Any) -> Any:
        keep = keepdim or bool(more and more[-1] is True)
        axes = None if isinstance(dim, bool) else dim
        made = run.launch(kind, [self], run.tensor(reduced(self, axes, keep)[1], dtype or self.dtype))
        return made if outputs == 1 else (made, *(run.tensor(made.shape, made.dtype) for _ in range(outputs - 1)))


_statistic("nansum")
_statistic("count_nonzero", "int64")
_statistic("var_mean", outputs=2)
_statistic("std_mean", outputs=2)
_statistic("aminmax", outputs=2)


def _ranked(kind: str) -> None:
    @operator(kind)
    def rule(run: Recorder, self: Tensor, *arguments: Any, keepdim: bool = False, **_: Any) -> Any:
        """Of all elements, or along a dimension with indices; ``kthvalue`` says which one before the dimension."""
        numbers = [item for item in arguments if type(item) is int]
        dim = numbers[-1] if len(numbers) > (kind == "kthvalue") else None if kind == "median" else -1
        keep = keepdim or bool(arguments and arguments[-1] is True)
        made = run.launch(kind, [self], run.tensor(reduced(self, dim, keep)[1], self.dtype))
        return made if dim is None else (made, run.tensor(made.shape, "int64"))


for _name in ("median", "kthvalue", "mode"):
    _ranked(_name)


def _running(kind: str, pair: bool = False) -> None:
    @operator(kind)
    def rule(run: Recorder, self: Tensor, dim: int, dtype: int | None = None) -> Any:
        made = run.launch(kind, [self], run.tensor(self.shape, type_named(dtype, self.dtype)))
        return (made, run.tensor(made.shape, "int64")) if pair else made


_running("cumprod")
_running("logcumsumexp")
_running("cummax", pair=True)
_running("cummin", pair=True)


@operator("searchsorted")
def searchsorted(run: Recorder, sorted_sequence: Tensor, self: Tensor, *_: Any, **__: Any) -> Tensor:
    return run.launch("searchsorted", [sorted_sequence, self], run.tensor(self.shape, "int64"))
