# SPDX-License-Identifier: Apache-2.0
"""Copies that PyTorch makes and that the newer exporter leaves out of the file, though its notes still name them.

ONNX has no memory layouts: to its optimiser ``clone`` and ``contiguous`` are nothing. But each node is noted with the call that
it stands for, as in ``conv2d.default](args = (%clone_1, %weight, ...``. Where no node makes what such a call takes, and the
node takes something in its place that the call does not name, that was copied before. ``repeat_interleave`` copies what it has
spread, even where the shape that follows needs no copy.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ..budget import Account
from .model import Graph, Node

_COPIES = re.compile(r"%((?:clone|contiguous)(?:_\d+)?)\b")
#: Calls that are written as ``Unsqueeze``, ``Expand`` and ``Reshape``.
_SPREADS = "aten.repeat_interleave.self_int]"
_INDEXES, _LISTS = "aten.index", re.compile(r"\[[^\]]*\]")
_NAMES = re.compile(r"%(\w+)")


def with_copies(graph: Graph, account: Account) -> Graph:
    """The graph with a node for each copy that its notes name and that no node makes."""
    made = {name for node in graph.nodes for name in node.outputs} | set(graph.weights) | {item.name for item in graph.inputs}
    source: dict[str, str] = {}  # of each copy
    within: dict[str, str] = {}  # which call a value belongs to
    nodes: list[Node] = []
    for node in graph.nodes:
        account.step()
        call, _, rest = node.origin.partition("(args = (")
        if rest:
            taken = rest.rpartition("), kwargs")[0]
            if _INDEXES in call:
                taken = _LISTS.sub("", taken)  # places, of which copies are made before the network runs
            call = call.partition(" ")[0]
            within.update(dict.fromkeys(node.outputs, call))
            missing = {name for name in _COPIES.findall(taken) if name not in made}
            copy = missing.pop() if len(missing) == 1 else ""
            if copy and copy not in source:
                named = {*_NAMES.findall(taken), *graph.weights}
                others = {name for name in node.inputs if name and name not in named and within.get(name) != call}
                if len(others) == 1:
                    source[copy] = others.pop()
                    nodes.append(Node("contiguous", "aten", inputs=[source[copy]], outputs=[copy], scope=node.scope))
            spread = node.inputs[0] if node.inputs else ""
            if _SPREADS in node.origin and node.operator == "Reshape" and within.get(spread) == call:
                copy = f"copy of {spread}"
                source[copy] = spread
                nodes.append(Node("contiguous", "aten", inputs=[spread], outputs=[copy], scope=node.scope))
            if copy in source:
                node = replace(node, inputs=[copy if name == source[copy] else name for name in node.inputs])
        nodes.append(node)
    return replace(graph, nodes=nodes)
