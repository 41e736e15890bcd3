# SPDX-License-Identifier: Apache-2.0
"""Several graphs as one: stacked rows with graph and sample indices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from .encodings import EncodedGraph, GraphEncoding
from .layers import Edges, Segments

Matrix = NDArray[np.float64]


class FeatureBatch(Struct, frozen=True, eq=False):
    """Scaled rows in float32; ``whole`` has one per sample.

    Attributes:
        graph_of: (samples,) graph of each.
        spread: (m,) nodes, repeated for each sample of their graph; ``samples`` has the sample of each.
    """

    nodes: NDArray[np.float32]
    edge_rows: NDArray[np.float32]
    edges: Edges
    graphs: Segments
    whole: NDArray[np.float32]
    graph_of: NDArray[np.int64]
    spread: NDArray[np.int64]
    samples: Segments


class Scaling(Struct, frozen=True, eq=False):
    """Scaling of columns: ``(x - offset) * scale``, of ``log1p(x)`` if ``log``."""

    log: bool
    offset: Matrix
    scale: Matrix

    @classmethod
    def fit(cls, how: str, rows: Matrix) -> Scaling:
        """``standard``: logarithms of mean 0 and deviation 1; ``zscore``: no logarithms; ``minmax``: 0 to 1 (DNNPerf)."""
        log = how == "standard"
        x = np.log1p(np.maximum(rows, 0)) if log else rows
        if not len(x):
            return cls(log, np.zeros(x.shape[1]), np.ones(x.shape[1]))
        offset, width = (x.min(0), np.ptp(x, axis=0)) if how == "minmax" else (x.mean(0), x.std(0))
        return cls(log, offset, 1 / np.where(width > 1e-9, width, 1.0))

    def __call__(self, rows: Matrix, first: int = 0) -> NDArray[np.float32]:
        """Scaled rows; they hold the columns from ``first`` on."""
        own = slice(first, first + rows.shape[1])
        x = np.log1p(np.maximum(rows, 0)) if self.log else rows
        return np.asarray((x - self.offset[own]) * self.scale[own], np.float32)


class Scalings(Struct, frozen=True, eq=False):
    """Scalings of nodes, edges and the whole, with device columns."""

    nodes: Scaling
    edges: Scaling
    whole: Scaling

    @classmethod
    def fit(cls, how: str, encoding: GraphEncoding, encoded: Sequence[EncodedGraph], devices: Matrix) -> Scalings:
        distinct = list({id(one): one for one in encoded}.values())
        nodes, edges = np.concatenate([one.nodes for one in distinct]), np.concatenate([one.edges for one in distinct])
        whole = np.stack([one.whole for one in encoded])
        of_device = [_with(np.zeros((len(devices), 0)), devices, c) for c in (encoding.node_device, encoding.edge_device)]
        return cls(
            _joined(Scaling.fit(how, nodes), Scaling.fit(how, of_device[0])),
            _joined(Scaling.fit(how, edges), Scaling.fit(how, of_device[1])),
            Scaling.fit(how, _with(whole, devices, encoding.whole_device)),
        )

    def scaled(self, encoded: Sequence[EncodedGraph]) -> list[EncodedGraph]:
        kept = {
            id(one): replace(
                one, nodes=self.nodes(one.nodes), edges=self.edges(one.edges), whole=self.whole(one.whole[None])[0]
            )
            for one in encoded
        }
        return [kept[id(one)] for one in encoded]


def _joined(first: Scaling, second: Scaling) -> Scaling:
    return Scaling(first.log, np.concatenate([first.offset, second.offset]), np.concatenate([first.scale, second.scale]))


def _with(rows: Matrix, devices: Matrix, columns: Sequence[int]) -> Matrix:
    return np.concatenate([rows, devices[:, list(columns)]], axis=1)


def make_batch(encoding: GraphEncoding, scalings: Scalings, encoded: Sequence[EncodedGraph], devices: Matrix) -> FeatureBatch:
    """Batch of samples: scaled graph, and device (samples, figures), of each."""
    own = bool(encoding.node_device or encoding.edge_device)
    places: dict[int, int] = {}
    graph_of = np.array([number if own else places.setdefault(id(one), len(places)) for number, one in enumerate(encoded)])
    first = {int(graph): number for number, graph in reversed(list(enumerate(graph_of)))}
    graphs = [encoded[first[graph]] for graph in range(len(first))]
    counts = np.array([len(one.nodes) for one in graphs])
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    nodes, edges = np.concatenate([one.nodes for one in graphs]), np.concatenate([one.edges for one in graphs])
    if own:
        edge_counts = [len(one.edges) for one in graphs]
        of_nodes = scalings.nodes(devices[:, list(encoding.node_device)], len(encoding.node))
        of_edges = scalings.edges(devices[:, list(encoding.edge_device)], len(encoding.edge))
        nodes = np.concatenate([nodes, np.repeat(of_nodes, counts, axis=0)], axis=1)
        edges = np.concatenate([edges, np.repeat(of_edges, edge_counts, axis=0)], axis=1)
    ends = Edges(
        np.concatenate([one.sources + start for one, start in zip(graphs, starts, strict=True)]),
        np.concatenate([one.targets + start for one, start in zip(graphs, starts, strict=True)]),
        int(counts.sum()),
    )
    spread = np.concatenate([np.arange(starts[graph], starts[graph] + counts[graph]) for graph in graph_of])
    of_whole = scalings.whole(devices[:, list(encoding.whole_device)], len(encoding.whole))
    return FeatureBatch(
        nodes,
        edges,
        ends,
        Segments(np.repeat(np.arange(len(graphs)), counts), len(graphs)),
        np.concatenate([np.stack([one.whole for one in encoded]), of_whole], axis=1),
        graph_of,
        spread,
        Segments(np.repeat(np.arange(len(encoded)), counts[graph_of]), len(encoded)),
    )
