# SPDX-License-Identifier: Apache-2.0
"""ONNX nodes joined into the one call that PyTorch makes.

All differences between an ONNX file and its exported network are here (:mod:`.templates` has the spellings):

* Norms written out are one call up to the operator set (17) with an operator for them.
* Attention is one call if queries *and* transposed keys are scaled before their product, as exporters write
  ``scaled_dot_product_attention``, or if the newer exporter noted that call. Repeated heads are shared (``enable_gqa``)
  unless the note says that the author repeated them.
* An unpacked projection, tokens that become a picture for a convolution, rows of permuted fixed indices and a weight
  written into are copied first, which the older exporter omits; :func:`with_copies` adds copies that the newer one omits.
* Two slices of one tensor swapped along successive dimensions: one ``roll``.
* Weights of recurrent layers packed into ONNX's order: nothing. Several layers are one launch each.
* Writing into a slice (``ScatterND`` at places computed from sizes alone): one fill or copy.

Nodes are joined only if no other node reads the values between them. Batch norms folded by an exporter are not in the file:
``torch.onnx.export(..., dynamo=False, training=TrainingMode.PRESERVE, do_constant_folding=False)`` and
``torch.onnx.export(..., optimize=False)`` fold nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from ..budget import Account
from ..errors import ModelError
from .model import OnnxGraph, OnnxNode, TensorHeader, outer_names
from .quantized import FLOATS
from .templates import ANY, BY_LAST, DECIDED_BY_SHAPES, C, S, Template, has_attributes, is_close

_COPIES = re.compile(r"%((?:clone|contiguous)(?:_\d+)?)\b")
#: Calls that are written as ``Unsqueeze``, ``Expand`` and ``Reshape``.
_SPREADS = "aten.repeat_interleave.self_int]"
_INDEXES, _LISTS = "aten.index", re.compile(r"\[[^\]]*\]")
_NAMES = re.compile(r"%(\w+)")


def with_copies(graph: OnnxGraph, account: Account) -> OnnxGraph:
    """Graph with a node for each noted copy that no node makes."""
    made = {name for node in graph.nodes for name in node.outputs} | set(graph.weights) | {item.name for item in graph.inputs}
    source: dict[str, str] = {}  # of each copy
    within: dict[str, str] = {}  # which call a value belongs to
    nodes: list[OnnxNode] = []
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
                    nodes.append(OnnxNode("contiguous", "aten", inputs=[source[copy]], outputs=[copy], scope=node.scope))
            spread = node.inputs[0] if node.inputs else ""
            if _SPREADS in node.origin and node.operator == "Reshape" and within.get(spread) == call:
                copy = f"copy of {spread}"
                source[copy] = spread
                nodes.append(OnnxNode("contiguous", "aten", inputs=[spread], outputs=[copy], scope=node.scope))
            if copy in source:
                node = replace(node, inputs=[copy if name == source[copy] else name for name in node.inputs])
        nodes.append(node)
    return replace(graph, nodes=nodes)


_CALLED = re.compile(r"scaled_dot_product_attention\.default\]\(args = \((.*?)\), kwargs = \{(.*?)\}\)")
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
#: Operators whose inputs but the first say sizes and places.
_SIZED = frozenset({"Reshape", "Expand", "Slice", "Tile", "Unsqueeze", "Squeeze", "Split", "Pad", "Resize", "TopK"})
_NONE: dict[str, Any] = {}
_COMMUTATIVE = frozenset({"Add", "Mul"})
#: Operators that keep their input's order in memory.
_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div", "Cast"})


def _read_by(node: OnnxNode) -> list[str]:
    return node.inputs[:1] if node.operator == "CastLike" else [*node.inputs, *sorted(outer_names(node))]


class Rewriter:
    """Joins nodes of one graph into calls of PyTorch."""

    def __init__(self, graph: OnnxGraph, account: Account, version: int = 0) -> None:
        self._graph = graph
        self._version = version  # of ONNX's own operators
        self._account = account
        self._maker: dict[str, int] = {}
        self._users: dict[str, set[int]] = {}
        self._weights: dict[str, TensorHeader] = dict(graph.weights)
        for place, node in enumerate(graph.nodes):
            for name in node.outputs:
                self._maker[name] = place
            for name in _read_by(node):
                self._users.setdefault(name, set()).add(place)
            if node.operator == "Constant" and node.outputs and isinstance(node.attributes.get("value"), TensorHeader):
                self._weights[node.outputs[0]] = node.attributes["value"]
        self._sizes: set[str] = set()
        self._fixed: set[str] = set(self._weights)
        self._find_sizes()
        for node in graph.nodes:  # weights that were transposed, or written into by other nodes
            changed = node.operator in ("Identity", "Transpose", "ScatterND") and self._fixed.issuperset(node.outputs)
            if changed and node.inputs and node.inputs[0] in self._weights:
                header = self._weights[node.inputs[0]]
                turned = node.operator == "Transpose" and len(header.shape) == 2
                self._weights.update(
                    dict.fromkeys(node.outputs, replace(header, shape=header.shape[::-1]) if turned else header)
                )
        self._kept = set(graph.outputs)
        self._gone: set[int] = set()
        self._made: dict[int, list[OnnxNode]] = {}

    def nodes(self) -> tuple[list[OnnxNode], frozenset[int]]:
        """Joined nodes, and identities of those that only compute places and launch nothing."""
        made = self._made
        # From the end, so that joined calls are as large as possible.
        for place in range(len(self._graph.nodes) - 1, -1, -1):
            node = self._graph.nodes[place]
            if place in self._gone:
                continue
            if not node.outputs:
                raise ModelError(f"ONNX file: node {(node.name or node.key)!r:.80} has no outputs")
            templates = BY_LAST.get(node.operator, ())
            makers = [self._maker[name] for name in node.inputs if name in self._maker] if templates else []
            operators = {self._graph.nodes[maker].operator for maker in makers}
            for kind, template, names, before in templates:
                found = self._matched(template, place) if before <= operators else None
                if found is not None and self._sensible(kind, *found):
                    bound, used = found
                    self._gone |= used
                    inputs = [bound.get(name, "") for name in names]
                    details = self._details(kind, bound, used)
                    if any(FLOATS in self._graph.nodes[inner].attributes for inner in used):
                        details = {**details, FLOATS: 1}
                    written = [self._graph.nodes[inner] for inner in sorted(used)] if kind in DECIDED_BY_SHAPES else []
                    call = OnnxNode(kind, "aten", node.name, inputs, node.outputs, details, node.scope, written=written)
                    made[place] = [self._of_contiguous(call) if kind == "layer_norm" else call]
                    break
            else:
                made[place] = self._single(place, node)
        silent = self._silent()
        return self._needed([node for place in sorted(made) for node in made[place]]), silent

    def _needed(self, nodes: list[OnnxNode]) -> list[OnnxNode]:
        wanted, kept = set(self._kept), []
        left: dict[str, OnnxNode] = {}
        for node in reversed(nodes):
            if node.operator == "assign" or any(name in wanted or name not in self._users for name in node.outputs):
                wanted.update(node.inputs, outer_names(node))
                kept.append(node)
            else:
                left.update(dict.fromkeys(node.outputs, node))
        places = {id(node): place for place, node in enumerate(nodes)} if left else {}
        for node in kept:
            more: dict[int, OnnxNode] = {}
            waiting = list(node.written)
            while waiting:
                waiting += (found := [left[name] for name in waiting.pop().inputs if name in left])
                more.update((places[id(inner)], inner) for inner in found)
            node.written[:0] = [more[place] for place in sorted(more)]
        return kept[::-1]

    def _single(self, place: int, node: OnnxNode) -> list[OnnxNode]:
        if node.operator == "LayerNormalization":
            return [self._of_contiguous(node)]
        if node.operator == "Concat" and "aten._to_copy." in node.origin and "torch.complex" in node.origin:
            return [OnnxNode("as_complex", "aten", node.name, node.inputs[:1], node.outputs, {}, node.scope)]
        if node.operator == "DFT" and node.origin:  # one node for each dimension of a call
            around = (self._graph.nodes[at] for at in {self._maker.get(node.inputs[0], 0), *self._readers(node.outputs[0])})
            same = [other for other in around if other.operator == "DFT" and other.origin == node.origin]
            is_later = bool(same) and node.outputs[0] not in same[0].inputs
            if not node.attributes.get("onesided") and (is_later or any(other.attributes.get("onesided") for other in same)):
                return [replace(node, operator="transformed", domain="aten", written=[node])]
        if node.operator == "Concat":
            turned, used = self._rolled(place)
            if turned is not None:
                self._gone |= used
                return [turned]
        if self._writes_slice(node):
            details = {"fill": int(node.inputs[2] in self._sizes), "passed": int(self._is_passed_on(node.inputs[2]))}
            return [OnnxNode("assign", "aten", node.name, node.inputs, node.outputs, details | node.attributes, node.scope)]
        if node.operator == "Not" and "aten.ne." in node.origin:
            maker = self._maker.get(node.inputs[0])
            if maker is not None and self._graph.nodes[maker].operator == "Equal":  # which other nodes use, too
                return [OnnxNode("ne", "aten", node.name, self._graph.nodes[maker].inputs, node.outputs, {}, node.scope)]
        moved = node.operator == "Transpose" and (self._is_table(node) or self._is_picture(node))
        if moved or (node.operator == "Squeeze" and self._is_packed(node)):
            hidden = f"{node.outputs[0]}, as it lies"
            first = OnnxNode(node.operator, node.domain, node.name, node.inputs, [hidden], node.attributes, node.scope)
            details = {"assumed": int(self._is_picture(node))}  # some authors do without
            return [first, OnnxNode("contiguous", "aten", node.name, [hidden], node.outputs, details, node.scope)]
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
        """Matches of a template by the node that makes ``name``."""
        self._account.step()
        if isinstance(template, str):
            if template in (C, S):
                if self._is_number(name) if template == C else self._is_factor(name):
                    yield bound, used
            elif template == ANY:
                yield bound, used
            elif template in bound:
                if bound[template] == name:
                    yield bound, used
            elif not template.startswith("#") or name in self._fixed:
                yield {**bound, template: name}, used
            return
        if isinstance(template, float):
            number = self._number(name)
            if number is not None and is_close(number, template):
                yield bound, used
            return
        place = self._maker.get(name)
        if place is None or place in self._gone:
            return
        node = self._graph.nodes[place]
        if node.operator != template[0] or node.domain not in ("", "ai.onnx"):
            return
        attributes = template[-1] if type(template[-1]) is dict else _NONE
        operands = template[1:-1] if attributes else template[1:]
        if len(node.inputs) != len(operands) or ((attributes or node.attributes) and not has_attributes(node, attributes)):
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
        constant = self._constant(name)
        return constant is not None and (not isinstance(constant, TensorHeader) or constant.shape in ((), (1,)))

    def _number(self, name: str) -> float | None:
        constant = self._constant(name)
        if not isinstance(constant, TensorHeader):
            return constant
        try:
            return constant.numbers()[0] if constant.shape in ((), (1,)) else None
        except ModelError:
            return None

    def _constant(self, name: str) -> TensorHeader | float | None:
        header = self._weights.get(name)
        maker = self._maker.get(name) if header is None else None
        if maker is None:
            return header
        node = self._graph.nodes[maker]
        if node.operator in ("CastLike", "Cast", "Identity") and node.inputs:
            return self._constant(node.inputs[0])
        plain = node.operator == "Constant" and (node.attributes.get("value_float"), node.attributes.get("value_int"))
        return next((number for number in plain or () if isinstance(number, (int, float))), None)

    def _is_factor(self, name: str) -> bool:
        return name in self._sizes

    def _sensible(self, kind: str, bound: dict[str, str], used: set[int]) -> bool:
        if kind == "group_norm":
            ones, zeros = (self._filled(bound[name]) for name in ("#ones", "#zeros"))
            return (ones, zeros) == (1, 0) and len(self._weights[bound["#ones"]].shape) == 1
        if kind == "layer_norm":
            scale = self._weights.get(bound.get("#scale", ""))
            axes = self._details(kind, bound, used)["axes"]
            # From set 17 on there is an operator, and spelled-out norms are the author's.
            return self._version < 17 and axes is not None and (scale is None or len(scale.shape) == len(axes))
        if kind == "rms_norm":  # else the author wrote it out
            return all("rms_norm(" in self._graph.nodes[place].line for place in used)
        if kind == "floor_divide":
            divisor, negative = self._number(bound["#divisor"]), self._number(bound["#negative"])
            return divisor is not None and divisor == self._number(bound["#by"]) and bool(negative) == (divisor < 0)
        if kind == "baddbmm" and "#beta" not in bound:
            return any("aten.baddbmm." in self._graph.nodes[place].origin for place in used)
        if kind == "baddbmm":  # as exporters alone write it: once the sum, or none of it
            beta = self._weights.get(bound["#beta"])
            return beta is not None and beta.shape in ((), (1,)) and beta.numbers()[0] in (0, 1)
        if kind == "attention":
            noted, operators = self._noted(used), {self._graph.nodes[place].operator for place in used}
            if not self._turns_keys_alone(bound, used):
                return False
            if noted is None:
                return "Mul" in operators  # without a factor the model's author wrote it
            return "Unsqueeze" not in operators or "enable_gqa: True" in noted[2]
        return True

    def _filled(self, name: str) -> float | None:
        try:
            return next(iter(numbers)) if len(numbers := set(self._weights[name].numbers())) == 1 else None
        except (KeyError, ModelError):
            return None

    def _turns_keys_alone(self, bound: dict[str, str], used: set[int]) -> bool:
        """True if heads are repeated one by one, and keys are transposed as matrices."""
        for node in (self._graph.nodes[place] for place in used):
            order = node.attributes.get("perm") or []
            last = len(order)
            if node.operator == "Unsqueeze" and self._number(node.inputs[1]) not in (2, -3):
                return False
            if node.operator == "Transpose" and order != [*range(last - 2), last - 1, last - 2]:
                users = {self._graph.nodes[place].operator for place in self._users[node.outputs[0]]}
                if bound["key"] not in node.inputs or "Reshape" in users:
                    return False
        return True

    def _noted(self, used: set[int]) -> re.Match[str] | None:
        return next((found for place in sorted(used) if (found := _CALLED.search(self._graph.nodes[place].origin))), None)

    def _details(self, kind: str, bound: dict[str, str], used: set[int]) -> dict[str, Any]:
        if kind == "group_norm":
            return {"num_groups": self._weights[bound["#ones"]].shape[0]}
        if kind in ("layer_norm", "rms_norm"):
            means = (self._graph.nodes[place] for place in used if self._graph.nodes[place].operator == "ReduceMean")
            first, *more = [node.attributes.get("axes") for node in means]
            return {"axes": first if all(axes == first for axes in more) else None}
        if kind != "attention":
            return {}
        nodes = [self._graph.nodes[place] for place in sorted(used)]
        orders = [node.attributes.get("perm") for node in nodes if node.operator == "Transpose" and bound["key"] in node.inputs]
        scores, *_, product = (node for node in nodes if node.operator == "MatMul")
        turned = scores.inputs[1]
        scaled = self._graph.nodes[self._maker[turned]]
        if scaled.operator == "Mul":
            turned = next(name for name in scaled.inputs if self._maker.get(name) in used)
        triangles = [node.inputs[0] for node in nodes if node.operator == "Trilu"]
        soft = next(node for node in nodes if node.operator == "Softmax")
        details = {
            "turned": [turned, product.inputs[1], *triangles],
            "axis": soft.attributes.get("axis", -1 if self._version >= 13 else 1),
            "causal": len(triangles),
            "shared": int(any(node.operator == "Unsqueeze" for node in nodes)),
        }
        if orders:
            details["perm"] = orders[0]
        noted = self._noted(used)
        if noted is not None:  # its triangle is a constant
            given = [argument.strip() for argument in noted[1].split(",")]
            causal = given[5:6] == ["True"] or "is_causal: True" in noted[2]
            details |= {"causal": int(causal), "unmasked": int(given[3:4] in ([], ["None"]) and "attn_mask:" not in noted[2])}
        return details

    def _is_packed(self, node: OnnxNode) -> bool:
        name = node.inputs[0] if node.inputs else ""
        for operator in ("Transpose", "Unsqueeze"):
            place = self._maker.get(name)
            if place is None or self._graph.nodes[place].operator != operator:
                return False
            name = self._graph.nodes[place].inputs[0]
        users = [self._graph.nodes[place] for place in self._users.get(node.outputs[0], ())]
        takes = [user for user in users if user.operator == "Gather" and not user.attributes.get("axis", 0)]
        return len(takes) == len(users) > 1 and all(self._is_number(user.inputs[1]) for user in takes)

    def _is_passed_on(self, name: str) -> bool:
        """True if a slice is written back after a smaller part of it was written to."""
        place = self._maker.get(name)
        while place is not None and self._graph.nodes[place].operator in ("Transpose", "Identity"):
            self._account.step()
            place = self._maker.get(self._graph.nodes[place].inputs[0])
        return place is not None and self._graph.nodes[place].operator in ("ScatterND", "ScatterElements")

    def _is_table(self, node: OnnxNode) -> bool:
        name = node.inputs[0] if node.inputs else ""
        place = self._maker.get(name)
        if place is None or self._graph.nodes[place].operator != "Reshape":
            return False
        place = self._maker.get(self._graph.nodes[place].inputs[0])
        picked = None if place is None else self._graph.nodes[place]
        if picked is None or picked.operator != "Gather" or node.attributes.get("perm") != [2, 0, 1]:
            return False
        return picked.inputs[1] in self._sizes and not self._is_number(picked.inputs[1])

    def _writes_slice(self, node: OnnxNode) -> bool:
        if len(node.inputs) != 3 or node.inputs[1] not in self._sizes or node.attributes.get("reduction", "none") != "none":
            return False
        if node.operator == "ScatterElements":
            return "aten.select_scatter." in node.origin
        return node.operator == "ScatterND" and not self._is_masked(node)

    def _is_masked(self, node: OnnxNode) -> bool:
        turned = self._maker.get(node.inputs[1])
        if turned is None or self._graph.nodes[turned].operator != "Transpose":
            return False
        found = self._maker.get(self._graph.nodes[turned].inputs[0])
        return found is not None and self._graph.nodes[found].operator == "NonZero"

    def _is_picture(self, node: OnnxNode) -> bool:
        """True if it moves channels of tokens first for a convolution: most authors make that contiguous."""
        maker = self._maker.get(node.inputs[0]) if node.inputs else None
        if maker is None or self._graph.nodes[maker].operator != "Reshape":
            return False
        users = self._users.get(node.outputs[0], ())
        convolves = all(self._graph.nodes[place].operator == "Conv" for place in users)
        return node.attributes.get("perm") == [0, 3, 1, 2] and not node.origin and bool(users) and convolves

    def _of_contiguous(self, norm: OnnxNode) -> OnnxNode:
        """Norm that copies arithmetic results in another order than memory's.

        The author may have called ``contiguous`` before that, once for all norms (SD3), or not (DiT).
        """
        maker = self._maker.get(norm.inputs[0])
        if norm.origin or maker is None or self._graph.nodes[maker].operator not in _ARITHMETIC:
            return norm
        return replace(norm, attributes={**norm.attributes, "assumed": 1})

    def _readers(self, name: str) -> set[int]:
        return {place for place in self._users.get(name, ()) if self._graph.nodes[place].operator not in ("Shape", "Size")}

    def _rolled(self, place: int) -> tuple[OnnxNode | None, set[int]]:
        """Two joined slices of one tensor as a ``roll``, whose rule checks sizes."""
        node = self._graph.nodes[place]
        makers = [self._maker.get(name) for name in node.inputs]
        used = {maker for maker in makers if maker is not None and maker not in self._gone}
        slices = [self._graph.nodes[maker] for maker in makers if maker in used]
        if (
            len(makers) != 2
            or len(used) != 2
            or any(
                part.operator != "Slice"
                or not 4 <= len(part.inputs) <= 5
                or part.inputs[0] != slices[0].inputs[0]
                or self._users[part.outputs[0]] != {place}
                or self._kept.intersection(part.outputs)
                or not all(not name or self._is_factor(name) for name in part.inputs[1:])
                for part in slices
            )
        ):
            return None, set()
        source, axes = slices[0].inputs[0], [node.attributes.get("axis", 0)]
        turns = [name for part in slices for name in (*part.inputs[1:], "")[:4]]
        written = [*slices, node]
        before = self._maker.get(source)
        if before is not None and self._users[source] == used and source not in self._kept and self._joins(before):
            earlier, more = self._rolled(before)
            if earlier is not None:
                axes, used = earlier.attributes["axes"] + axes, used | more | {before}
                source, turns = earlier.inputs[0], [*earlier.inputs[1:], *turns]
                written = [earlier, *written]
        made = OnnxNode("roll", "aten", node.name, [source, *turns], node.outputs, {"axes": axes}, node.scope, written=written)
        return made, used

    def _joins(self, place: int) -> bool:
        return place not in self._gone and self._graph.nodes[place].operator == "Concat"

    # Values computed from sizes alone

    def _find_sizes(self) -> None:
        for name, header in self._weights.items():
            if header.dtype.startswith(("int", "bool")) or all(size == 1 for size in header.shape):
                self._sizes.add(name)
        for node in self._graph.nodes:
            read = _read_by(node)
            plain = node.operator == "Constant" and not isinstance(node.attributes.get("value"), TensorHeader)
            if node.operator in ("Shape", "Size") or plain or (read and all(not name or name in self._sizes for name in read)):
                self._sizes.update(node.outputs)
            if plain or (read and all(not name or name in self._fixed for name in read)):
                self._fixed.update(node.outputs)

    def _silent(self) -> frozenset[int]:
        silent: set[int] = set()
        for place in range(len(self._graph.nodes) - 1, -1, -1):
            node = self._graph.nodes[place]
            names = node.outputs
            alone = all(name in self._sizes for name in names) or all(name in self._fixed for name in names)
            if alone and not self._kept.intersection(names):
                readers = {reader for name in node.outputs for reader in self._readers(name)}
                if all(reader in silent or self._only_prepared(reader, node) for reader in readers):
                    silent.add(place)
        return frozenset(id(self._graph.nodes[place]) for place in silent)

    def _only_prepared(self, place: int, source: OnnxNode) -> bool:
        """True if a node's other operand is ready in PyTorch: a place of a slice, weights of a recurrent layer."""
        node = self._graph.nodes[place]
        data = node.inputs[0] if node.inputs else ""
        if node.operator == "ConstantOfShape":
            return True
        if data in source.outputs:
            return False
        if node.operator in _RECURRENT or self._writes_slice(node):
            return True
        return node.operator in _SIZED
