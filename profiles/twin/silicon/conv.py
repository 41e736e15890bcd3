# SPDX-License-Identifier: Apache-2.0
"""Convolutions on the simulated GPU: algorithm choice, from shapes and the chip, and the passes of each.

Depthwise, direct, grouped, 1x1 as a plain product, implicit products with and without offset tables, Winograd (2x2 in one
kernel, 4x4 in four), tiled FFT, and tensor cores, with copies to innermost channels for narrow types.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ....kernels.network import DTYPE_BYTES, KernelInvocation
from .chip import Array, Chip
from .gemm import Gemm, again, gemm
from .passes import SMALL_BLOCK, VECTOR, CodePass, KernelCode

DEPTHWISE, GROUPED, PLAIN, PRECOMPUTED, IMPLICIT, WINOGRAD, WINOGRAD_STAGED, FFT, TENSOR = range(9)
_WORKSPACE_BYTES = 256e6  # the heuristics take no algorithm that needs more
# Share of a plain product's main-loop rate that each algorithm's indexing leaves, and the energy of its operations.
_RATE = np.array([1.0, 0.50, 0.585, 0.70, 0.96, 0.46, 0.54, 0.60, 1.00])
_TOGGLING = np.array([0.52, 0.74, 1.16, 1.00, 0.70, 1.40, 1.06, 0.66, 1.00])
_SETTLING = 0.07  # by how much less toggles with each step to a smaller tile
# How much each tile of a transformed algorithm holds, in single precision. Winograd's are of 4x4 inputs for 2x2 outputs and of
# 6x6 for 4x4; an FFT's are of 32x32 inputs, which makes 544 complex frequencies.
_WINOGRAD_PRODUCTS, _FFT_PRODUCTS, _FFT_SIDE = 36.0, 544.0, 32
_FUSED_BYTES, _STAGED_BYTES, _FFT_BYTES = 64.0, 144.0, 4352.0
# The library's score of transforms and products: multiply-adds of a tile, and bytes in the same unit.
_ROUGH_FFT, _ROUGH_BYTE, _ROUGH_ADVANTAGE = 2176.0, 9.0, 0.8
# Instructions of each transform, for each tile: of filters, of inputs, of outputs.
_FUSED_FILTERS = 40.0
_STAGED_FILTERS, _STAGED_INPUTS, _STAGED_OUTPUTS = 110.0, 130.0, 90.0
_FFT_OPERATIONS = 2600.0
_COPY_OPERATIONS, _PART_OPERATIONS = 12.0, 4.0  # for each element that is copied, for each output that is summed up
# How each kernel's code runs (see Code for the source of the figures), then its further instructions.
_DIRECT = KernelCode(serial_cycles=300.0, round_trips=2.0, pattern=0.74, streamed=0.05, overlap=2.4, resident=6.0)
_OUTPUT, _TAP, _LOOPED_TAP = 12.0, 2.4, 4.4  # instructions; filters outside registers are read for each tap
_ROUND_CYCLES, _MOST_ROUNDS, _TAP_CYCLES = 80.0, 8.0, 22.0
_TAP_L2 = 0.45  # the share of a window's reads that the L1 does not serve
_LONE_ISSUE, _HIDDEN_ISSUE = 0.35, 0.55  # use of lanes with few blocks on an SM, and the gain of further ones
_DIRECT_STRIDED, _DIRECT_ODD = 0.58, 0.88  # bandwidth with a stride; and the share of it with rows that are not aligned
_PREPARE = KernelCode(0.55, 350.0, pattern=0.66, overlap=2.6, toggling=0.7)
_TRANSFORM = KernelCode(0.50, 400.0, pattern=0.70, overlap=2.6, toggling=0.75)
_FINISH = KernelCode(0.50, 350.0, pattern=0.72, overlap=2.6, toggling=0.7)
_OFFSETS_CYCLES = 500.0  # to compute the table of offsets
_FFT_FILTERS_PATTERN, _FFT_PATTERN = 0.55, 0.60
_BIAS = KernelCode(pattern=0.80, unaligned=0.64, toggling=0.5)
_BIAS_CYCLES, _BIAS_OPERATIONS = 5.0, 3.0  # for each output
# The main product: shares of rate and bandwidth under its alignment.
_ODD_CHANNELS, _ODD_FILTERS, _ODD_PIXELS = 0.88, 0.91, 0.90
_PLAIN_PATTERN, _SPECTRAL_PATTERN, _INDEXED_PATTERN = 0.84, 0.78, 0.74
_STRIDED_PLAIN, _STRIDED, _ODD_ROWS = 0.62, 0.80, 0.90
_PRODUCT_STREAMED = 0.03
_IMPLICIT_OVERLAP, _WINOGRAD_OVERLAP, _OVERLAP = 2.2, 2.6, 3.2
_IMPLICIT_TRIPS, _WINOGRAD_CYCLES = 3.0, 900.0  # to follow offsets that were not precomputed; for the transforms inside
_TENSOR_DEPTH = 8.0  # channels that tensor cores take at a time
_SINGLE_BYTES = 4.0
_BATCH_POWER = 0.5  # how fast large batches are approached


class _ConvolutionShape(Struct, frozen=True):
    """Columns of convolution parameters, each of shape ``(rows,)``."""

    batch: Array
    channels: Array
    height: Array
    width: Array
    filters: Array
    kernel_h: Array
    kernel_w: Array
    stride: Array  # product of both
    dilated: Array
    padded: Array
    groups: Array
    bias: Array
    out_h: Array
    out_w: Array
    element: Array  # bytes
    rate: Array  # multiply-adds per lane and cycle, on tensor cores
    energy: Array  # of such a cycle
    direct: Array  # factor on the depthwise kernel's instructions, relative to the AGX Xavier
    innermost: Array  # whether the image has its channels innermost already

    @classmethod
    def of(cls, chip: Chip, invocations: Sequence[KernelInvocation], innermost: bool) -> _ConvolutionShape:
        rows = []
        for call in invocations:
            (batch, channels, height, width), (filters, _, kernel_h, kernel_w) = call.inputs[0], _ints(call, "weight")
            stride, padding, dilation = _ints(call, "stride"), _ints(call, "padding"), _ints(call, "dilation")
            rows.append(
                (
                    *(batch, channels, height, width, filters, kernel_h, kernel_w, stride[0] * stride[1]),
                    *(max(dilation) > 1, max(padding) > 0, _int(call, "groups"), bool(call.params["bias"]), *call.output[2:]),
                    *_type(chip, call.dtype),
                    innermost,
                )
            )
        return cls(*np.array(rows, np.float64).T)


def _type(chip: Chip, dtype: str) -> tuple[float, float, float, float]:
    if not chip.tensor_cores:
        return _SINGLE_BYTES, 1.0, 1.0, chip.work("depthwise", "float32")
    rate = chip.rate("tf32" if dtype == "float32" else dtype)
    return float(DTYPE_BYTES[dtype]), rate.matrix, rate.energy, chip.work("depthwise", dtype)


def _ints(call: KernelInvocation, name: str) -> tuple[int, ...]:
    value = call.params[name]
    assert isinstance(value, (tuple, list))
    return tuple(value)


def _int(call: KernelInvocation, name: str) -> int:
    value = call.params[name]
    assert isinstance(value, int)
    return value


def convolution(chip: Chip, invocations: Sequence[KernelInvocation], *, innermost: bool = False) -> list[CodePass]:
    """Passes of two-dimensional convolutions; ``innermost`` channels avoid copies for narrow types."""
    shape = _ConvolutionShape.of(chip, invocations, innermost)
    way = _choose(chip, shape)
    staged = way == WINOGRAD_STAGED
    fft = way == FFT
    direct = way == DEPTHWISE
    product, columns = _library_product(chip, shape, way)
    main = _product(chip, shape, way, product, columns).merged(direct, _depthwise(chip, shape))
    outputs = shape.batch * shape.filters * shape.out_h * shape.out_w
    count = len(invocations)
    bias = CodePass.of(
        count,
        _BIAS,
        runs=(shape.bias > 0) & ~direct,
        cycles=outputs * _BIAS_CYCLES / chip.lanes,
        l2_bytes=2.0 * shape.element * outputs,
        dram_bytes=2.0 * shape.element * outputs * chip.missing(2.0 * shape.element * outputs),
        pattern=np.where(shape.out_h * shape.out_w % VECTOR == 0, _BIAS.pattern, _BIAS.unaligned),
        operations=_BIAS_OPERATIONS * outputs,
    )
    return [
        _prepare(chip, shape, way),
        _transform(chip, shape, way, staged | fft | _copied(shape, way)),
        main,
        _finish(chip, shape, way, product, columns),
        bias,
    ]


def _choose(chip: Chip, s: _ConvolutionShape) -> Array:
    per_group = s.channels / s.groups
    pixels = s.batch * s.out_h * s.out_w
    taps = s.kernel_h * s.kernel_w
    dense = (s.groups == 1) & (s.dilated == 0)
    three = dense & (s.kernel_h == 3) & (s.kernel_w == 3) & (s.stride == 1)
    tiles = s.batch * np.ceil(s.out_h / 4) * np.ceil(s.out_w / 4)
    staged = three & (s.channels >= 128) & (s.filters >= 128) & (tiles >= 64)
    staged &= _STAGED_BYTES * (s.channels + s.filters) * tiles + _STAGED_BYTES * s.channels * s.filters < _WORKSPACE_BYTES
    fused = three & (s.channels >= 16) & (s.filters >= 32) & (pixels >= 256)
    # Large kernels: products grow with the taps, transforms do not; the library compares rough counts of both.
    large = dense & (s.stride == 1) & (np.minimum(s.kernel_h, s.kernel_w) >= 5) & (np.maximum(s.kernel_h, s.kernel_w) <= 31)
    fields = _fft_tiles(s)
    spectra = _FFT_BYTES * (s.channels * s.filters + fields * (s.channels + s.filters))
    rough_fft = _ROUGH_FFT * s.channels * s.filters * fields + _ROUGH_BYTE * spectra
    rough_product = pixels * s.channels * s.filters * taps
    fft = large & (rough_fft < _ROUGH_ADVANTAGE * rough_product) & (spectra < _WORKSPACE_BYTES)
    return np.select(
        [
            (s.groups > 1) & (per_group == 1),
            s.groups > 1,
            np.broadcast_to(chip.tensor_cores, taps.shape),
            (taps == 1) & (s.stride == 1) & (s.padded == 0),
            staged,
            fused,
            fft,
            (s.dilated > 0) | (s.channels < 8) | (pixels < 32),
        ],
        [DEPTHWISE, GROUPED, TENSOR, PLAIN, WINOGRAD_STAGED, WINOGRAD, FFT, IMPLICIT],
        PRECOMPUTED,
    ).astype(np.intp)


def _fft_tiles(s: _ConvolutionShape) -> Array:
    side = _FFT_SIDE + 1
    return np.asarray(s.batch * np.ceil(s.out_h / (side - s.kernel_h)) * np.ceil(s.out_w / (side - s.kernel_w)))


def _copied(s: _ConvolutionShape, way: Array) -> Array:
    narrow = (way == TENSOR) & (s.element < _SINGLE_BYTES)
    return np.asarray(narrow & (s.kernel_h * s.kernel_w > 1) & (s.innermost == 0))


def _dimensions(s: _ConvolutionShape, way: Array) -> tuple[Array, Array, Array, Array]:
    tiles4 = s.batch * np.ceil(s.out_h / 4) * np.ceil(s.out_w / 4)
    tiles2 = s.batch * np.ceil(s.out_h / 2) * np.ceil(s.out_w / 2)
    pixels = s.batch * s.out_h * s.out_w
    deep = np.where(way == TENSOR, np.ceil(s.channels / _TENSOR_DEPTH) * _TENSOR_DEPTH, s.channels / s.groups)
    depth = deep * s.kernel_h * s.kernel_w
    columns = np.select([way == WINOGRAD, way == WINOGRAD_STAGED, way == FFT], [tiles2 * 4, tiles4, _fft_tiles(s)], pixels)
    # F(2x2): 16 products for 4 outputs, so 4 channels' worth per output; F(4x4): 36 products; FFT: 544 complex frequencies.
    k = np.select([way == WINOGRAD, way == WINOGRAD_STAGED, way == FFT], [s.channels * 4, s.channels, s.channels * 3], depth)
    batch = np.select([way == WINOGRAD_STAGED, way == FFT], [_WINOGRAD_PRODUCTS, _FFT_PRODUCTS], s.groups)
    return s.filters / s.groups, columns, k, batch


def _library_product(chip: Chip, s: _ConvolutionShape, way: Array) -> tuple[Gemm, Array]:
    m, n, k, batch = _dimensions(s, way)
    aligned = np.where((s.channels / s.groups) % VECTOR == 0, 1.0, _ODD_CHANNELS)
    aligned *= np.where(s.filters % VECTOR == 0, 1.0, _ODD_FILTERS)
    aligned *= np.where((way == PLAIN) & (n % VECTOR != 0), _ODD_PIXELS, 1.0)
    splits = (way == PLAIN) | (way == PRECOMPUTED) | (way == TENSOR)
    whole = gemm(chip, m, n, k, batch, aligned * _RATE[way], may_split=False)
    parts = gemm(chip, m, n, k, batch, aligned * _RATE[way], may_split=True, tensor=chip.tensor_cores)
    chosen = {name: np.where(splits, getattr(parts, name), getattr(whole, name)) for name in Gemm.__struct_fields__}
    faster = np.where(way == TENSOR, s.rate, 1.0)
    narrow = np.where(way == TENSOR, s.element / _SINGLE_BYTES, 1.0)
    product = Gemm(**chosen)
    operations = product.operations / faster * np.where(way == TENSOR, s.energy, 1.0)
    # Several images have kernels with less overhead, but direct ones take no fewer cycles than they have operations.
    saved = product.cycles * (1.0 - chip.detail.batched * (1.0 - s.batch**-_BATCH_POWER))
    least = np.minimum(m * n * k * batch / chip.lanes, product.cycles)
    cycles = np.where(way == TENSOR, product.cycles / faster, np.maximum(saved, least))
    return replace(product, cycles=cycles, operations=operations, l2_bytes=product.l2_bytes * narrow), n


def _product(chip: Chip, s: _ConvolutionShape, way: Array, product: Gemm, n: Array) -> CodePass:
    m = s.filters / s.groups
    batch = np.where(way == FFT, _FFT_PRODUCTS, _WINOGRAD_PRODUCTS)
    taps = s.kernel_h * s.kernel_w
    image = s.element * s.batch * s.channels * s.height * s.width
    weights = s.element * s.filters * s.channels / s.groups * taps
    outputs = s.element * s.batch * s.filters * s.out_h * s.out_w
    spectral = (way == WINOGRAD_STAGED) | (way == FFT)
    tall = np.where(way == FFT, 2.0 * _SINGLE_BYTES, _SINGLE_BYTES) * batch  # complex or real
    a_size = np.where(spectral, tall * m * s.channels, weights)
    b_size = np.where(spectral, tall * n * s.channels, np.minimum(image, s.element * n * s.channels * taps))
    c_size = np.where(spectral, tall * m * n, outputs * product.split)
    footprint = a_size + b_size + c_size
    read = a_size * again(chip, product.across, a_size) + b_size * again(chip, product.down, b_size)
    warm = (read + c_size) * chip.missing(footprint) + _PRODUCT_STREAMED * footprint
    # Filters that are not in the L2 when the kernel starts: in a network, other layers ran since.
    cold = np.where(spectral, 0.0, weights) * (1.0 - chip.missing(footprint))
    strided = np.where((s.stride > 1) & (taps == 1), _STRIDED_PLAIN, np.where(s.stride > 1, _STRIDED, 1.0))
    rows = np.where(s.out_w % 8 == 0, 1.0, _ODD_ROWS)
    others = np.where(spectral, _SPECTRAL_PATTERN, _INDEXED_PATTERN)
    pattern = np.where((way == PLAIN) | (way == TENSOR), _PLAIN_PATTERN, others) * strided * rows
    return CodePass.of(
        len(m),
        cycles=product.cycles,
        serial_cycles=product.serial_cycles + np.where(way == WINOGRAD, _WINOGRAD_CYCLES, 0.0),
        round_trips=np.where(way == IMPLICIT, _IMPLICIT_TRIPS, 1.0),
        l2_bytes=product.l2_bytes,
        dram_bytes=warm,
        cold_bytes=cold,
        pattern=pattern,
        overlap=np.where(way == IMPLICIT, _IMPLICIT_OVERLAP, np.where(way == WINOGRAD, _WINOGRAD_OVERLAP, _OVERLAP)),
        operations=product.operations / _RATE[way],
        toggling=_TOGGLING[way] * (1.0 - _SETTLING * product.tile),
    )


def _depthwise(chip: Chip, s: _ConvolutionShape) -> CodePass:
    """One thread per output, with filters in registers for common kernel sizes."""
    taps = s.kernel_h * s.kernel_w
    outputs = s.batch * s.filters * s.out_h * s.out_w
    template = (s.kernel_h == s.kernel_w) & np.isin(s.kernel_h, (1, 3, 5)) & (s.dilated == 0)
    work = outputs * (_OUTPUT + taps * np.where(template, _TAP, _LOOPED_TAP)) * s.direct
    blocks = np.ceil(outputs / SMALL_BLOCK)
    rounds = np.ceil(np.ceil(blocks / chip.sm_count) / _DIRECT.resident)
    busy = np.minimum(1.0, np.ceil(blocks / chip.sm_count) / _DIRECT.resident)
    image = s.element * s.batch * s.channels * s.height * s.width
    footprint = image + s.element * outputs
    return CodePass.of(
        len(taps),
        _DIRECT,
        cycles=work
        / chip.lanes
        * np.ceil(blocks / chip.sm_count)
        * chip.sm_count
        / blocks
        / (_LONE_ISSUE + _HIDDEN_ISSUE * busy),
        serial_cycles=_DIRECT.serial_cycles + _ROUND_CYCLES * np.minimum(rounds, _MOST_ROUNDS) + _TAP_CYCLES * taps,
        l2_bytes=s.element * outputs * (1.0 + _TAP_L2 * taps),
        dram_bytes=footprint * chip.missing(footprint) + _DIRECT.streamed * footprint,
        cold_bytes=s.element * s.filters * taps,
        pattern=np.where(s.stride > 1, _DIRECT_STRIDED, _DIRECT.pattern) * np.where(s.width % 8 == 0, 1.0, _DIRECT_ODD),
        operations=work,
        toggling=_TOGGLING[DEPTHWISE],
    )


def _prepare(chip: Chip, s: _ConvolutionShape, way: Array) -> CodePass:
    """Passes before the product, on every call: offset tables or filter transform."""
    filters = s.channels * s.filters
    offsets, staged, fft = way == PRECOMPUTED, way == WINOGRAD_STAGED, way == FFT
    fused = way == WINOGRAD
    written = np.select([staged, fft, fused], [_STAGED_BYTES, _FFT_BYTES, _FUSED_BYTES], 0.0) * filters
    read = _SINGLE_BYTES * s.kernel_h * s.kernel_w * filters
    moved = np.where(offsets, 0.0, written + read)
    operations = np.select([staged, fft, fused], [_STAGED_FILTERS, _FFT_OPERATIONS, _FUSED_FILTERS], 0.0) * filters
    return CodePass.moving(
        chip,
        _PREPARE,
        operations,
        moved,
        runs=offsets | staged | fft | fused,
        serial_cycles=np.where(offsets, _OFFSETS_CYCLES, _PREPARE.serial_cycles),
        cold_bytes=read * (1.0 - chip.missing(moved)) * (1.0 - offsets),
        pattern=np.where(fft, _FFT_FILTERS_PATTERN, _PREPARE.pattern),
    )


def _transform(chip: Chip, s: _ConvolutionShape, way: Array, runs: Array) -> CodePass:
    """Input transform (staged Winograd and FFT), or copy to innermost channels (tensor cores)."""
    fft, tensor = way == FFT, _copied(s, way)
    tiles = np.where(fft, _fft_tiles(s), s.batch * np.ceil(s.out_h / 4) * np.ceil(s.out_w / 4)) * s.channels
    pixels = s.batch * s.channels * s.height * s.width
    read = s.element * pixels
    moved = np.where(tensor, 2.0 * read, tiles * np.where(fft, _FFT_BYTES, _STAGED_BYTES) + read)
    operations = np.where(tensor, _COPY_OPERATIONS * pixels, tiles * np.where(fft, _FFT_OPERATIONS, _STAGED_INPUTS))
    pattern = np.where(fft, _FFT_PATTERN, _TRANSFORM.pattern)
    return CodePass.moving(chip, _TRANSFORM, operations, moved, runs=runs > 0, pattern=pattern)


def _finish(chip: Chip, s: _ConvolutionShape, way: Array, product: Gemm, n: Array) -> CodePass:
    """Passes after the product: inverse transform, sum over a split depth, copy back."""
    m = s.filters
    fft, staged, tensor = way == FFT, way == WINOGRAD_STAGED, _copied(s, way)
    outputs = s.batch * s.filters * s.out_h * s.out_w
    tiles = np.where(fft, _fft_tiles(s), s.batch * np.ceil(s.out_h / 4) * np.ceil(s.out_w / 4)) * s.filters
    spectral = fft | staged
    spectra = tiles * np.where(fft, _FFT_BYTES, _STAGED_BYTES)
    moved = s.element * outputs + np.where(spectral, spectra, s.element * m * n * product.split)
    transformed = tiles * np.where(fft, _FFT_OPERATIONS, _STAGED_OUTPUTS)
    operations = np.where(spectral, transformed, outputs * (_PART_OPERATIONS + product.split))
    runs = (spectral | tensor | (product.split > 1)) & (way != DEPTHWISE)
    pattern = np.where(fft, _FFT_PATTERN, _FINISH.pattern)
    return CodePass.moving(chip, _FINISH, operations, moved, runs=runs, pattern=pattern)
