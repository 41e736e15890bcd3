# SPDX-License-Identifier: Apache-2.0
"""Layers of graph networks against cases worked out by hand and PyTorch Geometric's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from jetdvfs.profiles.lab.networks.predictors import layers
from jetdvfs.profiles.lab.networks.predictors.layers import Edges, Operations, Segments, add_layer
from jetdvfs.profiles.lab.networks.predictors.training import project

torch = pytest.importorskip("torch", reason="runs the layers")
pytestmark = pytest.mark.torch
OPS = Operations()
# 0 -> 2, 1 -> 2, 2 -> 3; nothing leads to 0 and 1.
EDGES = Edges(np.array([0, 1, 2]), np.array([2, 2, 3]), 4)
X = OPS.array(np.array([[1, 2], [3, 6], [5, 0], [7, 1]], np.float32))


def tensors(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: OPS.array(np.array(array)) for name, array in arrays.items()}


ONE = tensors({"l.weight": np.eye(2), "l.bias": np.zeros((1, 2))})


def segments(*index: int, count: int | None = None) -> Segments:
    return Segments(np.array(index, np.int64), max(index) + 1 if count is None else count)


def test_segments_may_be_out_of_order_and_empty() -> None:
    groups = segments(2, 0, 2, 0, count=4)
    assert_allclose(OPS.segment_sum(X, groups), [[10, 7], [0, 0], [6, 2], [0, 0]])
    assert_allclose(OPS.segment_max(-X, groups), [[-3, -1], [0, 0], [-1, 0], [0, 0]])
    assert_allclose(layers.segment_mean(OPS, X, groups), np.array([[5, 3.5], [0, 0], [3, 1], [0, 0]]))


def test_softmax_goes_over_each_group() -> None:
    shares = layers.segment_softmax(OPS, torch.tensor([[0.0], [np.log(3.0)], [200.0]]), segments(0, 0, 1))
    assert_allclose(shares, np.array([[0.25], [0.75], [1]]), rtol=1e-6)
    weighed = layers.softmax_sum(OPS, torch.tensor([[0.0], [np.log(3.0)]]), segments(0, 0))
    assert_allclose(weighed, np.array([[0.75 * np.log(3)]]), rtol=1e-6)


def test_synmm_is_a_linear_layer_over_largest_and_mean() -> None:
    weights = tensors({"s.weight": [[1.0], [0.0], [10.0], [100.0]], "s.bias": [[0.5]]})
    # largest 5 and 6, mean 3 and 8/3
    assert_allclose(layers.synmm(OPS, weights, "s", X[:3], segments(0, 0, 0)), [[5 + 30 + 800 / 3 + 0.5]], rtol=1e-6)


def test_sage_takes_the_mean_of_what_leads_to_a_node() -> None:
    weights = tensors({"l.near.weight": 10 * np.eye(2), "l.own.weight": np.eye(2)})
    assert_allclose(layers.sage(OPS, weights, "l", X, EDGES), [[1, 2], [3, 6], [25, 40], [57, 1]])


def test_gcn_normalises_by_both_ends() -> None:
    # With itself, node 2 has degree 3, node 3 has 2, the others 1.
    found = layers.gcn(OPS, ONE, "l", X, EDGES)
    assert_allclose(found[2], X[0] / np.sqrt(3) + X[1] / np.sqrt(3) + X[2] / 3, rtol=1e-6)
    assert_allclose(found[3], X[2] / np.sqrt(6) + X[3] / 2, rtol=1e-6)
    assert_allclose(found[:2], X[:2])


def test_gin_adds_up_and_goes_through_two_layers() -> None:
    weights = tensors({"l.first.weight": np.eye(2), "l.second.weight": -np.eye(2)})
    assert_allclose(layers.gin(OPS, weights, "l", X, EDGES), [[-1, -2], [-3, -6], [-9, -8], [-12, -1]])


def test_gat_weighs_neighbours_by_attention() -> None:
    zero = {**ONE, **tensors({"l.source": np.zeros((2, 1)), "l.target": np.zeros((2, 1))})}
    assert_allclose(layers.gat(OPS, zero, "l", X, EDGES)[2], X[:3].mean(0), rtol=1e-6)  # all alike
    strong = {**zero, **tensors({"l.source": [[0.0], [100.0]]})}
    assert_allclose(layers.gat(OPS, strong, "l", X, EDGES)[2], X[1], rtol=1e-6)  # the largest second feature takes all


def test_anee_does_what_dnnperfs_formulas_say() -> None:
    weights = tensors(
        {"r.node": np.diag([1.0, -1.0]), "r.edge": [[2.0]], "r.attention": [[0.1], [0.0], [0.0], [0.5]], "r.message": [[3.0]]}
    )
    nodes, rows = layers.anee(OPS, weights, "r", X, torch.tensor([[1.0], [2.0], [-1.0]]), EDGES)
    local = np.array([[1, -0.02], [3, -0.06], [5, 0], [7, -0.01]])
    gates = [0.1 * local[0, 0] * 2, 0.1 * local[1, 0] * 4, (0.1 * local[2, 0] + 0.5 * local[3, 1]) * -2]
    sigmoid = 1 / (1 + np.exp(-np.array(gates)))
    assert_allclose(rows[:, 0], sigmoid, rtol=1e-6)
    share = np.exp(3 * sigmoid[:2]) / np.exp(3 * sigmoid[:2]).sum()
    mixed = share[0] * local[0] + share[1] * local[1]
    assert_allclose(nodes[2], [mixed[0], 0.01 * mixed[1]], rtol=1e-5)
    assert_allclose(nodes[3], [5, 0])  # by its only edge
    assert_allclose(nodes[:2], 0)


def test_conflicting_gradients_lose_their_part_along_each_other() -> None:
    one, other = {"trunk": np.array([1.0, 1.0])}, {"trunk": np.array([-1.0, 0.0])}
    # one loses its first part; other loses half of (1, 1); half of their sum is the mean.
    assert_allclose(project([one, other], np.random.default_rng(0))["trunk"], [-0.25, 0.75])
    agreeing = {"trunk": np.array([2.0, 1.0])}
    assert_allclose(project([one, agreeing], np.random.default_rng(0))["trunk"], [1.5, 1.0])


def test_heads_neither_hide_a_conflict_nor_are_moved_by_one() -> None:
    # The same trunks as above: with the heads in one vector, 5 * 2 would outweigh the conflict of -1.
    one = {"trunk": np.array([1.0, 1.0]), "head.0.first.weight": np.array([5.0]), "head.1.first.weight": np.array([2.0])}
    other = {"trunk": np.array([-1.0, 0.0]), "head.0.first.weight": np.array([2.0]), "head.1.first.weight": np.array([3.0])}
    found = project([one, other], np.random.default_rng(0))
    assert_allclose(found["trunk"], [-0.25, 0.75])
    assert found["head.0.first.weight"] == 3.5 and found["head.1.first.weight"] == 2.5


def _sage(geometric: Any, weights: dict[str, Any]) -> Any:
    made = geometric.SAGEConv(5, 7)
    return made, {
        "lin_l.weight": weights["l.near.weight"].T,
        "lin_l.bias": weights["l.near.bias"][0],
        "lin_r.weight": weights["l.own.weight"].T,
    }


def _gcn(geometric: Any, weights: dict[str, Any]) -> Any:
    return geometric.GCNConv(5, 7), {"lin.weight": weights["l.weight"].T, "bias": weights["l.bias"][0]}


def _gat(geometric: Any, weights: dict[str, Any]) -> Any:
    attention = {f"att_{end}": weights[f"l.{name}"].T[None] for end, name in (("src", "source"), ("dst", "target"))}
    return geometric.GATConv(5, 7), {"lin.weight": weights["l.weight"].T, "bias": weights["l.bias"][0], **attention}


@pytest.mark.parametrize(("kind", "made"), [("sage", _sage), ("gcn", _gcn), ("gat", _gat)])
def test_layers_are_those_of_pytorch_geometric(kind: str, made: Callable[[Any, dict[str, Any]], Any]) -> None:
    geometric = pytest.importorskip("torch_geometric.nn", reason="PyTorch Geometric's layers are the reference")
    rng = np.random.default_rng(2)
    weights: dict[str, Any] = {}
    add_layer(weights, kind, "l", 5, 7, rng)
    edges = Edges(rng.integers(0, 4, 12), rng.integers(4, 9, 12), 9)
    x = rng.normal(size=(9, 5)).astype(np.float32)
    reference, state = made(geometric, weights)
    reference.load_state_dict({name: torch.tensor(np.ascontiguousarray(value)) for name, value in state.items()})
    with torch.no_grad():
        expected = reference(torch.from_numpy(x), torch.from_numpy(np.stack([edges.sources, edges.targets]))).numpy()
    assert_allclose(layers.layer(OPS, tensors(weights), kind, "l", OPS.array(x), edges), expected, rtol=1e-5, atol=1e-6)
