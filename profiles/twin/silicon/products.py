# SPDX-License-Identifier: Apache-2.0
"""Matrix products of the simulated GPU: plain ones, attention, transposed convolution."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ....kernels.network import KernelInvocation
from .chip import Array, Chip
from .gemm import Gemm, again, gemm
from .passes import VECTOR, WARP, CodePass, KernelCode, column, element, number, rates, tail, utilisation

# How each kernel's code runs (see Code for the source of the figures), then its further instructions.
_ROW = KernelCode(serial_cycles=650.0, round_trips=1.0, pattern=0.84, unaligned=0.82, streamed=0.01, overlap=4.0, toggling=0.66)
_ROW_CYCLES, _ROW_SCALAR_CYCLES, _ROW_OPERATIONS = 1.9, 2.2, 2.2  # of a lane for each multiply-add, with and without vectors
_ROW_OUTPUTS = 8.0  # outputs of a block, a warp each
_ROW_LOADS = 1.5  # loads that a thread has under way
_TILED = KernelCode(round_trips=1.0, pattern=0.82, streamed=0.02, overlap=3.2, toggling=1.05)
_TILED_SETTLING = 0.035  # by how much less toggles with each step to a smaller tile
_UNALIGNED_PRODUCT = 0.86  # the share of peak that is left without vector loads
_REDUCTION = KernelCode(toggling=0.6)
_REDUCTION_CYCLES, _REDUCTION_OPERATIONS = 6.0, 2.0  # for each output
_BIAS = KernelCode(toggling=0.5)
_BIAS_CYCLES = 4.0  # for each output
_SOFTMAX = KernelCode(0.45, 900.0, 2.0, pattern=0.66, toggling=0.7)
_SOFTMAX_OPERATIONS = 24.0  # for each score
_ATTENTION_PATTERN, _COLUMNS_PATTERN = 0.75, 0.74
_SINGLE_BYTES = 4.0
_SCATTER = KernelCode(0.5, 400.0, 1.0, pattern=0.6, toggling=0.6)
_ADDITION, _OUTPUT = 6.0, 30.0  # instructions for each element of a column, and of the image
_COLUMNS_ALIGNED, _COLUMNS_UNALIGNED = 0.9, 0.8  # the share of peak that the layout of the columns leaves


def matmul(chip: Chip, calls: Sequence[KernelInvocation]) -> list[CodePass]:
    """Products: a row vector streams the matrix once, taller ones are tiled."""
    m, k = column(calls, lambda call: number(call, "m", 1)), column(calls, lambda call: number(call, "k", 1))
    n, batch = column(calls, lambda call: number(call, "n", 1)), column(calls, lambda call: number(call, "batch", 1))
    size = column(calls, element)
    bias = column(calls, lambda call: bool(call.params.get("bias", False)))
    matrix_rate, energy = rates(chip, calls)
    narrow = 1.0 / matrix_rate
    matrix, vectors, outputs = k * n * batch * size, m * k * batch * size, m * n * batch * size
    footprint = matrix + vectors + outputs
    # One warp per output and eight outputs per block: the last round of blocks is partly empty.
    blocks = np.ceil(n / _ROW_OUTPUTS) * batch
    operations = m * n * k * batch
    aligned = k % VECTOR == 0
    row = CodePass.of(
        len(calls),
        _ROW,
        cycles=operations / chip.lanes * np.where(aligned, _ROW_CYCLES, _ROW_SCALAR_CYCLES) * tail(chip, blocks, _ROW.resident),
        l2_bytes=footprint + np.minimum(vectors * n / _ROW_OUTPUTS, matrix),
        dram_bytes=footprint * chip.missing(footprint) + _ROW.streamed * footprint,
        cold_bytes=matrix * (1.0 - chip.missing(footprint)),
        pattern=np.where(aligned, _ROW.pattern, _ROW.unaligned)
        * utilisation(chip, n * batch * np.minimum(k / VECTOR, WARP) * _ROW_LOADS),
        operations=_ROW_OPERATIONS * operations,
    )
    product = gemm(chip, m, n, k, batch, np.where(aligned & (n % VECTOR == 0), 1.0, _UNALIGNED_PRODUCT), may_split=True)
    read = matrix * again(chip, product.down, matrix) + vectors * again(chip, product.across, vectors)
    tiled = CodePass.of(
        len(calls),
        _TILED,
        cycles=product.cycles * narrow,
        serial_cycles=product.serial_cycles,
        l2_bytes=product.l2_bytes * size / _SINGLE_BYTES,
        dram_bytes=(read + outputs * product.split) * chip.missing(footprint) + _TILED.streamed * footprint,
        cold_bytes=matrix * (1.0 - chip.missing(footprint)),
        operations=product.operations * narrow * energy,
        toggling=_TILED.toggling - _TILED_SETTLING * product.tile,
    )
    parts = outputs * (product.split + 1.0)
    reduction = CodePass.of(
        len(calls),
        _REDUCTION,
        runs=(m > 1) & (product.split > 1),
        cycles=outputs * _REDUCTION_CYCLES / chip.lanes,
        l2_bytes=parts,
        dram_bytes=parts * chip.missing(parts),
        operations=outputs * _REDUCTION_OPERATIONS,
    )
    # The bias is copied over the output first; the product then adds to it.
    start = CodePass.of(
        len(calls),
        _BIAS,
        runs=bias > 0,
        cycles=m * n * _BIAS_CYCLES / chip.lanes,
        l2_bytes=2.0 * outputs,
        dram_bytes=2.0 * outputs * chip.missing(2.0 * outputs),
        operations=m * n,
    )
    return [start, tiled.merged(m == 1, row), reduction]


def _whole(chip: Chip, product: Gemm, moved: Array, pattern: float) -> CodePass:
    return CodePass.of(
        len(moved),
        cycles=product.cycles,
        serial_cycles=product.serial_cycles,
        round_trips=1.0,
        l2_bytes=product.l2_bytes,
        dram_bytes=moved * chip.missing(moved),
        pattern=pattern,
        operations=product.operations,
    )


def attention(chip: Chip, calls: Sequence[KernelInvocation]) -> list[CodePass]:
    query = [call.inputs[0] for call in calls]
    keys = np.array([call.inputs[1][-2] if len(call.inputs) > 1 else call.inputs[0][-2] for call in calls], np.float64)
    heads = np.array([prod(shape[:-2]) for shape in query], np.float64)
    length = np.array([shape[-2] for shape in query], np.float64)
    width = np.array([shape[-1] for shape in query], np.float64)
    scores = heads * length * keys
    aligned = np.where(width % VECTOR == 0, 1.0, _UNALIGNED_PRODUCT)
    result = []
    for product, inside, outside in (
        (gemm(chip, length, keys, width, heads, aligned, may_split=False), heads * (length + keys) * width, scores),
        (
            gemm(chip, length, width, keys, heads, aligned, may_split=False),
            scores + heads * keys * width,
            heads * length * width,
        ),
    ):
        result.append(_whole(chip, product, _SINGLE_BYTES * (inside + outside), _ATTENTION_PATTERN))
    moved = 2.0 * _SINGLE_BYTES * scores
    # Each row is read three times and written once.
    middle = CodePass.moving(chip, _SOFTMAX, scores * _SOFTMAX_OPERATIONS, moved, l2_bytes=2.0 * moved)
    return [result[0], middle, result[1]]


def transposed(chip: Chip, calls: Sequence[KernelInvocation]) -> list[CodePass]:
    """Transposed convolution: a product into columns, scattered into the image."""

    def dimensions(call: KernelInvocation) -> tuple[float, float, float, float]:
        weight = call.params["weight"]
        assert isinstance(weight, (tuple, list))
        groups = number(call, "groups", 1)
        return (weight[1] * prod(weight[2:]), prod(call.inputs[0][2:]) * call.inputs[0][0], weight[0] / groups, groups)

    m, n, k, groups = np.array([dimensions(call) for call in calls], np.float64).T
    outputs = column(calls, lambda call: prod(call.output))
    product = gemm(chip, m, n, k, groups, np.where(k % VECTOR == 0, _COLUMNS_ALIGNED, _COLUMNS_UNALIGNED), may_split=False)
    columns = _SINGLE_BYTES * m * n * groups
    moved = columns + _SINGLE_BYTES * k * (m + n) * groups
    main = _whole(chip, product, moved, _COLUMNS_PATTERN)
    scatter = CodePass.of(
        len(calls),
        _SCATTER,
        cycles=(m * n * groups * _ADDITION + outputs * _OUTPUT) / chip.lanes / _SCATTER.issue,
        l2_bytes=2.0 * columns,
        dram_bytes=(columns + _SINGLE_BYTES * outputs) * chip.missing(columns),
        operations=m * n * groups * _ADDITION,
    )
    return [main, scatter]
