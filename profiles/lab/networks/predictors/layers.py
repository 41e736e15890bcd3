# SPDX-License-Identifier: Apache-2.0
"""Layers of graph networks as functions of their weights.

Weights map names ``NAME.PART`` to matrices ``(read, written)`` and rows ``(1, written)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Weights: TypeAlias = Mapping[str, Any]
Initial: TypeAlias = dict[str, NDArray[np.float32]]


class Segments:
    """Rows in ``count`` groups, which may be empty; ``index`` (n,) has each row's."""

    def __init__(self, index: NDArray[np.int64], count: int) -> None:
        self.index, self.count = index, count

    @cached_property
    def sizes(self) -> NDArray[np.float32]:
        return np.bincount(self.index, minlength=self.count).astype(np.float32)[:, None]


class Operations:
    """Operations on tensors of shape (n, columns); those of a name that PyTorch has are its own."""

    def __init__(self, training: bool = False) -> None:
        import torch

        self._torch, self._training = torch, training
        self.relu, self.sigmoid, self.exp, self.log = torch.relu, torch.sigmoid, torch.exp, torch.log
        self.leaky_relu = torch.nn.functional.leaky_relu

    def array(self, values: NDArray[np.float32]) -> Any:
        return self._torch.from_numpy(np.ascontiguousarray(values, np.float32))

    def concat(self, parts: Sequence[Any]) -> Any:
        return self._torch.cat(list(parts), 1)

    def take(self, x: Any, index: NDArray[np.int64]) -> Any:
        return x.index_select(0, self._torch.from_numpy(index))

    def segment_sum(self, x: Any, segments: Segments) -> Any:
        """(groups, columns) sums; 0 for empty groups."""
        found = x.new_zeros((segments.count, x.shape[1]))
        return found.index_add(0, self._torch.from_numpy(segments.index), x)

    def segment_max(self, x: Any, segments: Segments) -> Any:
        """(groups, columns) maxima; 0 for empty groups."""
        index = self._torch.from_numpy(segments.index)[:, None].expand(-1, x.shape[1])
        return x.new_zeros((segments.count, x.shape[1])).scatter_reduce(0, index, x, "amax", include_self=False)

    def dropout(self, x: Any, share: float) -> Any:
        return self._torch.nn.functional.dropout(x, share, self._training)


class Edges(Struct, frozen=True, eq=False, dict=True):
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    nodes: int

    @cached_property
    def into(self) -> Segments:
        return Segments(self.targets, self.nodes)

    @cached_property
    def looped(self) -> Edges:
        own = np.arange(self.nodes)
        return Edges(np.concatenate([self.sources, own]), np.concatenate([self.targets, own]), self.nodes)


def add_linear(weights: Initial, name: str, read: int, written: int, rng: np.random.Generator, bias: bool = True) -> None:
    """Initial weights as in PyTorch's linear layers: uniform within 1/sqrt(read)."""
    bound = 1 / np.sqrt(max(read, 1))
    weights[f"{name}.weight"] = rng.uniform(-bound, bound, (read, written)).astype(np.float32)
    if bias:
        weights[f"{name}.bias"] = rng.uniform(-bound, bound, (1, written)).astype(np.float32)


def linear(weights: Weights, name: str, x: Any) -> Any:
    found = x @ weights[f"{name}.weight"]
    return found + weights[f"{name}.bias"] if f"{name}.bias" in weights else found


def segment_mean(ops: Operations, x: Any, segments: Segments) -> Any:
    return ops.segment_sum(x, segments) * ops.array(np.asarray(1 / np.maximum(segments.sizes, 1), np.float32))


def segment_softmax(ops: Operations, x: Any, segments: Segments) -> Any:
    raised = ops.exp(x - ops.take(ops.segment_max(x, segments), segments.index))
    return raised / ops.take(ops.segment_sum(raised, segments), segments.index)


def softmax_sum(ops: Operations, x: Any, segments: Segments) -> Any:
    """Softmax-weighted sum of each group, between mean and maximum."""
    return ops.segment_sum(segment_softmax(ops, x, segments) * x, segments)


def synmm(ops: Operations, weights: Weights, name: str, x: Any, segments: Segments) -> Any:
    """PerfSeer's synergistic max-mean aggregation: maximum and mean, then a linear layer."""
    return linear(weights, name, ops.concat([ops.segment_max(x, segments), segment_mean(ops, x, segments)]))


def sage(ops: Operations, weights: Weights, name: str, x: Any, edges: Edges) -> Any:
    """GraphSAGE layer with mean aggregation (Hamilton et al., 2017)."""
    near = segment_mean(ops, ops.take(x, edges.sources), edges.into)
    return linear(weights, f"{name}.near", near) + linear(weights, f"{name}.own", x)


def gcn(ops: Operations, weights: Weights, name: str, x: Any, edges: Edges) -> Any:
    """Graph convolution with symmetric normalisation and self-edges (Kipf and Welling, 2017)."""
    looped = edges.looped
    scale = (1 / np.sqrt(looped.into.sizes)).astype(np.float32)
    scaled = ops.array(scale[looped.sources] * scale[looped.targets])
    sent = x @ weights[f"{name}.weight"]
    return ops.segment_sum(ops.take(sent, looped.sources) * scaled, looped.into) + weights[f"{name}.bias"]


def gin(ops: Operations, weights: Weights, name: str, x: Any, edges: Edges) -> Any:
    """Graph isomorphism layer with two layers (Xu et al., 2019; eps 0)."""
    total = x + ops.segment_sum(ops.take(x, edges.sources), edges.into)
    return linear(weights, f"{name}.second", ops.relu(linear(weights, f"{name}.first", total)))


def gat(ops: Operations, weights: Weights, name: str, x: Any, edges: Edges) -> Any:
    """Graph attention with one head and self-edges (Velickovic et al., 2018)."""
    looped = edges.looped
    sent = x @ weights[f"{name}.weight"]
    from_, to = sent @ weights[f"{name}.source"], sent @ weights[f"{name}.target"]
    raw = ops.leaky_relu(ops.take(from_, looped.sources) + ops.take(to, looped.targets), 0.2)
    shares = segment_softmax(ops, raw, looped.into)
    return ops.segment_sum(ops.take(sent, looped.sources) * shares, looped.into) + weights[f"{name}.bias"]


def anee(ops: Operations, weights: Weights, name: str, nodes: Any, edge_rows: Any, edges: Edges) -> tuple[Any, Any]:
    """One round of DNNPerf's attention-based node-edge encoder; a node without incoming edges becomes 0."""
    local = ops.leaky_relu(nodes @ weights[f"{name}.node"], 0.01)
    ends = ops.concat([ops.take(local, edges.sources), ops.take(local, edges.targets)])
    edge_rows = ops.sigmoid((ends @ weights[f"{name}.attention"]) * (edge_rows @ weights[f"{name}.edge"]))
    shares = segment_softmax(ops, edge_rows @ weights[f"{name}.message"], edges.into)
    return ops.leaky_relu(ops.segment_sum(shares * ops.take(local, edges.sources), edges.into), 0.01), edge_rows


def add_layer(weights: Initial, kind: str, name: str, read: int, written: int, rng: np.random.Generator) -> None:
    """Weights of a layer: ``sage``, ``gcn``, ``gin``, ``gat``, or ``mlp`` without edges."""
    if kind == "sage":
        add_linear(weights, f"{name}.near", read, written, rng)
        add_linear(weights, f"{name}.own", read, written, rng, bias=False)
    elif kind == "gin":
        add_linear(weights, f"{name}.first", read, written, rng)
        add_linear(weights, f"{name}.second", written, written, rng)
    else:
        add_linear(weights, name, read, written, rng)
    if kind == "gat":
        for part in ("source", "target"):
            weights[f"{name}.{part}"] = rng.uniform(-1, 1, (written, 1)).astype(np.float32) / np.float32(np.sqrt(written))


def layer(ops: Operations, weights: Weights, kind: str, name: str, x: Any, edges: Edges) -> Any:
    if kind == "mlp":
        return linear(weights, name, x)
    return {"sage": sage, "gcn": gcn, "gin": gin, "gat": gat}[kind](ops, weights, name, x, edges)
