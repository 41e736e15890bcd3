# SPDX-License-Identifier: Apache-2.0
"""Features of matrix products: convolutions, products proper, attention.

Matrix dimensions, tile counts and the useful share of each tile follow GEMM libraries (NVIDIA, "Matrix Multiplication
Background").
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

from ..network import ParamValue, Shape, element_bytes, numel

_MAX_ALIGNMENT = 32

Row: TypeAlias = list[float]


class ProductFields:
    def __init__(
        self, inputs: tuple[Shape, ...], output: Shape, dtype: str, params: Mapping[str, ParamValue], flops: int, moved: int
    ) -> None:
        self.inputs, self.output, self.dtype, self.params = inputs, output, dtype, params
        self.flops, self.moved, self.element = flops, moved, element_bytes(dtype)

    def integer(self, name: str) -> int:
        value = self.params[name]
        if not isinstance(value, int):
            raise TypeError(f"{name} is not an integer")
        return int(value)

    def pair(self, name: str, default: tuple[int, int] | None = None) -> tuple[int, int]:
        value = self.params.get(name, default) if default is not None else self.params[name]
        if isinstance(value, int):
            return value, value
        if not isinstance(value, tuple) or len(value) not in (1, 2):
            raise TypeError(f"{name} is not a pair of integers")
        return value[0], value[-1]

    def steps(self, name: str, dimensions: int) -> tuple[int, ...]:
        value = self.params[name]
        steps = value if isinstance(value, tuple) else (self.integer(name),)
        return steps if len(steps) == dimensions else steps[:1] * dimensions

    def image(self, shape: Shape) -> tuple[int, int, int, int]:
        if len(shape) not in (3, 4):
            raise ValueError(f"{shape} is not a batch of images")
        batch, channels, height, width = (1, *shape)[-4:]
        return batch, channels, height, width


WORK = ("log2_flops", "log2_bytes", "log2_intensity", "element_bytes", "bfloat16")


def work(call: ProductFields) -> Row:
    return [log2(call.flops), log2(call.moved), log2(call.flops) - log2(call.moved), call.element, call.dtype == "bfloat16"]


def log2(value: float) -> float:
    return math.log2(max(value, 1))


def alignment(value: int) -> int:
    """The largest power of two, up to 32, that divides ``value``: usable by vector loads and tensor tiles."""
    return math.gcd(value, _MAX_ALIGNMENT) if value else _MAX_ALIGNMENT


_TILES = (32, 64, 128)

_GEMM = (
    "log2_m", "log2_n", "log2_k", "m_alignment", "n_alignment", "k_alignment",
    *(f"log2_tiles_{tile}" for tile in _TILES), *(f"tile_use_{tile}" for tile in _TILES),
)  # fmt: skip


def _gemm(m: int, n: int, k: int, count: int) -> Row:
    tiles = [max(math.ceil(m / tile) * math.ceil(n / tile) * count, 1) for tile in _TILES]
    use = [m * n * count / (number * tile * tile) for number, tile in zip(tiles, _TILES, strict=True)]
    return [
        log2(m), log2(n), log2(k), alignment(m), alignment(n), alignment(k), *map(math.log2, tiles), *use,
    ]  # fmt: skip


_TRAFFIC = (
    *(f"log2_traffic_{tile}" for tile in _TILES), *(f"log2_intensity_{tile}" for tile in _TILES),
    *(f"log2_reread_{tile}" for tile in _TILES[1:]), "weight_share", "output_share", "log2_unfolding",
)  # fmt: skip


def _traffic(
    m: int, n: int, k: int, groups: int, flops: int, image: float, weights: float, output: float, element: float
) -> Row:
    """Bytes that a convolution moves as ``groups`` products of (m, k) by (k, n) matrices in square output tiles.

    Each row of tiles reads all weights and each column all of the unfolded image: always to the multiprocessors, and from
    memory (in multiples of ``image + weights + output`` bytes) if no cache holds them.
    """
    rows, columns = ([math.ceil(size / tile) for tile in _TILES] for size in (m, n))
    moved = [element * groups * (m * k * across + k * n * down + m * n) for down, across in zip(rows, columns, strict=True)]
    reread = [image * across + weights * down + output for down, across in zip(rows[1:], columns[1:], strict=True)]
    whole = max(image + weights + output, 1)
    return [
        *map(log2, moved), *(log2(flops) - log2(traffic) for traffic in moved),
        *(log2(traffic / whole) for traffic in reread),
        weights / whole, output / whole, log2(element * groups * m * k) - log2(image),
    ]  # fmt: skip


_WINOGRAD_TILES = (2, 4)
_WINOGRAD = (
    "winograd",
    *(f"{name}_{tile}" for tile in _WINOGRAD_TILES for name in ("log2_winograd_tiles", "winograd_use", "log2_winograd_bytes")),
)


def _winograd(possible: bool, batch: int, height: int, width: int, channels: int, filters: int, element: float) -> Row:
    """A 3x3 convolution by Winograd's minimal filtering in output tiles of 2x2 or 4x4 (Lavin and Gray, CVPR 2016).

    Number of tiles, their share of output, and the bytes of the transformed image, filters and output; zeros if impossible.
    """
    if not possible:
        return [0.0] * len(_WINOGRAD)
    row: Row = [1.0]
    for tile in _WINOGRAD_TILES:
        tiles = batch * math.ceil(height / tile) * math.ceil(width / tile)
        transformed = (tile + 2) ** 2 * (tiles * (channels + filters) + channels * filters)
        row += [log2(tiles), batch * height * width / max(tiles * tile * tile, 1), log2(element * transformed)]
    return row


CONV2D = (
    *WORK, *_GEMM, "batch", "in_channels", "out_channels", "log2_groups", "in_channels_per_group", "out_channels_per_group",
    "depthwise", "in_height", "in_width", "out_height", "out_width", "width_alignment", "kernel_height", "kernel_width",
    "stride_height", "stride_width", "padding_height", "padding_width", "dilation_height", "dilation_width", "bias",
    "log2_input_bytes", "log2_weight_bytes", "log2_output_bytes", *_TRAFFIC, *_WINOGRAD, "epilogue",
    "channels_last",
)  # fmt: skip


def conv2d(call: ProductFields) -> Row:
    batch, channels, height, width = call.image(call.inputs[0])
    _, filters, out_height, out_width = call.image(call.output)
    weight, groups = call.params["weight"], call.integer("groups")
    if not isinstance(weight, tuple) or len(weight) != 4 or groups < 1:
        raise ValueError("weight is not (out, in / groups, height, width)")
    per_group, taps = weight[1], weight[2] * weight[3]
    product = (batch * out_height * out_width, filters // groups, per_group * taps)
    image, weights, output = (numel(shape) * call.element for shape in (call.inputs[0], weight, call.output))
    plain = groups == 1 and weight[2:] == (3, 3) and call.pair("stride") == call.pair("dilation") == (1, 1)
    # Epilogue operations per output of a fused kernel.
    epilogue = max(call.flops / max(numel(call.output), 1) - 2 * per_group * taps, 0)
    return [
        *work(call),
        *_gemm(*product, groups),
        batch, channels, filters, log2(groups), per_group, filters // groups, per_group == 1 and groups > 1,
        height, width, out_height, out_width, alignment(out_width), weight[2], weight[3],
        *call.pair("stride"), *call.pair("padding"), *call.pair("dilation"), bool(call.params["bias"]),
        *map(log2, (image, weights, output)),
        *_traffic(*product, groups, call.flops, image, weights, output, call.element),
        *_winograd(plain, batch, out_height, out_width, channels, filters, call.element), epilogue,
        bool(call.params.get("channels_last")),
    ]  # fmt: skip


CONV_ND = (
    *WORK, *_GEMM, "batch", "log2_groups", "depthwise", "taps", "window_last", "stride", "stride_last", "dilation_last",
    "log2_in_last", "log2_out_last", "last_alignment", "bias", "log2_input_bytes", "log2_weight_bytes", "log2_output_bytes",
)  # fmt: skip


def conv_nd(call: ProductFields) -> Row:
    """A convolution of any dimensions, also transposed: as a product, with its last dimension's shape."""
    weight, groups = call.params["weight"], call.integer("groups")
    if not isinstance(weight, tuple) or len(weight) < 3 or groups < 1:
        raise ValueError("weight has no window")
    transposed = "output_padding" in call.params
    batch, channels = call.inputs[0][:2]
    filters, taps = call.output[1], numel(weight[2:])
    places = numel((call.inputs[0] if transposed else call.output)[2:])
    each, per_group = (weight[1] * taps, channels // groups) if transposed else (filters // groups, weight[1] * taps)
    image, weights, output = (numel(shape) * call.element for shape in (call.inputs[0], weight, call.output))
    strides, dilations = call.steps("stride", len(weight) - 2), call.steps("dilation", len(weight) - 2)
    return [
        *work(call), *_gemm(batch * places, each, per_group, groups),
        batch, log2(groups), channels == groups and groups > 1, taps, weight[-1], numel(strides), strides[-1], dilations[-1],
        log2(call.inputs[0][-1]), log2(call.output[-1]), alignment(call.output[-1]), bool(call.params["bias"]),
        *map(log2, (image, weights, output)),
    ]  # fmt: skip


MATMUL = (
    *WORK, *_GEMM, "batch", "bias", "two_activations", "log2_traffic_left", "log2_traffic_right", "log2_traffic_output",
    *(f"log2_reread_{tile}" for tile in _TILES[1:]), "right_share", "output_share",
)  # fmt: skip


def matmul(call: ProductFields) -> Row:
    m, n, k, batch = (call.integer(name) for name in ("m", "n", "k", "batch"))
    left, right, output = (call.element * batch * rows * columns for rows, columns in ((m, k), (k, n), (m, n)))
    whole = max(left + right + output, 1)
    reread = [left * math.ceil(n / tile) + right * math.ceil(m / tile) + output for tile in _TILES[1:]]
    return [
        *work(call), *_gemm(m, n, k, batch), batch, bool(call.params["bias"]), len(call.inputs) > 1,
        *map(log2, (left, right, output)), *(log2(moved / whole) for moved in reread), right / whole, output / whole,
    ]  # fmt: skip


ATTENTION = (
    *WORK, *_GEMM, "log2_heads", "batch", "log2_width", "width_alignment", "log2_score_bytes", "mask", "causal", "math",
)  # fmt: skip


def attention(call: ProductFields) -> Row:
    query, key = call.inputs[0], call.inputs[1] if len(call.inputs) > 1 else call.inputs[0]
    heads, (queries, width), keys = numel(query[:-2]), query[-2:], key[-2]
    return [
        *work(call), *_gemm(queries, keys, width, heads), log2(heads), query[0], log2(width), alignment(width),
        log2(heads * queries * keys * call.element), bool(call.params.get("mask")), bool(call.params.get("causal")),
        bool(call.params.get("math")),
    ]  # fmt: skip
