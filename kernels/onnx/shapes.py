# SPDX-License-Identifier: Apache-2.0
"""ONNX operators that view memory, move elements, or make tensors."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError, UnsupportedOperator
from ..network import numel
from ..operators.host.arrays import FEW
from ..operators.layout import contiguous, dim_of, show
from ..operators.recorder import Recorder
from ..operators.registry import apply_rule
from ..operators.values import SCALAR_CODES, Tensor
from .call import NodeCall, as_aten, held, onnx_operator
from .model import FORMATS, TYPES, TensorHeader


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
    place = x.rank if axis == x.rank else dim_of(x.rank, axis)
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
    """ONNX keeps a size if the requested one is 1, as in broadcasting."""
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
    if "aten.index" in call.node.origin and parts and any(part.value is None for part in parts):
        # Packed for GatherND, which takes one tensor of places where PyTorch takes one for each dimension.
        packed = apply_rule(Recorder(call.recorder.account), "cat", [parts, call.attribute("axis", 0)], {})
        return call.recorder.tensor(packed.shape, packed.dtype)
    return call.aten("cat", parts, call.attribute("axis", 0))


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
    return held((), "int64", [len(_items(call))])


@onnx_operator("ConcatFromSequence")
def concat_from_sequence(call: NodeCall) -> Any:
    name = "stack" if call.attribute("new_axis", 0) else "cat"
    return call.aten(name, _items(call), call.attribute("axis", 0))


def _items(call: NodeCall) -> list[Any]:
    items = call.value(0)
    if not isinstance(items, list):
        raise ShapeError(f"operator {call.node.key} takes a sequence")
    return items


@onnx_operator("Resize", "Upsample")
def resize(call: NodeCall) -> Any:
    x = call.tensor(0)
    axes = [dim_of(x.rank, axis) for axis in call.attribute("axes") or range(x.rank)]
    factors_at, sizes_at = (1, 3) if call.node.operator == "Upsample" or call.version < 11 else (2, 3)
    wanted = call.numbers(sizes_at) if call.given(sizes_at) else []
    factors = call.numbers(factors_at) if not wanted and call.given(factors_at) else call.attribute("scales", [])
    if len(wanted or factors) != len(axes):
        raise ShapeError(f"operator {call.node.key} of a tensor of shape {show(x.shape)} by {len(wanted or factors)} factors")
    policy = call.attribute("keep_aspect_ratio_policy", "stretch")
    if wanted and policy != "stretch":
        ratios = [size / x.shape[axis] for size, axis in zip(wanted, axes, strict=True)]
        factor = min(ratios) if policy == "not_larger" else max(ratios)
        wanted = [x.shape[axis] * factor + 0.5 for axis in axes]
    shape = list(x.shape)
    for axis, size in zip(
        axes, wanted or [x.shape[axis] * float(f) for axis, f in zip(axes, factors, strict=True)], strict=True
    ):
        shape[axis] = int(size)
    changed = [axis for axis in range(x.rank) if shape[axis] != x.shape[axis]]
    mode, usual = call.attribute("mode", "nearest"), 3 <= x.rank <= 5 and min(changed, default=2) >= 2
    rank = x.rank - 2 if usual else min(max(len(changed), 1), 3)
    name = {"nearest": "nearest", "linear": {2: "bilinear", 3: "trilinear"}.get(rank, "linear"), "cubic": "bicubic"}.get(mode)
    if name is None or (name == "bicubic" and len(changed) > 2):
        raise UnsupportedOperator(f"operator {call.node.key} in mode {mode!r:.40} has no shape rule")
    if usual and (name != "bicubic" or rank == 2):
        return call.aten(f"upsample_{name}{rank}d", x, shape[2:], *(() if name == "nearest" else (False,)))
    kind = f"upsample_{name}{2 if name == 'bicubic' else rank}d"
    return call.recorder.launch(kind, [x], call.recorder.tensor(shape, x.dtype))


depth_to_space = as_aten("pixel_shuffle", "DepthToSpace", blocksize=1)
space_to_depth = as_aten("pixel_unshuffle", "SpaceToDepth", blocksize=1)
grid_sample = as_aten("grid_sampler", "GridSample", operands=2)
as_aten("multinomial", "Multinomial", sample_size=1)


@onnx_operator("Col2Im")
def fold(call: NodeCall) -> Any:
    x, whole, block = call.tensor(0), call.integers("", 1) or [], call.integers("", 2) or []
    if len(whole) == 2:
        return call.aten("col2im", x, whole, block)
    shape = (x.shape[0], x.shape[1] // max(numel(block), 1), *whole)
    return call.recorder.launch("col2im", [x], call.recorder.tensor(shape, x.dtype))


@onnx_operator("Trilu")
def trilu(call: NodeCall) -> Any:
    diagonal = int(call.numbers(1)[0]) if call.given(1) else 0
    return call.aten("triu" if call.attribute("upper", 1) else "tril", call.tensor(0), diagonal)


@onnx_operator("Identity")
def identity(call: NodeCall) -> Any:
    """The value itself, or the copy of a noted ``contiguous()``."""
    value = call.value(0)
    if isinstance(value, Tensor) and "aten.clone" in call.node.origin and "contiguous_format" in call.node.origin:
        return contiguous(call.recorder, value)
    return value


@onnx_operator("Shape")
def shape(call: NodeCall) -> Any:
    value = call.value(0)
    sizes = list(value.shape)[call.attribute("start", 0) : call.attribute("end", None)]
    call.recorder.host("size")
    return held((len(sizes),), "int64", sizes)


@onnx_operator("Size")
def size(call: NodeCall) -> Any:
    return held((), "int64", [numel(call.value(0).shape)])


@onnx_operator("Constant")
def constant(call: NodeCall) -> Any:
    for name, value in call.node.attributes.items():
        if name == "value" and isinstance(value, TensorHeader):
            return weight(call, value, floats=8)  # such as the factors of Resize, which are then joined
        if name in ("value_int", "value_ints"):
            items = [value] if isinstance(value, int) else value
            return held(() if isinstance(value, int) else (len(items),), "int64", items)
        if name in ("value_float", "value_floats"):
            items = [value] if isinstance(value, float) else value
            return held(() if isinstance(value, float) else (len(items),), "float32", items)
    raise UnsupportedOperator("operator Constant of anything but numbers is not followed")


def weight(call: NodeCall, header: TensorHeader, floats: int = 1) -> Tensor:
    """Constant of the file: as numbers if few, else a tensor without data."""
    count = numel(header.shape)
    few = len(header.shape) <= 1 and count <= (64 if header.dtype in ("int32", "int64", "bool") else floats)
    if few and not header.external and header.dtype in FORMATS:
        return held(header.shape, header.dtype, header.numbers())
    load = header.numbers if count <= FEW else None
    return call.recorder.tensor(header.shape, header.dtype, parameter=True, load=load)


@onnx_operator("ConstantOfShape")
def constant_of_shape(call: NodeCall) -> Any:
    """Short rows are numbers for the host, long ones a filled tensor."""
    sizes = call.integers("shape", 0) or []
    value = call.attribute("value")
    dtype = value.dtype if isinstance(value, TensorHeader) else "float32"
    filler = value.numbers()[0] if isinstance(value, TensorHeader) else 0.0
    if len(sizes) <= 1 and 0 <= numel(sizes) <= 64:
        return held(tuple(sizes), dtype, [filler] * numel(sizes))
    if filler in (0, 1):
        made = call.aten("ones" if filler else "zeros", sizes, dtype=SCALAR_CODES[dtype])
    else:
        made = call.aten("full", sizes, filler, dtype=SCALAR_CODES[dtype])
    if made.numel <= FEW:
        made.load = lambda: [filler] * made.numel
    return made


@onnx_operator("Range")
def range_(call: NodeCall) -> Any:
    start, end, step = (call.numbers(place)[0] for place in range(3))
    made = call.aten("arange", start, end, step, dtype=SCALAR_CODES[call.tensor(0).dtype])
    if made.numel <= FEW:
        made.load = lambda: [start + place * step for place in range(made.numel)]
    return made


@onnx_operator("EyeLike")
def eye_like(call: NodeCall) -> Any:
    return call.aten("eye", *call.tensor(0).shape[:2], dtype=SCALAR_CODES[_type_of(call, call.tensor(0).dtype)])


@onnx_operator("OneHot")
def one_hot(call: NodeCall) -> Any:
    x, depth = call.tensor(0), int(call.numbers(1)[0])
    made, dtype = call.aten("one_hot", x, depth), call.tensor(2).dtype
    if made.value is not None:
        off, on = (held((), dtype, [number]) for number in call.numbers(2))
        made = call.aten("where", call.aten("ne", made, 0), on, off)
    elif made.dtype != dtype:  # of which numbers it is made changes nothing on the device
        made = call.aten("to", made, SCALAR_CODES[dtype])
    axis, last = dim_of(made.rank, call.attribute("axis", -1)), made.rank - 1
    return made if axis == last else call.aten("permute", made, [*range(axis), last, *range(axis, last)])


@onnx_operator("RandomNormalLike", "RandomUniformLike", "RandomNormal", "RandomUniform", "Bernoulli")
def random(call: NodeCall) -> Any:
    like = call.tensor(0) if call.inputs else None
    shape = call.attribute("shape", []) if like is None else list(like.shape)
    dtype = _type_of(call, "float32" if like is None else like.dtype)
    return call.recorder.launch(
        "bernoulli" if call.node.operator == "Bernoulli" else "randn", [], call.recorder.tensor(shape, dtype)
    )


def _type_of(call: NodeCall, default: str, name: str = "dtype") -> str:
    return TYPES.get(call.attribute(name, 0), default)


@onnx_operator("HannWindow", "HammingWindow", "BlackmanWindow")
def window(call: NodeCall) -> Any:
    name = "hamming_window" if call.node.operator == "HammingWindow" else "hann_window"  # which costs as much as Blackman's
    dtype = SCALAR_CODES[_type_of(call, "float32", "output_datatype")]
    return call.aten(name, int(call.numbers(0)[0]), bool(call.attribute("periodic", 1)), dtype=dtype)


@onnx_operator("MelWeightMatrix")
def mel_weights(call: NodeCall) -> Any:
    bins, length = (int(call.numbers(place)[0]) for place in range(2))
    shape = (length // 2 + 1, bins)
    return call.recorder.tensor(shape, _type_of(call, "float32", "output_datatype"), parameter=True)


@onnx_operator("BitCast")
def bit_cast(call: NodeCall) -> Any:
    x = call.tensor(0)
    call.recorder.host("view")
    return call.recorder.tensor(x.shape, _type_of(call, x.dtype, "to"), of=x)


@onnx_operator("Optional", "OptionalGetElement")
def optional(call: NodeCall) -> Any:
    return call.value(0) if call.given(0) or call.node.operator != "Optional" else None


@onnx_operator("OptionalHasElement")
def is_there(call: NodeCall) -> Any:
    return held((), "bool", [call.given(0)])


@onnx_operator("AffineGrid")
def affine_grid(call: NodeCall) -> Any:
    sizes = [int(size) for size in call.numbers(1)]
    return call.aten("affine_grid_generator", call.tensor(0), sizes, bool(call.attribute("align_corners", 0)))


@onnx_operator("CenterCropPad")
def center(call: NodeCall) -> Any:
    x, pads = call.tensor(0), list[int]()
    wanted = dict(zip(call.attribute("axes", range(x.rank)), call.integers("shape", 1) or [], strict=True))
    wanted = {dim_of(x.rank, axis): size for axis, size in wanted.items()}
    for axis in reversed(range(x.rank)):
        more = wanted.get(axis, x.shape[axis]) - x.shape[axis]
        if more < 0:
            x = call.aten("slice", x, axis, -more // 2, -more // 2 + wanted[axis])
        pads += [max(more, 0) // 2, max(more, 0) - max(more, 0) // 2]
    return call.aten("constant_pad_nd", x, pads, 0) if any(pads) else x


@onnx_operator("STFT")
def stft(call: NodeCall) -> Any:
    """The signal has a last dimension of size one, its result of size two."""
    x, step = call.tensor(0), int(call.numbers(1)[0])
    frame = call.optional(2)
    length = int(call.numbers(3)[0]) if call.given(3) else frame.numel if frame is not None else 0
    if x.shape[-1] != 1:
        raise UnsupportedOperator("operator STFT of a complex signal is not followed")
    onesided = bool(call.attribute("onesided", 1))
    x = call.aten("squeeze", x, -1)
    made = call.aten("stft", x, length, step, length, frame, onesided=onesided, return_complex=True)
    return call.aten("view_as_real", call.aten("transpose", made, 1, 2))


@onnx_operator("aten::as_complex")
def as_complex(call: NodeCall) -> Any:
    """Complex form of real numbers with a last dimension of one."""
    x = call.aten("squeeze", call.tensor(0), -1)
    wide = "complex128" if x.dtype == "float64" else "complex64"
    return call.aten("view_as_real", call.aten("to", x, SCALAR_CODES[wide]))


@onnx_operator("aten::transformed")
def transformed(call: NodeCall) -> Any:
    """One more dimension of a listed transform, if its size does not change."""
    x = call.tensor(0)
    return x if not call.given(1) or call.numbers(1)[0] == x.shape[_transformed_axis(call)] else NotImplemented


def _transformed_axis(call: NodeCall) -> int:
    axis = int(call.numbers(2)[0]) if call.given(2) else call.attribute("axis", -2 if call.version >= 20 else 1)
    return dim_of(call.tensor(0).rank, axis)


@onnx_operator("DFT")
def dft(call: NodeCall) -> Any:
    """A last dimension of two numbers is complex, of one number real."""
    x = call.tensor(0)
    length = int(call.numbers(1)[0]) if call.given(1) else None
    axis, inverse, onesided = _transformed_axis(call), call.attribute("inverse", 0), call.attribute("onesided", 0)
    x = call.aten("view_as_complex", x) if x.shape[-1] == 2 else call.aten("squeeze", x, -1)
    if inverse and onesided:
        return call.aten("unsqueeze", call.aten("fft_irfft", x, length, axis), -1)
    name = "fft_rfft" if onesided else "fft_ifft" if inverse else "fft_fft"
    return call.aten("view_as_real", call.aten(name, x, length, axis))
