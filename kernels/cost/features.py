# SPDX-License-Identifier: Apache-2.0
"""What a kernel model is told about a kernel invocation: its work, its shape as the device tiles it, its alignment, by kind.

Every kind's last three features are the board's clocks in MHz. They stand as NaN in the rows made here: a sweep takes them from
the grid's levels, a training set fills them in.

The amounts of work (FLOPs, bytes, their ratio) are what a roofline bound is made of; matrix dimensions, tile counts and the
share of each tile that does useful work follow the way GEMM libraries cut their work (NVIDIA, "Matrix Multiplication
Background").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import CostModelError
from ..kinds import ELEMENTWISE, KINDS, FeatureFamily
from ..network import KernelInvocation, ParamValue, Shape, element_bytes, numel

FREQUENCY_FEATURES = ("cpu_mhz", "gpu_mhz", "emc_mhz")

MODELLED_KINDS: tuple[str, ...] = tuple(row.name for row in KINDS.values() if row.profiled)
"""The kinds that profiles bring models for."""

_TILES = (32, 64, 128)
_MAX_ALIGNMENT = 32

Row: TypeAlias = list[float]


def feature_names(kind: str) -> tuple[str, ...]:
    """The names of a kind's features, in the order of the columns of :func:`feature_rows`; the clocks come last.

    Raises:
        CostModelError: no features are defined for this kind.
    """
    return _definition(kind)[0] + FREQUENCY_FEATURES


def can_be_modelled(invocation: KernelInvocation) -> bool:
    """Whether a profile of this release could have a model for a kernel: its kind, or the elementwise family, has features."""
    row = KINDS.get(invocation.kind)
    return bool(family_of(invocation.kind)) or (row is not None and bool(row.served_by))


def feature_rows(kind: str, invocations: Sequence[KernelInvocation]) -> NDArray[np.float32]:
    """One row per invocation, float32 of shape ``(n, len(feature_names(kind)))``, with NaN in the three clock columns.

    Args:
        kind: the model's kind; with ``"elementwise"`` the invocations may be of any pointwise kind.
        invocations: kernel invocations of that kind.

    Raises:
        CostModelError: no features are defined for this kind, or an invocation lacks a parameter or has an unexpected shape.
    """
    names = feature_names(kind)
    rows = np.full((len(invocations), len(names)), np.nan, np.float32)
    for index, call in enumerate(invocations):
        try:
            rows[index, :-3] = _row(kind, call.signature, call.flops, call.bytes)
        except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
            raise CostModelError(
                f"{call.kind} {call.scope!r}: inputs {call.inputs} with {dict(call.params)} do not make a {kind} ({error!r})"
            ) from error
    return rows


@lru_cache(maxsize=8192)
def _row(kind: str, signature: tuple[Any, ...], flops: int, moved: int) -> tuple[float, ...]:
    """The features of one kernel without the clocks; cached, because networks repeat kernels and daemons repeat networks."""
    _, inputs, output, dtype, params = signature
    return tuple(_definition(kind)[1](_Described(inputs, output, element_bytes(dtype), dict(params), flops, moved)))


class _Described:
    """An invocation taken apart for the functions below."""

    def __init__(
        self, inputs: tuple[Shape, ...], output: Shape, element: float, params: Mapping[str, ParamValue], flops: int, moved: int
    ) -> None:
        self.inputs, self.output, self.element, self.params = inputs, output, element, params
        self.flops, self.moved = flops, moved

    def integer(self, name: str) -> int:
        value = self.params[name]
        if not isinstance(value, int):
            raise TypeError(f"{name} is not an integer")
        return int(value)

    def pair(self, name: str, default: tuple[int, int] | None = None) -> tuple[int, int]:
        """A parameter of one or two integers, as (height, width)."""
        value = self.params.get(name, default) if default is not None else self.params[name]
        if isinstance(value, int):
            return value, value
        if not isinstance(value, tuple) or len(value) not in (1, 2):
            raise TypeError(f"{name} is not a pair of integers")
        return value[0], value[-1]

    def image(self, shape: Shape) -> tuple[int, int, int, int]:
        """A batch of images as (batch, channels, height, width); the batch may be missing."""
        if len(shape) not in (3, 4):
            raise ValueError(f"{shape} is not a batch of images")
        batch, channels, height, width = (1, *shape)[-4:]
        return batch, channels, height, width


_WORK = ("log2_flops", "log2_bytes", "log2_intensity", "element_bytes")


def _work(call: _Described) -> Row:
    return [_log2(call.flops), _log2(call.moved), _log2(call.flops) - _log2(call.moved), call.element]


_GEMM = (
    "log2_m", "log2_n", "log2_k", "m_alignment", "n_alignment", "k_alignment",
    *(f"log2_tiles_{tile}" for tile in _TILES), *(f"tile_use_{tile}" for tile in _TILES),
)  # fmt: skip


def _gemm(m: int, n: int, k: int, count: int) -> Row:
    """A product of (m, k) by (k, n) matrices, ``count`` of them, as a library that computes square output tiles sees it."""
    tiles = [max(math.ceil(m / tile) * math.ceil(n / tile) * count, 1) for tile in _TILES]
    use = [m * n * count / (number * tile * tile) for number, tile in zip(tiles, _TILES, strict=True)]
    return [
        _log2(m), _log2(n), _log2(k), _alignment(m), _alignment(n), _alignment(k), *map(math.log2, tiles), *use,
    ]  # fmt: skip


_TRAFFIC = (
    *(f"log2_traffic_{tile}" for tile in _TILES), *(f"log2_intensity_{tile}" for tile in _TILES),
    *(f"log2_reread_{tile}" for tile in _TILES[1:]), "weight_share", "output_share", "log2_unfolding",
)  # fmt: skip


def _traffic(
    m: int, n: int, k: int, groups: int, flops: int, image: float, weights: float, output: float, element: float
) -> Row:
    """Bytes that a convolution moves as a product of (m, k) by (k, n) matrices in square output tiles, ``groups`` of them.

    Each row of tiles reads all weights and each column all of the unfolded image: to the multiprocessors always, from memory
    (how many times the plain sum of the tensors' bytes) where a cache does not hold them.

    Args:
        image, weights, output: bytes of the tensors.
    """
    rows, columns = ([math.ceil(size / tile) for tile in _TILES] for size in (m, n))
    moved = [element * groups * (m * k * across + k * n * down + m * n) for down, across in zip(rows, columns, strict=True)]
    reread = [image * across + weights * down + output for down, across in zip(rows[1:], columns[1:], strict=True)]
    whole = max(image + weights + output, 1)
    return [
        *map(_log2, moved), *(_log2(flops) - _log2(traffic) for traffic in moved),
        *(_log2(traffic / whole) for traffic in reread),
        weights / whole, output / whole, _log2(element * groups * m * k) - _log2(image),
    ]  # fmt: skip


_WINOGRAD_TILES = (2, 4)
_WINOGRAD = (
    "winograd",
    *(f"{name}_{tile}" for tile in _WINOGRAD_TILES for name in ("log2_winograd_tiles", "winograd_use", "log2_winograd_bytes")),
)


def _winograd(possible: bool, batch: int, height: int, width: int, channels: int, filters: int, element: float) -> Row:
    """A 3x3 convolution as Winograd's minimal filtering does it in output tiles of 2x2 or 4x4 (Lavin and Gray, CVPR 2016).

    How many tiles there are, the part of them that is output, and the bytes of the transformed image, filters and output.
    Zeros where it cannot be done.
    """
    if not possible:
        return [0.0] * len(_WINOGRAD)
    row: Row = [1.0]
    for tile in _WINOGRAD_TILES:
        tiles = batch * math.ceil(height / tile) * math.ceil(width / tile)
        transformed = (tile + 2) ** 2 * (tiles * (channels + filters) + channels * filters)
        row += [_log2(tiles), batch * height * width / max(tiles * tile * tile, 1), _log2(element * transformed)]
    return row


_CONV2D = (
    *_WORK, *_GEMM, "batch", "in_channels", "out_channels", "log2_groups", "in_channels_per_group", "out_channels_per_group",
    "depthwise", "in_height", "in_width", "out_height", "out_width", "width_alignment", "kernel_height", "kernel_width",
    "stride_height", "stride_width", "padding_height", "padding_width", "dilation_height", "dilation_width", "bias",
    "log2_input_bytes", "log2_weight_bytes", "log2_output_bytes", *_TRAFFIC, *_WINOGRAD,
)  # fmt: skip


def _conv2d(call: _Described) -> Row:
    batch, channels, height, width = call.image(call.inputs[0])
    _, filters, out_height, out_width = call.image(call.output)
    weight, groups = call.params["weight"], call.integer("groups")
    if not isinstance(weight, tuple) or len(weight) != 4 or groups < 1:
        raise ValueError("weight is not (out, in / groups, height, width)")
    per_group, taps = weight[1], weight[2] * weight[3]
    product = (batch * out_height * out_width, filters // groups, per_group * taps)
    image, weights, output = (numel(shape) * call.element for shape in (call.inputs[0], weight, call.output))
    plain = groups == 1 and weight[2:] == (3, 3) and call.pair("stride") == call.pair("dilation") == (1, 1)
    return [
        *_work(call),
        *_gemm(*product, groups),
        batch, channels, filters, _log2(groups), per_group, filters // groups, per_group == 1 and groups > 1,
        height, width, out_height, out_width, _alignment(out_width), weight[2], weight[3],
        *call.pair("stride"), *call.pair("padding"), *call.pair("dilation"), bool(call.params["bias"]),
        *map(_log2, (image, weights, output)),
        *_traffic(*product, groups, call.flops, image, weights, output, call.element),
        *_winograd(plain, batch, out_height, out_width, channels, filters, call.element),
    ]  # fmt: skip


_MATMUL = (*_WORK, *_GEMM, "batch", "bias", "two_activations")


def _matmul(call: _Described) -> Row:
    batch = call.integer("batch")
    return [
        *_work(call), *_gemm(call.integer("m"), call.integer("n"), call.integer("k"), batch),
        batch, bool(call.params["bias"]), len(call.inputs) > 1,
    ]  # fmt: skip


_BATCH_NORM = (*_WORK, "log2_elements", "batch", "channels", "log2_plane", "plane_alignment", "affine")


def _batch_norm(call: _Described) -> Row:
    batch, channels, *spatial = call.inputs[0]
    plane = numel(spatial)
    return [
        *_work(call), _log2(numel(call.output)), batch, channels, _log2(plane), _alignment(plane), bool(call.params["affine"]),
    ]  # fmt: skip


_POOL = (
    *_WORK, "log2_outputs", "batch", "channels", "in_height", "in_width", "out_height", "out_width", "width_alignment",
    "kernel_height", "kernel_width", "stride_height", "stride_width", "padding_height", "padding_width", "log2_input_bytes",
)  # fmt: skip


def _pool2d(call: _Described) -> Row:
    batch, channels, height, width = call.image(call.inputs[0])
    _, _, out_height, out_width = call.image(call.output)
    kernel = call.pair("kernel_size")
    stride = call.pair("stride", kernel) if call.params.get("stride") else kernel  # an empty stride is the kernel's size
    return [
        *_work(call), _log2(numel(call.output)), batch, channels, height, width, out_height, out_width, _alignment(out_width),
        *kernel, *stride, *call.pair("padding", (0, 0)), _log2(numel(call.inputs[0]) * call.element),
    ]  # fmt: skip


_ADAPTIVE = (
    *_WORK, "log2_outputs", "batch", "channels", "in_height", "in_width", "out_height", "out_width",
    "window_height", "window_width",
)  # fmt: skip


def _adaptive_pool2d(call: _Described) -> Row:
    batch, channels, height, width = call.image(call.inputs[0])
    _, _, out_height, out_width = call.image(call.output)
    return [
        *_work(call), _log2(numel(call.output)), batch, channels, height, width, out_height, out_width,
        height / max(out_height, 1), width / max(out_width, 1),
    ]  # fmt: skip


_MEAN = (*_WORK, "log2_outputs", "log2_reduced", "reduced_dims", "inner_reduced", "log2_inner", "batch")


def _mean(call: _Described) -> Row:
    shape, dim = call.inputs[0], call.params.get("dim")
    dims = range(len(shape)) if dim is None or dim == () else [dim] if isinstance(dim, int) else dim
    if isinstance(dims, (str, float)):
        raise TypeError("dim is not a list of integers")
    reduced = {index % len(shape) for index in dims} if shape else set()
    inner = shape[max(reduced) + 1 :] if reduced else shape
    return [
        *_work(call), _log2(numel(call.output)), _log2(numel([shape[index] for index in reduced])), len(reduced),
        len(shape) - 1 in reduced, _log2(numel(inner)), shape[0] if shape else 1,
    ]  # fmt: skip


_CAT = (
    *_WORK, "log2_elements", "tensors", "dim", "batch", "log2_largest_run", "log2_smallest_run", "run_alignment",
    "largest_share",
)  # fmt: skip


def _cat(call: _Described) -> Row:
    dim = call.integer("dim") % max(len(call.output), 1)
    runs = [numel(shape[dim:]) for shape in call.inputs if len(shape) > dim]
    largest = max(numel(shape) for shape in call.inputs)
    return [
        *_work(call), _log2(numel(call.output)), len(call.inputs), dim, call.output[0], _log2(max(runs)), _log2(min(runs)),
        min(map(_alignment, runs)), largest / max(numel(call.output), 1),
    ]  # fmt: skip


_POINTWISE = (*_WORK, "log2_elements", "tensors", "broadcast", "element_alignment", "batch", "log2_inner")


def _pointwise(call: _Described) -> Row:
    elements = numel(call.output)
    return [
        *_work(call), _log2(elements), len(call.inputs), any(numel(shape) != elements for shape in call.inputs),
        _alignment(elements), call.output[0] if call.output else 1, _log2(numel(call.output[2:])),
    ]  # fmt: skip


_FAMILIES: Mapping[FeatureFamily, tuple[tuple[str, ...], Callable[[_Described], Row]]] = {
    "conv2d": (_CONV2D, _conv2d),
    "batch_norm": (_BATCH_NORM, _batch_norm),
    "matmul": (_MATMUL, _matmul),
    "pointwise": (_POINTWISE, _pointwise),
    "cat": (_CAT, _cat),
    "pool2d": (_POOL, _pool2d),
    "adaptive_pool2d": (_ADAPTIVE, _adaptive_pool2d),
    "mean": (_MEAN, _mean),
}


def family_of(kind: str) -> FeatureFamily:
    if kind == ELEMENTWISE:
        return "pointwise"
    row = KINDS.get(kind)
    return row.features if row is not None else ""


def _definition(kind: str) -> tuple[tuple[str, ...], Callable[[_Described], Row]]:
    family = family_of(kind)
    if not family:
        valid = [row.name for row in KINDS.values() if row.features]
        raise CostModelError(f"kind {kind!r} has no features; valid: {', '.join((*valid, ELEMENTWISE))}")
    return _FAMILIES[family]


def _log2(value: float) -> float:
    return math.log2(max(value, 1))


def _alignment(value: int) -> int:
    """The largest power of two, up to 32, that divides ``value``: what vector loads and tensor tiles can make use of."""
    return math.gcd(value, _MAX_ALIGNMENT) if value else _MAX_ALIGNMENT
