# SPDX-License-Identifier: Apache-2.0
"""Convolutions on the simulated GPU: which algorithm the library's heuristics take, and the passes each consists of.

Eight ways, as a convolution library has them: depthwise and direct, grouped, 1x1 as a plain product, implicit products with and
without precomputed offsets, Winograd in one kernel (2x2 outputs) and in four (4x4 outputs), tiled FFT, and an implicit product
on tensor cores, which for narrow types wants channels innermost and so copies the image before and after. Heuristics switch on
shapes and on what the chip has, not on clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....kernels.network import DTYPE_BYTES, KernelInvocation
from .chip import Array, Chip
from .gemm import Gemm, again, gemm
from .passes import Pass

DEPTHWISE, GROUPED, PLAIN, PRECOMPUTED, IMPLICIT, WINOGRAD, WINOGRAD_STAGED, FFT, TENSOR = range(9)
_WORKSPACE_BYTES = 256e6  # the heuristics take no algorithm that needs more
# Share of a plain product's main-loop rate that each algorithm's indexing leaves, and the energy of its operations.
_RATE = np.array([1.0, 0.50, 0.585, 0.70, 0.96, 0.46, 0.54, 0.60, 1.00])
_TOGGLING = np.array([0.52, 0.74, 1.16, 1.00, 0.70, 1.40, 1.06, 0.66, 1.00])


@dataclass(frozen=True)
class _Shape:
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
    direct: Array  # the depthwise kernel's instructions, beside the AGX Xavier's

    @classmethod
    def of(cls, chip: Chip, invocations: Sequence[KernelInvocation]) -> _Shape:
        rows = []
        for call in invocations:
            (batch, channels, height, width), (filters, _, kernel_h, kernel_w) = call.inputs[0], _ints(call, "weight")
            stride, padding, dilation = _ints(call, "stride"), _ints(call, "padding"), _ints(call, "dilation")
            rows.append(
                (
                    *(batch, channels, height, width, filters, kernel_h, kernel_w, stride[0] * stride[1]),
                    *(max(dilation) > 1, max(padding) > 0, _int(call, "groups"), bool(call.params["bias"]), *call.output[2:]),
                    *_type(chip, call.dtype),
                )
            )
        return cls(*np.array(rows, np.float64).T)


def _type(chip: Chip, dtype: str) -> tuple[float, float, float, float]:
    if not chip.tensor_cores:
        return 4.0, 1.0, 1.0, chip.work("depthwise", "float32")
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


def convolution(chip: Chip, invocations: Sequence[KernelInvocation]) -> list[Pass]:
    """The passes of two-dimensional convolutions."""
    shape = _Shape.of(chip, invocations)
    way = _choose(chip, shape)
    staged = way == WINOGRAD_STAGED
    fft = way == FFT
    direct = way == DEPTHWISE
    product, columns = _library_product(chip, shape, way)
    main = _product(chip, shape, way, product, columns).merged(direct, _depthwise(chip, shape))
    outputs = shape.batch * shape.filters * shape.out_h * shape.out_w
    count = len(invocations)
    bias = Pass.of(
        count,
        runs=(shape.bias > 0) & ~direct,
        cycles=outputs * 5.0 / chip.lanes,
        l2_bytes=2.0 * shape.element * outputs,
        dram_bytes=2.0 * shape.element * outputs * chip.missing(2.0 * shape.element * outputs),
        pattern=np.where(shape.out_h * shape.out_w % 4 == 0, 0.80, 0.64),
        operations=3.0 * outputs,
        toggling=0.5,
    )
    return [
        _prepare(chip, shape, way),
        _transform(chip, shape, way, staged | fft | _copied(shape, way)),
        main,
        _finish(chip, shape, way, product, columns),
        bias,
    ]


def _choose(chip: Chip, s: _Shape) -> Array:
    """The library's choice, from shapes alone."""
    per_group = s.channels / s.groups
    pixels = s.batch * s.out_h * s.out_w
    taps = s.kernel_h * s.kernel_w
    dense = (s.groups == 1) & (s.dilated == 0)
    three = dense & (s.kernel_h == 3) & (s.kernel_w == 3) & (s.stride == 1)
    tiles = s.batch * np.ceil(s.out_h / 4) * np.ceil(s.out_w / 4)
    staged = three & (s.channels >= 128) & (s.filters >= 128) & (tiles >= 64)
    staged &= 144.0 * (s.channels + s.filters) * tiles + 144.0 * s.channels * s.filters < _WORKSPACE_BYTES
    fused = three & (s.channels >= 16) & (s.filters >= 32) & (pixels >= 256)
    # Large kernels: products grow with the taps, transforms do not; the library compares rough counts of both.
    large = dense & (s.stride == 1) & (np.minimum(s.kernel_h, s.kernel_w) >= 5) & (np.maximum(s.kernel_h, s.kernel_w) <= 31)
    fields = _fft_tiles(s)
    spectra = 4352.0 * (s.channels * s.filters + fields * (s.channels + s.filters))
    rough_fft = 2176.0 * s.channels * s.filters * fields + 9.0 * spectra
    rough_product = pixels * s.channels * s.filters * taps
    fft = large & (rough_fft < 0.8 * rough_product) & (spectra < _WORKSPACE_BYTES)
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


def _fft_tiles(s: _Shape) -> Array:
    return np.asarray(s.batch * np.ceil(s.out_h / (33 - s.kernel_h)) * np.ceil(s.out_w / (33 - s.kernel_w)))


def _copied(s: _Shape, way: Array) -> Array:
    """Where the image is copied to have its channels innermost."""
    return np.asarray((way == TENSOR) & (s.element < 4.0) & (s.kernel_h * s.kernel_w > 1))


def _dimensions(s: _Shape, way: Array) -> tuple[Array, Array, Array, Array]:
    """Rows, columns, depth and batch of the product that an algorithm's main pass is."""
    tiles4 = s.batch * np.ceil(s.out_h / 4) * np.ceil(s.out_w / 4)
    tiles2 = s.batch * np.ceil(s.out_h / 2) * np.ceil(s.out_w / 2)
    pixels = s.batch * s.out_h * s.out_w
    deep = np.where(way == TENSOR, np.ceil(s.channels / 8.0) * 8.0, s.channels / s.groups)  # tensor cores take eight at a time
    depth = deep * s.kernel_h * s.kernel_w
    columns = np.select([way == WINOGRAD, way == WINOGRAD_STAGED, way == FFT], [tiles2 * 4, tiles4, _fft_tiles(s)], pixels)
    # F(2x2): 16 products for 4 outputs, so 4 channels' worth per output; F(4x4): 36 products; FFT: 544 complex frequencies.
    k = np.select([way == WINOGRAD, way == WINOGRAD_STAGED, way == FFT], [s.channels * 4, s.channels, s.channels * 3], depth)
    batch = np.select([way == WINOGRAD_STAGED, way == FFT], [36.0, 544.0], s.groups)
    return s.filters / s.groups, columns, k, batch


def _library_product(chip: Chip, s: _Shape, way: Array) -> tuple[Gemm, Array]:
    """The main pass's product, and its columns."""
    m, n, k, batch = _dimensions(s, way)
    aligned = np.where((s.channels / s.groups) % 4 == 0, 1.0, 0.88) * np.where(s.filters % 4 == 0, 1.0, 0.91)
    aligned *= np.where((way == PLAIN) & (n % 4 != 0), 0.90, 1.0)
    splits = (way == PLAIN) | (way == PRECOMPUTED) | (way == TENSOR)
    whole = gemm(chip, m, n, k, batch, aligned * _RATE[way], may_split=False)
    parts = gemm(chip, m, n, k, batch, aligned * _RATE[way], may_split=True, tensor=chip.tensor_cores)
    chosen = {name: np.where(splits, getattr(parts, name), getattr(whole, name)) for name in Gemm.__dataclass_fields__}
    faster = np.where(way == TENSOR, s.rate, 1.0)
    narrow = np.where(way == TENSOR, s.element / 4.0, 1.0)
    product = Gemm(**chosen)
    operations = product.operations / faster * np.where(way == TENSOR, s.energy, 1.0)
    return replace(product, cycles=product.cycles / faster, operations=operations, l2_bytes=product.l2_bytes * narrow), n


def _product(chip: Chip, s: _Shape, way: Array, product: Gemm, n: Array) -> Pass:
    m = s.filters / s.groups
    batch = np.where(way == FFT, 544.0, 36.0)
    taps = s.kernel_h * s.kernel_w
    image = s.element * s.batch * s.channels * s.height * s.width
    weights = s.element * s.filters * s.channels / s.groups * taps
    outputs = s.element * s.batch * s.filters * s.out_h * s.out_w
    spectral = (way == WINOGRAD_STAGED) | (way == FFT)
    tall = np.where(way == FFT, 8.0, 4.0) * batch
    a_size = np.where(spectral, tall * m * s.channels, weights)
    b_size = np.where(spectral, tall * n * s.channels, np.minimum(image, s.element * n * s.channels * taps))
    c_size = np.where(spectral, tall * m * n, outputs * product.split)
    footprint = a_size + b_size + c_size
    read = a_size * again(chip, product.across, a_size) + b_size * again(chip, product.down, b_size)
    warm = (read + c_size) * chip.missing(footprint) + 0.03 * footprint
    # Filters that are not in the L2 when the kernel starts: in a network, other layers ran since.
    cold = np.where(spectral, 0.0, weights) * (1.0 - chip.missing(footprint))
    strided = np.where((s.stride > 1) & (taps == 1), 0.62, np.where(s.stride > 1, 0.80, 1.0))
    rows = np.where(s.out_w % 8 == 0, 1.0, 0.90)
    pattern = np.where((way == PLAIN) | (way == TENSOR), 0.84, np.where(spectral, 0.78, 0.74)) * strided * rows
    steps = np.where(way == IMPLICIT, 3.0, 1.0)
    return Pass.of(
        len(m),
        cycles=product.cycles,
        serial_cycles=product.serial_cycles + np.where(way == WINOGRAD, 900.0, 0.0),
        round_trips=steps,
        l2_bytes=product.l2_bytes,
        dram_bytes=warm,
        cold_bytes=cold,
        pattern=pattern,
        overlap=np.where(way == IMPLICIT, 2.2, np.where(way == WINOGRAD, 2.6, 3.2)),
        operations=product.operations / _RATE[way],
        toggling=_TOGGLING[way] * (1.0 - 0.07 * product.tile),
    )


def _depthwise(chip: Chip, s: _Shape) -> Pass:
    """One thread per output, filters in registers where the kernel size is one of the templates."""
    taps = s.kernel_h * s.kernel_w
    outputs = s.batch * s.filters * s.out_h * s.out_w
    template = (s.kernel_h == s.kernel_w) & np.isin(s.kernel_h, (1, 3, 5)) & (s.dilated == 0)
    work = outputs * (12.0 + taps * np.where(template, 2.4, 4.4)) * s.direct
    blocks = np.ceil(outputs / 256.0)
    resident = 6.0
    rounds = np.ceil(np.ceil(blocks / chip.sm_count) / resident)
    busy = np.minimum(1.0, np.ceil(blocks / chip.sm_count) / resident)
    image = s.element * s.batch * s.channels * s.height * s.width
    footprint = image + s.element * outputs
    return Pass.of(
        len(taps),
        cycles=work / chip.lanes * np.ceil(blocks / chip.sm_count) * chip.sm_count / blocks / (0.35 + 0.55 * busy),
        serial_cycles=300.0 + 80.0 * np.minimum(rounds, 8.0) + 22.0 * taps,
        round_trips=2.0,
        l2_bytes=s.element * outputs * (1.0 + 0.45 * taps),
        dram_bytes=footprint * chip.missing(footprint) + 0.05 * footprint,
        cold_bytes=s.element * s.filters * taps,
        pattern=np.where(s.stride > 1, 0.58, 0.74) * np.where(s.width % 8 == 0, 1.0, 0.88),
        overlap=2.4,
        operations=work,
        toggling=_TOGGLING[DEPTHWISE],
    )


def _prepare(chip: Chip, s: _Shape, way: Array) -> Pass:
    """What runs before the product: offset tables, or the transform of the filters, done on every call."""
    filters = s.channels * s.filters
    offsets, staged, fft = way == PRECOMPUTED, way == WINOGRAD_STAGED, way == FFT
    fused = way == WINOGRAD
    written = np.select([staged, fft, fused], [144.0, 4352.0, 64.0], 0.0) * filters
    read = 4.0 * s.kernel_h * s.kernel_w * filters
    moved = np.where(offsets, 0.0, written + read)
    operations = np.select([staged, fft, fused], [110.0, 2600.0, 40.0], 0.0) * filters
    return Pass.of(
        len(filters),
        runs=offsets | staged | fft | fused,
        cycles=operations / chip.lanes / 0.55,
        serial_cycles=np.where(offsets, 500.0, 350.0),
        l2_bytes=moved,
        dram_bytes=moved * chip.missing(moved),
        cold_bytes=read * (1.0 - chip.missing(moved)) * (1.0 - offsets),
        pattern=np.where(fft, 0.55, 0.66),
        overlap=2.6,
        operations=operations,
        toggling=0.7,
    )


def _transform(chip: Chip, s: _Shape, way: Array, runs: Array) -> Pass:
    """The input's transform (staged Winograd and FFT), or its copy with channels innermost (tensor cores)."""
    fft, tensor = way == FFT, _copied(s, way)
    tiles = np.where(fft, _fft_tiles(s), s.batch * np.ceil(s.out_h / 4) * np.ceil(s.out_w / 4)) * s.channels
    pixels = s.batch * s.channels * s.height * s.width
    read = s.element * pixels
    moved = np.where(tensor, 2.0 * read, tiles * np.where(fft, 4352.0, 144.0) + read)
    operations = np.where(tensor, 12.0 * pixels, tiles * np.where(fft, 2600.0, 130.0))
    return Pass.of(
        len(read),
        runs=runs > 0,
        cycles=operations / chip.lanes / 0.50,
        serial_cycles=400.0,
        l2_bytes=moved,
        dram_bytes=moved * chip.missing(moved),
        pattern=np.where(fft, 0.60, 0.70),
        overlap=2.6,
        operations=operations,
        toggling=0.75,
    )


def _finish(chip: Chip, s: _Shape, way: Array, product: Gemm, n: Array) -> Pass:
    """What runs after the product: the inverse transform, the sum over the parts of a split depth, the copy back."""
    m = s.filters
    fft, staged, tensor = way == FFT, way == WINOGRAD_STAGED, _copied(s, way)
    outputs = s.batch * s.filters * s.out_h * s.out_w
    tiles = np.where(fft, _fft_tiles(s), s.batch * np.ceil(s.out_h / 4) * np.ceil(s.out_w / 4)) * s.filters
    spectral = fft | staged
    moved = s.element * outputs + np.where(spectral, tiles * np.where(fft, 4352.0, 144.0), s.element * m * n * product.split)
    operations = np.where(spectral, tiles * np.where(fft, 2600.0, 90.0), outputs * (4.0 + product.split))
    direct = way == DEPTHWISE
    return Pass.of(
        len(m),
        runs=(spectral | tensor | (product.split > 1)) & ~direct,
        cycles=operations / chip.lanes / 0.50,
        serial_cycles=350.0,
        l2_bytes=moved,
        dram_bytes=moved * chip.missing(moved),
        pattern=np.where(fft, 0.60, 0.72),
        overlap=2.6,
        operations=operations,
        toggling=0.7,
    )
