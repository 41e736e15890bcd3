# SPDX-License-Identifier: Apache-2.0
"""Linear algebra outside plain products, and similar operators of one launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ShapeError, UnsupportedOperator
from ...network import numel
from .. import pointwise
from ..elementwise import unary
from ..layout import broadcast, contiguous, dim_of, reshape, show, view_of
from ..memory import views
from ..memory.indexing import cat
from ..recorder import Recorder
from ..reduction import reduce
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
    @operator(*(names or (kind,)))
    def rule(recorder: Recorder, *arguments: Any, **_: Any) -> Tensor:
        tensors = [x for x in arguments if isinstance(x, Tensor)]
        return recorder.launch(kind, tensors, recorder.tensor(tuple(shape(*arguments)), tensors[0].dtype))


_as_is("addmv", lambda x, matrix, vector, *_: matrix.shape[:1])
_as_is("addr", lambda x, one, other, *_: (*one.shape, *other.shape))
_as_is("addbmm", lambda x, one, other, *_: (one.shape[1], other.shape[2]))
_as_is("linalg_cross", lambda x, y, *_: broadcast([x.shape, y.shape]), "linalg_cross", "cross")
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


@operator("cdist", "_cdist_forward")
def cdist(recorder: Recorder, x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Tensor:
    """Distances of all pairs of rows; of many, Euclidean ones use a matrix product (``Distance.cpp``).

    ``compute_mode`` 1 requests the product, 2 forbids it, 0 leaves it to the number of rows.
    """
    if min(x1.rank, x2.rank) < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(f"cdist of shapes {show(x1.shape)} and {show(x2.shape)}")
    batch = broadcast([x1.shape[:-2], x2.shape[:-2]])
    shape = (*batch, x1.shape[-2], x2.shape[-2])
    many = max(x1.shape[-2], x2.shape[-2]) > 25
    if p != 2 or compute_mode == 2 or not (many or compute_mode == 1):
        return recorder.launch("_cdist_forward", [x1, x2], recorder.tensor(shape, x1.dtype))
    copies = [_in_one_batch(recorder, x, batch) for x in (x1, x2)]
    if numel(batch) != 1:  # else ATen's copies of non-contiguous ones are unused
        x1, x2 = copies
    return view_of(recorder, _euclidean(recorder, x1, x2), shape, None, "view")


def _in_one_batch(recorder: Recorder, x: Tensor, batch: Sequence[int]) -> Tensor:
    spread = contiguous(recorder, views.expand(recorder, x, (*batch, *x.shape[-2:])))
    return view_of(recorder, spread, (numel(batch), *x.shape[-2:]), None, "view")


@operator("_euclidean_dist")
def _euclidean(recorder: Recorder, x1: Tensor, x2: Tensor) -> Tensor:
    """Sums of squares and twice the rows, side by side, in one product."""
    norms, ones = [], []
    for x in (x1, x2):
        norms.append(reduce(recorder, "sum", pointwise.pow_(recorder, x, 2), -1, True))
        ones.append(recorder.launch("ones", [], recorder.tensor(norms[-1].shape, x.dtype)))
    left = cat(recorder, [pointwise.mul(recorder, x1, -2), norms[0], ones[0]], -1)
    right = cat(recorder, [x2, ones[1], norms[1]], -1)
    squares = matmul(recorder, left, views.transpose(recorder, right, -2, -1))
    return unary(recorder, "sqrt", unary(recorder, "clamp_min", squares))


def _checked(recorder: Recorder, made: Tensor, matrix: Tensor) -> Tensor:
    recorder.launch(
        "any",
        [recorder.tensor(matrix.shape[:-2], "int32")],
        recorder.tensor((), "bool"),
        {"dim": tuple(range(matrix.rank - 2)), "keepdim": False},
    )
    return made


@operator("linalg_inv", "inverse")
def inverse(recorder: Recorder, self: Tensor) -> Tensor:
    if self.rank < 2 or self.shape[-1] != self.shape[-2]:
        raise ShapeError(f"inverse of shape {show(self.shape)}")
    return _checked(recorder, recorder.launch("linalg_inv_ex", [self], recorder.tensor(self.shape, self.dtype)), self)


@operator("linalg_solve")
def solve(recorder: Recorder, A: Tensor, B: Tensor, left: bool = True) -> Tensor:
    if A.rank < 2 or A.shape[-1] != A.shape[-2]:
        raise ShapeError(f"linalg_solve with a matrix of shape {show(A.shape)}")
    return _checked(recorder, recorder.launch("_linalg_solve_ex", [A, B], recorder.tensor(B.shape, B.dtype)), A)


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
    """Two or three matrices; the order of more depends on their sizes."""
    if not 2 <= len(tensors) <= 3:
        raise UnsupportedOperator("a product of more than three matrices has no shape rule")
    made = multiply(recorder, tensors[0], tensors[1])
    return made if len(tensors) == 2 else multiply(recorder, made, tensors[2])
