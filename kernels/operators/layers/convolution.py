# SPDX-License-Identifier: Apache-2.0
"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import ShapeError
from ..layout import CHANNELS_LAST, channels_last, integers, laid_out, show
from ..memory.indexing import constant_pad
from ..recorder import Recorder
from ..registry import operator
from ..values import Tensor


def convolve(
    recorder: Recorder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    transposed: bool = False,
    output_padding: Any = 0,
    rank: int | None = None,
) -> Tensor:
    """Convolution of any rank, as ``aten::convolution`` dispatches it. Raises ShapeError."""
    rank = weight.rank - 2 if rank is None else rank
    kind = f"conv{'_transpose' if transposed else ''}{rank}d"
    if weight.rank != rank + 2 or rank < 1:
        raise ShapeError(f"{kind} with a weight of shape {show(weight.shape)}")
    unbatched = x.rank == rank + 1
    if unbatched:
        recorder.host("unsqueeze")
        x = recorder.tensor((1, *x.shape), x.dtype)
    if groups < 1:
        raise ShapeError(f"{kind} in {groups} groups")
    channels = weight.shape[0] if transposed else weight.shape[1] * groups
    if x.rank != rank + 2 or x.shape[1] != channels:
        raise ShapeError(
            f"{kind} with weight {show(weight.shape)}, {groups} groups needs {channels} channels, its input is {show(x.shape)}"
        )
    if x.dtype != weight.dtype and not (x.is_quantized and weight.is_quantized):
        raise ShapeError(f"{kind} with {weight.dtype} weights cannot take a {x.dtype} input")
    steps, dilations = integers(stride, rank), integers(dilation, rank)
    if isinstance(padding, str):
        x, pads = _named_padding(recorder, x, padding, weight.shape[2:], dilations)
    else:
        pads = integers(padding, rank)
    extra = integers(output_padding, rank)
    if min(steps) < 1 or min(dilations) < 1 or min(pads) < 0 or min(extra) < 0:
        raise ShapeError(f"{kind} with stride {steps}, padding {pads} and dilation {dilations}")
    sizes = []
    for size, kernel, step, pad, gap, more in zip(x.shape[2:], weight.shape[2:], steps, pads, dilations, extra, strict=True):
        reach = gap * (kernel - 1)
        if transposed:
            sizes.append((size - 1) * step - 2 * pad + reach + more + 1)
            continue
        if size + 2 * pad < reach + 1:
            raise ShapeError(f"{kind} with kernel {show(weight.shape[2:])} does not fit an input of shape {show(x.shape)}")
        sizes.append((size + 2 * pad - reach - 1) // step + 1)
    shape = (x.shape[0], weight.shape[1] * groups if transposed else weight.shape[0], *sizes)
    if 0 in weight.strides:  # a file without weights: default strides
        weight = recorder.tensor(weight.shape, weight.dtype, parameter=True, of=weight)
    last = x.dtype != "float64" and (x.is_channels_last() or weight.is_channels_last())
    strides = channels_last(shape) if last else None
    params: dict[str, Any] = {
        "weight": weight.shape,
        "bias": bias is not None,
        "stride": steps,
        "padding": pads,
        "dilation": dilations,
        "groups": groups,
    }
    if transposed:
        params["output_padding"] = extra
    if last:
        params[CHANNELS_LAST] = True
    if not x.is_quantized:  # cuDNN takes both in one layout, channels last if either is (ConvUtils.h)
        x, weight = laid_out(recorder, x, last), laid_out(recorder, weight, last)
    output = recorder.launch(kind, [x], recorder.tensor(shape, x.dtype, strides), params, (weight, bias))
    if unbatched:
        recorder.host("squeeze")
        return recorder.tensor(shape[1:], x.dtype)
    return output


def _named_padding(
    recorder: Recorder, x: Tensor, padding: str, kernel: Sequence[int], dilation: Sequence[int]
) -> tuple[Tensor, tuple[int, ...]]:
    if padding == "valid":
        return x, (0,) * len(kernel)
    if padding != "same":
        raise ShapeError(f"convolution with padding {padding!r:.20}; valid: same, valid")
    total = [gap * (size - 1) for size, gap in zip(kernel, dilation, strict=True)]
    if any(size % 2 for size in total):
        x = constant_pad(recorder, x, [side for size in reversed(total) for side in (0, size % 2)])
    return x, tuple(size // 2 for size in total)


def _plain(rank: int) -> None:
    @operator(f"conv{rank}d")
    def conv(
        recorder: Recorder,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        return convolve(recorder, input, weight, bias, stride, padding, dilation, groups, rank=rank)

    @operator(f"conv_transpose{rank}d")
    def conv_transpose(
        recorder: Recorder,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Tensor:
        return convolve(recorder, input, weight, bias, stride, padding, dilation, groups, True, output_padding, rank=rank)


for _rank in (1, 2, 3):
    _plain(_rank)


@operator("_convolution", "convolution")
def convolution(
    recorder: Recorder,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    *backend_flags: Any,
) -> Tensor:
    """Traced form of every convolution; the final backend flags change no shape."""
    return convolve(recorder, input, weight, bias, stride, padding, dilation, groups, transposed, output_padding)


@operator("torchvision::deform_conv2d")
def deform_conv2d(
    recorder: Recorder,
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor | None,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Tensor:
    """Convolution with window places offset by a tensor, with a plain one's products."""
    steps, pads, gaps = (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w)
    if weight.rank != 4 or input.rank != 4 or groups < 1 or input.shape[1] != weight.shape[1] * groups or min(steps) < 1:
        raise ShapeError(f"deform_conv2d with weight {show(weight.shape)} cannot take an input of shape {show(input.shape)}")
    sizes = [
        (size + 2 * pad - gap * (kernel - 1) - 1) // step + 1
        for size, kernel, step, pad, gap in zip(input.shape[2:], weight.shape[2:], steps, pads, gaps, strict=True)
    ]
    if offset.rank != 4 or list(offset.shape[2:]) != sizes:
        raise ShapeError(f"deform_conv2d to {show(sizes)} with offsets of shape {show(offset.shape)}")
    params: dict[str, Any] = {"weight": weight.shape, "bias": bias is not None, "stride": steps, "padding": pads}
    params |= {"dilation": gaps, "groups": groups}
    output = recorder.tensor((input.shape[0], weight.shape[0], *sizes), input.dtype)
    inputs = [input, offset, *([mask] if use_mask else [])]
    return recorder.launch("deform_conv2d", inputs, output, params, (weight, bias))


@operator("_convolution_mode")
def convolution_mode(
    recorder: Recorder,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: str,
    dilation: Any,
    groups: int,
) -> Tensor:
    return convolve(recorder, input, weight, bias, stride, padding, dilation, groups)
