# SPDX-License-Identifier: Apache-2.0
"""What exporters write as several ONNX nodes where PyTorch makes one call, put together again.

This is the one place that says where an ONNX file and the network it was exported from differ:

* ``MatMul`` with a matrix of weights, then ``Add`` of a row of weights: one ``linear``.
* ``gelu`` (by ``Erf`` or by ``Tanh``), ``silu``, ``mish``, ``hardswish`` and ``log_sigmoid`` written out: one call each.
* ``layer_norm`` written out as means, differences and a square root, with the scale and shift behind it: one call.
* ``group_norm`` written as an instance norm between two reshapes: one call.
* Attention, where queries *and* transposed keys are multiplied by a factor each before their product, as the exporters write
  ``scaled_dot_product_attention``: one ``attention``. A product that is scaled afterwards was written by the model's author,
  and stays as it is.
* A packed projection taken apart (``Unsqueeze``, ``Transpose``, ``Squeeze``, one ``Gather`` each): PyTorch makes it contiguous
  first, which the older exporter leaves out.
* Writing into a slice (``ScatterND`` at places computed from sizes alone): one fill or copy; computing the places launches
  nothing.

Nodes are put together only where nothing else uses what lies between them. What an exporter folds away before it writes (batch
norms into convolutions) is not in the file, and not in the list: ``torch.onnx.export(..., dynamo=False,
training=TrainingMode.PRESERVE, do_constant_folding=False)`` and ``torch.onnx.export(..., optimize=False)`` fold nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from .model import Graph, Node, TensorHeader

X, C, S = "x", "#number", "#factor"
Template = str | tuple[Any, ...]

_ERF: list[Template] = [("Erf", ("Div", X, C)), ("Erf", ("Mul", X, C))]
_CUBE: list[Template] = [("Pow", X, C), ("Mul", ("Mul", X, X), X)]
_TANH: list[Template] = [("Tanh", ("Mul", ("Add", X, ("Mul", cube, C)), C)) for cube in _CUBE]
_DIFFERENCE = ("Sub", X, ("ReduceMean", X))
_NORM = ("Div", _DIFFERENCE, ("Sqrt", ("Add", ("ReduceMean", ("Pow", _DIFFERENCE, C)), C)))
_SCORES = ("MatMul", ("Mul", "query", S), ("Mul", ("Transpose", "key"), S))
_SOFT = [("Softmax", _SCORES), ("Softmax", ("Add", _SCORES, "mask"))]

#: What is recognised: the call, its template, and which of the template's names are its inputs.
TEMPLATES: list[tuple[str, Template, tuple[str, ...]]] = [
    *(("gelu", ("Mul", ("Mul", X, ("Add", inner, C)), C), (X,)) for inner in _ERF + _TANH),
    *(("gelu", ("Mul", ("Mul", X, C), ("Add", inner, C)), (X,)) for inner in _ERF + _TANH),
    *(("gelu", ("Mul", X, ("Mul", ("Add", inner, C), C)), (X,)) for inner in _ERF + _TANH),
    ("silu", ("Mul", X, ("Sigmoid", X)), (X,)),
    ("mish", ("Mul", X, ("Tanh", ("Softplus", X))), (X,)),
    ("hardswish", ("Mul", X, ("HardSigmoid", X)), (X,)),
    ("hardswish", ("Div", ("Mul", X, ("Clip", ("Add", X, C), C, C)), C), (X,)),
    ("log_sigmoid", ("Log", ("Sigmoid", X)), (X,)),
    ("layer_norm", ("Add", ("Mul", _NORM, "#scale"), "#shift"), (X, "#scale", "#shift")),
    ("layer_norm", _NORM, (X,)),
    ("linear", ("Add", ("MatMul", X, "#matrix"), "#row"), (X, "#matrix", "#row")),
    *(("attention", ("MatMul", soft, "value"), ("query", "key", "value", "mask")) for soft in _SOFT),
    *(
        ("attention", ("MatMul", ("Where", ("IsNaN", soft), C, soft), "value"), ("query", "key", "value", "mask"))
        for soft in _SOFT
    ),
    (
        "group_norm",
        ("Add", ("Mul", ("Reshape", ("InstanceNormalization", ("Reshape", X, "#sizes"), "#ones", "#zeros"), "#any"), "#scale"),
         "#shift"),
        (X, "#scale", "#shift"),
    ),
]  # fmt: skip
_COMMUTATIVE = frozenset({"Add", "Mul"})
_BY_LAST: dict[str, list[tuple[str, Template, tuple[str, ...]]]] = {}
for _entry in TEMPLATES:
    _BY_LAST.setdefault(_entry[1][0], []).append(_entry)


class Rewriter:
    """Puts the nodes of one graph together where they are one call of PyTorch."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._maker: dict[str, int] = {}
        self._users: dict[str, set[int]] = {}
        self._weights: dict[str, TensorHeader] = dict(graph.weights)
        for place, node in enumerate(graph.nodes):
            for name in node.outputs:
                self._maker[name] = place
            for name in node.inputs:
                self._users.setdefault(name, set()).add(place)
            if node.operator == "Constant" and node.outputs and isinstance(node.attributes.get("value"), TensorHeader):
                self._weights[node.outputs[0]] = node.attributes["value"]
            elif (
                node.operator in ("Identity", "Transpose") and node.outputs and node.inputs and node.inputs[0] in self._weights
            ):
                header = self._weights[node.inputs[0]]
                turned = node.operator == "Transpose" and len(header.shape) == 2
                self._weights[node.outputs[0]] = replace(header, shape=header.shape[::-1]) if turned else header
        self._kept = set(graph.outputs)
        self._gone: set[int] = set()

    def nodes(self) -> tuple[list[Node], frozenset[int]]:
        """The graph's nodes, put together; and which of them, by identity, compute places alone and launch nothing."""
        made: dict[int, list[Node]] = {}
        # From the end, so that what is put together is as large as it can be.
        for place in range(len(self._graph.nodes) - 1, -1, -1):
            node = self._graph.nodes[place]
            if place in self._gone:
                continue
            for kind, template, names in _BY_LAST.get(node.operator, ()):
                found = self._matched(template, place)
                if found is not None and self._sensible(kind, found[0]):
                    bound, used = found
                    self._gone |= used
                    inputs = [bound.get(name, "") for name in names]
                    made[place] = [Node(kind, "aten", node.name, inputs, node.outputs, self._details(kind, bound), node.scope)]
                    break
            else:
                made[place] = self._single(place, node)
        return [node for place in sorted(made) for node in made[place]], self._silent()

    def _single(self, place: int, node: Node) -> list[Node]:
        if node.operator == "ScatterND" and len(node.inputs) == 3 and self._from_sizes(node.inputs[1]) is not None:
            return [Node("assign", "aten", node.name, [node.inputs[0], node.inputs[2]], node.outputs, {}, node.scope)]
        if node.operator == "Squeeze" and self._is_packed(node):
            hidden = f"{node.outputs[0]}, as it lies"
            first = Node(node.operator, node.domain, node.name, node.inputs, [hidden], node.attributes, node.scope)
            return [first, Node("contiguous", "aten", node.name, [hidden], node.outputs, {}, node.scope)]
        return [node]

    # Matching

    def _matched(self, template: Template, place: int) -> tuple[dict[str, str], set[int]] | None:
        for bound, used in self._fits(template, self._graph.nodes[place].outputs[0], {}, frozenset()):
            inner = used - {place}
            names = [name for node in inner for name in self._graph.nodes[node].outputs]
            if not self._kept.intersection(names) and all(self._users.get(name, set()) <= used for name in names):
                return bound, set(used)
        return None

    def _fits(
        self, template: Template, name: str, bound: dict[str, str], used: frozenset[int]
    ) -> Iterator[tuple[dict[str, str], frozenset[int]]]:
        """Every way in which the node that makes ``name`` is of a form."""
        if isinstance(template, str):
            if template in (C, S):
                if self._is_number(name) if template == C else self._is_factor(name):
                    yield bound, used
            elif template in bound:
                if bound[template] == name:
                    yield bound, used
            elif not template.startswith("#") or template in ("#sizes", "#any") or name in self._weights:
                yield {**bound, template: name}, used
            return
        place = self._maker.get(name)
        if place is None or place in self._gone:
            return
        node = self._graph.nodes[place]
        operands = template[1:]
        if node.operator != template[0] or node.domain not in ("", "ai.onnx") or len(node.inputs) < len(operands):
            return
        orders = [operands, operands[::-1]] if node.operator in _COMMUTATIVE else [operands]
        for order in orders:
            yield from self._all_fit(order, node.inputs, bound, used | {place})

    def _all_fit(
        self, templates: tuple[Template, ...], names: list[str], bound: dict[str, str], used: frozenset[int]
    ) -> Iterator[tuple[dict[str, str], frozenset[int]]]:
        if not templates:
            yield bound, used
            return
        for further, more in self._fits(templates[0], names[0], bound, used):
            yield from self._all_fit(templates[1:], names[1:], further, more)

    def _is_number(self, name: str) -> bool:
        """Whether a name stands for a constant of one element."""
        header = self._weights.get(name)
        if header is not None:
            return all(size == 1 for size in header.shape)
        maker = self._maker.get(name)
        if maker is None:
            return False
        node = self._graph.nodes[maker]
        if node.operator in ("CastLike", "Cast", "Identity") and node.inputs:
            return self._is_number(node.inputs[0])
        return node.operator == "Constant" and bool({"value_float", "value_int"} & node.attributes.keys())

    def _is_factor(self, name: str) -> bool:
        """Whether a name stands for a number: a constant, or one computed from sizes."""
        return self._is_number(name) or (name in self._maker and self._from_sizes(name) is not None)

    def _sensible(self, kind: str, bound: dict[str, str]) -> bool:
        """What a template cannot say: sizes of weights, and whether two of them fit together."""
        if kind == "linear":
            matrix, row = self._weights[bound["#matrix"]], self._weights[bound["#row"]]
            return len(matrix.shape) == 2 and row.shape == matrix.shape[1:] and bound[X] not in self._weights
        if kind == "group_norm":
            return len(self._weights[bound["#ones"]].shape) == 1
        return True

    def _details(self, kind: str, bound: dict[str, str]) -> dict[str, Any]:
        return {"num_groups": self._weights[bound["#ones"]].shape[0]} if kind == "group_norm" else {}

    def _is_packed(self, node: Node) -> bool:
        """Whether a squeezed transpose of an unsqueezed tensor is taken apart along its first dimension."""
        name = node.inputs[0] if node.inputs else ""
        for operator in ("Transpose", "Unsqueeze"):
            place = self._maker.get(name)
            if place is None or self._graph.nodes[place].operator != operator:
                return False
            name = self._graph.nodes[place].inputs[0]
        users = [self._graph.nodes[place] for place in self._users.get(node.outputs[0], ())]
        takes = [user for user in users if user.operator == "Gather" and not user.attributes.get("axis", 0)]
        return len(takes) == len(users) > 1 and all(self._is_number(user.inputs[1]) for user in takes)

    # What is computed from sizes alone

    def _from_sizes(self, name: str) -> set[int] | None:
        """The nodes that compute a value from sizes and constants alone; ``None`` where it depends on what is in a tensor."""
        waiting, nodes = [name], set()
        while waiting:
            current = waiting.pop()
            if not current or current in self._weights:
                continue
            place = self._maker.get(current)
            if place is None:
                return None
            if place in nodes:
                continue
            nodes.add(place)
            if len(nodes) > 512:
                return None
            if self._graph.nodes[place].operator not in ("Shape", "Size"):
                waiting += self._graph.nodes[place].inputs
        return nodes

    def _silent(self) -> frozenset[int]:
        """The nodes that compute places of slices and nothing else."""
        nodes: set[int] = set()
        for node in self._graph.nodes:
            if node.operator == "ScatterND" and len(node.inputs) == 3:
                nodes |= self._from_sizes(node.inputs[1]) or set()
        writers = {place for place, node in enumerate(self._graph.nodes) if node.operator == "ScatterND"}
        while True:
            shared = {
                place
                for place in nodes
                for name in self._graph.nodes[place].outputs
                if name in self._kept or not self._users.get(name, set()) <= nodes | writers
            }
            if not shared:
                return frozenset(id(self._graph.nodes[place]) for place in nodes)
            nodes -= shared
