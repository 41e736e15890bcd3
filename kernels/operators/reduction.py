# SPDX-License-Identifier: Apache-2.0
"""Operators that reduce dimensions."""

from __future__ import annotations

from typing import Any

from ..network import ParamValue
from ..recorder import Recorder
from ..values import SCALAR_TYPES, Tensor
from .layout import channels_last, dim_of
from .registry import operator


def reduce(run: Recorder, kind: str, x: Tensor, dim: Any, keepdim: bool, dtype: str | None = None) -> Tensor:
    """Reduce over some dimensions, or over all where ``dim`` is ``None`` or empty."""
    if isinstance(dim, int):
        dim = [dim]
    dims = tuple(sorted(dim_of(x.rank, d) for d in dim)) if dim else tuple(range(x.rank))
    if keepdim:
        shape = tuple(1 if place in dims else size for place, size in enumerate(x.shape))
    else:
        shape = tuple(size for place, size in enumerate(x.shape) if place not in dims)
    params: dict[str, ParamValue] = {"dim": dims, "keepdim": bool(keepdim)}
    strides = None
    if keepdim and x.is_channels_last():
        strides = channels_last(shape)
    return run.launch(kind, [x], run.tensor(shape, dtype or x.dtype, strides), params)


def _named_type(dtype: int | None, default: str) -> str:
    return default if dtype is None else SCALAR_TYPES[dtype]


@operator("mean")
def mean(run: Recorder, self: Tensor, dim: Any = None, keepdim: bool = False, dtype: int | None = None) -> Tensor:
    return reduce(run, "mean", self, dim, keepdim, _named_type(dtype, self.dtype))


@operator("sum")
def sum_(run: Recorder, self: Tensor, dim: Any = None, keepdim: bool = False, dtype: int | None = None) -> Tensor:
    return reduce(run, "sum", self, dim, keepdim, _named_type(dtype, self.dtype if self.is_floating else "int64"))
