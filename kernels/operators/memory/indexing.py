# SPDX-License-Identifier: Apache-2.0
"""Operators that gather, join, pad, resample and move elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import ShapeError, UnsupportedOperator
from ...network import Shape, numel
from ..elementwise import promoted
from ..host.scalars import plain_items
from ..layout import broadcast, channels_last, dim_of, elementwise_strides, integers, reshape, show, view_of
from ..recorder import DataDependent, Recorder
from ..registry import operator
from ..values import Tensor


@operator("cat", "concat", "concatenate")
def cat(recorder: Recorder, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    parts = [x for x in tensors if x.shape != (0,)]
    if not parts:
        raise ShapeError("cat of an empty list of tensors")
    first = parts[0]
    place = dim_of(first.rank, dim)
    total = 0
    for x in parts:
        if x.rank != first.rank or x.shape[:place] + x.shape[place + 1 :] != first.shape[:place] + first.shape[place + 1 :]:
            raise ShapeError(f"cat along dimension {place} of shapes {', '.join(show(part.shape) for part in parts[:8])}")
        total += x.shape[place]
    shape = (*first.shape[:place], total, *first.shape[place + 1 :])
    strides = channels_last(shape) if all(x.is_channels_last() for x in parts) else None
    return recorder.launch("cat", parts, recorder.tensor(shape, promoted(parts), strides), {"dim": place})


@operator("stack")
def stack(recorder: Recorder, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    first = tensors[0]
    place = dim_of(first.rank + 1, dim)
    if any(x.shape != first.shape for x in tensors):
        raise ShapeError(f"stack of shapes {', '.join(show(x.shape) for x in tensors[:8])}")
    shape = (*first.shape[:place], len(tensors), *first.shape[place:])
    return recorder.launch("stack", list(tensors), recorder.tensor(shape, promoted(tensors)), {"dim": place})


@operator("embedding")
def embedding(recorder: Recorder, weight: Tensor, indices: Tensor, *_: Any) -> Tensor:
    if weight.rank != 2:
        raise ShapeError(f"embedding in a table of shape {show(weight.shape)}")
    shape = (*indices.shape, weight.shape[1])
    rows = recorder.tensor(shape, weight.dtype, of=weight)  # equal reads and writes
    return recorder.launch("embedding", [indices], recorder.tensor(shape, weight.dtype), {"weight": weight.shape}, (rows,))


@operator("index_select")
def index_select(recorder: Recorder, self: Tensor, dim: int, index: Tensor) -> Tensor:
    place = dim_of(self.rank, dim)
    count = index.shape[0] if index.rank else 1
    output = recorder.tensor((*self.shape[:place], count, *self.shape[place + 1 :]), self.dtype)
    return recorder.launch("index_select", [self, index], output)


@operator("gather")
def gather(recorder: Recorder, self: Tensor, dim: int, index: Tensor, *_: Any, **__: Any) -> Tensor:
    return recorder.launch("gather", [self, index], recorder.tensor(index.shape, self.dtype))


@operator("index")
def index(recorder: Recorder, self: Any, indices: Any) -> Any:
    """Advanced indexing: index tensors broadcast; if adjacent, they replace the first one's place."""
    if isinstance(self, (list, tuple)):
        return plain_items(self).index(indices)
    places = [place for place, tensor in enumerate(indices) if tensor is not None]
    used = [indices[place] for place in places]
    if any(tensor.dtype in ("bool", "uint8") for tensor in used):
        raise DataDependent("a mask selects elements")
    if not used or len(indices) > self.rank:
        raise ShapeError(f"{len(indices)} indices into a tensor of shape {show(self.shape)}")
    picked = broadcast([tensor.shape for tensor in used])
    together = places == list(range(places[0], places[-1] + 1))
    kept = [size for place, size in enumerate(self.shape) if place not in places]
    lead = places[0] if together else 0
    return recorder.launch("index", [self, *used], recorder.tensor((*kept[:lead], *picked, *kept[lead:]), self.dtype))


def _data_dependent(name: str, why: str) -> None:
    @operator(name)
    def rule(recorder: Recorder, *arguments: Any, **_: Any) -> None:
        raise DataDependent(why)


_data_dependent("nonzero", "which elements are not zero decides the shape")
_data_dependent("nonzero_numpy", "which elements are not zero decides the shape")
_data_dependent("masked_select", "a mask decides the shape")
_data_dependent("unique_consecutive", "the number of different elements decides the shape")
_data_dependent("_unique2", "the number of different elements decides the shape")
_data_dependent("tolist", "the numbers in a tensor are read back")
_data_dependent("_pack_padded_sequence", "the lengths of the sequences in a batch decide the shape")
_data_dependent("torchvision::nms", "non-maximum suppression decides how many boxes stay")


@operator("torchvision::roi_align")
def roi_align(
    recorder: Recorder, input: Tensor, rois: Tensor, spatial_scale: float, height: int, width: int, *_: Any
) -> Tensor:
    return recorder.launch(
        "roi_align", [input, rois], recorder.tensor((rois.shape[0], input.shape[1], height, width), input.dtype)
    )


@operator("repeat")
def repeat(recorder: Recorder, self: Tensor, repeats: Sequence[int]) -> Tensor:
    lead = len(repeats) - self.rank
    if lead < 0:
        raise ShapeError(f"repeat of shape {show(self.shape)} by {list(repeats)}")
    shape = tuple(size * times for size, times in zip((1,) * lead + self.shape, repeats, strict=True))
    return recorder.launch("repeat", [self], recorder.tensor(shape, self.dtype))


@operator("repeat_interleave")
def repeat_interleave(recorder: Recorder, self: Tensor, repeats: Any, dim: int | None = None, **_: Any) -> Tensor:
    source = reshape(recorder, self, (self.numel,)) if dim is None else self
    place = dim_of(source.rank, dim or 0)
    if not isinstance(repeats, int):
        return _repeat_by_tensor(recorder, source, repeats, place)
    shape = (*source.shape[: place + 1], repeats, *source.shape[place + 1 :])
    recorder.host("expand")
    copy = recorder.launch("clone", [recorder.tensor(shape, self.dtype)], recorder.tensor(shape, self.dtype))
    return view_of(
        recorder, copy, (*source.shape[:place], source.shape[place] * repeats, *source.shape[place + 1 :]), None, "view"
    )


def _repeat_by_tensor(recorder: Recorder, source: Tensor, repeats: Any, place: int) -> Tensor:
    """For repeats in a tensor, as in traced code of a size, rows are picked by index (``Repeat.cpp``)."""
    if not isinstance(repeats, Tensor) or repeats.value is None:
        raise DataDependent("the numbers in a tensor decide how often elements repeat")
    times = [int(item) for item in repeats.value]
    count = times[0] * source.shape[place] if len(times) == 1 else sum(times)
    return index_select(recorder, source, place, recorder.tensor((count,), "int64"))


@operator("tile")
def tile(recorder: Recorder, self: Tensor, dims: Sequence[int]) -> Tensor:
    return repeat(recorder, self, [1] * (self.rank - len(dims)) + list(dims))


def _same_shape(kind: str, *spellings: str) -> None:
    @operator(kind, *spellings)
    def rule(recorder: Recorder, self: Tensor, *_: Any, **__: Any) -> Tensor:
        return recorder.launch(kind, [self], recorder.tensor(self.shape, self.dtype))


_same_shape("roll")
_same_shape("flip")
_same_shape("tril", "tril_")
_same_shape("triu", "triu_")
_same_shape("channel_shuffle")


@operator("constant_pad_nd")
def constant_pad(recorder: Recorder, self: Tensor, pad: Sequence[int], value: Any = 0) -> Tensor:
    return _padded(recorder, "constant_pad_nd", self, pad)


@operator("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(recorder: Recorder, self: Tensor, padding: Sequence[int]) -> Tensor:
    return _padded(recorder, f"reflection_pad{len(padding) // 2}d", self, padding)


@operator("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(recorder: Recorder, self: Tensor, padding: Sequence[int]) -> Tensor:
    return _padded(recorder, f"replication_pad{len(padding) // 2}d", self, padding)


@operator("pad")
def pad(recorder: Recorder, self: Tensor, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Tensor:
    kinds = {"constant": "constant_pad_nd"}
    kinds |= {"reflect": f"reflection_pad{len(pad) // 2}d", "replicate": f"replication_pad{len(pad) // 2}d"}
    if mode == "circular":
        return _pad_circular(recorder, self, pad)
    if mode not in kinds:
        raise UnsupportedOperator(f"pad in mode {mode!r:.20} has no shape rule")
    return _padded(recorder, kinds[mode], self, pad)


def _pad_circular(recorder: Recorder, x: Tensor, pad: Sequence[int]) -> Tensor:
    """Copy the middle, then the joined ends, from the last dimension on."""
    shape = list(x.shape)
    for pair in range(len(pad) // 2):
        shape[-1 - pair] += pad[2 * pair] + pad[2 * pair + 1]
    output = recorder.tensor(shape, x.dtype)
    recorder.launch("copy", [x], recorder.tensor(x.shape, x.dtype))
    for pair in range(len(pad) // 2):
        for size in pad[2 * pair : 2 * pair + 2]:
            if size > 0:
                part = recorder.tensor((*shape[: len(shape) - 1 - pair], size, *shape[len(shape) - pair :]), x.dtype)
                recorder.launch("copy", [part], part)
    return output


def _padded(recorder: Recorder, kind: str, x: Tensor, pad: Sequence[int]) -> Tensor:
    if len(pad) % 2 or len(pad) > 2 * x.rank:
        raise ShapeError(f"padding {list(pad)} of a tensor of shape {show(x.shape)}")
    shape = list(x.shape)
    for pair in range(len(pad) // 2):
        shape[-1 - pair] += pad[2 * pair] + pad[2 * pair + 1]
    strides = channels_last(tuple(shape)) if x.is_channels_last() else None
    return recorder.launch(kind, [x], recorder.tensor(shape, x.dtype, strides))


@operator("pixel_shuffle")
def pixel_shuffle(recorder: Recorder, self: Tensor, upscale_factor: int) -> Tensor:
    *lead, channels, height, width = self.shape
    if channels % upscale_factor**2:
        raise ShapeError(f"pixel_shuffle by {upscale_factor} of a tensor of shape {show(self.shape)}")
    shape = (*lead, channels // upscale_factor**2, height * upscale_factor, width * upscale_factor)
    return recorder.launch("pixel_shuffle", [self], recorder.tensor(shape, self.dtype))


@operator("pixel_unshuffle")
def pixel_unshuffle(recorder: Recorder, self: Tensor, downscale_factor: int) -> Tensor:
    *lead, channels, height, width = self.shape
    shape = (*lead, channels * downscale_factor**2, height // downscale_factor, width // downscale_factor)
    return recorder.launch("pixel_unshuffle", [self], recorder.tensor(shape, self.dtype))


def _upsampling(mode: str, rank: int, aligned: bool) -> None:
    kind = f"upsample_{mode}{rank}d"

    @operator(kind, f"_{kind.replace('nearest', 'nearest_exact')}" if "nearest" in mode else f"_{kind}_aa")
    def rule(recorder: Recorder, input: Tensor, output_size: Any, *arguments: Any) -> Tensor:
        """Both overloads: sizes, or (if ``output_size`` is ``None``) scale factors."""
        spatial = input.shape[2:]
        if input.rank != rank + 2:
            raise ShapeError(f"{kind} of an input of shape {show(input.shape)}")
        if output_size is None:
            factors = arguments[1 if aligned else 0]
            sizes = tuple(int(size * float(factor)) for size, factor in zip(spatial, factors, strict=True))
        else:
            sizes = integers(output_size, rank)
        shape = (*input.shape[:2], *sizes)
        strides = channels_last(shape) if input.is_channels_last() else None
        return recorder.launch(kind, [input], recorder.tensor(shape, input.dtype, strides))


for _mode, _ranks, _aligned in (
    ("nearest", (1, 2, 3), False),
    ("linear", (1,), True),
    ("bilinear", (2,), True),
    ("bicubic", (2,), True),
    ("trilinear", (3,), True),
):
    for _rank in _ranks:
        _upsampling(_mode, _rank, _aligned)


@operator("im2col")
def im2col(recorder: Recorder, self: Tensor, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Tensor:
    kernel, gaps, pads, steps = (integers(value, 2) for value in (kernel_size, dilation, padding, stride))
    places = [
        (size + 2 * pad - gap * (length - 1) - 1) // step + 1
        for size, length, gap, pad, step in zip(self.shape[-2:], kernel, gaps, pads, steps, strict=True)
    ]
    shape = (*self.shape[:-3], self.shape[-3] * numel(kernel), numel(places))
    return recorder.launch("im2col", [self], recorder.tensor(shape, self.dtype))


@operator("col2im")
def col2im(recorder: Recorder, self: Tensor, output_size: Any, kernel_size: Any, *_: Any) -> Tensor:
    kernel, sizes = integers(kernel_size, 2), integers(output_size, 2)
    if self.rank < 2 or min(kernel) < 1 or self.shape[-2] % numel(kernel):
        raise ShapeError(f"fold of a tensor of shape {show(self.shape)} by kernel {show(kernel)}")
    shape = (*self.shape[:-2], self.shape[-2] // numel(kernel), *sizes)
    return recorder.launch("col2im", [self], recorder.tensor(shape, self.dtype))


@operator("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(recorder: Recorder, input: Tensor, grid: Tensor, *_: Any) -> Tensor:
    if input.rank not in (4, 5) or grid.rank != input.rank or grid.shape[-1] != input.rank - 2:
        raise ShapeError(f"grid_sampler of shapes {show(input.shape)} and {show(grid.shape)}")
    output = recorder.tensor((*input.shape[:2], *grid.shape[1:-1]), input.dtype)
    return recorder.launch(f"grid_sampler_{input.rank - 2}d", [input, grid], output)


@operator("meshgrid")
def meshgrid(recorder: Recorder, tensors: Sequence[Tensor], indexing: str = "ij") -> list[Tensor]:
    axes: list[Shape] = [x.shape for x in tensors]
    sizes = [shape[0] if shape else 1 for shape in axes]
    swapped = indexing == "xy" and len(sizes) > 1
    if swapped:
        sizes[0], sizes[1] = sizes[1], sizes[0]
    grids = []
    for place, x in enumerate(tensors):
        at = {0: 1, 1: 0}.get(place, place) if swapped else place
        recorder.host("view")
        strides = [0] * len(sizes)
        strides[at] = 1
        grids.append(view_of(recorder, x, sizes, strides, "expand"))
    return grids


@operator("bucketize")
def bucketize(recorder: Recorder, self: Tensor, boundaries: Tensor, *_: Any, **__: Any) -> Tensor:
    output = recorder.tensor(self.shape, "int64", elementwise_strides(self.shape, (self,)))
    return recorder.launch("bucketize", [self, boundaries], output)
