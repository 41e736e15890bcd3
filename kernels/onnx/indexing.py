# SPDX-License-Identifier: Apache-2.0
"""ONNX operators that pick and write elements: slices, gathering, scattering, padding."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError, UnsupportedOperator
from ..operators.layout import dim_of, show, view_of
from ..operators.values import Tensor
from .call import NodeCall, held, numbers_in, onnx_operator, paired


@onnx_operator("Slice")
def slice_(call: NodeCall) -> Any:
    made = call.tensor(0)
    starts, ends = call.integers("starts", 1) or [], call.integers("ends", 2) or []
    axes = call.integers("axes", 3) or list(range(len(starts)))
    steps = call.integers("steps", 4) or [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ShapeError("operator Slice with lists of different lengths")
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        made = _cut(call, made, axis, start, end, step)
    return made


def _cut(call: NodeCall, x: Tensor, axis: int, start: int, end: int, step: int) -> Any:
    if step > 0:
        return call.aten("slice", x, axis, start, end, step)
    length = x.shape[dim_of(x.rank, axis)]
    if step == 0:
        raise ShapeError("operator Slice with step 0")
    start, end = (place + length if place < 0 else place for place in (start, end))
    picked = range(max(min(start, length - 1), 0), max(end, -1), step)[::-1]
    if len(picked) != length or step != -1:
        x = call.aten("slice", x, axis, *((picked[0], picked[-1] + 1, -step) if picked else (0, 0)))
    return call.aten("flip", x, [axis])


@onnx_operator("Gather")
def gather(call: NodeCall) -> Any:
    """One known index gives a view; rows of a table by indices of the input are an embedding."""
    x, rows = call.tensor(0), call.tensor(1)
    place = dim_of(x.rank, call.attribute("axis", 0))
    if rows.number is not None:
        return call.aten("select", x, place, int(rows.number))
    if "aten.as_strided" in call.node.origin and rows.numel == x.numel:
        return call.aten("reshape", x, list(rows.shape))
    if "aten.unfold" in call.node.origin and rows.rank == 2 and call.is_known(1):
        return _windows(call, x, rows, place)
    if x.parameter and x.rank == 2 and place == 0 and not rows.parameter:
        return call.aten("embedding", x, rows)
    return call.aten("index", x, [None] * place + [rows])


def _windows(call: NodeCall, x: Tensor, rows: Tensor, place: int) -> Tensor:
    places, (count, width) = numbers_in(rows), rows.shape
    step = int(places[width]) - int(places[0]) if count > 1 else 1
    shape = (*x.shape[:place], count, width, *x.shape[place + 1 :])
    strides = (*x.strides[:place], step * x.strides[place], x.strides[place], *x.strides[place + 1 :])
    return view_of(call.recorder, x, shape, strides, "unfold")


@onnx_operator("GatherElements")
def gather_elements(call: NodeCall) -> Any:
    return call.aten("gather", call.tensor(0), call.attribute("axis", 0), call.tensor(1))


@onnx_operator("GatherND")
def gather_nd(call: NodeCall) -> Any:
    """Indexing by several tensors at once, which exporters pack into one."""
    x, indices = call.tensor(0), call.tensor(1)
    batch = call.attribute("batch_dims", 0)
    if not indices.rank or not 0 <= batch <= x.rank - indices.shape[-1]:
        raise ShapeError(f"operator GatherND on shapes {show(x.shape)} and {show(indices.shape)}")
    if not batch and call.is_known(0, 1):
        return call.aten("index", x, _columns(call, indices))
    one = call.recorder.tensor(indices.shape[:-1], indices.dtype, parameter=indices.parameter)
    return call.aten("index", x, [one] * (batch + indices.shape[-1]))


def _columns(call: NodeCall, indices: Tensor) -> list[Tensor]:
    return [call.aten("select", indices, -1, place) for place in range(indices.shape[-1])]


@onnx_operator("ScatterND")
def scatter_nd(call: NodeCall) -> Any:
    x, indices, updates = (call.tensor(place) for place in range(3))
    if call.is_known(0, 1, 2) and call.attribute("reduction", "none") in ("none", "add"):
        columns = _columns(call, held(indices.shape, indices.dtype, numbers_in(indices)))
        return call.aten("index_put", x, columns, updates, call.attribute("reduction", "none") == "add")
    return call.recorder.launch("index_put", [x, indices, updates], call.recorder.tensor(x.shape, x.dtype))


@onnx_operator("ScatterElements", "Scatter")
def scatter_elements(call: NodeCall) -> Any:
    how = call.attribute("reduction", "none")
    arguments = (call.tensor(0), call.attribute("axis", 0), call.tensor(1), call.tensor(2))
    if how in ("none", "add"):
        return call.aten("scatter" if how == "none" else "scatter_add", *arguments)
    names = {"mul": "prod", "min": "amin", "max": "amax"}
    return call.aten("scatter_reduce", *arguments, names.get(how, how))


@onnx_operator("aten::roll")
def roll(call: NodeCall) -> Any:
    """Pairs of slices (starts, ends, axes and steps of each), joined along an axis each."""
    x, dims = call.tensor(0), list[int]()
    for number, axis in enumerate(call.attribute("axes", [])):
        dim = dim_of(x.rank, axis)
        size = x.shape[dim]
        parts = [
            [call.integers("", place) or [1] for place in range(first, first + 4)] for first in (1 + 8 * number, 5 + 8 * number)
        ]
        if any(len(numbers) != 1 for part in parts for numbers in part):
            return NotImplemented
        if any(dim_of(x.rank, axes[0]) != dim or steps[0] != 1 for _, _, axes, steps in parts):
            return NotImplemented
        (begin, end), (start, stop) = (slice(first, last).indices(size)[:2] for (first,), (last,), *_ in parts)
        if not 0 == start < stop == begin < end == size:
            return NotImplemented
        dims.append(dim)
    return call.aten("roll", x, [0] * len(dims), dims)


@onnx_operator("ReverseSequence")
def reverse_sequence(call: NodeCall) -> Any:
    return call.aten("flip", call.tensor(0), [call.attribute("time_axis", 0)])


@onnx_operator("TensorScatter")
def write_rows(call: NodeCall) -> Any:
    call.recorder.launch("copy", [call.tensor(1)], call.recorder.tensor(call.tensor(1).shape, call.tensor(0).dtype))
    return call.tensor(0)


@onnx_operator("ai.onnx.ml::ArrayFeatureExtractor")
def pick_columns(call: NodeCall) -> Any:
    x = call.tensor(0)
    call.recorder.host("index_select")
    return call.recorder.tensor((*(x.shape[:-1] or (1,)), call.tensor(1).numel), x.dtype)


@onnx_operator("aten::assign")
def assign(call: NodeCall) -> Any:
    """Write into a slice: a fill for one number, else a copy."""
    x, source = call.tensor(0), call.tensor(2)
    if x.value is not None and call.is_known(0, 1, 2):
        return scatter_nd(call)
    if call.attribute("passed", 0):
        return x  # a smaller part of this slice was written to
    if x.parameter:
        copy = call.recorder.tensor(x.shape, x.dtype, parameter=True)
        x = call.recorder.launch("clone", [x], copy)
    even = bool(call.attribute("fill", 0)) or not any(source.strides)
    call.recorder.launch("fill" if even else "copy", [] if even else [source], call.recorder.tensor(source.shape, x.dtype))
    return x


@onnx_operator("Pad")
def pad(call: NodeCall) -> Any:
    x = call.tensor(0)
    pairs = paired(call.integers("pads", 1) or [])
    axes = call.integers("axes", 3) or list(range(x.rank))
    mode = call.attribute("mode", "constant")
    by_axis = {dim_of(x.rank, axis): pair for axis, pair in zip(axes, pairs, strict=True)}
    used = sorted(by_axis)
    while used and by_axis[used[0]] == (0, 0):
        used.pop(0)
    first = used[0] if used else x.rank
    flat = [size for place in range(x.rank - 1, first - 1, -1) for size in by_axis.get(place, (0, 0))]
    flat = flat or [0, 0]
    if mode == "constant":
        value = call.operand(2) if call.given(2) else call.attribute("value", 0)
        return call.aten("constant_pad_nd", x, flat, 0 if isinstance(value, Tensor) else value)
    if mode == "wrap" or (mode in ("reflect", "edge") and len(flat) > 6):  # of which PyTorch has no call
        return call.aten("constant_pad_nd", x, flat, 0)
    names = {"reflect": "reflection_pad", "edge": "replication_pad"}
    if mode not in names:
        raise UnsupportedOperator(f"operator Pad in mode {mode!r:.40} has no shape rule")
    return call.aten(f"{names[mode]}{len(flat) // 2}d", x, flat)
