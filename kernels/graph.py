# SPDX-License-Identifier: Apache-2.0
"""A network as a performance graph: launches, the tensors between them, and totals.

A node is a launch, an edge a tensor that one launch writes and another one reads (PerfSeer, section 3.1; DNNPerf, section III).
The network's inputs and weights are no edges: they count in the bytes of the node that reads them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import asdict

from .errors import ModelError
from .network import KernelInvocation, Network, ParamValue, Shape, numel, tensor_bytes


class Module(Struct):
    """One module of a network, its own launches in execution order, and sums over all within it.

    ``path`` is its place in the network (``layer1.0.conv1``); empty for the whole.
    """

    path: str
    own: list[KernelInvocation] = field(default_factory=list)
    launches: int = 0
    flops: int = 0
    bytes: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def depth(self) -> int:
        return len(self.path.split(".")) if self.path else 0

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    def to_json(self) -> dict[str, Any]:
        totals = {"launches": self.launches, "flops": self.flops, "bytes": self.bytes, "kinds": dict(self.kinds.most_common())}
        return {"module": self.path, "depth": self.depth, "own_launches": len(self.own), **totals}


def modules_of(network: Network) -> list[Module]:
    """Every module that launches kernels, by first launch, outer ones and the network itself first."""
    children: dict[str, list[Module]] = {}
    known: dict[str, Module] = {}
    for launch in network.launches:
        for path in _paths(launch.scope):
            if path not in known:
                known[path] = Module(path)
                children.setdefault(path.rpartition(".")[0] if path else "-", []).append(known[path])
            module = known[path]
            module.launches += 1
            module.flops += launch.flops
            module.bytes += launch.bytes
            module.kinds[launch.kind] += 1
        known[launch.scope].own.append(launch)
    return _depth_first(children)


def _paths(scope: str) -> list[str]:
    parts = scope.split(".") if scope else []
    return [".".join(parts[:depth]) for depth in range(len(parts) + 1)]


def _depth_first(children: Mapping[str, list[Module]]) -> list[Module]:
    order: list[Module] = []
    waiting = list(children.get("-", ()))
    while waiting:
        module = waiting.pop()
        order.append(module)
        waiting += [child for child in reversed(children.get(module.path, ())) if child is not module]
    return order


class Node(Struct, frozen=True):
    """A launch.

    Attributes:
        kernel, stride, padding, dilation: of a window (convolution, pooling), height and width; else 0.
        groups: of a convolution; else 0.
        in_channels, out_channels: of the first tensor read and of the one written; of non-images the last dimension.
        input_bytes, weight_bytes, output_bytes: read and written.
    """

    kind: str
    scope: str
    dtype: str
    output: Shape
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    in_channels: int
    out_channels: int
    flops: int
    input_bytes: int
    weight_bytes: int
    output_bytes: int

    @property
    def access_bytes(self) -> int:
        return self.input_bytes + self.weight_bytes + self.output_bytes

    @property
    def intensity(self) -> float:
        return self.flops / max(self.access_bytes, 1)


class Edge(Struct, frozen=True):
    source: int
    target: int
    shape: Shape
    bytes: int


class MemoryBound(Struct, frozen=True):
    """Lower bound of a network's memory: no workspace, no allocator cache, no runtime.

    A weight read twice counts twice; activations are the peak of launches' outputs, each live until its last reader.
    """

    weight_bytes: int
    input_bytes: int
    activation_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weight_bytes + self.input_bytes + self.activation_bytes


class PerformanceGraph(Struct, frozen=True, eq=False, dict=True):
    name: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    batch: int
    input_bytes: int
    network: Network

    @cached_property
    def globals(self) -> Mapping[str, float]:
        """PerfSeer's global features, by name, in a fixed order; bytes and operations are not scaled."""
        nodes, edges = len(self.nodes), len(self.edges)
        columns = {
            "flops": [node.flops for node in self.nodes],
            "access_bytes": [node.access_bytes for node in self.nodes],
            "weight_bytes": [node.weight_bytes for node in self.nodes],
        }
        found: dict[str, float] = {"nodes": nodes, "edges": edges, "density": edges / max(nodes * (nodes - 1), 1)}
        for name, column in columns.items():
            found |= {
                f"{name}_total": float(sum(column)),
                f"{name}_mean": float(np.mean(column)) if column else 0.0,
                f"{name}_median": float(np.median(column)) if column else 0.0,
                f"{name}_max": float(max(column, default=0)),
            }
        found["edge_bytes_mean"] = float(np.mean([edge.bytes for edge in self.edges])) if self.edges else 0.0
        found["intensity"] = found["flops_total"] / max(found["access_bytes_total"], 1.0)
        found["batch"] = self.batch
        return found

    @cached_property
    def live_bytes(self) -> tuple[int, ...]:
        last = {edge.source: edge.target for edge in sorted(self.edges, key=lambda edge: edge.target)}
        until: dict[int, list[int]] = {}
        for number in range(len(self.nodes)):
            until.setdefault(last.get(number, len(self.nodes)), []).append(number)
        live, found = 0, []
        for number, node in enumerate(self.nodes):
            live += node.output_bytes
            found.append(live)
            live -= sum(self.nodes[dead].output_bytes for dead in until.get(number, ()))
        return tuple(found)

    @cached_property
    def memory(self) -> MemoryBound:
        weights = sum(node.weight_bytes for node in self.nodes)
        return MemoryBound(weights, self.input_bytes, max(self.live_bytes, default=0))

    def to_json(self) -> dict[str, Any]:
        totals = [max(self.globals[f"{name}_total"], 1.0) for name in ("flops", "access_bytes", "weight_bytes")]
        nodes = [
            {
                **asdict(node),
                "access_bytes": node.access_bytes,
                "intensity": node.intensity,
                "flops_share": node.flops / totals[0],
                "access_share": node.access_bytes / totals[1],
                "weight_share": node.weight_bytes / totals[2],
            }
            for node in self.nodes
        ]
        memory = {**asdict(self.memory), "total_bytes": self.memory.total_bytes}
        edges = [asdict(edge) for edge in self.edges]
        return {"nodes": nodes, "edges": edges, "globals": dict(self.globals), "memory": memory}


def graph_of(network: Network) -> PerformanceGraph:
    """The performance graph of a decomposed network; raises ModelError."""
    launches = network.launches
    if not launches:
        raise ModelError(f"network {network.name!r} launches nothing: there is no graph of it")
    if not network.reads:
        raise ModelError(
            f"network {network.name!r} does not name the writers of its launches' inputs ('reads'), so it has no edges; "
            "decompose the model's file again"
        )
    outside = {spec.shape: spec.dtype for spec in network.inputs if not spec.is_plain}
    nodes, edges = [], []
    for number, (launch, writers) in enumerate(zip(launches, network.reads, strict=True)):
        read = 0
        for shape, writer in zip(launch.inputs, writers, strict=True):
            dtype = launches[writer].dtype if writer >= 0 else outside.get(shape, launch.dtype)
            size = tensor_bytes(numel(shape), dtype)
            read += size
            if writer >= 0:
                edges.append(Edge(writer, number, shape, size))
        nodes.append(_node(launch, read))
    inputs = [spec for spec in network.inputs if not spec.is_plain]
    batch = next((spec.shape[0] for spec in inputs if spec.shape), 1)
    read = sum(tensor_bytes(numel(spec.shape), spec.dtype) for spec in inputs)
    return PerformanceGraph(network.name, tuple(nodes), tuple(edges), batch, read, network)


def _node(launch: KernelInvocation, read: int) -> Node:
    params = launch.params
    weight = params.get("weight")
    window = weight[2:] if isinstance(weight, tuple) and len(weight) > 2 else params.get("kernel_size")
    windowed = window is not None
    written = tensor_bytes(numel(launch.output), launch.dtype)
    groups = params.get("groups", 0)
    return Node(
        kind=launch.kind,
        scope=launch.scope,
        dtype=launch.dtype,
        output=launch.output,
        kernel=_pair(window),
        # An empty stride is the window's size, as in ATen's poolings.
        stride=_pair(params.get("stride") or window) if windowed else (0, 0),
        padding=_pair(params.get("padding")) if windowed else (0, 0),
        dilation=_pair(params.get("dilation", 1)) if windowed else (0, 0),
        groups=groups if isinstance(groups, int) and launch.kind.startswith("conv") else 0,
        in_channels=_channels(launch.inputs[0]) if launch.inputs else 0,
        out_channels=_channels(launch.output),
        flops=launch.flops,
        input_bytes=read,
        # The rest of the invocation's bytes, which are inputs, weights and output, each once.
        weight_bytes=max(launch.bytes - read - written, 0),
        output_bytes=written,
    )


def _pair(value: ParamValue | Sequence[int]) -> tuple[int, int]:
    if isinstance(value, int):
        return int(value), int(value)
    if not isinstance(value, tuple) or not value:
        return 0, 0
    return value[-2:][0], value[-1]


def _channels(shape: Shape) -> int:
    return 1 if not shape else shape[1] if len(shape) > 2 else shape[-1]
