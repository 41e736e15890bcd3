# SPDX-License-Identifier: Apache-2.0
"""The C core in plain NumPy: bit-identical results, for checks and for machines without it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .node_table import KEY_BITS, KEY_MASK, NodeTable

Levels = tuple[NDArray[np.float32], ...]


def sweep(
    table: NodeTable, features: NDArray[np.float32], levels: Levels, cuts: list[NDArray[np.int32]]
) -> NDArray[np.float32]:
    shape = tuple(len(axis) for axis in levels)
    out = np.empty((len(features), *shape), np.float32)
    for number, row in enumerate(features):
        low, high = _ranges(row)
        for axis, values in enumerate(levels, start=table.n_features - table.n_axes):
            low[2 * axis : 2 * axis + 2], high[2 * axis : 2 * axis + 2] = values[0], values[-1]
        leaves = _reach(table, low, high)
        value = _integers(table, leaves)
        edges = table.boxes[leaves["meta"] >> KEY_BITS]
        sums = np.zeros([length + 1 for length in shape], np.int64)
        for corner in np.ndindex(*[2] * table.n_axes):
            index = tuple(cut[edges[:, 2 * axis + end]] for axis, (cut, end) in enumerate(zip(cuts, corner, strict=True)))
            np.add.at(sums, index, -value if sum(corner) % 2 else value)
        for axis in range(len(shape)):
            np.cumsum(sums, axis=axis, out=sums)
        out[number] = _real(table, sums[(slice(-1),) * table.n_axes])
    return out


def predict(table: NodeTable, features: NDArray[np.float32]) -> NDArray[np.float32]:
    sums = [_integers(table, _reach(table, *_ranges(row))).sum() for row in features]
    return _real(table, np.array(sums, np.int64))


def _ranges(row: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Per key, the range of its feature's values; a missing one lies beyond all thresholds, on the default side."""
    low = np.repeat(row, 2)
    missing = np.isnan(low)
    low[missing] = np.tile(np.array([np.inf, -np.inf], np.float32), len(row))[missing]
    return low, low.copy()


def _reach(table: NodeTable, low: NDArray[np.float32], high: NDArray[np.float32]) -> NDArray[np.void]:
    at = table.roots[:-1].astype(np.int64)
    found = [table.nodes[:0]]
    while len(at):
        nodes = table.nodes[at]
        leaf = nodes["meta"] & KEY_MASK >= 2 * table.n_features
        found.append(nodes[leaf])
        at, nodes = at[~leaf], nodes[~leaf]
        key = nodes["meta"] & KEY_MASK
        threshold = np.ascontiguousarray(nodes["bits"]).view(np.float32)
        left, right = low[key] < threshold, ~(high[key] < threshold)
        at = np.concatenate([at[left] + 1, (at + (nodes["meta"] >> KEY_BITS))[right]])
    return np.concatenate(found)


def _integers(table: NodeTable, leaves: NDArray[np.void]) -> NDArray[np.int64]:
    values = np.ascontiguousarray(leaves["bits"]).view(np.float32)
    return (values.astype(np.float64) * table.scale).astype(np.int64)


def _real(table: NodeTable, sums: NDArray[np.int64]) -> NDArray[np.float32]:
    return (sums.astype(np.float64) * (1.0 / table.scale) + table.base_score).astype(np.float32)
