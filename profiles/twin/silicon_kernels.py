# SPDX-License-Identifier: Apache-2.0
"""Every kernel of the simulated GPU that is not a convolution, and a plausible one for kinds it has never heard of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from ...kernels.network import DTYPE_BYTES, KernelInvocation
from .silicon_chip import Array, Chip
from .silicon_gemm import again, gemm
from .silicon_passes import Pass

# Instructions per element of pointwise arithmetic beyond a load and a store.
_POINTWISE = {"relu": 1.0, "hardtanh": 2.0, "add": 2.0, "mul": 1.0, "sub": 2.0, "sigmoid": 14.0, "silu": 16.0, "gelu": 22.0}
_POINTWISE |= {"hardswish": 6.0, "hardsigmoid": 4.0, "tanh": 20.0, "div": 8.0, "exp": 8.0, "sqrt": 8.0, "pow": 16.0}
_ROWWISE = {"softmax": (3.0, 24.0), "log_softmax": (3.0, 26.0), "layer_norm": (2.0, 12.0), "group_norm": (2.0, 12.0)}


def passes(chip: Chip, kind: str, invocations: Sequence[KernelInvocation]) -> list[Pass]:
    """The passes of invocations of one kind."""
    family = _FAMILIES.get(kind)
    if family is None:
        family = _rowwise if kind in _ROWWISE else _pointwise
    result = family(chip, invocations)
    if not chip.library:
        return result
    factor = np.array([chip.work(kind, call.dtype) for call in invocations], np.float64)
    return [replace(one, cycles=one.cycles * factor, operations=one.operations * factor) for one in result]


def _column(invocations: Sequence[KernelInvocation], value: Callable[[KernelInvocation], float]) -> Array:
    return np.fromiter(map(value, invocations), np.float64, len(invocations))


def _number(call: KernelInvocation, name: str, default: float) -> float:
    value = call.params.get(name, default)
    return float(value) if isinstance(value, (int, float)) else default


def _element(call: KernelInvocation) -> int:
    return DTYPE_BYTES[call.dtype]


def _rates(chip: Chip, calls: Sequence[KernelInvocation]) -> Array:
    """Multiply-adds per lane and cycle in products, and the energy of such a cycle, shape ``(2, len(calls))``."""
    rates = [chip.rate(call.dtype) for call in calls]
    return np.array([[rate.matrix for rate in rates], [rate.energy for rate in rates]], np.float64)


def _read_elements(call: KernelInvocation) -> float:
    """Elements read, a broadcast operand once."""
    return float(sum(prod(shape) for shape in call.inputs))


def _utilisation(chip: Chip, threads: Array) -> Array:
    """How much of the bandwidth so many threads can ask for: few threads cannot cover the latency."""
    return np.asarray(np.minimum(1.0, 0.06 + 1.06 * threads / (threads + 0.10 * (chip.sm_count * chip.sm_threads))))


def _tail(chip: Chip, blocks: Array, resident: float) -> Array:
    """Blocks run in rounds; the last round may leave SMs idle."""
    slots = chip.sm_count * resident
    rounds = np.ceil(blocks / slots)
    return np.asarray(np.where(rounds > 12, 1.0, rounds * slots / np.maximum(blocks, 1.0)).clip(1.0, 1.9))


def _pointwise(chip: Chip, calls: Sequence[KernelInvocation]) -> list[Pass]:
    """Elementwise arithmetic: four elements per thread where everything is aligned and nothing is broadcast."""
    elements = _column(calls, lambda call: prod(call.output))
    size = _column(calls, _element)
    moved = (_column(calls, _read_elements) + elements) * size
    vectors = np.array(
        [prod(call.output) % 4 == 0 and all(prod(shape) == prod(call.output) for shape in call.inputs) for call in calls]
    )
    work = _column(calls, lambda call: _POINTWISE.get(call.kind, 6.0)) + 3.0
    blocks = np.ceil(elements / 512.0)
    instructions = elements * np.where(vectors, work + 1.5, work * 1.3 + 9.0)
    streams = _column(calls, lambda call: len(call.inputs))
    return [
        Pass.of(
            len(calls),
            cycles=instructions / chip.lanes / 0.55 * _tail(chip, blocks, 8.0),
            serial_cycles=250.0,
            l2_bytes=moved,
            dram_bytes=moved * chip.missing(moved) + 0.02 * moved,
            pattern=np.where(vectors, 0.95, 0.74)
            * (1.0 - 0.04 * np.maximum(streams - 1.0, 0.0))
            * _utilisation(chip, elements / 4),
            overlap=3.6,
            operations=instructions,
            toggling=0.62,
        )
    ]


def _batch_norm(chip: Chip, calls: Sequence[KernelInvocation]) -> list[Pass]:
    """Inference batch norm: a block walks one channel's plane of one image, so small or odd planes leave threads idle."""
    channels = _column(calls, lambda call: call.output[0] * (call.output[1] if len(call.output) > 1 else 1))
    plane = _column(calls, lambda call: prod(call.output[2:]))
    size = _column(calls, _element)
    elements = channels * plane
    threads = np.select([plane <= 64, plane <= 256], [64.0, 256.0], 512.0)
    turns = np.ceil(plane / threads)
    idle = turns * threads / plane
    vectors = plane % 4 == 0
    moved = 2.0 * elements * size
    instructions = elements * np.where(vectors, 9.0, 13.0) * np.sqrt(idle)
    blocks = np.ceil(channels * threads / 512.0)
    return [
        Pass.of(
            len(calls),
            cycles=instructions / chip.lanes / 0.50 * _tail(chip, blocks, 4.0) + channels / chip.sm_count * 26.0,
            serial_cycles=2200.0 + 12.0 * np.minimum(turns, 30.0),
            round_trips=1.0,
            l2_bytes=moved + 128.0 * channels,
            dram_bytes=moved * chip.missing(moved) + 0.02 * moved,
            cold_bytes=16.0 * channels,
            pattern=np.where(vectors, 0.60, 0.48) * _utilisation(chip, channels * np.minimum(plane, threads)),
            overlap=3.0,
            operations=instructions,
            toggling=0.78,
        )
    ]


def _matmul(chip: Chip, calls: Sequence[KernelInvocation]) -> list[Pass]:
    """Products: a row vector streams the matrix once; anything taller is tiled."""
    m, k = _column(calls, lambda call: _number(call, "m", 1)), _column(calls, lambda call: _number(call, "k", 1))
    n, batch = _column(calls, lambda call: _number(call, "n", 1)), _column(calls, lambda call: _number(call, "batch", 1))
    size = _column(calls, _element)
    bias = _column(calls, lambda call: bool(call.params.get("bias", False)))
    matrix_rate, energy = _rates(chip, calls)
    narrow = 1.0 / matrix_rate
    matrix, vectors, outputs = k * n * batch * size, m * k * batch * size, m * n * batch * size
    footprint = matrix + vectors + outputs
    # One warp per output and eight outputs per block: the last round of blocks is partly empty.
    blocks = np.ceil(n / 8.0) * batch
    operations = m * n * k * batch
    aligned = k % 4 == 0
    row = Pass.of(
        len(calls),
        cycles=operations / chip.lanes * np.where(aligned, 1.9, 2.2) * _tail(chip, blocks, 8.0),
        serial_cycles=650.0,
        round_trips=1.0,
        l2_bytes=footprint + np.minimum(vectors * n / 8.0, matrix),
        dram_bytes=footprint * chip.missing(footprint) + 0.01 * footprint,
        cold_bytes=matrix * (1.0 - chip.missing(footprint)),
        pattern=np.where(aligned, 0.84, 0.82) * _utilisation(chip, n * batch * np.minimum(k / 4.0, 32.0) * 1.5),
        overlap=4.0,
        operations=2.2 * operations,
        toggling=0.66,
    )
    product = gemm(chip, m, n, k, batch, np.where(aligned & (n % 4 == 0), 1.0, 0.86), may_split=True)
    read = matrix * again(chip, product.down, matrix) + vectors * again(chip, product.across, vectors)
    tiled = Pass.of(
        len(calls),
        cycles=product.cycles * narrow,
        serial_cycles=product.serial_cycles,
        round_trips=1.0,
        l2_bytes=product.l2_bytes * size / 4.0,
        dram_bytes=(read + outputs * product.split) * chip.missing(footprint) + 0.02 * footprint,
        cold_bytes=matrix * (1.0 - chip.missing(footprint)),
        pattern=0.82,
        overlap=3.2,
        operations=product.operations * narrow * energy,
        toggling=1.05 - 0.035 * product.tile,
    )
    parts = outputs * (product.split + 1.0)
    reduction = Pass.of(
        len(calls),
        runs=(m > 1) & (product.split > 1),
        cycles=outputs * 6.0 / chip.lanes,
        l2_bytes=parts,
        dram_bytes=parts * chip.missing(parts),
        operations=outputs * 2.0,
        toggling=0.6,
    )
    # The bias is copied over the output first; the product then adds to it.
    start = Pass.of(
        len(calls),
        runs=bias > 0,
        cycles=m * n * 4.0 / chip.lanes,
        l2_bytes=2.0 * outputs,
        dram_bytes=2.0 * outputs * chip.missing(2.0 * outputs),
        operations=m * n,
        toggling=0.5,
    )
    return [start, tiled.merged(m == 1, row), reduction]


def _cat(chip: Chip, calls: Sequence[KernelInvocation]) -> list[Pass]:
    """Concatenation: one launch copies up to four tensors at a time, in grids shaped for the largest of them."""
    size = _column(calls, _element)
    elements = _column(calls, lambda call: prod(call.output))
    inputs = _column(calls, lambda call: max(len(call.inputs), 1))
    largest = _column(calls, lambda call: max((prod(shape) for shape in call.inputs), default=1))
    inner = _column(
        calls, lambda call: prod(call.output[int(_number(call, "dim", 0)) + 1 :]) if _number(call, "dim", 0) >= 0 else 1
    )
    idle = inputs * largest / np.maximum(elements, 1.0)
    moved = 2.0 * elements * size
    instructions = elements * 26.0 + inputs * largest * 3.0
    whole = inner % 4 == 0
    batches = np.ceil(inputs / 16.0)
    return [
        Pass.of(
            len(calls),
            cycles=instructions / chip.lanes / 0.55,
            serial_cycles=5000.0 * batches + 400.0 * inputs,
            round_trips=2.0 * batches,
            l2_bytes=moved,
            dram_bytes=moved * chip.missing(moved) + 0.02 * moved,
            pattern=np.where(whole, 0.98, 0.80) / (1.0 + 0.05 * (idle - 1.0)) * _utilisation(chip, elements / 4),
            overlap=2.8,
            operations=instructions,
            toggling=0.60,
        )
    ]


def _pool(chip: Chip, calls: Sequence[KernelInvocation]) -> list[Pass]:
    """Window pooling: one thread per output, overlapping windows served by the caches."""
    windows = _column(calls, _window)
    outputs = _column(calls, lambda call: prod(call.output))
    image = _column(calls, _read_elements)
    size = _column(calls, _element)
    width = _column(calls, lambda call: call.output[-1])
    moved = (image + outputs) * size
    indices = np.array([call.kind.startswith("max") for call in calls]) * outputs * 8.0  # the int64 argmax is written too
    instructions = outputs * (14.0 + 3.0 * windows)
    warps = np.ceil(width / 32.0) * 32.0 / width
    return [
        Pass.of(
            len(calls),
            cycles=instructions / chip.lanes / 0.50 * _tail(chip, np.ceil(outputs / 256.0), 8.0) * (0.85 + 0.15 * warps),
            serial_cycles=350.0 + 30.0 * np.minimum(windows, 49.0),
            round_trips=1.0,
            l2_bytes=(outputs * (1.0 + 0.5 * windows)) * size + indices,
            dram_bytes=(moved + indices) * chip.missing(moved + indices) + 0.03 * moved,
            pattern=np.where(width % 4 == 0, 0.96, 0.84) * _utilisation(chip, outputs),
            overlap=2.6,
            operations=instructions,
            toggling=0.66,
        )
    ]


def _window(call: KernelInvocation) -> float:
    kernel = call.params.get("kernel_size", 1)
    if isinstance(kernel, (tuple, list)):
        return float(prod(kernel)) if len(kernel) != 1 else float(kernel[0] ** 2)
    return float(kernel) ** 2 if isinstance(kernel, (int, float)) else 1.0


def _adaptive_pool(chip: Chip, calls: Sequence[KernelInvocation]) -> list[Pass]:
    """Adaptive pooling: a block per plane, its threads over the outputs, windows walked serially."""
    planes = _column(calls, lambda call: prod(call.output[:-2]))
    spots = _column(calls, lambda call: prod(call.output[-2:]))
    image = _column(calls, _read_elements)
    size = _column(calls, _element)
    window = np.maximum(image / np.maximum(planes * spots, 1.0), 1.0)
    moved = (image + planes * spots) * size
    instructions = planes * (np.ceil(spots / 32.0) * 32.0) * (60.0 + 9.0 * window)
    return [
        Pass.of(
            len(calls),
            cycles=instructions / chip.lanes / 0.30 * _tail(chip, planes, 8.0),
            serial_cycles=700.0 + 40.0 * np.minimum(window, 200.0),
            round_trips=2.0,
            l2_bytes=moved * 1.4,
            dram_bytes=moved * chip.missing(moved) + 0.03 * moved,
            pattern=0.50 * _utilisation(chip, planes * np.minimum(spots, 32.0)),
            overlap=2.3,
            operations=instructions * 0.6,
            toggling=0.6,
        )
    ]


def _reduce(chip: Chip, calls: Sequence[KernelInvocation]) -> list[Pass]:
    """Reductions: a warp or a block per output, a tree at the end."""
    outputs = _column(calls, lambda call: max(prod(call.output), 1))
    image = _column(calls, _read_elements)
    size = _column(calls, _element)
    length = np.maximum(image / outputs, 1.0)
    moved = (image + outputs) * size
    steps = np.ceil(np.log2(np.minimum(length, 1024.0) + 1.0))
    instructions = outputs * np.ceil(length / 32.0) * 32.0 * 6.0
    return [
        Pass.of(
            len(calls),
            cycles=instructions / chip.lanes / 0.45 * _tail(chip, np.ceil(outputs / 4.0), 8.0),
            serial_cycles=600.0 + 60.0 * steps,
            round_trips=1.0 + np.minimum(length / 4096.0, 8.0),
            l2_bytes=moved,
            dram_bytes=moved * chip.missing(moved) + 0.03 * moved,
            pattern=0.70 * _utilisation(chip, image / 4.0),
            overlap=2.8,
            operations=instructions,
            toggling=0.6,
        )
    ]


def _rowwise(chip: Chip, calls: Sequence[KernelInvocation]) -> list[Pass]:
    """Softmax and the norms: a block per row that reads it more than once."""
    elements = _column(calls, lambda call: prod(call.output))
    length = _column(calls, lambda call: call.output[-1] if call.output else 1)
    size = _column(calls, _element)
    readings = _column(calls, lambda call: _ROWWISE[call.kind][0])
    work = _column(calls, lambda call: _ROWWISE[call.kind][1])
    rows = elements / np.maximum(length, 1.0)
    moved = 2.0 * elements * size
    row_bytes = length * size * chip.sm_count * 4.0
    return [
        Pass.of(
            len(calls),
            cycles=elements * work / chip.lanes / 0.45 * _tail(chip, rows, 8.0),
            serial_cycles=900.0 + 50.0 * np.log2(length + 1.0),
            round_trips=2.0,
            l2_bytes=moved * (1.0 + readings) / 2.0,
            dram_bytes=moved * chip.missing(moved) + (readings - 1.0) * elements * size * chip.missing(row_bytes),
            pattern=0.66 * _utilisation(chip, elements / 4.0),
            overlap=2.8,
            operations=elements * work,
            toggling=0.7,
        )
    ]


def _copy(chip: Chip, calls: Sequence[KernelInvocation]) -> list[Pass]:
    """A copy that changes the order of dimensions: one side of it is strided."""
    elements = _column(calls, lambda call: prod(call.output))
    size = _column(calls, _element)
    run = _column(calls, lambda call: call.output[-1] if call.output else 1)
    moved = 2.0 * elements * size
    return [
        Pass.of(
            len(calls),
            cycles=elements * 30.0 / chip.lanes / 0.55,
            serial_cycles=400.0,
            round_trips=1.0,
            l2_bytes=moved * np.where(run >= 8, 1.2, 2.5),
            dram_bytes=moved * chip.missing(moved) + 0.03 * moved,
            pattern=np.where(run >= 32, 0.70, np.where(run >= 8, 0.55, 0.32)) * _utilisation(chip, elements),
            overlap=2.6,
            operations=elements * 30.0,
            toggling=0.55,
        )
    ]


def _attention(chip: Chip, calls: Sequence[KernelInvocation]) -> list[Pass]:
    """Scaled dot-product attention, unfused: scores, softmax, weighted sum."""
    query = [call.inputs[0] for call in calls]
    keys = np.array([call.inputs[1][-2] if len(call.inputs) > 1 else call.inputs[0][-2] for call in calls], np.float64)
    heads = np.array([prod(shape[:-2]) for shape in query], np.float64)
    length = np.array([shape[-2] for shape in query], np.float64)
    width = np.array([shape[-1] for shape in query], np.float64)
    scores = heads * length * keys
    aligned = np.where(width % 4 == 0, 1.0, 0.86)
    result = []
    for product, inside, outside in (
        (gemm(chip, length, keys, width, heads, aligned, may_split=False), heads * (length + keys) * width, scores),
        (
            gemm(chip, length, width, keys, heads, aligned, may_split=False),
            scores + heads * keys * width,
            heads * length * width,
        ),
    ):
        moved = 4.0 * (inside + outside)
        result.append(
            Pass.of(
                len(calls),
                cycles=product.cycles,
                serial_cycles=product.serial_cycles,
                round_trips=1.0,
                l2_bytes=product.l2_bytes,
                dram_bytes=moved * chip.missing(moved),
                pattern=0.75,
                operations=product.operations,
            )
        )
    middle = Pass.of(
        len(calls),
        cycles=scores * 24.0 / chip.lanes / 0.45,
        serial_cycles=900.0,
        round_trips=2.0,
        l2_bytes=16.0 * scores,
        dram_bytes=8.0 * scores * chip.missing(8.0 * scores),
        pattern=0.66,
        operations=scores * 24.0,
        toggling=0.7,
    )
    return [result[0], middle, result[1]]


def _transposed(chip: Chip, calls: Sequence[KernelInvocation]) -> list[Pass]:
    """Transposed convolution: a product into columns, then a scatter of them into the image."""

    def dimensions(call: KernelInvocation) -> tuple[float, float, float, float]:
        weight = call.params["weight"]
        assert isinstance(weight, (tuple, list))
        groups = _number(call, "groups", 1)
        return (weight[1] * prod(weight[2:]), prod(call.inputs[0][2:]) * call.inputs[0][0], weight[0] / groups, groups)

    m, n, k, groups = np.array([dimensions(call) for call in calls], np.float64).T
    outputs = _column(calls, lambda call: prod(call.output))
    product = gemm(chip, m, n, k, groups, np.where(k % 4 == 0, 0.9, 0.8), may_split=False)
    columns = 4.0 * m * n * groups
    moved = columns + 4.0 * k * (m + n) * groups
    main = Pass.of(
        len(calls),
        cycles=product.cycles,
        serial_cycles=product.serial_cycles,
        round_trips=1.0,
        l2_bytes=product.l2_bytes,
        dram_bytes=moved * chip.missing(moved),
        pattern=0.74,
        operations=product.operations,
    )
    scatter = Pass.of(
        len(calls),
        cycles=(m * n * groups * 6.0 + outputs * 30.0) / chip.lanes / 0.5,
        serial_cycles=400.0,
        round_trips=1.0,
        l2_bytes=2.0 * columns,
        dram_bytes=(columns + 4.0 * outputs) * chip.missing(columns),
        pattern=0.6,
        operations=m * n * groups * 6.0,
        toggling=0.6,
    )
    return [main, scatter]


_FAMILIES: dict[str, Callable[[Chip, Sequence[KernelInvocation]], list[Pass]]] = {
    "batch_norm": _batch_norm,
    "matmul": _matmul,
    "cat": _cat,
    "stack": _cat,
    "max_pool2d": _pool,
    "avg_pool2d": _pool,
    "adaptive_avg_pool2d": _adaptive_pool,
    "adaptive_max_pool2d": _adaptive_pool,
    "mean": _reduce,
    "sum": _reduce,
    "max": _reduce,
    "amax": _reduce,
    "argmax": _reduce,
    "clone": _copy,
    "attention": _attention,
    "conv_transpose2d": _transposed,
}
