# SPDX-License-Identifier: Apache-2.0
"""ONNX operators that look at memory in another way, move elements, or make tensors."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError, UnsupportedOperator
from ..network import numel
from ..operators.layout import contiguous, dim_of, show
from ..operators.values import SCALAR_CODES, Tensor
from .call import NodeCall, on_device, onnx_operator, paired
from .known import Known
from .model import FEW, TYPES, TensorHeader


@onnx_operator("Reshape")
def reshape(call: NodeCall) -> Any:
    x = call.tensor(0)
    sizes = call.integers("shape", 1) or []
    if not call.attribute("allowzero", 0):
        if any(size == 0 and place >= x.rank for place, size in enumerate(sizes)):
            raise ShapeError(f"reshape of a tensor of shape {show(x.shape)} keeps a dimension it does not have")
        sizes = [x.shape[place] if size == 0 else size for place, size in enumerate(sizes)]
    return call.aten("reshape", x, sizes)


@onnx_operator("Flatten")
def flatten(call: NodeCall) -> Any:
    x = call.tensor(0)
    axis = call.attribute("axis", 1)
    place = axis + x.rank if axis < 0 else axis
    return call.aten("reshape", x, [numel(x.shape[:place]), numel(x.shape[place:])])


@onnx_operator("Transpose")
def transpose(call: NodeCall) -> Any:
    x = call.tensor(0)
    return call.aten("permute", x, call.attribute("perm", list(range(x.rank))[::-1]))


@onnx_operator("Unsqueeze")
def unsqueeze(call: NodeCall) -> Any:
    made = call.tensor(0)
    axes = call.integers("axes", 1) or []
    rank = made.rank + len(axes)
    for axis in sorted(dim_of(rank, axis) for axis in axes):
        made = call.aten("unsqueeze", made, axis)
    return made


@onnx_operator("Squeeze")
def squeeze(call: NodeCall) -> Any:
    return call.aten("squeeze", call.tensor(0), call.integers("axes", 1))


@onnx_operator("Expand")
def expand(call: NodeCall) -> Any:
    """ONNX keeps a size where the wanted one is 1, as broadcasting does."""
    x = call.tensor(0)
    sizes = call.integers("shape", 1) or []
    lead = len(sizes) - x.rank
    if lead < 0:
        sizes = [1] * -lead + sizes
    own = (1,) * max(lead, 0) + x.shape
    return call.aten("expand", x, [size if size != 1 else have for size, have in zip(sizes, own, strict=True)])


@onnx_operator("Tile")
def tile(call: NodeCall) -> Any:
    return call.aten("repeat", call.tensor(0), call.integers("repeats", 1))


@onnx_operator("Concat")
def concat(call: NodeCall) -> Any:
    parts = [call.tensor(place) for place in range(len(call.inputs))]
    if len(parts) == 1 and "aten.index" in call.node.origin:
        return parts[0]  # one of the pieces of an index that needs no packing
    return call.aten("cat", parts, call.attribute("axis", 0))


@onnx_operator("Slice")
def slice_(call: NodeCall) -> Any:
    made = call.tensor(0)
    starts, ends = call.integers("starts", 1) or [], call.integers("ends", 2) or []
    axes = call.integers("axes", 3) or list(range(len(starts)))
    steps = call.integers("steps", 4) or [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ShapeError("operator Slice with lists of different lengths")
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        made = call.aten("flip", made, [axis]) if step == -1 else call.aten("slice", made, axis, start, end, step)
    return made


@onnx_operator("Split")
def split(call: NodeCall) -> Any:
    x = call.tensor(0)
    place = dim_of(x.rank, call.attribute("axis", 0))
    sizes = call.integers("split", 1)
    if sizes is None:
        count = call.attribute("num_outputs", len(call.node.outputs))
        sizes = [-(-x.shape[place] // count)] * (count - 1) if count > 0 else []
        sizes.append(x.shape[place] - sum(sizes))
    return tuple(call.aten("split_with_sizes", x, sizes, place))


@onnx_operator("SplitToSequence")
def split_to_sequence(call: NodeCall) -> Any:
    x = call.tensor(0)
    axis = call.attribute("axis", 0)
    if not call.given(1):
        pieces = call.aten("split", x, 1, axis)
        return pieces if call.attribute("keepdims", 1) else [call.aten("squeeze", piece, axis) for piece in pieces]
    value = call.value(1)
    sizes = call.numbers(1)
    return list(call.aten("split", x, int(sizes[0]) if not value.shape else [int(size) for size in sizes], axis))


@onnx_operator("SequenceConstruct", "SequenceEmpty")
def sequence(call: NodeCall) -> Any:
    return list(call.inputs)


@onnx_operator("SequenceInsert")
def sequence_insert(call: NodeCall) -> Any:
    items = _items(call)
    call.recorder.account.items(len(items) + 1)
    place = int(call.numbers(2)[0]) if call.given(2) else len(items)
    return [*items[:place], call.value(1), *items[place:]]


@onnx_operator("SequenceAt")
def sequence_at(call: NodeCall) -> Any:
    items, place = _items(call), int(call.numbers(1)[0])
    if not -len(items) <= place < len(items):
        raise ShapeError(f"item {place} of a sequence of {len(items)}")
    return items[place]


@onnx_operator("SequenceLength")
def sequence_length(call: NodeCall) -> Any:
    return Known((), "int64", [len(_items(call))])


@onnx_operator("ConcatFromSequence")
def concat_from_sequence(call: NodeCall) -> Any:
    name = "stack" if call.attribute("new_axis", 0) else "cat"
    return call.aten(name, [on_device(call.recorder, item) for item in _items(call)], call.attribute("axis", 0))


def _items(call: NodeCall) -> list[Any]:
    items = call.value(0)
    if not isinstance(items, list):
        raise ShapeError(f"operator {call.node.key} takes a sequence")
    return items


@onnx_operator("Gather")
def gather(call: NodeCall) -> Any:
    """One index known beforehand is a view; rows of a table by indices of the input are an embedding."""
    x, indices = call.tensor(0), call.value(1)
    place = dim_of(x.rank, call.attribute("axis", 0))
    if isinstance(indices, Known) and not indices.shape:
        return call.aten("select", x, place, int(indices.number()))
    rows = on_device(call.recorder, indices)
    if "aten.as_strided" in call.node.origin and rows.numel == x.numel:
        return call.aten("reshape", x, list(rows.shape))
    if x.parameter and x.rank == 2 and place == 0 and not rows.parameter:
        return call.aten("embedding", x, rows)
    return call.aten("index", x, [None] * place + [rows])


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
    one = call.recorder.tensor(indices.shape[:-1], indices.dtype, parameter=indices.parameter)
    return call.aten("index", x, [None] * batch + [one] * indices.shape[-1])


@onnx_operator("ScatterND", "ScatterElements")
def scatter(call: NodeCall) -> Any:
    return call.aten("index_put", call.tensor(0), call.tensor(1), call.tensor(2))


@onnx_operator("aten::roll")
def roll(call: NodeCall) -> Any:
    """Pairs of slices that were joined the other way round; if they were something else, that."""
    x = call.tensor(0)
    turns = [[int(number) for number in call.numbers(place)] for place in range(1, len(call.inputs))]
    pairs = [turns[place : place + 6] for place in range(0, len(turns), 6)]
    dims = []
    for (begin, *more_begin), (end, *_), (axis, *_), (start, *_), (stop, *_), (other, *_) in pairs:
        size = x.shape[dim_of(x.rank, axis)]
        whole = other == axis and start == 0 and begin % max(size, 1) == stop % max(size, 1) and end >= size
        dims.append(axis if whole and not more_begin else None)
    if None not in dims:
        return call.aten("roll", x, [0] * len(dims), dims)
    for begins, ends, axes, starts, stops, others in pairs:
        parts = []
        for firsts, lasts, places in ((begins, ends, axes), (starts, stops, others)):
            part = x
            for first, last, place in zip(firsts, lasts, places, strict=True):
                part = call.aten("slice", part, place, first, last)
            parts.append(part)
        x = call.aten("cat", parts, axes[0])
    return x


@onnx_operator("aten::assign")
def assign(call: NodeCall) -> Any:
    """Writing into a slice: one number everywhere is a fill, else it is a copy."""
    x, source = call.tensor(0), call.tensor(1)
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
        return call.aten("constant_pad_nd", x, flat, 0)
    names = {"reflect": "reflection_pad", "edge": "replication_pad"}
    if mode not in names:
        raise UnsupportedOperator(f"operator Pad in mode {mode!r:.40} has no shape rule")
    return call.aten(f"{names[mode]}{len(flat) // 2}d", x, flat)


@onnx_operator("Resize", "Upsample")
def resize(call: NodeCall) -> Any:
    x = call.tensor(0)
    rank = x.rank - 2
    places = (1, 3) if call.node.operator == "Upsample" or call.version < 11 else (2, 3)
    if call.given(places[1]):
        sizes = [int(size) for size in call.numbers(places[1])]
    else:
        factors = call.numbers(places[0]) if call.given(places[0]) else call.attribute("scales", [])
        if len(factors) != x.rank:
            raise ShapeError(f"operator {call.node.key} of a tensor of shape {show(x.shape)} by {len(factors)} factors")
        sizes = [int(size * float(factor)) for size, factor in zip(x.shape, factors, strict=True)]
    mode = call.attribute("mode", "nearest")
    linear = {1: "linear", 2: "bilinear", 3: "trilinear"}.get(rank, "linear")
    name = {"nearest": "nearest", "linear": linear, "cubic": "bicubic"}.get(mode)
    if name is None:
        raise UnsupportedOperator(f"operator {call.node.key} in mode {mode!r:.40} has no shape rule")
    return call.aten(f"upsample_{name}{rank}d", x, sizes[2:], *(() if name == "nearest" else (False,)))


@onnx_operator("DepthToSpace")
def depth_to_space(call: NodeCall) -> Any:
    return call.aten("pixel_shuffle", call.tensor(0), call.attribute("blocksize", 1))


@onnx_operator("SpaceToDepth")
def space_to_depth(call: NodeCall) -> Any:
    return call.aten("pixel_unshuffle", call.tensor(0), call.attribute("blocksize", 1))


@onnx_operator("Col2Im")
def fold(call: NodeCall) -> Any:
    return call.aten("col2im", call.tensor(0), call.integers("", 1), call.integers("", 2))


@onnx_operator("Trilu")
def trilu(call: NodeCall) -> Any:
    return call.aten("triu" if call.attribute("upper", 1) else "tril", call.tensor(0))


@onnx_operator("Identity")
def identity(call: NodeCall) -> Any:
    """The value itself; the copy that ``contiguous()`` makes where the exporter noted that it stands for one."""
    value = call.value(0)
    if isinstance(value, Tensor) and "aten.clone" in call.node.origin and "contiguous_format" in call.node.origin:
        return contiguous(call.recorder, value)
    return value


@onnx_operator("Shape")
def shape(call: NodeCall) -> Any:
    value = call.value(0)
    sizes = list(value.shape)[call.attribute("start", 0) : call.attribute("end", None)]
    call.recorder.host("size")
    return Known((len(sizes),), "int64", sizes)


@onnx_operator("Size")
def size(call: NodeCall) -> Any:
    return Known((), "int64", [numel(call.value(0).shape)])


@onnx_operator("Constant")
def constant(call: NodeCall) -> Any:
    for name, value in call.node.attributes.items():
        if name == "value" and isinstance(value, TensorHeader):
            return weight(call, value, floats=8)  # such as the factors of Resize, which are then joined
        if name in ("value_int", "value_ints"):
            items = [value] if isinstance(value, int) else value
            return Known(() if isinstance(value, int) else (len(items),), "int64", items)
        if name in ("value_float", "value_floats"):
            items = [value] if isinstance(value, float) else value
            return Known(() if isinstance(value, float) else (len(items),), "float32", items)
    raise UnsupportedOperator("operator Constant of anything but numbers is not followed")


def weight(call: NodeCall, header: TensorHeader, floats: int = 1) -> Tensor | Known:
    """A constant of the file: as numbers where it is one or a few; as a tensor without its data elsewhere."""
    count = numel(header.shape)
    few = len(header.shape) <= 1 and count <= (64 if header.dtype in ("int32", "int64", "bool") else floats)
    if few and not header.external and header.dtype not in ("bfloat16", "complex64", "complex128"):
        return Known(header.shape, header.dtype, header.numbers())
    load = header.numbers if count <= FEW else None
    return call.recorder.tensor(header.shape, header.dtype, parameter=True, load=load)


@onnx_operator("ConstantOfShape")
def constant_of_shape(call: NodeCall) -> Any:
    """Short rows are numbers for the host to compute with, others a tensor that is filled."""
    sizes = call.integers("shape", 0) or []
    value = call.attribute("value")
    dtype = value.dtype if isinstance(value, TensorHeader) else "float32"
    filler = value.numbers()[0] if isinstance(value, TensorHeader) else 0.0
    if len(sizes) <= 1 and 0 <= numel(sizes) <= 64:
        return Known(tuple(sizes), dtype, [filler] * numel(sizes))
    if filler in (0, 1):
        return call.aten("ones" if filler else "zeros", sizes, dtype=SCALAR_CODES[dtype])
    return call.aten("full", sizes, filler, dtype=SCALAR_CODES[dtype])


@onnx_operator("Range")
def range_(call: NodeCall) -> Any:
    start, end, step = (call.numbers(place)[0] for place in range(3))
    return call.aten("arange", start, end, step)


@onnx_operator("EyeLike")
def eye_like(call: NodeCall) -> Any:
    return call.aten("eye", *call.tensor(0).shape[:2])


@onnx_operator("OneHot")
def one_hot(call: NodeCall) -> Any:
    return call.aten("one_hot", call.tensor(0), int(call.numbers(1)[0]))


@onnx_operator("GridSample")
def grid_sample(call: NodeCall) -> Any:
    return call.aten("grid_sampler", call.tensor(0), call.tensor(1))


@onnx_operator("RandomNormalLike", "RandomUniformLike")
def random_like(call: NodeCall) -> Any:
    code = call.attribute("dtype", 0)
    return call.aten("randn", list(call.tensor(0).shape), dtype=SCALAR_CODES[TYPES[code]] if code in TYPES else None)
