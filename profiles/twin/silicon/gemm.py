# SPDX-License-Identifier: Apache-2.0
"""Tiled matrix products on the simulated GPU: choice of a tile, and its real cost.

The library scores tiles by whole waves of equal blocks. The cost follows from the busiest SM, hidden latency, padding and L2.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from .chip import Array, Chip

# rows, columns, share of peak in the main loop, resident blocks per SM, share of that with one block resident
_TILES = np.array(
    [
        [128, 128, 0.900, 2, 0.78],
        [128, 64, 0.850, 3, 0.66],
        [64, 64, 0.760, 5, 0.50],
        [128, 32, 0.740, 4, 0.56],
        [64, 32, 0.640, 6, 0.46],
        [32, 32, 0.500, 8, 0.35],
    ]
)
# The same on tensor cores, whose kernels come in larger tiles only.
_TENSOR_TILES = np.array([[128, 128, 0.900, 1, 1.0], [128, 64, 0.800, 2, 0.80], [64, 64, 0.650, 3, 0.60]])
_SPLITS = (1, 2, 4, 8)
# The library's score of a tile, in multiply-adds of an SM.
_PROLOGUE_DEPTH = 96.0  # cost of a block's start and end, in steps along k
_SPLIT_DEPTH = 288  # the least depth of a part
_REDUCTION, _REDUCTION_LAUNCH = 40.0, 2.5e5  # for each partial result, and for the second launch
# Real cost of a tile. Like the figures of Code, set so that networks on the AGX Xavier take the times of MIRAGE's Table 1.
_STEP_DEPTH = 8.0  # the main loop's steps along k
_ROUND_CYCLES = 620.0  # to start and to end a round of blocks
_PADDED_ENERGY = 0.20  # of an operation: padding multiplies zeros, so that less toggles
_SINGLE_BYTES = 4.0
_SHARED_READS = 0.55  # the share of other blocks' reads that come too late to be served by the L2


class Gemm(Struct, frozen=True):
    """Batch of products C[m, n] = A[m, k] B[k, n] as one launch; arrays ``(rows,)``."""

    cycles: Array
    serial_cycles: Array
    operations: Array
    l2_bytes: Array
    down: Array  # blocks along m: how often B is read
    across: Array  # blocks along n: how often A is read
    split: Array
    tile: Array


def gemm(
    chip: Chip, m: Array, n: Array, k: Array, batch: Array, aligned: Array, *, may_split: bool, tensor: bool = False
) -> Gemm:
    """Pick a tile and a split for each product and count its cost.

    Args:
        aligned: share of peak under operand alignment (1 with vector loads).
        may_split: True if the library may split k over blocks.
        tensor: True for tensor cores.
    """
    tiles = _TENSOR_TILES if tensor else _TILES
    best = np.full(m.shape, np.inf)
    tile = np.zeros(m.shape, np.intp)
    split = np.ones(m.shape)
    for index, (rows, columns, peak, resident, _) in enumerate(tiles):
        blocks = np.ceil(m / rows) * np.ceil(n / columns) * batch
        for parts in _SPLITS if may_split else (1,):
            waves = np.ceil(blocks * parts / (chip.sm_count * resident))
            score = waves * resident * rows * columns * (k / parts + _PROLOGUE_DEPTH) / peak
            if parts > 1:  # the reduction's traffic, as the library guesses it
                score = np.where(
                    k >= _SPLIT_DEPTH * parts,
                    score + _REDUCTION * m * n * batch * parts / chip.sm_count + _REDUCTION_LAUNCH,
                    np.inf,
                )
            better = score < best
            best = np.where(better, score, best)
            tile = np.where(better, index, tile)
            split = np.where(better, parts, split)

    rows, columns, peak, resident, alone = tiles[tile].T
    down, across = np.ceil(m / rows), np.ceil(n / columns)
    blocks = down * across * batch * split
    deep = np.ceil(k / split / _STEP_DEPTH) * _STEP_DEPTH
    per_sm = np.ceil(blocks / chip.sm_count)
    # Full rounds of resident blocks hide latency; the last round does so less well.
    full, rest = np.divmod(per_sm, resident)
    hidden = alone + (1.0 - alone) * (np.maximum(rest, 1.0) - 1.0) / np.maximum(resident - 1.0, 1.0)
    block_cycles = rows * columns * deep / (chip.sm_lanes * peak * aligned)
    cycles = block_cycles * (full * resident + rest / hidden)
    rounds = full + (rest > 0)
    padded = down * rows * across * columns * deep * split * batch
    l2_bytes = _SINGLE_BYTES * blocks * (rows + columns) * deep
    return Gemm(
        cycles=cycles,
        serial_cycles=rounds * _ROUND_CYCLES,
        operations=_PADDED_ENERGY * padded + (1.0 - _PADDED_ENERGY) * m * n * k * batch,
        l2_bytes=l2_bytes,
        down=down,
        across=across,
        split=split,
        tile=tile.astype(np.float64),
    )


def again(chip: Chip, times: Array, footprint: Array) -> Array:
    """DRAM reads of an operand by ``times`` block rows; concurrent blocks share most reads."""
    return np.asarray(1.0 + (times - 1.0) * _SHARED_READS * chip.reread(footprint))
