# SPDX-License-Identifier: Apache-2.0
"""Linear algebra outside plain products, and other operators that are one launch over all the tensors they are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ShapeError, UnsupportedOperator
from ...network import numel
from ..elements import pointwise
from ..elements.reduction import reduce
from ..layout import broadcast, dim_of, reshape, show, view_of
from ..memory import views
from ..recorder import Recorder
from ..registry import operator
from ..values import Tensor
from .matrix import matmul, multiply


@operator("outer", "ger")
def outer(recorder: Recorder, self: Tensor, vec2: Tensor) -> Any:
    if self.rank != 1 or vec2.rank != 1:
        raise ShapeError(f"outer product of shapes {show(self.shape)} and {show(vec2.shape)}")
    return pointwise.mul(recorder, view_of(recorder, self, (*self.shape, 1), None, "view"), vec2)


@operator("inner")
def inner(recorder: Recorder, self: Tensor, other: Tensor) -> Tensor:
    return matmul(recorder, self, views.transpose(recorder, other, -1, -2) if other.rank > 1 else other)


@operator("linalg_norm")
def linalg_norm(recorder: Recorder, self: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *_: Any) -> Tensor:
    if ord is not None and (self.rank > 1 if dim is None else not isinstance(dim, int) and len(dim) > 1):
        raise UnsupportedOperator("operator aten::linalg_norm of matrices has no shape rule")
    return reduce(recorder, "norm", self, dim, keepdim)


def _as_is(kind: str, shape: Callable[..., Sequence[int]], *names: str) -> None:
    """An operator that is one launch over all the tensors it is given."""

    @operator(*(names or (kind,)))
    def rule(recorder: Recorder, *arguments: Any, **_: Any) -> Tensor:
        tensors = [x for x in arguments if isinstance(x, Tensor)]
        return recorder.launch(kind, tensors, recorder.tensor(tuple(shape(*arguments)), tensors[0].dtype))


_as_is("addmv", lambda x, matrix, vector, *_: matrix.shape[:1])
_as_is("addr", lambda x, one, other, *_: (*one.shape, *other.shape))
_as_is("addbmm", lambda x, one, other, *_: (one.shape[1], other.shape[2]))
_as_is("linalg_cross", lambda x, y, *_: broadcast([x.shape, y.shape]), "linalg_cross", "cross")
_as_is("_cdist_forward", lambda x, y, *_: (*broadcast([x.shape[:-2], y.shape[:-2]]), x.shape[-2], y.shape[-2]), "cdist")
_as_is("dist", lambda x, y, *_: ())
_as_is("trace", lambda x: ())
_as_is("take", lambda x, indices: indices.shape)
_as_is("rot90", lambda x, k=1, dims=(0, 1): _turned(x, k, dims))
_as_is("renorm", lambda x, *_: x.shape)
_as_is("affine_grid_generator", lambda theta, size, *_: (size[0], *size[2:], len(size) - 2))


def _turned(x: Tensor, times: int, dims: Sequence[int]) -> list[int]:
    shape = list(x.shape)
    first, second = (dim_of(x.rank, dim) for dim in dims)
    if times % 2:
        shape[first], shape[second] = shape[second], shape[first]
    return shape


@operator("bilinear")
def bilinear(recorder: Recorder, input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    flat = [reshape(recorder, x, (numel(x.shape[:-1]), x.shape[-1])) for x in (input1, input2)]
    made = recorder.launch(
        "_trilinear", [flat[0], weight, flat[1]], recorder.tensor((flat[0].shape[0], weight.shape[0]), input1.dtype)
    )
    made = view_of(recorder, made, (*input1.shape[:-1], weight.shape[0]), None, "view")
    return made if bias is None else pointwise.add(recorder, made, bias)


@operator("linalg_multi_dot", "chain_matmul")
def multi_dot(recorder: Recorder, tensors: Sequence[Tensor]) -> Tensor:
    """Two or three matrices; in which order more are multiplied depends on their sizes."""
    if not 2 <= len(tensors) <= 3:
        raise UnsupportedOperator("a product of more than three matrices has no shape rule")
    made = multiply(recorder, tensors[0], tensors[1])
    return made if len(tensors) == 2 else multiply(recorder, made, tensors[2])
