# SPDX-License-Identifier: Apache-2.0
"""Pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ShapeError
from ...network import ParamValue
from ..layout import channels_last, integers, of_layout, show, view_of
from ..memory.views import squeeze, unsqueeze
from ..recorder import Recorder
from ..reduction import reduce
from ..registry import operator
from ..values import Tensor


def pooled(size: int, kernel: int, step: int, pad: int, gap: int, ceil_mode: bool) -> int:
    """ATen's ``pooling_output_shape``: the last window must start inside the input or its left padding."""
    span = size + 2 * pad - gap * (kernel - 1) - 1 + (step - 1 if ceil_mode else 0)
    out = span // step + 1
    if ceil_mode and (out - 1) * step >= size + pad:
        out -= 1
    return out


def pool(
    recorder: Recorder,
    kind: str,
    x: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    further: dict[str, ParamValue],
) -> Tensor:
    rank = int(kind[-2])
    kernel = integers(kernel_size, rank)
    steps = integers(stride, rank) if stride or isinstance(stride, int) else kernel
    pads, gaps = integers(padding, rank), integers(dilation, rank)
    if x.rank not in (rank + 1, rank + 2):
        raise ShapeError(f"{kind} of an input with {x.rank} dimensions ({show(x.shape)})")
    if min(kernel) < 1 or min(steps) < 1 or min(gaps) < 1 or min(pads) < 0:
        raise ShapeError(f"{kind} with kernel {kernel}, stride {steps} and padding {pads}")
    if rank == 1:  # two-dimensional in ATen
        flat = unsqueeze(recorder, x, -2)
        wide = {name: (1, *value) if isinstance(value, tuple) else value for name, value in further.items()}
        made = pool(recorder, f"{kind[:-2]}2d", flat, (1, *kernel), (1, *steps), (0, *pads), (1, *gaps), ceil_mode, wide)
        return squeeze(recorder, made, -2)
    spatial = x.shape[-rank:]
    sizes = [pooled(*place, bool(ceil_mode)) for place in zip(spatial, kernel, steps, pads, gaps, strict=True)]
    if min(sizes) < 1:
        raise ShapeError(f"{kind} with kernel {show(kernel)} does not fit an input of shape {show(x.shape)}")
    shape = (*x.shape[:-rank], *sizes)
    params: dict[str, ParamValue] = {"kernel_size": kernel, "stride": steps, "padding": pads}
    params |= {**further, "ceil_mode": bool(ceil_mode), **of_layout(x)}
    strides = channels_last(shape) if x.is_channels_last() else None
    return recorder.launch(kind, [x], recorder.tensor(shape, x.dtype, strides), params)


def _family(rank: int) -> None:
    @operator(f"max_pool{rank}d")
    def max_pool(
        recorder: Recorder,
        self: Tensor,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Tensor:
        gaps = integers(dilation, rank)
        return pool(recorder, f"max_pool{rank}d", self, kernel_size, stride, padding, gaps, ceil_mode, {"dilation": gaps})

    @operator(f"max_pool{rank}d_with_indices")
    def max_pool_with_indices(recorder: Recorder, self: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
        out = max_pool(recorder, self, *arguments)
        return out, recorder.tensor(out.shape, "int64")

    @operator(f"avg_pool{rank}d")
    def avg_pool(
        recorder: Recorder,
        self: Tensor,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        return pool(recorder, f"avg_pool{rank}d", self, kernel_size, stride, padding, 1, ceil_mode, {})

    @operator(f"adaptive_avg_pool{rank}d")
    def adaptive_avg_pool(recorder: Recorder, self: Tensor, output_size: Any) -> Tensor:
        sizes = _adaptive_sizes(self, output_size, rank)
        if rank == 1:
            return _along_two(recorder, self, _adaptive_mean, sizes)
        if sizes == (1,) * rank:
            return _mean(recorder, self, rank)
        return _adaptive(recorder, f"adaptive_avg_pool{rank}d", self, sizes)

    @operator(f"adaptive_max_pool{rank}d")
    def adaptive_max_pool(recorder: Recorder, self: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
        sizes = _adaptive_sizes(self, output_size, rank)
        if rank == 1:
            out = _along_two(
                recorder, self, lambda recorder, x, size: _adaptive(recorder, "adaptive_max_pool2d", x, size), sizes
            )
        else:
            out = _adaptive(recorder, f"adaptive_max_pool{rank}d", self, sizes)
        return out, recorder.tensor(out.shape, "int64")


def _mean(recorder: Recorder, x: Tensor, rank: int) -> Tensor:
    """Pooling to one element; images keep channels last (``AdaptiveAveragePooling.cpp``)."""
    made = reduce(recorder, "mean", x, list(range(-rank, 0)), True)
    if rank == 2 and x.is_channels_last():
        return view_of(recorder, made, made.shape, channels_last(made.shape), "as_strided")
    return made


def _adaptive_mean(recorder: Recorder, x: Tensor, sizes: tuple[int, ...]) -> Tensor:
    if sizes == (1, 1):
        return _mean(recorder, x, 2)
    return _adaptive(recorder, "adaptive_avg_pool2d", x, sizes)


def _along_two(
    recorder: Recorder, x: Tensor, pool: Callable[[Recorder, Tensor, tuple[int, ...]], Tensor], sizes: tuple[int, ...]
) -> Tensor:
    """Pooling along one dimension as in ATen: along two, one of size 1."""
    made = pool(recorder, unsqueeze(recorder, x, -2), (1, *sizes))
    return squeeze(recorder, made, -2)


def _adaptive_sizes(x: Tensor, output_size: Any, rank: int) -> tuple[int, ...]:
    if x.rank not in (rank + 1, rank + 2):
        raise ShapeError(f"adaptive pooling over {rank} dimensions of an input of shape {show(x.shape)}")
    return integers(output_size, rank)


def _adaptive(recorder: Recorder, kind: str, x: Tensor, sizes: Sequence[int]) -> Tensor:
    shape = (*x.shape[: -len(sizes)], *sizes)
    strides = channels_last(shape) if x.is_channels_last() else None
    params: dict[str, ParamValue] = {"output_size": tuple(sizes), **of_layout(x)}
    return recorder.launch(kind, [x], recorder.tensor(shape, x.dtype, strides), params)


for _rank in (1, 2, 3):
    _family(_rank)


def _unpool(rank: int) -> None:
    @operator(f"max_unpool{rank}d")
    def rule(recorder: Recorder, self: Tensor, indices: Tensor, output_size: Sequence[int], *_: Any) -> Tensor:
        shape = (*self.shape[: self.rank - rank], *output_size[-rank:])
        if self.rank not in (rank + 1, rank + 2) or self.shape != indices.shape or len(shape) != self.rank:
            raise ShapeError(f"max_unpool{rank}d of shape {show(self.shape)} by indices of shape {show(indices.shape)}")
        return recorder.launch(f"max_unpool{rank}d", [self, indices], recorder.tensor(shape, self.dtype))


for _rank in (2, 3):
    _unpool(_rank)
