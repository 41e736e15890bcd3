# SPDX-License-Identifier: Apache-2.0
"""Strides and shapes, as ATen computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ShapeError
from ..network import ParamValue, Shape, numel
from .recorder import Recorder
from .values import Tensor, contiguous_strides


def show(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def dim_of(tensor_rank: int, dim: int) -> int:
    """Dimension counted from the front. Raises ShapeError."""
    rank = max(tensor_rank, 1)
    if not -rank <= dim < rank:
        raise ShapeError(f"dimension {dim} of a tensor with {tensor_rank} dimensions")
    return dim % rank


def integers(values: Any, count: int) -> tuple[int, ...]:
    """``count`` integers; one counts for all, as in ATen's ``int[2]``."""
    if isinstance(values, int):
        values = [values]
    if len(values) == 1 and count > 1:
        values = list(values) * count
    if len(values) != count:
        raise ShapeError(f"expected {count} sizes, got {len(values)}")
    return tuple(int(value) for value in values)


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """Common shape of operands. Raises ShapeError if they do not broadcast."""
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return first
    rank = max(len(shape) for shape in shapes)
    result = []
    for place in range(rank):
        sizes = {shape[place - rank + len(shape)] for shape in shapes if place - rank + len(shape) >= 0} - {1}
        if len(sizes) > 1:
            raise ShapeError(f"tensors of shapes {', '.join(map(show, shapes))} do not broadcast")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def is_dense(shape: Shape, strides: Shape) -> bool:
    """True if a tensor fills its memory without gaps or overlaps, in any order of dimensions."""
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(shape, strides, strict=True) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def elementwise_strides(shape: Shape, operands: Sequence[Tensor], beside_number: bool = False) -> Shape | None:
    """Strides that TensorIterator gives the output of a pointwise operator (``None``: row-major).

    With ``beside_number`` a number is an operand of another shape. With several shapes, dimensions of size 1 keep their
    strides, by which PyTorch detects channels last; with one shape they are recomputed.
    """
    if all(tensor.has_default_strides() for tensor in operands):
        return None
    if not beside_number and all(tensor.shape == shape for tensor in operands):
        if all(tensor.is_contiguous() for tensor in operands):
            return None
        if len(shape) == 4 and all(is_laid_out(tensor, last=True) for tensor in operands):
            return channels_last(shape)
        if len({tensor.strides for tensor in operands}) == 1 and is_dense(shape, operands[0].strides):
            return operands[0].strides
    rank = len(shape)
    expanded = []
    for tensor in operands:
        lead = rank - tensor.rank
        own = zip(tensor.shape, tensor.strides, shape[lead:], strict=True)
        expanded.append((0,) * lead + tuple(0 if size == 1 and full != 1 else stride for size, stride, full in own))
    order = list(range(rank - 1, -1, -1))
    for place in range(1, rank):
        here = place
        for below in range(place - 1, -1, -1):
            comparison = _compare_dims(order[below], order[here], shape, expanded)
            if comparison > 0:
                order[below], order[here] = order[here], order[below]
                here = below
            elif comparison < 0:
                break
    return _dense_strides(shape, order)


def _dense_strides(shape: Shape, innermost_first: Sequence[int]) -> Shape:
    strides = [0] * len(shape)
    step = 1
    for dim in innermost_first:
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def _compare_dims(first: int, second: int, shape: Shape, operands: Sequence[Shape]) -> int:
    """Order of two dimensions, outer first: TensorIterator's ``should_swap``."""
    for strides in operands:
        one, two = strides[first], strides[second]
        if one == 0 or two == 0:
            continue
        if one != two:
            return -1 if one < two else 1
        if shape[first] > shape[second]:
            return 1
    return 0


def preserved(tensor: Tensor) -> Shape | None:
    """Strides of a copy that keeps the memory format if possible."""
    if tensor.has_default_strides():
        return None
    if is_dense(tensor.shape, tensor.strides):
        return tensor.strides
    return elementwise_strides(tensor.shape, [tensor])


CHANNELS_LAST = "channels_last"
"""Parameter of kernels that read images with channels innermost."""


def of_layout(x: Tensor) -> dict[str, ParamValue]:
    """:data:`CHANNELS_LAST` as a parameter, if that is an input's layout."""
    return {CHANNELS_LAST: True} if x.is_channels_last() else {}


def channels_last(shape: Shape) -> Shape:
    return _dense_strides(shape, (1, *range(len(shape) - 1, 1, -1), 0))


def view_strides(shape: Shape, strides: Shape, wanted: Shape) -> Shape | None:
    """Strides for another shape of the same memory; ``None`` if it needs a copy (ATen's ``computeStride``)."""
    if numel(shape) == 0:
        return strides if shape == wanted else contiguous_strides(wanted)
    if not shape:
        return (1,) * len(wanted)
    result = [0] * len(wanted)
    place = len(wanted) - 1
    base = strides[-1]
    chunk = placed = 1
    for dim in range(len(shape) - 1, -1, -1):
        chunk *= shape[dim]
        if dim == 0 or (shape[dim - 1] != 1 and strides[dim - 1] != chunk * base):
            while place >= 0 and (placed < chunk or wanted[place] == 1):
                result[place] = placed * base
                placed *= wanted[place]
                place -= 1
            if placed != chunk:
                return None
            if dim > 0:
                base = strides[dim - 1]
                chunk = placed = 1
    return tuple(result) if place == -1 else None


def inferred(size: Sequence[int], elements: int) -> Shape:
    """Requested shape with its one ``-1`` filled in. Raises ShapeError."""
    known = 1
    for length in size:
        known *= 1 if length == -1 else length
    result = tuple(size)
    if -1 in result and known > 0 and elements % known == 0:
        result = tuple(elements // known if length == -1 else length for length in result)
    if result.count(-1) or min(result, default=0) < 0 or numel(result) != elements:
        raise ShapeError(f"shape [{', '.join(map(str, size))}] does not fit a tensor of {elements} elements")
    return result


def view_of(recorder: Recorder, source: Tensor, shape: Sequence[int], strides: Sequence[int] | None, name: str) -> Tensor:
    """View of a tensor's memory, recorded as a host-only call."""
    recorder.host(name)
    trainable = source.requires_grad
    return recorder.tensor(shape, source.dtype, strides, parameter=source.parameter, requires_grad=trainable, of=source)


def reshape(recorder: Recorder, source: Tensor, size: Sequence[int]) -> Tensor:
    """View if memory allows it, else a copy."""
    shape = inferred(size, source.numel)
    strides = view_strides(source.shape, source.strides, shape)
    if strides is not None:
        return view_of(recorder, source, shape, strides, "view")
    copy = contiguous(recorder, source)
    return view_of(recorder, copy, shape, None, "view")


def is_laid_out(source: Tensor, last: bool) -> bool:
    """True if a tensor is contiguous, or contiguous with channels last; a size of 1 may allow both."""
    if not last:
        return source.is_contiguous()
    wanted = zip(source.shape, source.strides, channels_last(source.shape), strict=True)
    return all(size == 1 or stride == step for size, stride, step in wanted)


def laid_out(recorder: Recorder, source: Tensor, last: bool) -> Tensor:
    """Tensor in the layout that a kernel reads, by a copy if necessary."""
    if is_laid_out(source, last):
        return source
    strides = channels_last(source.shape) if last else None
    return recorder.launch("clone", [source], recorder.tensor(source.shape, source.dtype, strides))


def contiguous(recorder: Recorder, source: Tensor) -> Tensor:
    """Contiguous tensor, by a copy if necessary, which is no parameter."""
    if source.is_contiguous():
        return source
    return recorder.launch("clone", [source], recorder.tensor(source.shape, source.dtype))
