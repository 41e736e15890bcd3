# SPDX-License-Identifier: Apache-2.0
"""Kernels of the simulated GPU that are matrix products: plain ones, attention, transposed convolution."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ....kernels.network import KernelInvocation
from .chip import Array, Chip
from .counts import column, element, number, rates, tail, utilisation
from .gemm import Gemm, again, gemm
from .passes import Pass


def matmul(chip: Chip, calls: Sequence[KernelInvocation]) -> list[Pass]:
    """Products: a row vector streams the matrix once; anything taller is tiled."""
    m, k = column(calls, lambda call: number(call, "m", 1)), column(calls, lambda call: number(call, "k", 1))
    n, batch = column(calls, lambda call: number(call, "n", 1)), column(calls, lambda call: number(call, "batch", 1))
    size = column(calls, element)
    bias = column(calls, lambda call: bool(call.params.get("bias", False)))
    matrix_rate, energy = rates(chip, calls)
    narrow = 1.0 / matrix_rate
    matrix, vectors, outputs = k * n * batch * size, m * k * batch * size, m * n * batch * size
    footprint = matrix + vectors + outputs
    # One warp per output and eight outputs per block: the last round of blocks is partly empty.
    blocks = np.ceil(n / 8.0) * batch
    operations = m * n * k * batch
    aligned = k % 4 == 0
    row = Pass.of(
        len(calls),
        cycles=operations / chip.lanes * np.where(aligned, 1.9, 2.2) * tail(chip, blocks, 8.0),
        serial_cycles=650.0,
        round_trips=1.0,
        l2_bytes=footprint + np.minimum(vectors * n / 8.0, matrix),
        dram_bytes=footprint * chip.missing(footprint) + 0.01 * footprint,
        cold_bytes=matrix * (1.0 - chip.missing(footprint)),
        pattern=np.where(aligned, 0.84, 0.82) * utilisation(chip, n * batch * np.minimum(k / 4.0, 32.0) * 1.5),
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


def _whole(chip: Chip, product: Gemm, moved: Array, pattern: float) -> Pass:
    """A product in one kernel, which moves so many bytes."""
    return Pass.of(
        len(moved),
        cycles=product.cycles,
        serial_cycles=product.serial_cycles,
        round_trips=1.0,
        l2_bytes=product.l2_bytes,
        dram_bytes=moved * chip.missing(moved),
        pattern=pattern,
        operations=product.operations,
    )


def attention(chip: Chip, calls: Sequence[KernelInvocation]) -> list[Pass]:
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
        result.append(_whole(chip, product, 4.0 * (inside + outside), 0.75))
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


def transposed(chip: Chip, calls: Sequence[KernelInvocation]) -> list[Pass]:
    """Transposed convolution: a product into columns, then a scatter of them into the image."""

    def dimensions(call: KernelInvocation) -> tuple[float, float, float, float]:
        weight = call.params["weight"]
        assert isinstance(weight, (tuple, list))
        groups = number(call, "groups", 1)
        return (weight[1] * prod(weight[2:]), prod(call.inputs[0][2:]) * call.inputs[0][0], weight[0] / groups, groups)

    m, n, k, groups = np.array([dimensions(call) for call in calls], np.float64).T
    outputs = column(calls, lambda call: prod(call.output))
    product = gemm(chip, m, n, k, groups, np.where(k % 4 == 0, 0.9, 0.8), may_split=False)
    columns = 4.0 * m * n * groups
    moved = columns + 4.0 * k * (m + n) * groups
    main = _whole(chip, product, moved, 0.74)
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
