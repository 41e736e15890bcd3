# SPDX-License-Identifier: Apache-2.0
"""Kernels of the simulated GPU besides convolutions and products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import TypeAlias

import numpy as np

from ....kernels.network import KernelInvocation
from .chip import Chip
from .passes import (
    BLOCK,
    SMALL_BLOCK,
    VECTOR,
    WARP,
    CodePass,
    KernelCode,
    column,
    element,
    number,
    read_elements,
    utilisation,
)

Family: TypeAlias = Callable[[Chip, Sequence[KernelInvocation]], list[CodePass]]
"""Passes of invocations of one kind."""

# How each kernel's code runs (see Code for the source of the figures), then its further instructions. Instructions and
# bytes are for each element, cycles for the launch.
_POINTWISE = KernelCode(0.55, 250.0, pattern=0.95, unaligned=0.74, streamed=0.02, overlap=3.6, toggling=0.62)
_ACCESS = 3.0  # instructions of a load and a store
_VECTOR_INDEX, _SCALAR_INDEX, _SCALAR_WORK = 1.5, 9.0, 1.3  # instructions of indexing; how many more without vectors
_STREAM_LOSS = 0.04  # of the bandwidth, for each operand after the first
_BATCH_NORM = KernelCode(0.50, 2200.0, 1.0, pattern=0.60, unaligned=0.48, streamed=0.02, toggling=0.78, resident=4.0)
_NORMALIZE, _NORMALIZE_SCALAR = 9.0, 13.0  # instructions, with and without vectors
_CHANNEL_CYCLES, _TURN_CYCLES, _MOST_TURNS = 26.0, 12.0, 30.0  # to fetch a channel's statistics; for each walk of a plane
_STATISTICS_L2_BYTES, _STATISTICS_BYTES = 128.0, 16.0  # for each channel, four floats: in L2 sectors, from DRAM
_CAT = KernelCode(0.55, 5000.0, 2.0, pattern=0.98, unaligned=0.80, streamed=0.02, overlap=2.8, toggling=0.60)
_GATHER, _IDLE_GATHER, _IDLE_LOSS = 26.0, 3.0, 0.05  # instructions of busy and of idle threads, and the cost of the latter
_TENSOR_CYCLES, _TENSORS = 400.0, 16.0  # to read a tensor's description; tensors in a launch
_POOL = KernelCode(0.50, 350.0, 1.0, pattern=0.96, unaligned=0.84, streamed=0.03, overlap=2.6, toggling=0.66)
_OUTPUT, _WINDOW = 14.0, 3.0  # instructions of an output, and of each element of its window
_WINDOW_CYCLES, _MOST_WINDOW, _WINDOW_L2 = 30.0, 49.0, 0.5  # for each element of a window; its share that L1 does not serve
_INDEX_BYTES = 8.0  # the int64 argmax of a maximum is written, too
_ROW_WORK, _PADDED_WORK = 0.85, 0.15  # the shares of a warp's work that do not and do depend on how full it is
_ADAPTIVE_POOL = KernelCode(0.30, 700.0, 2.0, pattern=0.50, streamed=0.03, overlap=2.3, toggling=0.6)
_SPOT, _SPOT_WINDOW = 60.0, 9.0  # as for pools
_SPOT_CYCLES, _MOST_SPOT_WINDOW = 40.0, 200.0
_SPOT_L2, _SPOT_BUSY = 1.4, 0.6  # reads for each byte; the share of instructions that are not of idle threads
_REDUCE = KernelCode(0.45, 600.0, 1.0, pattern=0.70, streamed=0.03, overlap=2.8, toggling=0.6)
_REDUCTION, _STEP_CYCLES, _REDUCED = 6.0, 60.0, 4.0  # instructions; for each step of the tree; outputs of a block
_TREE, _STRETCH, _MOST_TRIPS = 1024.0, 4096.0, 8.0  # elements that one tree takes, and that one round trip brings
_ROWWISE = KernelCode(0.45, 900.0, 2.0, pattern=0.66, overlap=2.8, toggling=0.7)
_ROW_STEP_CYCLES, _ROWS_PER_SM = 50.0, 4.0  # for each step of a row's tree; rows that an SM keeps in the L2
_COPY = KernelCode(0.55, 400.0, 1.0, streamed=0.03, overlap=2.6, toggling=0.55)
_MOVE = 30.0  # instructions
_LONG, _SHORT = 32, 8  # elements in a row that still make full accesses, and that make a sector
_COPY_PATTERN = (0.70, 0.55, 0.32)  # of long rows, of short ones, of single elements
_COPY_L2 = (1.2, 2.5)  # reads and writes for each byte, with full sectors and without


def pointwise(instructions: float, *, least_share: float = -np.inf) -> Family:
    """Elementwise arithmetic, with instructions beyond a load and a store; ``least_share`` limits many operands' bandwidth."""
    return partial(_pointwise, instructions, least_share)


def rowwise(readings: float, instructions: float) -> Family:
    """Work on rows read several times, with instructions per element."""
    return partial(_rowwise, readings, instructions)


def _pointwise(instructions: float, least_share: float, chip: Chip, calls: Sequence[KernelInvocation]) -> list[CodePass]:
    """Elementwise arithmetic: four elements per thread if all is aligned without broadcast."""
    code = _POINTWISE
    elements = column(calls, lambda call: prod(call.output))
    size = column(calls, element)
    moved = (column(calls, read_elements) + elements) * size
    vectors = np.array([all(prod(shape) == prod(call.output) for shape in call.inputs) for call in calls])
    work = instructions + _ACCESS
    blocks = np.ceil(elements / BLOCK)
    executed = elements * np.where(vectors, work + _VECTOR_INDEX, work * _SCALAR_WORK + _SCALAR_INDEX)
    streams = column(calls, lambda call: len(call.inputs))
    pattern = (
        np.where(vectors, code.pattern, code.unaligned)
        * np.maximum(1.0 - _STREAM_LOSS * np.maximum(streams - 1.0, 0.0), least_share)
        * utilisation(chip, elements / VECTOR)
    )
    return [CodePass.moving(chip, code, executed, moved, blocks=blocks, pattern=pattern)]


def batch_norm(chip: Chip, calls: Sequence[KernelInvocation]) -> list[CodePass]:
    """Inference batch norm: a block per plane, so small or odd planes leave threads idle."""
    code = _BATCH_NORM
    channels = column(calls, lambda call: call.output[0] * (call.output[1] if len(call.output) > 1 else 1))
    plane = column(calls, lambda call: prod(call.output[2:]))
    size = column(calls, element)
    elements = channels * plane
    threads = np.select([plane <= 64, plane <= 256], [64.0, 256.0], BLOCK)
    turns = np.ceil(plane / threads)
    idle = turns * threads / plane
    vectors = plane % VECTOR == 0
    moved = 2.0 * elements * size
    instructions = elements * np.where(vectors, _NORMALIZE, _NORMALIZE_SCALAR) * np.sqrt(idle)
    return [
        CodePass.moving(
            chip,
            code,
            instructions,
            moved,
            blocks=np.ceil(channels * threads / BLOCK),
            cycles=channels / chip.sm_count * _CHANNEL_CYCLES,
            serial_cycles=code.serial_cycles + _TURN_CYCLES * np.minimum(turns, _MOST_TURNS),
            l2_bytes=moved + _STATISTICS_L2_BYTES * channels,
            cold_bytes=_STATISTICS_BYTES * channels,
            pattern=np.where(vectors, code.pattern, code.unaligned) * utilisation(chip, channels * np.minimum(plane, threads)),
        )
    ]


def cat(chip: Chip, calls: Sequence[KernelInvocation]) -> list[CodePass]:
    """Concatenation: one launch copies several tensors, in grids for the largest."""
    code = _CAT
    size = column(calls, element)
    elements = column(calls, lambda call: prod(call.output))
    inputs = column(calls, lambda call: max(len(call.inputs), 1))
    largest = column(calls, lambda call: max((prod(shape) for shape in call.inputs), default=1))
    inner = column(
        calls, lambda call: prod(call.output[int(number(call, "dim", 0)) + 1 :]) if number(call, "dim", 0) >= 0 else 1
    )
    idle = inputs * largest / np.maximum(elements, 1.0)
    moved = 2.0 * elements * size
    instructions = elements * _GATHER + inputs * largest * _IDLE_GATHER
    whole = inner % VECTOR == 0
    batches = np.ceil(inputs / _TENSORS)
    pattern = np.where(whole, code.pattern, code.unaligned) / (1.0 + _IDLE_LOSS * (idle - 1.0))
    return [
        CodePass.moving(
            chip,
            code,
            instructions,
            moved,
            serial_cycles=code.serial_cycles * batches + _TENSOR_CYCLES * inputs,
            round_trips=code.round_trips * batches,
            pattern=pattern * utilisation(chip, elements / VECTOR),
        )
    ]


def pool(chip: Chip, calls: Sequence[KernelInvocation]) -> list[CodePass]:
    """Window pooling: one thread per output, overlaps from the caches."""
    code = _POOL
    windows = column(calls, _window)
    outputs = column(calls, lambda call: prod(call.output))
    image = column(calls, read_elements)
    size = column(calls, element)
    width = column(calls, lambda call: call.output[-1])
    moved = (image + outputs) * size
    indices = np.array([call.kind.startswith("max") for call in calls]) * outputs * _INDEX_BYTES
    instructions = outputs * (_OUTPUT + _WINDOW * windows)
    warps = np.ceil(width / WARP) * WARP / width
    return [
        CodePass.moving(
            chip,
            code,
            instructions,
            moved,
            blocks=np.ceil(outputs / SMALL_BLOCK),
            longer=_ROW_WORK + _PADDED_WORK * warps,
            serial_cycles=code.serial_cycles + _WINDOW_CYCLES * np.minimum(windows, _MOST_WINDOW),
            l2_bytes=(outputs * (1.0 + _WINDOW_L2 * windows)) * size + indices,
            dram_bytes=(moved + indices) * chip.missing(moved + indices) + code.streamed * moved,
            pattern=np.where(width % VECTOR == 0, code.pattern, code.unaligned) * utilisation(chip, outputs),
        )
    ]


def _window(call: KernelInvocation) -> float:
    kernel = call.params.get("kernel_size", 1)
    if isinstance(kernel, (tuple, list)):
        return float(prod(kernel)) if len(kernel) != 1 else float(kernel[0] ** 2)
    return float(kernel) ** 2 if isinstance(kernel, (int, float)) else 1.0


def adaptive_pool(chip: Chip, calls: Sequence[KernelInvocation]) -> list[CodePass]:
    """Adaptive pooling: a block per plane, serial windows."""
    code = _ADAPTIVE_POOL
    planes = column(calls, lambda call: prod(call.output[:-2]))
    spots = column(calls, lambda call: prod(call.output[-2:]))
    image = column(calls, read_elements)
    size = column(calls, element)
    window = np.maximum(image / np.maximum(planes * spots, 1.0), 1.0)
    moved = (image + planes * spots) * size
    instructions = planes * (np.ceil(spots / WARP) * WARP) * (_SPOT + _SPOT_WINDOW * window)
    return [
        CodePass.moving(
            chip,
            code,
            instructions,
            moved,
            blocks=planes,
            serial_cycles=code.serial_cycles + _SPOT_CYCLES * np.minimum(window, _MOST_SPOT_WINDOW),
            l2_bytes=moved * _SPOT_L2,
            pattern=code.pattern * utilisation(chip, planes * np.minimum(spots, WARP)),
            operations=instructions * _SPOT_BUSY,
        )
    ]


def reduce(chip: Chip, calls: Sequence[KernelInvocation]) -> list[CodePass]:
    """Reductions: a warp or a block per output, then a tree."""
    code = _REDUCE
    outputs = column(calls, lambda call: max(prod(call.output), 1))
    image = column(calls, read_elements)
    size = column(calls, element)
    length = np.maximum(image / outputs, 1.0)
    moved = (image + outputs) * size
    steps = np.ceil(np.log2(np.minimum(length, _TREE) + 1.0))
    instructions = outputs * np.ceil(length / WARP) * WARP * _REDUCTION
    return [
        CodePass.moving(
            chip,
            code,
            instructions,
            moved,
            blocks=np.ceil(outputs / _REDUCED),
            serial_cycles=code.serial_cycles + _STEP_CYCLES * steps,
            round_trips=code.round_trips + np.minimum(length / _STRETCH, _MOST_TRIPS),
            pattern=code.pattern * utilisation(chip, image / VECTOR),
        )
    ]


def _rowwise(readings: float, work: float, chip: Chip, calls: Sequence[KernelInvocation]) -> list[CodePass]:
    """Softmax and norms: a block per row, read more than once."""
    code = _ROWWISE
    elements = column(calls, lambda call: prod(call.output))
    length = column(calls, lambda call: call.output[-1] if call.output else 1)
    size = column(calls, element)
    rows = elements / np.maximum(length, 1.0)
    moved = 2.0 * elements * size
    row_bytes = length * size * chip.sm_count * _ROWS_PER_SM
    return [
        CodePass.moving(
            chip,
            code,
            elements * work,
            moved,
            blocks=rows,
            serial_cycles=code.serial_cycles + _ROW_STEP_CYCLES * np.log2(length + 1.0),
            l2_bytes=moved * (1.0 + readings) / 2.0,
            dram_bytes=moved * chip.missing(moved) + (readings - 1.0) * elements * size * chip.missing(row_bytes),
            pattern=code.pattern * utilisation(chip, elements / VECTOR),
        )
    ]


def copy(chip: Chip, calls: Sequence[KernelInvocation]) -> list[CodePass]:
    """Copy with another order of dimensions: one side is strided."""
    code = _COPY
    long, short, single = _COPY_PATTERN
    elements = column(calls, lambda call: prod(call.output))
    size = column(calls, element)
    row = column(calls, lambda call: call.output[-1] if call.output else 1)
    moved = 2.0 * elements * size
    pattern = np.where(row >= _LONG, long, np.where(row >= _SHORT, short, single)) * utilisation(chip, elements)
    l2_bytes = moved * np.where(row >= _SHORT, *_COPY_L2)
    return [CodePass.moving(chip, code, elements * _MOVE, moved, l2_bytes=l2_bytes, pattern=pattern)]
