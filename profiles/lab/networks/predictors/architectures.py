# SPDX-License-Identifier: Apache-2.0
"""Graph networks: SeerNet (PerfSeer), ANEE with its readout (DNNPerf), PMGNS (DIPPM), and ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from .....kernels.graph import PerformanceGraph
from . import layers
from .batches import FeatureBatch
from .encodings import DNNPERF, DNNPERF_COSTS, ENCODINGS, PERFSEER, PERFSEER_GROUPS
from .layers import Initial, Operations, Segments, Weights, add_layer, add_linear, linear

_FARTHEST = 6.0  # deviations
HEAD = "head."
"""Prefix of weights private to one output."""


class Architecture(Protocol):
    """Graph network.

    Attributes:
        encoding: one of :data:`~jetdvfs.profiles.lab.networks.predictors.encodings.ENCODINGS`.
        scaling: method of feature scaling.
    """

    encoding: ClassVar[str]

    @property
    def scaling(self) -> str: ...

    def initial(self, outputs: int, rng: np.random.Generator) -> Initial: ...

    def forward(self, ops: Operations, weights: Weights, batch: FeatureBatch, outputs: int) -> Any: ...


class SeerNet(Struct, frozen=True):
    """PerfSeer, equations 1 to 8: a block that updates edges, nodes, a global node and the whole; one head per output.

    Linear layers equalise the widths that equations 4 and 6 add, which gives the paper's 1.02 million parameters. ``without``
    omits feature groups (:data:`~.encodings.PERFSEER_GROUPS`), as in table 1.
    """

    width: int = 256
    synmm: bool = True
    gnpb: bool = True
    without: tuple[str, ...] = ()
    encoding: ClassVar[str] = "perfseer"
    scaling: ClassVar[str] = "standard"

    def initial(self, outputs: int, rng: np.random.Generator) -> Initial:
        weights: Initial = {}
        nodes, edges, whole = ENCODINGS[self.encoding].sizes
        width = self.width
        for name, read in (("node", nodes), ("edge", edges), ("whole", whole)):
            add_linear(weights, name, read, width, rng)
        add_linear(weights, "phi_e", 3 * width, width, rng)
        add_linear(weights, "phi_v", 2 * width, width, rng)
        add_linear(weights, "phi_v_u", width, width, rng, bias=False)
        add_linear(weights, "phi_u", 3 * width, width, rng)
        if self.synmm:
            add_linear(weights, "synmm", 2 * width, width, rng)
        if self.gnpb:
            add_linear(weights, "phi_z.first", width, width, rng)
            add_linear(weights, "phi_z.second", width, width, rng)
        _add_heads(weights, width, width, outputs, rng)
        return weights

    def forward(self, ops: Operations, weights: Weights, batch: FeatureBatch, outputs: int) -> Any:
        edges = batch.edges
        of_nodes, of_edges, of_whole = self._masks()
        nodes = linear(weights, "node", ops.array(batch.nodes * of_nodes))
        edge_rows = linear(weights, "edge", ops.array(batch.edge_rows * of_edges))
        u = linear(weights, "whole", ops.array(batch.whole * of_whole))
        ends = [ops.take(nodes, edges.sources), ops.take(nodes, edges.targets)]
        sent = ops.relu(linear(weights, "phi_e", ops.concat([edge_rows, *ends])))
        arrived = layers.segment_mean(ops, sent, edges.into)
        seen = nodes
        if self.gnpb:
            z = layers.softmax_sum(ops, nodes, batch.graphs)
            seen = nodes + ops.take(z, batch.graphs.index)
        # The first two of phi_v's three parts are the network's alone, and shared by its configurations.
        own = linear(weights, "phi_v", ops.concat([arrived, seen]))
        updated = ops.relu(ops.take(own, batch.spread) + ops.take(linear(weights, "phi_v_u", u), batch.samples.index))
        if self.synmm:
            together = layers.synmm(ops, weights, "synmm", updated, batch.samples)
        else:
            together = layers.segment_mean(ops, updated, batch.samples)
        z_updated = together * 0
        if self.gnpb:
            mixed = layers.softmax_sum(ops, updated, batch.samples) + ops.take(z, batch.graph_of)
            z_updated = ops.relu(linear(weights, "phi_z.second", ops.relu(linear(weights, "phi_z.first", mixed))))
        u = ops.relu(linear(weights, "phi_u", ops.concat([together, z_updated, u])))
        return _heads(ops, weights, u, outputs)

    def _masks(self) -> list[NDArray[np.float32]]:
        masks = [np.ones(size, np.float32) for size in PERFSEER.sizes]
        places = (("node", PERFSEER.node), ("edge", PERFSEER.edge), ("global graph batch", PERFSEER.whole))
        for group in self.without:
            first = group.partition(" ")[0]
            of = next((number for number, (words, _) in enumerate(places) if first in words), 0)
            for name in PERFSEER_GROUPS[group]:
                masks[of][places[of][1].index(name)] = 0
        return masks


class Anee(Struct, frozen=True):
    """DNNPerf: rounds of a node-edge encoder with shared weights, sum over nodes, layers of 512, 128 and 16.

    In the formula a node depends on its predecessors alone: an inference graph's last launches have no effect (:func:`unseen`),
    and a single incoming edge has softmax 1. ``own`` is our addition: an edge of no bytes from each launch to itself.

    Attributes:
        encoder, readout, scaling, costs: for ablations: ``gat``; ``mean`` of the nodes, or ``edges``, sums of nodes and edges
            side by side; ``zscore``; False for no tensor sizes and operations.
    """

    rounds: int = 3
    hidden: tuple[int, ...] = (512, 128, 16)
    readout: str = "sum"
    encoder: str = "anee"
    scaling: str = "minmax"
    costs: bool = True
    own: bool = False
    encoding: ClassVar[str] = "dnnperf"

    def initial(self, outputs: int, rng: np.random.Generator) -> Initial:
        weights: Initial = {}
        nodes, edges, _ = ENCODINGS[self.encoding].sizes
        if self.encoder == "gat":
            add_layer(weights, "gat", "round", nodes, nodes, rng)
        else:
            for name, read, written in (
                ("node", nodes, nodes), ("edge", edges, edges), ("attention", 2 * nodes, 1), ("message", edges, 1),
            ):  # fmt: skip
                bound = 1 / np.sqrt(read)
                weights[f"round.{name}"] = rng.uniform(-bound, bound, (read, written)).astype(np.float32)
        read = nodes + edges if self.readout == "edges" else nodes
        for number, written in enumerate((*self.hidden, outputs)):
            add_linear(weights, f"dense.{number}", read, written, rng)
            read = written
        return weights

    def forward(self, ops: Operations, weights: Weights, batch: FeatureBatch, outputs: int) -> Any:
        node_columns, edge_columns = batch.nodes, batch.edge_rows
        if not self.costs:
            node_columns = node_columns * _mask((*DNNPERF.node, *DNNPERF.node_device), DNNPERF_COSTS)
            edge_columns = edge_columns * _mask((*DNNPERF.edge, *DNNPERF.edge_device), DNNPERF_COSTS)
        edges = batch.edges.looped if self.own else batch.edges
        loops = np.zeros((len(edges.sources) - len(edge_columns), edge_columns.shape[1]), np.float32)
        nodes, edge_rows = ops.array(node_columns), ops.array(np.concatenate([edge_columns, loops]))
        for _ in range(self.rounds):
            if self.encoder == "gat":
                nodes = ops.leaky_relu(layers.gat(ops, weights, "round", nodes, batch.edges), 0.01)
            else:
                nodes, edge_rows = layers.anee(ops, weights, "round", nodes, edge_rows, edges)
        x = ops.segment_sum(nodes, batch.graphs)
        if self.readout == "mean":
            x = layers.segment_mean(ops, nodes, batch.graphs)
        if self.readout == "edges":
            of_graph = Segments(batch.graphs.index[edges.targets], batch.graphs.count)
            x = ops.concat([x, ops.segment_sum(edge_rows, of_graph)])
        for number in range(len(self.hidden)):
            x = ops.relu(linear(weights, f"dense.{number}", x))
        return linear(weights, f"dense.{len(self.hidden)}", x)


def unseen(graph: PerformanceGraph, rounds: int) -> NDArray[np.bool_]:
    """(launches,) True for those that the published ANEE ignores: no path of ``rounds`` edges begins there."""
    seen = np.ones(len(graph.nodes), bool)
    sources, targets = ([getattr(edge, end) for edge in graph.edges] for end in ("source", "target"))
    for _ in range(rounds):
        leads, seen = seen[targets], np.zeros(len(seen), bool)
        seen[np.array(sources, int)[leads]] = True
    return ~seen


class Pmgns(Struct, frozen=True):
    """DIPPM: three GraphSAGE blocks, mean of nodes with static features, three dense blocks.

    The paper does not give the readout; we take the mean. ``conv`` is for ablations: ``gcn``, ``gin``, ``gat`` or ``mlp``.
    """

    width: int = 512
    conv: str = "sage"
    dropout: float = 0.05
    encoding: ClassVar[str] = "dippm"
    scaling: ClassVar[str] = "standard"

    def initial(self, outputs: int, rng: np.random.Generator) -> Initial:
        weights: Initial = {}
        read, _, whole = ENCODINGS[self.encoding].sizes
        for number in range(3):
            add_layer(weights, self.conv, f"conv.{number}", read, self.width, rng)
            read = self.width
        read += whole
        for number, written in enumerate((self.width, self.width, outputs)):
            add_linear(weights, f"dense.{number}", read, written, rng)
            read = written
        return weights

    def forward(self, ops: Operations, weights: Weights, batch: FeatureBatch, outputs: int) -> Any:
        x = ops.array(batch.nodes)
        for number in range(3):
            x = ops.relu(layers.layer(ops, weights, self.conv, f"conv.{number}", x, batch.edges))
            x = ops.dropout(x, self.dropout)
        pooled = ops.take(layers.segment_mean(ops, x, batch.graphs), batch.graph_of)
        x = ops.concat([pooled, ops.array(batch.whole)])
        for number in range(2):
            x = ops.dropout(ops.relu(linear(weights, f"dense.{number}", x)), self.dropout)
        return linear(weights, "dense.2", x)


class LaunchSum(Struct, frozen=True):
    """Ours: sum over launches, learned from whole networks alone.

    A launch's part is a power law of its features times the exponential of three layers.
    """

    width: int = 48
    encoding: ClassVar[str] = "launches"
    scaling: ClassVar[str] = "standard"

    def initial(self, outputs: int, rng: np.random.Generator) -> Initial:
        weights: Initial = {}
        read, _, _ = ENCODINGS[self.encoding].sizes
        add_linear(weights, "first", read, self.width, rng)
        add_linear(weights, "second", self.width, self.width, rng)
        for name, columns in (("third", self.width), ("power", read)):
            weights[f"{name}.weight"] = np.zeros((columns, outputs), np.float32)
        weights["third.bias"] = np.full((1, outputs), -np.log(100), np.float32)  # of about 100 launches
        return weights

    def forward(self, ops: Operations, weights: Weights, batch: FeatureBatch, outputs: int) -> Any:
        nodes = ops.array(np.clip(batch.nodes, -_FARTHEST, _FARTHEST))
        hidden = ops.relu(linear(weights, "second", ops.relu(linear(weights, "first", nodes))))
        parts = ops.exp(linear(weights, "third", hidden) + linear(weights, "power", nodes))
        return ops.log(ops.segment_sum(parts, batch.graphs))


def _mask(columns: Sequence[Any], left_out: Sequence[str]) -> NDArray[np.float32]:
    return np.array([column not in left_out for column in columns], np.float32)


def _add_heads(weights: Initial, read: int, width: int, outputs: int, rng: np.random.Generator) -> None:
    for number in range(outputs):
        add_linear(weights, f"{HEAD}{number}.first", read, width, rng)
        add_linear(weights, f"{HEAD}{number}.second", width, 1, rng)


def _heads(ops: Operations, weights: Weights, x: Any, outputs: int) -> Any:
    found = [
        linear(weights, f"{HEAD}{number}.second", ops.relu(linear(weights, f"{HEAD}{number}.first", x)))
        for number in range(outputs)
    ]
    return ops.concat(found)
