# SPDX-License-Identifier: Apache-2.0
"""Tree ensembles evaluated on a whole frequency grid at once.

With a kernel's own features fixed, only splits on frequencies remain, so every reachable leaf is a box of the grid. Its value
is added at the box's corners, signed so that prefix sums along the axes spread it over the box: the exact prediction at every
configuration, for the price of a few.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from math import prod
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import EnsembleError
from ..stored_files import Stamp
from . import node_table, reference_sweep
from .compact import read_compact
from .forest import read_treelite
from .node_table import FREQUENCIES, NodeTable, axis_names

_core: ModuleType | None
try:
    from . import _sweep as _core
except ImportError:
    _core = None
    warnings.warn("jetdvfs was installed without its C core: tree ensembles are evaluated by NumPy, slowly", RuntimeWarning, 2)


class TreeEnsemble:
    """Summed regression trees whose last features are frequencies: by default of CPU, GPU and EMC.

    Comparisons are XGBoost's: float32, ``feature < threshold`` goes left, a missing (NaN) feature the split's default way. Sums
    are exact (64-bit integers in units far below float32's), in any order of trees.
    """

    def __init__(self, table: NodeTable) -> None:
        """Check the node table; raises EnsembleError."""
        self._table = table
        if self.compiled:
            shapes = node_table.box_shapes(table.boxes, table.thresholds)
            fault = _sweep_core().first_fault(
                _address(table.nodes),
                len(table.nodes),
                _address(table.roots),
                table.n_trees,
                table.n_features,
                _address(shapes),
                len(shapes),
                table.leaf_bound,
            )
        else:
            fault = node_table.first_fault(table)
        if fault < len(table.nodes):
            tree, node = table.tree_of(fault)
            raise EnsembleError(
                f"tree {tree}, node {node}: malformed; expected a feature below {table.n_features}, a number as threshold, "
                f"leaves up to {table.leaf_bound:g} in existing boxes, children after their parent, in pre-order, in the tree"
            )

    @classmethod
    def from_treelite(cls, model: Any, axes: int = len(FREQUENCIES)) -> TreeEnsemble:
        """Convert a ``treelite.Model`` (as from its XGBoost front end) or the path of a serialized one.

        Args:
            axes: number of frequencies, which are the last features; 1 to 6.

        Raises:
            EnsembleError: the file is unreadable, a tree is malformed, or the model is not a plain sum of numerical regression
                trees (categorical splits, several outputs or classes, a postprocessor other than the identity, averaged trees,
                comparisons other than ``<``, other numbers than float32).
        """
        return cls(read_treelite(model, axes))

    @classmethod
    def from_compact(cls, data: bytes, axes: int = len(FREQUENCIES)) -> TreeEnsemble:
        """Read a model in the form of :mod:`.compact`; raises EnsembleError."""
        return cls(read_compact(data, axes))

    @classmethod
    def load(cls, path: str | os.PathLike[str], known: Stamp | None = None) -> TreeEnsemble:
        """Map a file written by :meth:`save`, read-only, and check all of it, unless its stamp is still the ``known`` one;
        raises EnsembleError.
        """
        table = None if known is None else node_table.map_known(path, known)
        if table is not None:
            ensemble = cls.__new__(cls)
            ensemble._table = table
            return ensemble
        table = node_table.map_table(path)
        try:
            return cls(table)
        except EnsembleError as error:
            raise EnsembleError(f"{os.fspath(path)}: {error}") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the node table file atomically; raises OSError."""
        node_table.write_table(self._table, path)

    def packed(self) -> bytes:
        return node_table.packed(self._table)

    @property
    def compiled(self) -> bool:
        """True if the C core does the work."""
        return _core is not None

    @property
    def n_features(self) -> int:
        return self._table.n_features

    @property
    def n_trees(self) -> int:
        return self._table.n_trees

    def sweep(self, features: ArrayLike, levels: Sequence[ArrayLike]) -> NDArray[np.float32]:
        """Predictions at every configuration of a grid.

        Args:
            features: (n, n_features) float32; NaN is missing; the last columns, the frequencies, may be omitted.
            levels: frequencies of each axis (CPU, GPU and EMC), each a rising float32 array, in the training unit.

        Returns:
            (n, n_cpu, n_gpu, n_emc) float32, by the axes in use.

        Raises:
            EnsembleError: a shape does not fit, a feature is infinite, or an axis is empty, not rising or not finite.
        """
        table = self._table
        own = table.n_features - table.n_axes
        given = np.asarray(features, np.float32)
        if given.ndim == 2 and given.shape[1] == own:
            given = np.pad(given, ((0, 0), (0, table.n_axes)))
        rows = self._rows(given, own)
        axes = _axes(levels, axis_names(table.n_axes))
        # Level l is at or past edge i if it is not below the edge's threshold: the comparison of the splits.
        cuts = [
            np.concatenate(([0], np.searchsorted(axis, values, side="left"), [len(axis)])).astype(np.int32)
            for axis, values in zip(axes, table.thresholds, strict=True)
        ]
        if not self.compiled:
            return reference_sweep.sweep(table, rows, axes, cuts)
        shape = tuple(map(len, axes))
        if prod(length + 1 for length in shape) >= 2**31:
            raise EnsembleError(f"grid of {' x '.join(map(str, shape))} configurations is too large")
        offsets = [cut * prod(length + 1 for length in shape[axis + 1 :]) for axis, cut in enumerate(cuts)]
        out = np.empty((len(rows), *shape), np.float32)
        _sweep_core().sweep(
            _address(table.nodes),
            _address(table.roots),
            table.n_trees,
            table.n_features,
            _address(table.boxes),
            _address(rows),
            len(rows),
            tuple(map(_address, axes)),
            shape,
            tuple(map(_address, offsets)),
            table.scale,
            table.base_score,
            _address(out),
        )
        return out

    def predict(self, features: ArrayLike) -> NDArray[np.float32]:
        """Predictions for whole rows, including frequencies: (n, n_features) float32 to (n,) float32.

        Raises:
            EnsembleError: the shape does not fit, or a feature is infinite.
        """
        table = self._table
        rows = self._rows(features, table.n_features)
        if not self.compiled:
            return reference_sweep.predict(table, rows)
        out = np.empty(len(rows), np.float32)
        _sweep_core().predict(
            _address(table.nodes),
            _address(table.roots),
            table.n_trees,
            table.n_features,
            table.n_axes,
            _address(rows),
            len(rows),
            table.scale,
            table.base_score,
            _address(out),
        )
        return out

    def _rows(self, features: ArrayLike, used: int) -> NDArray[np.float32]:
        rows = np.ascontiguousarray(features, dtype=np.float32)
        if rows.ndim != 2 or rows.shape[1] != self.n_features:
            raise EnsembleError(f"features of shape {rows.shape}: expected (n, {self.n_features})")
        infinite = np.isinf(rows[:, :used])
        if infinite.any():
            row, column = np.argwhere(infinite)[0]
            raise EnsembleError(f"feature {column} of row {row} is infinite: expected a number, or NaN where it is missing")
        return rows


def _axes(levels: Sequence[ArrayLike], names: Sequence[str]) -> reference_sweep.Levels:
    axes = tuple(np.ascontiguousarray(axis, dtype=np.float32) for axis in levels)
    if len(axes) != len(names):
        raise EnsembleError(f"{len(axes)} axes of levels: expected {len(names)} ({', '.join(names)})")
    for name, axis in zip(names, axes, strict=True):
        if axis.ndim != 1 or not len(axis) or not np.isfinite(axis).all() or (axis[1:] < axis[:-1]).any():
            raise EnsembleError(f"{name} levels: expected at least one finite number, in rising order")
    return axes


def _address(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)


def _sweep_core() -> Any:
    return _core
