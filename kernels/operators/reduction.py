# SPDX-License-Identifier: Apache-2.0
"""Operators along dimensions: reductions, softmax, sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ShapeError
from ..network import ParamValue, Shape
from .elementwise import binary, type_named
from .host.scalars import plain_items
from .layout import contiguous, dim_of, preserved, show
from .recorder import Recorder
from .registry import operator
from .values import Tensor


def reduced(x: Tensor, dim: Any, keepdim: bool) -> tuple[tuple[int, ...], Shape]:
    """Dimensions to reduce (all if ``dim`` is ``None`` or empty), and the remaining shape."""
    if isinstance(dim, int):
        dim = [dim]
    dims = tuple(sorted(dim_of(x.rank, d) for d in dim)) if dim else tuple(range(x.rank))
    if keepdim:
        return dims, tuple(1 if place in dims else size for place, size in enumerate(x.shape))
    return dims, tuple(size for place, size in enumerate(x.shape) if place not in dims)


def reduce(recorder: Recorder, kind: str, x: Tensor, dim: Any, keepdim: bool, dtype: str | None = None) -> Tensor:
    dims, shape = reduced(x, dim, keepdim)
    params: dict[str, ParamValue] = {"dim": dims, "keepdim": bool(keepdim)}
    return recorder.launch(kind, [x], recorder.tensor(shape, dtype or x.dtype), params)


@operator("mean")
def mean(recorder: Recorder, self: Tensor, dim: Any = None, keepdim: bool = False, dtype: int | None = None) -> Tensor:
    return reduce(recorder, "mean", self, dim, keepdim, type_named(dtype, self.dtype))


@operator("sum")
def sum_(recorder: Recorder, self: Any, dim: Any = None, keepdim: bool = False, dtype: int | None = None) -> Any:
    if isinstance(self, list):
        return sum(plain_items(self))
    return reduce(recorder, "sum", self, dim, keepdim, type_named(dtype, self.dtype if self.is_floating else "int64"))


@operator("prod")
def prod(recorder: Recorder, self: Tensor, dim: Any = None, keepdim: bool = False, dtype: int | None = None) -> Tensor:
    return reduce(recorder, "prod", self, dim, keepdim, type_named(dtype, self.dtype if self.is_floating else "int64"))


@operator("amax", "amin")
def extreme(recorder: Recorder, self: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    return reduce(recorder, "amax", self, dim, keepdim)


def _logical(name: str, checking: str, compute: Callable[[list[Any]], bool]) -> None:
    """Register a name, and the one of a check over a tensor (``torch._check_tensor_all``)."""

    @operator(name, checking)
    def rule(recorder: Recorder, self: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if isinstance(self, list):
            return compute(plain_items(self))
        return reduce(recorder, name, self, dim, keepdim, "bool")


_logical("any", "_is_any_true", any)
_logical("all", "_is_all_true", all)


@operator("logsumexp")
def logsumexp(recorder: Recorder, self: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    return reduce(recorder, "logsumexp", self, dim, keepdim)


@operator("argmax", "argmin")
def argmax(recorder: Recorder, self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    dims, shape = reduced(self, dim, keepdim)
    return recorder.launch("argmax", [self], recorder.tensor(shape, "int64"), {"dim": dims, "keepdim": bool(keepdim)})


def _extremum(kind: str) -> None:
    @operator(kind)
    def rule(recorder: Recorder, self: Any, dim: Any = None, keepdim: bool = False) -> Any:
        """Of all elements; of two operands; of each row along a dimension, with indices."""
        if isinstance(self, list):
            return (max if kind == "max" else min)(plain_items(self))
        if isinstance(dim, Tensor) or not isinstance(self, Tensor):
            return binary(recorder, "maximum" if kind == "max" else "minimum", self, dim, max if kind == "max" else min)
        if dim is None:
            return reduce(recorder, kind, self, None, False)
        values = reduce(recorder, kind, self, dim, keepdim)
        return values, recorder.tensor(values.shape, "int64")


_extremum("max")
_extremum("min")


def _spread(kind: str) -> None:
    @operator(kind)
    def rule(
        recorder: Recorder, self: Tensor, dim: Any = None, unbiased: Any = True, keepdim: bool = False, **_: Any
    ) -> Tensor:
        return reduce(recorder, kind, self, None if isinstance(dim, bool) else dim, keepdim)


_spread("var")
_spread("std")


@operator("norm", "linalg_vector_norm", "frobenius_norm")
def norm(
    recorder: Recorder, self: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: int | None = None
) -> Tensor:
    return reduce(recorder, "norm", self, dim, keepdim)


def _along(kind: str, *names: str) -> None:
    @operator(*names)
    def rule(recorder: Recorder, self: Tensor, dim: int, dtype: int | None = None, *_: Any, **__: Any) -> Tensor:
        code = None if isinstance(dtype, bool) else dtype  # in ``_softmax``, True if half becomes float
        wanted = type_named(code, self.dtype)
        # Half becomes single precision in the kernel; other types are converted first.
        if wanted != self.dtype and (self.dtype, wanted) != ("float16", "float32"):
            self = recorder.launch("to", [self], recorder.tensor(self.shape, wanted, preserved(self)))
        self = contiguous(recorder, self)  # on CUDA (SoftMax.cu)
        return recorder.launch(kind, [self], recorder.tensor(self.shape, wanted), {"dim": dim_of(self.rank, dim)})


_along("softmax", "softmax", "_softmax", "_safe_softmax")
_along("log_softmax", "log_softmax", "_log_softmax")


@operator("cumsum")
def cumsum(recorder: Recorder, self: Tensor, dim: int, dtype: int | None = None) -> Tensor:
    output = recorder.tensor(self.shape, type_named(dtype, self.dtype if self.is_floating else "int64"))
    return recorder.launch("cumsum", [self], output)


@operator("topk")
def topk(recorder: Recorder, self: Tensor, k: int, dim: int = -1, *_: Any) -> tuple[Tensor, Tensor]:
    place = dim_of(self.rank, dim)
    if not 0 <= k <= (self.shape[place] if self.rank else 1):
        raise ShapeError(f"topk of {k} along dimension {place} of a tensor of shape {show(self.shape)}")
    shape = (*self.shape[:place], k, *self.shape[place + 1 :])
    values = recorder.launch("topk", [self], recorder.tensor(shape, self.dtype))
    return values, recorder.tensor(shape, "int64")


@operator("sort")
def sort(recorder: Recorder, self: Any, *arguments: Any, **_: Any) -> Any:
    if isinstance(self, list):
        self[:] = sorted(plain_items(self), reverse=bool(arguments and arguments[0]))
        return None
    values = recorder.launch("sort", [self], recorder.tensor(self.shape, self.dtype))
    return values, recorder.tensor(self.shape, "int64")


@operator("argsort")
def argsort(recorder: Recorder, self: Tensor, *arguments: Any, **_: Any) -> Tensor:
    recorder.launch("sort", [self], recorder.tensor(self.shape, self.dtype))
    return recorder.tensor(self.shape, "int64")
