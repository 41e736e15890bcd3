# SPDX-License-Identifier: Apache-2.0
"""Nodes of a tree ensemble from any source: checked, and laid out as a node table."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ..errors import EnsembleError
from .node_table import (
    FREQUENCIES,
    KEY_BITS,
    MAX_PAYLOAD,
    MAX_THRESHOLDS,
    MOST_AXES,
    NODE,
    NodeTable,
    axis_names,
    box_shapes,
    most_features,
)


class Forest(Struct, frozen=True):
    """Nodes of all trees in sequence; children are numbered globally, ``number`` is a node's within its tree."""

    sizes: NDArray[np.int64]
    number: NDArray[np.int64]
    leaf: NDArray[np.bool_]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    feature: NDArray[np.int64]
    default_left: NDArray[np.bool_]
    value: NDArray[np.float64]

    @property
    def first(self) -> NDArray[np.int64]:
        return np.cumsum(self.sizes) - self.sizes

    def name(self, nodes: NDArray[np.bool_]) -> str:
        node = int(np.flatnonzero(nodes)[0])
        tree = int(np.searchsorted(self.first, node, side="right")) - 1
        return f"tree {tree}, node {int(self.number[node])}"

    @classmethod
    def join(cls, trees: list[Forest]) -> Forest:
        if not trees:
            empty = np.empty(0, np.int64)
            return cls(empty, empty, empty.astype(bool), empty, empty, empty, empty.astype(bool), empty.astype(float))
        sizes = np.concatenate([tree.sizes for tree in trees])
        shift = np.repeat(np.cumsum(sizes) - sizes, sizes)
        return cls(
            sizes,
            np.concatenate([tree.number for tree in trees]),
            np.concatenate([tree.leaf for tree in trees]),
            np.concatenate([tree.left for tree in trees]) + shift,
            np.concatenate([tree.right for tree in trees]) + shift,
            np.concatenate([tree.feature for tree in trees]),
            np.concatenate([tree.default_left for tree in trees]),
            np.concatenate([tree.value for tree in trees]),
        )


def check_nodes(forest: Forest, n_features: int) -> None:
    split = ~forest.leaf
    wrong = split & ((forest.feature < 0) | (forest.feature >= n_features))
    if wrong.any():
        feature = int(forest.feature[wrong][0])
        raise EnsembleError(f"{forest.name(wrong)}: splits on feature {feature}; expected 0 to {n_features - 1}")
    wrong = ~np.isfinite(forest.value) & (forest.leaf | np.isnan(forest.value))
    if wrong.any():
        raise EnsembleError(f"{forest.name(wrong)}: leaf value or threshold is {forest.value[wrong][0]}; expected a number")
    with np.errstate(over="ignore"):
        wrong = forest.value.astype(np.float32) != forest.value
    if wrong.any():
        raise EnsembleError(
            f"{forest.name(wrong)}: {float(forest.value[wrong][0])!r} is not a float32 number; expected a float32 model"
        )


def levels(forest: Forest) -> Iterator[NDArray[np.int64]]:
    """The nodes by depth, roots first, the two children of a split adjacent.

    This ends because no node has two parents and no root has one.
    """
    nodes = forest.first
    while len(nodes):
        yield nodes
        nodes = nodes[~forest.leaf[nodes]]
        nodes = np.stack([forest.left[nodes], forest.right[nodes]], axis=1).ravel()


def connected(forest: Forest) -> Forest:
    """The forest without unreachable nodes, which XGBoost leaves when it prunes a tree."""
    split = ~forest.leaf
    parents = np.bincount(np.concatenate([forest.left[split], forest.right[split]]), minlength=len(split))
    wrong = parents > 1
    wrong[forest.first] = parents[forest.first] > 0
    if wrong.any():
        raise EnsembleError(f"{forest.name(wrong)}: has {int(parents[wrong][0])} parents; expected a tree without cycles")
    reached = np.zeros(len(split), bool)
    for nodes in levels(forest):
        reached[nodes] = True
    place = np.cumsum(reached) - 1
    return Forest(
        np.add.reduceat(reached, forest.first, dtype=np.int64) if len(split) else forest.sizes,
        forest.number[reached],
        forest.leaf[reached],
        place[forest.left[reached]],
        place[forest.right[reached]],
        forest.feature[reached],
        forest.default_left[reached],
        forest.value[reached],
    )


def lay_out(forest: Forest, n_features: int, base_score: float, axes: int) -> NodeTable:
    count = len(forest.leaf)
    by_depth = list(levels(forest))
    size = np.ones(count, np.int64)
    for nodes in reversed(by_depth):
        splits = nodes[~forest.leaf[nodes]]
        size[splits] += size[forest.left[splits]] + size[forest.right[splits]]
    value = np.maximum(forest.value.astype(np.float32), np.finfo(np.float32).min)  # no finite number is below either
    axis = np.where(forest.leaf, -1, forest.feature - (n_features - axes))
    thresholds, edge = _edges(axis, value, axes)

    position = np.empty(count, np.int64)
    position[forest.first] = forest.first
    box = np.zeros((count, axes, 2), np.int64)
    box[:, :, 1] = [len(values) + 1 for values in thresholds]
    for nodes in by_depth:
        splits = nodes[~forest.leaf[nodes]]
        left, right = forest.left[splits], forest.right[splits]
        position[left] = position[splits] + 1
        position[right] = position[left] + size[left]
        box[left] = box[right] = box[splits]
        cut = axis[splits] >= 0
        along, at = axis[splits][cut], edge[splits][cut]
        box[left[cut], along, 1] = np.minimum(box[left[cut], along, 1], at)
        box[right[cut], along, 0] = np.maximum(box[right[cut], along, 0], at)
    box[(box[:, :, 0] >= box[:, :, 1]).any(axis=1)] = 0  # contradictory splits: an empty box

    boxes, box_of_leaf = _share(box[forest.leaf].reshape(-1, 2 * axes))
    key = 2 * forest.feature + forest.default_left
    key[forest.leaf] = 2 * n_features + box_shapes(boxes, thresholds).astype(np.int64)[box_of_leaf]
    payload = np.where(forest.leaf, 0, 1 + size[forest.left])
    payload[forest.leaf] = box_of_leaf
    wrong = payload > MAX_PAYLOAD
    if wrong.any():
        raise EnsembleError(f"{forest.name(wrong)}: too many nodes below it, or too many boxes; at most {MAX_PAYLOAD} fit")
    table: NDArray[np.void] = np.empty(count, NODE)
    table["bits"][position] = value.view(np.uint32)
    table["meta"][position] = (payload << KEY_BITS) | key
    roots = np.append(forest.first, count).astype(np.uint32)
    largest = np.where(forest.leaf, np.abs(value), 0.0)
    bound = float(np.maximum.reduceat(largest, forest.first).sum(dtype=np.float64)) if count else 0.0
    return NodeTable(n_features, base_score, bound, table, roots, boxes, thresholds)


def _edges(
    axis: NDArray[np.int64], value: NDArray[np.float32], axes: int
) -> tuple[tuple[NDArray[np.float32], ...], NDArray[np.int64]]:
    edge = np.zeros(len(axis), np.int64)
    thresholds = []
    for number, name in enumerate(axis_names(axes)):
        here = axis == number
        values, which = np.unique(value[here], return_inverse=True)
        if len(values) > MAX_THRESHOLDS:
            raise EnsembleError(f"{len(values)} different thresholds on the {name} frequency; at most {MAX_THRESHOLDS} fit")
        edge[here] = which.ravel() + 1
        thresholds.append(values)
    return tuple(thresholds), edge


def _share(boxes: NDArray[np.int64]) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """Distinct boxes, most used first so that these share cache lines, and each leaf's box number."""
    number = np.zeros(len(boxes), np.int64)
    for edge in boxes.T:  # one column at a time: sorting integers is much faster than sorting rows
        number = np.unique((number << 16) | edge, return_inverse=True)[1].ravel()
    _, where, uses = np.unique(number, return_index=True, return_counts=True)
    order = np.argsort(-uses, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return boxes[where[order]].astype(np.uint16), rank[number]


_REGRESSOR = 1
_LESS_THAN = 2
_NUMERICAL_SPLIT = 1
_LEAF = 0


def read_treelite(source: Any, axes: int = len(FREQUENCIES)) -> NodeTable:
    """Node table of a ``treelite.Model``, or of the path of a serialized one; the last ``axes`` features are frequencies."""
    n_features, base_score, forest = forest_of(source, axes)
    return lay_out(forest, n_features, base_score, axes)


def forest_of(source: Any, axes: int) -> tuple[int, float, Forest]:
    """Number of features of a treelite model, its base score, and its nodes; arguments and errors as in :func:`read_treelite`.

    XGBoost's ``dart`` is valid: treelite multiplies each tree's weight into its leaves. XGBoost's own files are not read.
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
