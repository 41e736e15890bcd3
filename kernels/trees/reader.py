# SPDX-License-Identifier: Apache-2.0
"""Tree ensembles from treelite, the exchange format."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import EnsembleError
from .forest import Forest, check_nodes, connected, lay_out
from .node_table import FREQUENCIES, MOST_AXES, NodeTable, most_features

_REGRESSOR = 1
_LESS_THAN = 2
_NUMERICAL_SPLIT = 1
_LEAF = 0


def read_treelite(source: Any, axes: int = len(FREQUENCIES)) -> NodeTable:
    """The node table of a treelite model: an object of ``treelite.Model``, or the path of a serialized one.

    Args:
        axes: how many of the features, the last ones, are frequencies.

    Raises:
        EnsembleError: as of :func:`forest_of`.
    """
    n_features, base_score, forest = forest_of(source, axes)
    return lay_out(forest, n_features, base_score, axes)


def forest_of(source: Any, axes: int) -> tuple[int, float, Forest]:
    """How many features a treelite model takes, what it adds to its trees, and their nodes.

    XGBoost's ``dart`` cannot be told from ``gbtree`` here and need not be: treelite multiplies each tree's weight into its
    leaves as it reads the model, which leaves a plain sum of trees. XGBoost's own files are not read here.

    Args:
        source, axes: as of :func:`read_treelite`.

    Raises:
        EnsembleError: the file cannot be read as a treelite model, the model is of a sort that is not a plain sum of numerical
            regression trees, or a tree is malformed; the text names what, and in which tree and node.
    """
    import treelite

    if not 1 <= axes <= MOST_AXES:
        raise EnsembleError(f"{axes} frequency axes: expected 1 to {MOST_AXES}")
    if isinstance(source, (str, os.PathLike)):
        try:
            model = treelite.Model.deserialize(os.fspath(source))
        except Exception as error:  # treelite raises different types for missing, truncated and foreign files
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise EnsembleError(f"{os.fspath(source)}: cannot be read as a serialized treelite model ({reason})") from error
    elif isinstance(source, treelite.Model):
        model = source
    else:
        raise EnsembleError(f"expected a treelite.Model or the path of a serialized one, got {type(source).__name__}")
    header = model.get_header_accessor()
    n_features, base_score = _read_header(header, axes)
    forest = connected(Forest.join([_read_tree(model.get_tree_accessor(tree), tree) for tree in range(model.num_tree)]))
    check_nodes(forest, n_features)
    return n_features, base_score, forest


def _read_header(header: Any, axes: int) -> tuple[int, float]:
    def field(name: str) -> Any:
        return np.asarray(header.get_field(name)).ravel()

    for name, meaning in (("num_target", "outputs"), ("num_class", "classes")):
        if (field(name) != 1).any():
            raise EnsembleError(f"model has {field(name).max()} {meaning}: only ensembles with one output can be swept")
    if (field("leaf_vector_shape") != 1).any():
        raise EnsembleError("model has vectors as leaves: only ensembles with one output can be swept")
    postprocessor = str(header.get_field("postprocessor"))
    if field("task_type")[0] != _REGRESSOR or postprocessor != "identity":
        raise EnsembleError(f"model is not a plain regression (postprocessor {postprocessor!r}): only 'identity' can be swept")
    if field("average_tree_output")[0]:
        raise EnsembleError("model averages its trees: only sums of trees can be swept")
    n_features = int(field("num_feature")[0])
    if not axes <= n_features <= most_features(axes):
        raise EnsembleError(f"model has {n_features} features: expected {axes} to {most_features(axes)}")
    (base_score,) = field("base_scores")
    return n_features, float(base_score)


def _read_tree(tree: Any, number: int) -> Forest:
    """One tree's fields, with what a node table has no place for refused."""

    def field(name: str) -> NDArray[Any]:
        return np.asarray(tree.get_field(name))

    def refuse(nodes: NDArray[Any], what: str) -> None:
        if nodes.any():
            raise EnsembleError(f"tree {number}, node {int(np.flatnonzero(nodes)[0])}: {what}")

    left = field("cleft").astype(np.int64)
    size = len(left)
    kind = field("node_type")
    if size < 1 or any(
        len(field(name)) != size for name in ("cright", "split_index", "threshold", "leaf_value", "cmp", "node_type")
    ):
        raise EnsembleError(f"tree {number}: its fields differ in length, or it has no nodes")
    refuse((kind != _LEAF) & (kind != _NUMERICAL_SPLIT), "categorical split; only numerical splits can be swept")
    leaf = kind == _LEAF
    refuse(~leaf & (field("cmp") != _LESS_THAN), "compares with another operator than '<'")
    refuse(leaf & (field("leaf_vector_end") != field("leaf_vector_begin")), "leaf is a vector; expected one number")
    right = field("cright").astype(np.int64)
    refuse(
        ~leaf & ((left < 0) | (left >= size) | (right < 0) | (right >= size)), f"child out of range; expected 0 to {size - 1}"
    )
    return Forest(
        np.array([size]),
        np.arange(size),
        leaf,
        np.where(leaf, 0, left),
        np.where(leaf, 0, right),
        np.where(leaf, 0, field("split_index")).astype(np.int64),
        field("default_left").astype(bool),
        np.where(leaf, field("leaf_value"), field("threshold")).astype(np.float64),
    )
