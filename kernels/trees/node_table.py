# SPDX-License-Identifier: Apache-2.0
"""The node table: a tree ensemble as flat, read-only arrays, checked once, in a mapped file.

A tree is its nodes in pre-order: a split's left child is the next node, its right child a stored distance further on. So
children follow their parent inside the tree, without cycles. A node takes eight bytes:

====== ==================================== ==============================================
bytes  split                                leaf
====== ==================================== ==============================================
0..3   float32 threshold                    float32 value
4..7   key, distance to the right child     key, number of its box
key    ``2 * feature + default_left``       ``2 * n_features + shape`` of its box
====== ==================================== ==============================================

The key is the low ``KEY_BITS`` bits. A leaf's box is its part of the frequency space by the splits on the last features: two
edges per axis. Edge 0 is "from the first level", the last "past the last level", and edge i ``thresholds[axis][i - 1]``. Boxes
are independent of a grid's levels, and equal boxes are shared. A box's shape is the set of axes (bit 0: the first) on which it
is open: it ends past the last level.

A board has three axes, CPU, GPU and EMC; clusters set apart are further ones, up to :data:`MOST_AXES`.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ..errors import EnsembleError
from ..stored_files import Stamp, stamp_of

KEY_BITS = 10
KEY_MASK = (1 << KEY_BITS) - 1
MAX_PAYLOAD = (1 << (32 - KEY_BITS)) - 1
MAX_THRESHOLDS = 0xFFFE
FREQUENCIES = ("CPU", "GPU", "EMC")
MOST_AXES = 6

NODE = np.dtype([("bits", "<u4"), ("meta", "<u4")])

_MAGIC = b"JDVFS-TREES\x00"
_VERSION = 1
# magic, version, header bytes (this struct and the JSON after it), CRC-32 of the JSON, CRC-32 of the arrays
_PREFIX = struct.Struct("<12sIIII")
_ALIGN = 64
_MAX_HEADER = 4096


class NodeTable(Struct, frozen=True):
    """A tree ensemble for regression: the sum of one leaf per tree, plus ``base_score``; raises EnsembleError.

    Attributes:
        n_features: all features; the last ones are the frequencies, one per axis.
        leaf_bound: upper bound of the magnitude of the leaves' sum.
        nodes: (n_nodes,) of ``NODE``, tree after tree.
        roots: (n_trees + 1,) uint32: start of each tree, and the end of the last.
        boxes: (n_boxes, 2 * axes) uint16: first and end edge on each axis.
        thresholds: for each axis, the strictly rising float32 thresholds of splits.
    """

    n_features: int
    base_score: float
    leaf_bound: float
    nodes: NDArray[np.void]
    roots: NDArray[np.uint32]
    boxes: NDArray[np.uint16]
    thresholds: tuple[NDArray[np.float32], ...]

    def __post_init__(self) -> None:
        if not 1 <= self.n_axes <= MOST_AXES:
            raise EnsembleError(f"{self.n_axes} frequency axes: expected 1 to {MOST_AXES}")
        if not self.n_axes <= self.n_features <= most_features(self.n_axes):
            raise EnsembleError(f"{self.n_features} features: expected {self.n_axes} to {most_features(self.n_axes)}")
        for name in ("base_score", "leaf_bound"):
            if not np.isfinite(getattr(self, name)):
                raise EnsembleError(f"{name} is {getattr(self, name)}: expected a finite number")
        if self.leaf_bound < 0:
            raise EnsembleError(f"leaf_bound is {self.leaf_bound}: expected a number that is not negative")
        arrays = (("nodes", NODE, 1), ("roots", np.dtype("<u4"), 1), ("boxes", np.dtype("<u2"), 2))
        for name, dtype, dimensions in arrays:
            array = getattr(self, name)
            if array.dtype != dtype or array.ndim != dimensions or not (array.flags.c_contiguous and array.flags.aligned):
                raise EnsembleError(f"{name}: expected a contiguous, aligned array of {dtype} with {dimensions} dimension(s)")
        roots = self.roots.astype(np.int64)
        if not len(roots) or roots[0] != 0 or roots[-1] != len(self.nodes) or (np.diff(roots) < 1).any():
            raise EnsembleError(f"roots: expected to rise strictly from 0 to {len(self.nodes)}, the number of nodes")
        for axis, values in zip(axis_names(self.n_axes), self.thresholds, strict=True):
            if values.dtype != np.float32 or values.ndim != 1 or len(values) > MAX_THRESHOLDS:
                raise EnsembleError(f"{axis} thresholds: expected at most {MAX_THRESHOLDS} float32 values")
            if np.isnan(values).any() or (values[1:] <= values[:-1]).any():
                raise EnsembleError(f"{axis} thresholds: expected strictly rising numbers")
        if self.boxes.shape[1] != 2 * self.n_axes:
            raise EnsembleError(f"boxes: expected {2 * self.n_axes} edges each, got {self.boxes.shape[1]}")
        last = np.array([len(values) + 1 for values in self.thresholds])
        if (self.boxes[:, 0::2] > self.boxes[:, 1::2]).any() or (self.boxes[:, 1::2] > last).any():
            raise EnsembleError("boxes: an edge is beyond its axis, or a box ends before it starts")

    @property
    def n_axes(self) -> int:
        return len(self.thresholds)

    @property
    def n_trees(self) -> int:
        return len(self.roots) - 1

    @property
    def scale(self) -> float:
        """Power of two that turns leaf values into 64-bit integers, so that their sum is exact in any order."""
        return float(np.ldexp(1.0, min(61 - int(np.frexp(self.leaf_bound)[1]), 1000)))

    def tree_of(self, node: int) -> tuple[int, int]:
        tree = int(np.searchsorted(self.roots, node, side="right")) - 1
        return tree, node - int(self.roots[tree])


def axis_names(axes: int) -> tuple[str, ...]:
    return FREQUENCIES if axes == len(FREQUENCIES) else tuple(f"axis {number}" for number in range(axes))


def most_features(axes: int) -> int:
    return (KEY_MASK + 1 - (1 << axes)) // 2


def box_shapes(boxes: NDArray[np.uint16], thresholds: Sequence[NDArray[np.float32]]) -> NDArray[np.uint8]:
    last = [len(values) + 1 for values in thresholds]
    return np.asarray((boxes[:, 1::2] == last) @ (1 << np.arange(len(last))), np.uint8)


def first_fault(table: NodeTable) -> int:
    """The first node that breaks its tree's pre-order, key, value or box range; else the number of nodes.

    In pre-order, with +1 for a split and -1 for a leaf, the running sum before a split's right child is the next to equal the
    one before the split, and a tree's running sum first reaches -1 at its end.
    """
    keys = table.nodes["meta"] & KEY_MASK
    payload = (table.nodes["meta"] >> KEY_BITS).astype(np.int64)
    values = np.ascontiguousarray(table.nodes["bits"]).view(np.float32)
    leaf = keys >= 2 * table.n_features
    with np.errstate(invalid="ignore"):
        within = np.abs(values.astype(np.float64)) <= table.leaf_bound
    good = np.where(leaf, within & (payload < len(table.boxes)), values > -np.inf)
    known = np.flatnonzero(leaf & good)
    good[known] = keys[known] - 2 * table.n_features == box_shapes(table.boxes, table.thresholds)[payload[known]]
    for first, end in zip(table.roots[:-1].astype(np.int64), table.roots[1:].astype(np.int64), strict=True):
        leaves = leaf[first:end]
        height = np.cumsum(np.where(leaves, -1, 1))
        before = np.concatenate(([0], height[:-1]))
        closed = np.flatnonzero(height < 0)
        stop = int(closed[0]) if len(closed) else len(leaves)
        order = np.argsort(before, kind="stable")
        following = np.full(len(leaves), len(leaves))
        same = before[order[1:]] == before[order[:-1]]
        following[order[:-1][same]] = order[1:][same]
        right = np.arange(len(leaves)) + payload[first:end]
        sound = leaves | ((right == following) & (payload[first:end] >= 2) & (right < len(leaves)))
        if stop != len(leaves) - 1:
            sound[min(stop, len(leaves) - 1)] = False
        good[first:end] &= sound
    faults = np.flatnonzero(~good)
    return int(faults[0]) if len(faults) else len(table.nodes)


def packed(table: NodeTable) -> bytes:
    arrays = [table.nodes, table.roots, table.boxes, *table.thresholds]
    data = bytearray()
    layout = []
    for array in arrays:
        data += bytes(-len(data) % _ALIGN)
        layout.append([len(data), *array.shape])
        data += array.tobytes()
    fields = {"n_features": table.n_features, "base_score": table.base_score, "leaf_bound": table.leaf_bound, "arrays": layout}
    header = json.dumps(fields).encode()
    header += b" " * (-(_PREFIX.size + len(header)) % _ALIGN)
    prefix = _PREFIX.pack(_MAGIC, _VERSION, _PREFIX.size + len(header), zlib.crc32(header), zlib.crc32(data))
    return prefix + header + data


def write_table(table: NodeTable, path: str | os.PathLike[str]) -> None:
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(packed(table))
        partial.replace(target)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def map_table(path: str | os.PathLike[str]) -> NodeTable:
    """Map a node table file read-only and check everything except the order of its nodes; raises EnsembleError."""
    file, _ = _mapped(path)
    return table_of(file, os.fspath(path), checksum=True)


def map_known(path: str | os.PathLike[str], stamp: Stamp) -> NodeTable | None:
    """Map a node table file that was checked before; None if it has changed since. Raises EnsembleError."""
    file, found = _mapped(path)
    return table_of(file, os.fspath(path), checksum=False) if found == stamp else None


def _mapped(path: str | os.PathLike[str]) -> tuple[NDArray[np.uint8], Stamp]:
    try:
        with open(path, "rb") as file:
            return np.memmap(file, np.uint8, mode="r"), stamp_of(os.fstat(file.fileno()))
    except (OSError, ValueError) as error:
        raise EnsembleError(f"{os.fspath(path)}: cannot map the node table ({error})") from error


def table_of(file: NDArray[np.uint8], where: str, *, checksum: bool) -> NodeTable:
    """The node table in a file's content (:func:`packed`); ``where`` begins messages; raises EnsembleError."""
    if len(file) < _PREFIX.size or bytes(file[: len(_MAGIC)]) != _MAGIC:
        raise EnsembleError(f"{where}: not a node table file")
    _, version, start, header_crc, data_crc = _PREFIX.unpack(bytes(file[: _PREFIX.size]))
    if version != _VERSION:
        raise EnsembleError(f"{where}: node table of version {version}; this program reads version {_VERSION}")
    header = bytes(file[_PREFIX.size : min(start, _MAX_HEADER)])
    if zlib.crc32(header) != header_crc or (checksum and zlib.crc32(file[start:].data) != data_crc):
        raise EnsembleError(f"{where}: damaged node table: its checksum is wrong")
    try:
        fields = json.loads(header)
        axes = len(fields["arrays"]) - 3
        dtypes = (NODE, np.dtype("<u4"), np.dtype("<u2"), *[np.dtype("<f4")] * axes)
        arrays: Iterator[NDArray[Any]] = (
            np.ndarray(shape, dtype, file, start + offset)
            for dtype, (offset, *shape) in zip(dtypes, fields["arrays"], strict=True)
        )
        nodes, roots, boxes, *thresholds = arrays
        return NodeTable(
            int(fields["n_features"]),
            float(fields["base_score"]),
            float(fields["leaf_bound"]),
            nodes,
            roots,
            boxes,
            tuple(thresholds),
        )
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError, EnsembleError) as error:
        raise EnsembleError(f"{where}: malformed node table: {error}") from error
