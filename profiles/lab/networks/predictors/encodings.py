# SPDX-License-Identifier: Apache-2.0
"""Encodings of networks by paper: rows of numbers for nodes, edges and the whole, with device features.

PerfSeer, section 3.1; DNNPerf, tables I and II; DIPPM, sections 3.2 and 3.3; Jung et al., table 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from .....kernels.graph import Node, PerformanceGraph
from .....kernels.kinds import ELEMENTWISE, KINDS
from .....kernels.network import numel
from ..record import DEVICE_FEATURES

Matrix = NDArray[np.float64]

#: Distinguished operators, as in common tables of layers. Other operators have none of
#: the marks.
OPERATORS = (
    "conv2d", "pointwise_conv", "depthwise_conv", "other_conv", "matmul", "attention", "batch_norm", "other_norm", "relu",
    "hardtanh", "activation", "softmax", "add", "mul", "elementwise", "cat", "max_pool", "mean_pool", "reduction", "moving",
)  # fmt: skip
_NAMED = {
    "conv2d": "conv2d", "batch_norm": "batch_norm", "matmul": "matmul", "attention": "attention", "relu": "relu",
    "hardtanh": "hardtanh", "softmax": "softmax", "log_softmax": "softmax", "add": "add", "mul": "mul", "cat": "cat",
    "stack": "cat",
    "layer_norm": "other_norm", "group_norm": "other_norm", "instance_norm": "other_norm", "max_pool2d": "max_pool",
    "adaptive_max_pool2d": "max_pool", "avg_pool2d": "mean_pool", "adaptive_avg_pool2d": "mean_pool", "mean": "reduction",
    "fused_pointwise": "elementwise", "conv2d_relu": "conv2d", "conv2d_add_relu": "conv2d",
}  # fmt: skip


def operator_of(node: Node) -> str:
    named = _NAMED.get(node.kind, "")
    if named == "conv2d":
        if node.groups > 1:
            return "depthwise_conv" if node.groups == node.in_channels else "conv2d"
        return "pointwise_conv" if node.kernel == (1, 1) else "conv2d"
    if named:
        return named
    if node.kind.startswith("conv"):
        return "other_conv"
    kind = KINDS.get(node.kind)
    if kind is None:
        return ""
    if kind.features == "mean":
        return "reduction"
    if kind.served_by == "clone" or node.kind == "clone":
        return "moving"
    if kind.served_by == ELEMENTWISE:
        return "activation" if kind.operands == 1 and not node.kind.endswith("_scalar") else "elementwise"
    return ""


class EncodedGraph(Struct, frozen=True, eq=False):
    """Graph in numbers: ``nodes (n, p)``, ``edges (m, q)`` with their ends, ``whole (g,)``; float32 once scaled."""

    nodes: NDArray[Any]
    edges: NDArray[Any]
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    whole: NDArray[Any]


class GraphEncoding(Struct, frozen=True):
    """Map from a graph to numbers; ``_device`` members index the device features added to each row."""

    node: tuple[str, ...]
    edge: tuple[str, ...]
    whole: tuple[str, ...]
    encode: Callable[[PerformanceGraph], EncodedGraph]
    node_device: tuple[int, ...] = ()
    edge_device: tuple[int, ...] = ()
    whole_device: tuple[int, ...] = ()

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Columns of nodes, edges and the whole, with device features."""
        parts = ((self.node, self.node_device), (self.edge, self.edge_device), (self.whole, self.whole_device))
        nodes, edges, whole = (len(names) + len(device) for names, device in parts)
        return nodes, edges, whole


_WINDOW = (
    "kernel_height", "kernel_width", "stride_height", "stride_width", "padding_height", "padding_width", "dilation_height",
    "dilation_width", "groups", "in_channels", "out_channels",
)  # fmt: skip
OUTPUTS = 64
_DEVICE = tuple(range(len(DEVICE_FEATURES)))


def _window(node: Node) -> list[float]:
    return [*node.kernel, *node.stride, *node.padding, *node.dilation, node.groups, node.in_channels, node.out_channels]


def _unfolded_bytes(node: Node) -> float:
    """Bytes of one image's unfolded input (im2col) of a convolution."""
    if not node.weight_bytes or max(node.kernel) == 1:
        return 0.0
    places = node.output_bytes / max(node.out_channels * node.output[0], 1)
    return places * node.in_channels / max(node.groups, 1) * node.kernel[0] * node.kernel[1]


def _image(shape: Sequence[int]) -> list[float]:
    """Batch, channels, height, width; a matrix has its columns as channels."""
    if len(shape) == 4:
        return [float(size) for size in shape]
    return [shape[0] if shape else 1, shape[-1] if len(shape) > 1 else 1, numel(shape[1:-1]) if len(shape) > 2 else 1, 1]


def _ends(graph: PerformanceGraph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.array([edge.source for edge in graph.edges], np.int64), np.array([edge.target for edge in graph.edges], np.int64)


def _rows(rows: Sequence[Sequence[float]], width: int) -> Matrix:
    return np.array(rows, np.float64).reshape(len(rows), width)


def _perfseer(graph: PerformanceGraph) -> EncodedGraph:
    totals = [max(graph.globals[f"{name}_total"], 1.0) for name in ("flops", "access_bytes", "weight_bytes")]
    nodes = [
        [
            *_window(node), node.flops, node.access_bytes, node.weight_bytes, node.intensity,
            node.flops / totals[0], node.access_bytes / totals[1], node.weight_bytes / totals[2],
        ]
        for node in graph.nodes
    ]  # fmt: skip
    edges = [[edge.bytes, *_image(edge.shape)] for edge in graph.edges]
    whole = np.array(list(graph.globals.values()))
    return EncodedGraph(_rows(nodes, len(PERFSEER.node)), _rows(edges, len(PERFSEER.edge)), *_ends(graph), whole)


def _marks(node: Node) -> list[float]:
    own = operator_of(node)
    return [float(own == name) for name in OPERATORS]


def _dnnperf(graph: PerformanceGraph) -> EncodedGraph:
    nodes = [
        [
            *_marks(node), *_window(node), node.weight_bytes, node.input_bytes, node.output_bytes,
            _unfolded_bytes(node), node.flops,
        ]
        for node in graph.nodes
    ]  # fmt: skip
    edges = [[1.0, edge.bytes] for edge in graph.edges]  # all of them are forward ones
    return EncodedGraph(_rows(nodes, len(DNNPERF.node)), _rows(edges, len(DNNPERF.edge)), *_ends(graph), np.zeros(0))


def _dippm(graph: PerformanceGraph) -> EncodedGraph:
    nodes = [[*_marks(node), *_window(node)[:6], node.groups, node.dilation[0], *_image(node.output)] for node in graph.nodes]
    names = [operator_of(node) for node in graph.nodes]
    multiplying = [name.endswith("conv") or name in ("conv2d", "matmul") for name in names]
    macs = sum(node.flops for node, counts in zip(graph.nodes, multiplying, strict=True) if counts) / 2
    convolutions = sum(name.endswith("conv") or name == "conv2d" for name in names)
    whole = [macs, graph.batch, convolutions, names.count("matmul"), names.count("relu")]
    return EncodedGraph(_rows(nodes, len(DIPPM.node)), np.zeros((len(graph.edges), 0)), *_ends(graph), np.array(whole))


def tiles(node: Node) -> tuple[float, float]:
    depth = node.kernel[0] * node.kernel[1] * node.in_channels / max(node.groups, 1)
    pixels = numel(node.output) / max(node.out_channels, 1)
    return depth, -(-pixels // OUTPUTS) * -(-node.out_channels // OUTPUTS)


def _launches(graph: PerformanceGraph) -> EncodedGraph:
    nodes = [
        [
            *_marks(node), *_window(node), *_image(node.output), node.flops, node.input_bytes, node.weight_bytes,
            node.output_bytes, node.intensity, live, *tiles(node),
        ]
        for node, live in zip(graph.nodes, graph.live_bytes, strict=True)
    ]  # fmt: skip
    return EncodedGraph(_rows(nodes, len(LAUNCHES.node)), np.zeros((len(graph.edges), 0)), *_ends(graph), np.zeros(0))


#: Jung's types of layers, and which operators they are.
_JUNG_TYPES: Mapping[str, tuple[str, ...]] = {
    "conv": ("conv2d", "other_conv"),
    "pointwise_conv": ("pointwise_conv",),
    "depthwise_conv": ("depthwise_conv",),
    "fully_connected": ("matmul",),
    "activation": ("relu", "hardtanh", "activation", "softmax"),
    "elementwise": ("add", "mul", "elementwise"),
}
_JUNG_FIGURES = ("layers", "ops", "inputs", "outputs", "weights")


def jung_features(graph: PerformanceGraph) -> Matrix:
    """Baseline features of table 1, as named in :data:`JUNG`; sizes in bytes."""
    found = dict.fromkeys(JUNG, 0.0)
    for node in graph.nodes:
        own = operator_of(node)
        for name, operators in _JUNG_TYPES.items():
            if own in operators:
                figures = (1, node.flops, node.input_bytes, node.output_bytes, node.weight_bytes)
                for figure, value in zip(_JUNG_FIGURES, figures, strict=True):
                    found[f"{name}_{figure}"] += value
    found["total_ops"] = graph.globals["flops_total"]
    return np.array(list(found.values()))


JUNG = (*(f"{name}_{figure}" for name in _JUNG_TYPES for figure in _JUNG_FIGURES), "total_ops")

_GLOBALS = (
    "nodes", "edges", "density",
    *(f"{name}_{how}" for name in ("flops", "access_bytes", "weight_bytes") for how in ("total", "mean", "median", "max")),
    "edge_bytes_mean", "intensity", "batch",
)  # fmt: skip
_IMAGE = ("batch", "channels", "height", "width")
PERFSEER = GraphEncoding(
    (*_WINDOW, "flops", "access_bytes", "weight_bytes", "intensity", "flops_share", "access_share", "weight_share"),
    ("bytes", *_IMAGE),
    _GLOBALS,
    _perfseer,
    whole_device=_DEVICE,
)
DNNPERF = GraphEncoding(
    (*OPERATORS, *_WINDOW, "weight_bytes", "input_bytes", "output_bytes", "temporary_bytes", "flops"),
    ("forward", "bytes"),
    (),
    _dnnperf,
    node_device=(0, 1, 3),
    edge_device=(2,),
)
DNNPERF_COSTS = ("weight_bytes", "input_bytes", "output_bytes", "temporary_bytes", "flops", "bytes")
"""Tensor sizes and operations in DNNPerf's tables I and II."""
DIPPM = GraphEncoding(
    (*OPERATORS, *_WINDOW[:6], "groups", "dilation", *_IMAGE),
    (),
    ("macs", "batch", "convolutions", "dense", "relus"),
    _dippm,
    whole_device=_DEVICE,
)
#: Each launch by itself, for a predictor that adds launches up.
LAUNCHES = GraphEncoding(
    (
        *OPERATORS, *_WINDOW, *_IMAGE, "flops", "input_bytes", "weight_bytes", "output_bytes", "intensity", "live_bytes",
        "depth", "tiles",
    ),
    (),
    (),
    _launches,
    node_device=_DEVICE,
)  # fmt: skip
#: PerfSeer's groups of features (its table 1): of nodes, edges and the whole.
PERFSEER_GROUPS: Mapping[str, tuple[str, ...]] = {
    "hyper-parameters": _WINDOW,
    "node computation": ("flops",),
    "node memory": ("access_bytes", "weight_bytes"),
    "node intensity": ("intensity",),
    "proportions": ("flops_share", "access_share", "weight_share"),
    "edge size": ("bytes",),
    "edge shape": _IMAGE,
    "graph profile": ("nodes", "edges", "density"),
    "global computation": tuple(name for name in _GLOBALS if name.startswith("flops")),
    "global memory": tuple(name for name in _GLOBALS if "bytes" in name),
    "global intensity": ("intensity",),
    "batch size": ("batch",),
}
ENCODINGS: Mapping[str, GraphEncoding] = {"perfseer": PERFSEER, "dnnperf": DNNPERF, "dippm": DIPPM, "launches": LAUNCHES}
