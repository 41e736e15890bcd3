# SPDX-License-Identifier: Apache-2.0
"""Kernels of networks with other sizes, batches, windows or fusions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np
from msgspec.structs import replace

from ....kernels.kinds import KernelKind, flops
from ....kernels.network import DTYPE_BYTES, KernelInvocation, ParamValue, Shape
from ....kernels.operators.layers.pooling import pooled
from .sized_kernels import invocation

Params = dict[str, ParamValue]

_KEPT = 0.3  # of the sizes of a kernel: as the network has them
_ALIGNED = 0.6  # of the sizes that are varied: a multiple of eight
_MULTIPLE = 8
_SMALL = 4  # sizes up to this are a matter of form
_ROUND = ((96, 64), (24, 16), (0, 8))  # (least size, usual multiple)
_POWERS = 0.5  # of the numbers of rows that people choose: powers of two
_MOST_ROWS_DOUBLINGS = 12
_OF_OTHER_RANK = ("mean", "sum", "amax", "embedding")  # whose input and output have a batch, but not as many dimensions


class SizeVariation:
    """Variation of sizes by up to ``spread`` doublings; equal sizes stay equal."""

    def __init__(self, random: np.random.Generator, spread: float) -> None:
        self._random, self._spread = random, spread
        self._new: dict[int, int] = {}

    def __call__(self, size: int) -> int:
        if size <= _SMALL:
            return size
        if size not in self._new:
            self._new[size] = self.anew(size)
        return self._new[size]

    def anew(self, size: int) -> int:
        if not self._spread or self._random.random() < _KEPT:
            return size
        varied = size * 2 ** self._random.uniform(-self._spread, self._spread)
        if varied > _MULTIPLE and self._random.random() < _ALIGNED:
            return round(varied / _MULTIPLE) * _MULTIPLE
        return max(round(varied), 1)

    def rows(self, count: int) -> int:
        return self.anew(count)


class UsualSizes(SizeVariation):
    """Common product sizes, at which libraries switch algorithms: models need them in their data."""

    def anew(self, size: int) -> int:
        if size <= _SMALL or self._random.random() < _KEPT:
            return size
        varied = size * 2 ** self._random.uniform(-self._spread, self._spread)
        multiple = next(multiple for least, multiple in _ROUND if varied >= least)
        return max(round(varied / multiple) * multiple, multiple)

    def rows(self, count: int) -> int:
        if self._random.random() < _POWERS:
            return int(2 ** self._random.integers(1, _MOST_ROWS_DOUBLINGS + 1))
        return self.anew(count)


def typed(call: KernelInvocation, dtype: str) -> KernelInvocation:
    if dtype == call.dtype:
        return call
    return replace(call, dtype=dtype, bytes=round(call.bytes * DTYPE_BYTES[dtype] / DTYPE_BYTES[call.dtype]))


def _again(
    like: KernelInvocation,
    inputs: Sequence[Shape],
    output: Shape,
    params: Mapping[str, ParamValue],
    parameters: int | None = None,
) -> KernelInvocation:
    """Kernel of other sizes; with ``parameters`` None, bytes scale with its tensors' elements."""
    made = invocation(like.kind, inputs, output, params, parameters or 0, like.dtype)
    if parameters is not None:
        return made
    tensors, before = (sum(map(prod, (*one.inputs, one.output))) for one in (made, like))
    return replace(made, bytes=round(like.bytes * tensors / max(before, 1)))


def renamed(like: KernelInvocation, sizes: SizeVariation, batch: int) -> KernelInvocation:
    first = like.output[0] if like.output else 0

    def shape(old: Shape) -> Shape:
        new = tuple(map(sizes, old))
        alike = len(old) == len(like.output) or like.kind in _OF_OTHER_RANK
        whole = len(old) > 1 and alike and old[0] == first
        return (batch * new[0], *new[1:]) if whole else new

    params = {
        name: shape(value) if name in ("normalized_shape", "weight") and isinstance(value, tuple) else value
        for name, value in like.params.items()
    }
    if like.kind == "group_norm":  # as many channels in a group as before
        groups, channels = int(like.params["groups"] or 1), shape(like.output)[1]  # type: ignore[arg-type]
        params["groups"] = math.gcd(groups, channels)
    return _again(like, tuple(map(shape, like.inputs)), shape(like.output), params)


def _matmul(like: KernelInvocation, sizes: SizeVariation, batch: int) -> KernelInvocation:
    m, n, k, count = (int(like.params[name] or 1) for name in ("m", "n", "k", "batch"))  # type: ignore[arg-type]
    bias, two = bool(like.params.get("bias")), len(like.inputs) > 1
    n, k = sizes.anew(n), sizes.anew(k)
    if two:
        m, count = sizes.anew(m), sizes.anew(count) * batch
    else:
        m = (m if m == 1 else sizes.rows(m)) * batch
    params: Params = {**like.params, "m": m, "n": n, "k": k, "batch": count}
    inputs: list[Shape] = [(count, m, k), (count, k, n)] if two else [(m, k)]
    output: Shape = (count, m, n) if two else (m, n)
    return _again(like, inputs, output, params, 0 if two else k * n + (n if bias else 0))


def _convolution(like: KernelInvocation, sizes: SizeVariation, batch: int) -> KernelInvocation | None:
    weight, groups = like.params["weight"], int(like.params["groups"] or 1)  # type: ignore[arg-type]
    assert isinstance(weight, tuple)
    transposed = "output_padding" in like.params
    channels, filters = like.inputs[0][1], like.output[1]
    depthwise = groups > 1 and groups == channels
    if depthwise:
        times = filters // channels
        groups = channels = sizes.anew(channels)
        filters = times * channels
    else:
        groups = groups if groups == 1 else sizes(groups)
        channels, filters = (max(round(sizes.anew(one) / groups), 1) * groups for one in (channels, filters))
    window = weight[2:]
    image = tuple(map(sizes, like.inputs[0][2:]))
    out = tuple(
        _outputs(size, *each, transposed=transposed)
        for size, *each in zip(
            image, window, *(_steps(like, name, len(window)) for name in ("stride", "padding", "dilation")), strict=True
        )
    )
    if min(out) < 1:
        return None
    shape = (channels, filters // groups, *window) if transposed else (filters, channels // groups, *window)
    params: Params = {**like.params, "weight": shape, "groups": groups}
    inputs: list[Shape] = [(batch * like.inputs[0][0], channels, *image)]
    parameters = prod(shape) + (filters if like.params.get("bias") else 0)
    return _again(like, inputs, (inputs[0][0], filters, *out), params, parameters)


def other_window(like: KernelInvocation, side: int, stride: int, padding: int) -> KernelInvocation:
    """Kernel with another window; output and cost are not yet updated."""
    weight = like.params.get("weight")
    window = {"weight": (*weight[:2], side, side)} if isinstance(weight, tuple) else {"kernel_size": (side, side)}
    steps = {"stride": (stride, stride), "padding": (padding, padding), "dilation": (1, 1)}
    return replace(like, params={**like.params, **window, **steps})


def fused(call: KernelInvocation, made: KernelKind) -> KernelInvocation:
    """Convolution fused with further members; only an added operand is read as well."""
    inputs, operations, read = call.inputs, call.flops, 0
    for member in made.members[1:]:
        operations += flops(member, [call.output], call.output, {})
        if member == "add":
            inputs, read = (*inputs, call.output), prod(call.output) * DTYPE_BYTES[call.dtype]
    return replace(call, kind=made.name, inputs=inputs, flops=operations, bytes=call.bytes + read)


def _pool(like: KernelInvocation, sizes: SizeVariation, batch: int) -> KernelInvocation | None:
    channels, image = sizes.anew(like.inputs[0][1]), tuple(map(sizes, like.inputs[0][2:]))
    if "output_size" in like.params:
        out = tuple(min(sizes(size), side) for size, side in zip(like.output[2:], image, strict=True))
        params: Params = {**like.params, "output_size": out}
    else:
        params = dict(like.params)
        names = ("kernel_size", "stride", "padding", "dilation")
        steps = zip(image, *(_steps(like, name, len(image)) for name in names), strict=True)
        ceil_mode = bool(like.params.get("ceil_mode"))
        out = tuple(pooled(size, window, step, pad, gap, ceil_mode) for size, window, step, pad, gap in steps)
    if min(out) < 1:
        return None
    first = batch * like.inputs[0][0]
    return _again(like, [(first, channels, *image)], (first, channels, *out), params, 0)


def _cat(like: KernelInvocation, sizes: SizeVariation, batch: int) -> KernelInvocation | None:
    dim = int(like.params["dim"] or 0) % max(len(like.output), 1)  # type: ignore[arg-type]
    rest = [size if index == dim else sizes(size) for index, size in enumerate(like.output)]
    if dim and rest:
        rest[0] *= batch
    inputs = [
        (*rest[:dim], sizes.anew(shape[dim]), *rest[dim + 1 :]) for shape in like.inputs if len(shape) == len(like.output)
    ]
    if not inputs:
        return None
    output = (*rest[:dim], sum(shape[dim] for shape in inputs), *rest[dim + 1 :])
    return _again(like, inputs, output, like.params, 0)


def _steps(call: KernelInvocation, name: str, dimensions: int) -> Shape:
    value = call.params.get(name, 1)
    if isinstance(value, tuple):
        return value * dimensions if len(value) == 1 else value
    return (int(value or 0),) * dimensions


def _outputs(size: int, window: int, stride: int, padding: int, dilation: int, *, transposed: bool) -> int:
    reach = dilation * (window - 1)
    return (size - 1) * stride - 2 * padding + reach + 1 if transposed else (size + 2 * padding - reach - 1) // stride + 1


WINDOWS: Mapping[str, tuple[tuple[int, int, int], ...]] = {
    "conv_transpose2d": ((2, 2, 0), (3, 2, 1), (4, 2, 1), (3, 1, 1)),
    "max_pool2d": ((2, 2, 0), (3, 2, 1), (3, 2, 0), (3, 1, 1), (5, 1, 2), (2, 1, 0)),
    "avg_pool2d": ((2, 2, 0), (3, 2, 1), (3, 1, 1), (2, 1, 0), (7, 1, 0)),
}
"""Common windows: (side, stride, padding)."""

MAKERS: Mapping[str, Callable[[KernelInvocation, SizeVariation, int], KernelInvocation | None]] = {
    "matmul": _matmul,
    "cat": _cat,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _convolution),
    **dict.fromkeys(("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"), _pool),
}
