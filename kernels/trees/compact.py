# SPDX-License-Identifier: Apache-2.0
"""Compact tree ensembles in a bundle: at most half the size of compressed treelite models.

Nodes are in order of depth, over all trees: the roots, then the two children of each split, left before right. So one bit per
node, set for a leaf, determines the shape. Splits of equal feature and threshold, and leaves of equal value, share a number in
a table. Little endian::

    8 bytes   "jdtrees1"
    header    features, trees, nodes, different splits, different leaves (5 x uint32), base score (float64)
    bits      for each node: it is a leaf; for each split: a missing feature goes left; either padded to whole bytes
    tables    features (uint16) and thresholds (float32) of different splits, values (float32) of different leaves
    numbers   of the splits, then of the leaves, in the nodes' order: uint16, or uint32 for a longer table
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import EnsembleError
from .forest import Forest, check_nodes, lay_out
from .node_table import FREQUENCIES, NodeTable, most_features

MAGIC = b"jdtrees1"
HEADER = struct.Struct("<5Id")
_MOST = 1 << 28


class Header(NamedTuple):
    features: int
    trees: int
    nodes: int
    splits: int
    leaves: int
    base_score: float


def read_compact(data: bytes, axes: int = len(FREQUENCIES)) -> NodeTable:
    """The node table in a file's content; the last ``axes`` features are frequencies. Raises EnsembleError."""
    try:
        if not data.startswith(MAGIC):
            raise EnsembleError(f"not a compact tree ensemble: expected it to begin with {MAGIC!r}")
        header = Header(*HEADER.unpack_from(data, len(MAGIC)))
        if not axes <= header.features <= most_features(axes):
            raise EnsembleError(f"model has {header.features} features: expected {axes} to {most_features(axes)}")
        forest = _forest(header, data)
    except (struct.error, ValueError, IndexError) as error:
        raise EnsembleError("a compact tree ensemble that is damaged: its parts do not fit together") from error
    check_nodes(forest, header.features)
    return lay_out(forest, header.features, header.base_score, axes)


def _forest(header: Header, data: bytes) -> Forest:
    if max(header[:5]) > _MOST or not np.isfinite(header.base_score):
        raise ValueError("more nodes than any model has, or no number")
    place = len(MAGIC) + HEADER.size

    def take(dtype: DTypeLike, count: int) -> NDArray[Any]:
        nonlocal place
        found = np.frombuffer(data, dtype, count, place)
        place += found.nbytes
        return found

    def bits(count: int) -> NDArray[np.bool_]:
        return np.unpackbits(take(np.uint8, -(-count // 8)), count=count).astype(bool)

    leaf = bits(header.nodes)
    number = int(header.nodes - leaf.sum())  # of splits
    default_left = bits(number)
    feature, threshold = take("<u2", header.splits), take("<f4", header.splits)
    values = take("<f4", header.leaves)
    split, leaves = take(number_type(header.splits), number), take(number_type(header.leaves), header.nodes - number)
    if place != len(data) or header.nodes != header.trees + 2 * number:
        raise ValueError("other parts than its header says")
    at = np.flatnonzero(~leaf)
    left = header.trees + 2 * np.arange(number)
    if (left <= at).any():
        raise ValueError("a node that no root leads to")
    nodes = header.nodes
    child, of_split = np.zeros((2, nodes), np.int64), np.zeros(nodes, bool)
    child[0, at], child[1, at] = left, left + 1
    of_split[at] = default_left
    features, value = np.zeros(nodes, np.int64), np.empty(nodes, np.float64)
    features[at], value[at], value[leaf] = feature[split], threshold[split], values[leaves]
    return _tree_by_tree(header.trees, leaf, child, features, of_split, value)


def _tree_by_tree(
    trees: int,
    leaf: NDArray[np.bool_],
    child: NDArray[np.int64],
    feature: NDArray[np.int64],
    default_left: NDArray[np.bool_],
    value: NDArray[np.float64],
) -> Forest:
    tree = np.empty(len(leaf), np.int64)
    tree[:trees] = np.arange(trees)
    nodes = np.arange(trees)
    while len(nodes := nodes[~leaf[nodes]]):
        tree[child[:, nodes]] = tree[nodes]
        nodes = child[:, nodes].ravel()
    order = np.argsort(tree, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    sizes = np.bincount(tree, minlength=trees)
    left, right = (np.where(leaf[order], 0, place[one[order]]) for one in child)
    within = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return Forest(sizes, within, leaf[order], left, right, feature[order], default_left[order], value[order])


def number_type(table: int) -> str:
    return "<u2" if table <= 1 << 16 else "<u4"
