# SPDX-License-Identifier: Apache-2.0
"""Kernels of the simulated GPU that are no convolutions or products: arithmetic on elements, pools, reductions, copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import TypeAlias

import numpy as np

from ....kernels.network import KernelInvocation
from .chip import Chip
from .counts import column, element, number, read_elements, tail, utilisation
from .passes import Pass

Family: TypeAlias = Callable[[Chip, Sequence[KernelInvocation]], list[Pass]]
"""The passes of invocations of one kind."""


def pointwise(instructions: float) -> Family:
    """Arithmetic on each element, in so many instructions beyond a load and a store."""
    return partial(_pointwise, instructions)


def rowwise(readings: float, instructions: float) -> Family:
    """Work on rows that are read so many times, in so many instructions for each element."""
    return partial(_rowwise, readings, instructions)


def _pointwise(instructions: float, chip: Chip, calls: Sequence[KernelInvocation]) -> list[Pass]:
    """Elementwise arithmetic: four elements per thread where everything is aligned and nothing is broadcast."""
    elements = column(calls, lambda call: prod(call.output))
    size = column(calls, element)
    moved = (column(calls, read_elements) + elements) * size
    vectors = np.array(
        [prod(call.output) % 4 == 0 and all(prod(shape) == prod(call.output) for shape in call.inputs) for call in calls]
    )
    work = instructions + 3.0
    blocks = np.ceil(elements / 512.0)
    executed = elements * np.where(vectors, work + 1.5, work * 1.3 + 9.0)
    streams = column(calls, lambda call: len(call.inputs))
    return [
        Pass.of(
            len(calls),
            cycles=executed / chip.lanes / 0.55 * tail(chip, blocks, 8.0),
            serial_cycles=250.0,
            l2_bytes=moved,
            dram_bytes=moved * chip.missing(moved) + 0.02 * moved,
            pattern=np.where(vectors, 0.95, 0.74)
            * (1.0 - 0.04 * np.maximum(streams - 1.0, 0.0))
            * utilisation(chip, elements / 4),
            overlap=3.6,
            operations=executed,
            toggling=0.62,
        )
    ]


def batch_norm(chip: Chip, calls: Sequence[KernelInvocation]) -> list[Pass]:
    """Inference batch norm: a block walks one channel's plane of one image, so small or odd planes leave threads idle."""
    channels = column(calls, lambda call: call.output[0] * (call.output[1] if len(call.output) > 1 else 1))
    plane = column(calls, lambda call: prod(call.output[2:]))
    size = column(calls, element)
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
            cycles=instructions / chip.lanes / 0.50 * tail(chip, blocks, 4.0) + channels / chip.sm_count * 26.0,
            serial_cycles=2200.0 + 12.0 * np.minimum(turns, 30.0),
            round_trips=1.0,
            l2_bytes=moved + 128.0 * channels,
            dram_bytes=moved * chip.missing(moved) + 0.02 * moved,
            cold_bytes=16.0 * channels,
            pattern=np.where(vectors, 0.60, 0.48) * utilisation(chip, channels * np.minimum(plane, threads)),
            overlap=3.0,
            operations=instructions,
            toggling=0.78,
        )
    ]


def cat(chip: Chip, calls: Sequence[KernelInvocation]) -> list[Pass]:
    """Concatenation: one launch copies up to four tensors at a time, in grids shaped for the largest of them."""
    size = column(calls, element)
    elements = column(calls, lambda call: prod(call.output))
    inputs = column(calls, lambda call: max(len(call.inputs), 1))
    largest = column(calls, lambda call: max((prod(shape) for shape in call.inputs), default=1))
    inner = column(
        calls, lambda call: prod(call.output[int(number(call, "dim", 0)) + 1 :]) if number(call, "dim", 0) >= 0 else 1
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
            pattern=np.where(whole, 0.98, 0.80) / (1.0 + 0.05 * (idle - 1.0)) * utilisation(chip, elements / 4),
            overlap=2.8,
            operations=instructions,
            toggling=0.60,
        )
    ]


def pool(chip: Chip, calls: Sequence[KernelInvocation]) -> list[Pass]:
    """Window pooling: one thread per output, overlapping windows served by the caches."""
    windows = column(calls, _window)
    outputs = column(calls, lambda call: prod(call.output))
    image = column(calls, read_elements)
    size = column(calls, element)
    width = column(calls, lambda call: call.output[-1])
    moved = (image + outputs) * size
    indices = np.array([call.kind.startswith("max") for call in calls]) * outputs * 8.0  # the int64 argmax is written too
    instructions = outputs * (14.0 + 3.0 * windows)
    warps = np.ceil(width / 32.0) * 32.0 / width
    return [
        Pass.of(
            len(calls),
            cycles=instructions / chip.lanes / 0.50 * tail(chip, np.ceil(outputs / 256.0), 8.0) * (0.85 + 0.15 * warps),
            serial_cycles=350.0 + 30.0 * np.minimum(windows, 49.0),
            round_trips=1.0,
            l2_bytes=(outputs * (1.0 + 0.5 * windows)) * size + indices,
            dram_bytes=(moved + indices) * chip.missing(moved + indices) + 0.03 * moved,
            pattern=np.where(width % 4 == 0, 0.96, 0.84) * utilisation(chip, outputs),
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


def adaptive_pool(chip: Chip, calls: Sequence[KernelInvocation]) -> list[Pass]:
    """Adaptive pooling: a block per plane, its threads over the outputs, windows walked serially."""
    planes = column(calls, lambda call: prod(call.output[:-2]))
    spots = column(calls, lambda call: prod(call.output[-2:]))
    image = column(calls, read_elements)
    size = column(calls, element)
    window = np.maximum(image / np.maximum(planes * spots, 1.0), 1.0)
    moved = (image + planes * spots) * size
    instructions = planes * (np.ceil(spots / 32.0) * 32.0) * (60.0 + 9.0 * window)
    return [
        Pass.of(
            len(calls),
            cycles=instructions / chip.lanes / 0.30 * tail(chip, planes, 8.0),
            serial_cycles=700.0 + 40.0 * np.minimum(window, 200.0),
            round_trips=2.0,
            l2_bytes=moved * 1.4,
            dram_bytes=moved * chip.missing(moved) + 0.03 * moved,
            pattern=0.50 * utilisation(chip, planes * np.minimum(spots, 32.0)),
            overlap=2.3,
            operations=instructions * 0.6,
            toggling=0.6,
        )
    ]


def reduce(chip: Chip, calls: Sequence[KernelInvocation]) -> list[Pass]:
    """Reductions: a warp or a block per output, a tree at the end."""
    outputs = column(calls, lambda call: max(prod(call.output), 1))
    image = column(calls, read_elements)
    size = column(calls, element)
    length = np.maximum(image / outputs, 1.0)
    moved = (image + outputs) * size
    steps = np.ceil(np.log2(np.minimum(length, 1024.0) + 1.0))
    instructions = outputs * np.ceil(length / 32.0) * 32.0 * 6.0
    return [
        Pass.of(
            len(calls),
            cycles=instructions / chip.lanes / 0.45 * tail(chip, np.ceil(outputs / 4.0), 8.0),
            serial_cycles=600.0 + 60.0 * steps,
            round_trips=1.0 + np.minimum(length / 4096.0, 8.0),
            l2_bytes=moved,
            dram_bytes=moved * chip.missing(moved) + 0.03 * moved,
            pattern=0.70 * utilisation(chip, image / 4.0),
            overlap=2.8,
            operations=instructions,
            toggling=0.6,
        )
    ]


def _rowwise(readings: float, work: float, chip: Chip, calls: Sequence[KernelInvocation]) -> list[Pass]:
    """Softmax and the norms: a block per row that reads it more than once."""
    elements = column(calls, lambda call: prod(call.output))
    length = column(calls, lambda call: call.output[-1] if call.output else 1)
    size = column(calls, element)
    rows = elements / np.maximum(length, 1.0)
    moved = 2.0 * elements * size
    row_bytes = length * size * chip.sm_count * 4.0
    return [
        Pass.of(
            len(calls),
            cycles=elements * work / chip.lanes / 0.45 * tail(chip, rows, 8.0),
            serial_cycles=900.0 + 50.0 * np.log2(length + 1.0),
            round_trips=2.0,
            l2_bytes=moved * (1.0 + readings) / 2.0,
            dram_bytes=moved * chip.missing(moved) + (readings - 1.0) * elements * size * chip.missing(row_bytes),
            pattern=0.66 * utilisation(chip, elements / 4.0),
            overlap=2.8,
            operations=elements * work,
            toggling=0.7,
        )
    ]


def copy(chip: Chip, calls: Sequence[KernelInvocation]) -> list[Pass]:
    """A copy that changes the order of dimensions: one side of it is strided."""
    elements = column(calls, lambda call: prod(call.output))
    size = column(calls, element)
    run = column(calls, lambda call: call.output[-1] if call.output else 1)
    moved = 2.0 * elements * size
    return [
        Pass.of(
            len(calls),
            cycles=elements * 30.0 / chip.lanes / 0.55,
            serial_cycles=400.0,
            round_trips=1.0,
            l2_bytes=moved * np.where(run >= 8, 1.2, 2.5),
            dram_bytes=moved * chip.missing(moved) + 0.03 * moved,
            pattern=np.where(run >= 32, 0.70, np.where(run >= 8, 0.55, 0.32)) * utilisation(chip, elements),
            overlap=2.6,
            operations=elements * 30.0,
            toggling=0.55,
        )
    ]
