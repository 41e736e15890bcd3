# SPDX-License-Identifier: Apache-2.0
"""Matrix products: ``matmul`` with m, k, n, batch and bias, folded and expanded as in ATen."""

from __future__ import annotations

import itertools

from ...errors import ShapeError
from ...network import Shape, numel
from ..layout import broadcast, contiguous, reshape, show, view_of
from ..pointwise import add
from ..recorder import Recorder
from ..registry import operator
from ..values import Tensor


def multiply(recorder: Recorder, left: Tensor, right: Tensor, bias: Tensor | None = None, dtype: str = "") -> Tensor:
    """Launch (m, k) @ (k, n), or a batch of such products. Raises ShapeError."""
    if (
        left.rank != right.rank
        or left.rank not in (2, 3)
        or left.shape[-1] != right.shape[-2]
        or left.shape[:-2] != right.shape[:-2]
    ):
        raise ShapeError(f"matrix product of shapes {show(left.shape)} and {show(right.shape)}")
    if left.dtype != right.dtype and not (left.is_quantized and right.is_quantized):
        raise ShapeError(f"matrix product of {left.dtype} and {right.dtype}")
    batch = left.shape[0] if left.rank == 3 else 1
    m, k, n = left.shape[-2], left.shape[-1], right.shape[-1]
    operands = [tensor for tensor in (left, right) if not tensor.parameter] or [left, right]
    weights = [tensor for tensor in (left, right) if not any(tensor is operand for operand in operands)]
    output = recorder.tensor((*left.shape[:-1], n), dtype or left.dtype)
    params = {"m": m, "k": k, "n": n, "batch": batch, "bias": bias is not None}
    return recorder.launch("matmul", operands, output, params, (*weights, bias))


def _transposed(recorder: Recorder, x: Tensor) -> Tensor:
    if x.rank < 2:
        return view_of(recorder, x, x.shape, x.strides, "t")
    return view_of(recorder, x, x.shape[::-1], x.strides[::-1], "t")


@operator("linear")
def linear(recorder: Recorder, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias``, split as in ``at::linear``."""
    if weight.rank != 2 or input.rank < 1 or input.shape[-1] != weight.shape[1]:
        raise ShapeError(f"linear with weight {show(weight.shape)} cannot take an input of shape {show(input.shape)}")
    columns = _transposed(recorder, weight)
    if bias is not None and input.rank == 2:
        return multiply(recorder, input, columns, bias)
    if bias is not None and input.rank > 2 and input.is_contiguous():
        folded = view_of(recorder, input, (numel(input.shape[:-1]), input.shape[-1]), None, "view")
        return view_of(recorder, multiply(recorder, folded, columns, bias), (*input.shape[:-1], weight.shape[0]), None, "view")
    output = matmul(recorder, input, columns)
    return output if bias is None else add(recorder, output, bias)


@operator("addmm")
def addmm(recorder: Recorder, self: Tensor, mat1: Tensor, mat2: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    return multiply(recorder, mat1, mat2, self)


@operator("baddbmm")
def baddbmm(recorder: Recorder, self: Tensor, batch1: Tensor, batch2: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    return multiply(recorder, batch1, batch2, self)


@operator("mm", "bmm")
def product(recorder: Recorder, self: Tensor, mat2: Tensor) -> Tensor:
    return multiply(recorder, self, mat2)


@operator("_int_mm")
def product_of_integers(recorder: Recorder, self: Tensor, mat2: Tensor) -> Tensor:
    """8-bit integers, summed in 32 bits."""
    return multiply(recorder, self, mat2, dtype="int32")


@operator("_grouped_mm", "transformers::grouped_mm_fallback")
def grouped_product(
    recorder: Recorder,
    self: Tensor,
    mat2: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: str | None = None,
) -> Tensor:
    """Rows of each group times its own matrix (mixtures of experts), in one launch.

    transformers' replacement for single precision has one product per non-empty group, with equal operations.
    """
    if self.rank != 2 or mat2.rank != 3 or offs is None or self.shape[1] != mat2.shape[1]:
        raise ShapeError(f"grouped matrix product of shapes {show(self.shape)} and {show(mat2.shape)}")
    params = {"m": self.shape[0], "k": self.shape[1], "n": mat2.shape[2], "batch": 1, "bias": bias is not None}
    output = recorder.tensor((self.shape[0], mat2.shape[2]), out_dtype or self.dtype)
    return recorder.launch("matmul", [self], output, params, (mat2, offs, bias))


@operator("mv", "dot")
def vector_product(recorder: Recorder, self: Tensor, vec: Tensor) -> Tensor:
    if vec.rank != 1 or self.rank not in (1, 2) or self.shape[-1] != vec.shape[0]:
        raise ShapeError(f"matrix-vector product of shapes {show(self.shape)} and {show(vec.shape)}")
    params = {"m": self.shape[0] if self.rank == 2 else 1, "k": vec.shape[0], "n": 1, "batch": 1, "bias": False}
    operands = [tensor for tensor in (self, vec) if not tensor.parameter] or [self, vec]
    weights = [tensor for tensor in (self, vec) if not any(tensor is operand for operand in operands)]
    return recorder.launch("matmul", operands, recorder.tensor(self.shape[:-1], self.dtype), params, weights)


def _foldable(left: Tensor, right: Tensor) -> bool:
    """ATen's ``should_fold``: True if a product of many dimensions is one two-dimensional one (``LinearAlgebra.cpp``).

    That holds if the rows lie in memory as one dimension, or the smaller operand is trained. PyTorch 2.15 ignores dimensions of
    size 1 and folds some stacks; the rule is that of earlier releases, which boards have.
    """
    large, small = (left, right) if left.rank >= right.rank else (right, left)
    if not (large.rank >= 3 and small.rank <= 2):
        return False
    if small.requires_grad:
        return True
    if left.rank == 2:
        return False
    places = range(large.rank - 1) if large is left else (*range(large.rank - 2), large.rank - 1)
    rows = [(large.shape[place], large.strides[place]) for place in places]
    return large.numel == 0 or all(stride == size * step for (_, stride), (size, step) in itertools.pairwise(rows))


@operator("matmul", "linalg_matmul")
def matmul(recorder: Recorder, self: Tensor, other: Tensor) -> Tensor:
    left, right = self, other
    if left.rank == 0 or right.rank == 0:
        raise ShapeError("matrix product of a scalar")
    if left.rank == 1 and right.rank == 1:
        return vector_product(recorder, left, right)
    if left.rank == 2 and right.rank == 1:
        return vector_product(recorder, left, right)
    if left.rank == 1 and right.rank == 2:
        row = view_of(recorder, left, (1, *left.shape), None, "unsqueeze")
        return view_of(recorder, multiply(recorder, row, right), (right.shape[1],), None, "squeeze")
    if left.rank == 2 and right.rank == 2:
        return multiply(recorder, left, right)
    if _foldable(left, right):
        return _folded(recorder, left, right)
    return _batched(recorder, left, right)


def _folded(recorder: Recorder, left: Tensor, right: Tensor) -> Tensor:
    flipped = right.rank > left.rank
    if flipped:
        last = right.rank - 1
        order = [*range(last - 1), last, last - 1]
        many = view_of(recorder, right, [right.shape[d] for d in order], [right.strides[d] for d in order], "transpose")
        few = left if left.rank == 1 else _transposed(recorder, left)
    else:
        many, few = left, right
    flat = reshape(recorder, many, (numel(many.shape[:-1]), many.shape[-1]))
    if few.rank == 1:
        return view_of(recorder, vector_product(recorder, flat, few), many.shape[:-1], None, "view")
    out = view_of(recorder, multiply(recorder, flat, few), (*many.shape[:-1], few.shape[1]), None, "view")
    if not flipped:
        return out
    shape, strides = out.shape, out.strides
    turned = (*shape[:-2], shape[-1], shape[-2]), (*strides[:-2], strides[-1], strides[-2])
    return contiguous(recorder, view_of(recorder, out, *turned, "transpose"))


def _batched(recorder: Recorder, left: Tensor, right: Tensor) -> Tensor:
    rows = left.shape[-2:] if left.rank > 1 else (1, left.shape[0])
    columns = right.shape[-2:] if right.rank > 1 else (right.shape[0], 1)
    batch = broadcast([left.shape[:-2], right.shape[:-2]])
    flat_left = _expanded(recorder, left, batch, rows)
    flat_right = _expanded(recorder, right, batch, columns)
    shape = [*batch]
    if left.rank > 1:
        shape.append(rows[0])
    if right.rank > 1:
        shape.append(columns[1])
    return view_of(recorder, multiply(recorder, flat_left, flat_right), shape, None, "view")


def _expanded(recorder: Recorder, x: Tensor, batch: Shape, matrix: Shape) -> Tensor:
    shape = (*batch, *matrix)
    own = (1,) * (len(shape) - x.rank) + x.shape
    steps = (0,) * (len(shape) - x.rank) + x.strides
    strides = tuple(0 if size == 1 and full != 1 else step for size, step, full in zip(own, steps, shape, strict=True))
    expanded = view_of(recorder, x, shape, strides, "expand")
    return reshape(recorder, expanded, (numel(batch), *matrix))
