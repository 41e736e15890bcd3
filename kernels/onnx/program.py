# SPDX-License-Identifier: Apache-2.0
"""ONNX front end: the graph runs on shapes, node by node, through the rules of ATen's operators.

An ONNX file is one protocol-buffer message with the weights inside, which ready-made parsers load. Here they are skipped;
external data is never opened. Limits are those of :class:`jetdvfs.kernels.budget.Budget`: bytes of graph, nodes (``calls``),
weights (``tree_objects``), steps, recursion and time.
"""

from __future__ import annotations

import heapq
from collections import ChainMap
from collections.abc import MutableMapping, Sequence
from typing import Any, BinaryIO

from msgspec.structs import replace

from ..budget import Account
from ..declared_inputs import DeclaredInput
from ..errors import BudgetExceeded, ModelError, ShapeError, UnsupportedOperator
from ..inputs import were_given
from ..operators.layout import dim_of, show
from ..operators.recorder import DataDependent, Recorder, matched
from ..operators.registry import RULE_ERRORS
from ..operators.values import Tensor
from . import attention, channels_last, indexing, layers, pointwise, quantized, shapes, vendor
from .call import RULES, NodeCall, held, numbers_in
from .model import AttributeReference, ModelFunction, OnnxGraph, OnnxModel, OnnxNode, outer_names
from .patterns import Rewriter, with_copies
from .quantized import FLOATS, in_eight_bits
from .wire import Wire

__all__ = ["OnnxProgram", "attention", "channels_last", "indexing", "is_onnx", "layers", "pointwise", "quantized", "vendor"]

Names = MutableMapping[str, Any]


def is_onnx(stream: BinaryIO) -> bool:
    """True if a file starts with ONNX's format version."""
    stream.seek(0)
    start = stream.read(2)
    return len(start) == 2 and start[0] == 0x08 and 0 < start[1] < 0x40


class OnnxProgram:
    """ONNX file opened for one decomposition. Raises ModelError, or BudgetExceeded if too large.

    Args:
        by_node: use node names as scopes, instead of module paths.

    Attributes:
        position: running node, for messages.
        done: finished part of the graph, 0 to 1.
    """

    def __init__(self, stream: BinaryIO, account: Account, *, by_node: bool = False) -> None:
        self._by_node = by_node
        self.position = ""
        self.done = 0.0
        self._account = account
        self._model = OnnxModel(Wire(stream, account), account)
        for place, node in enumerate(self._model.graph.nodes if by_node else ()):
            node.name = node.name or f"{node.operator}_{place}"  # as ONNX Runtime calls it
        self._depth = 0

    def run(self, recorder: Recorder, inputs: Sequence[tuple[str, Any]]) -> None:
        """Run the graph on inputs, each with its name if it has one.

        Raises:
            ShapeError: it was exported for other inputs.
            UnsupportedOperator: an operator without a rule.
        """
        graph = self._model.graph
        names = self._start(inputs)
        self._run(recorder, graph, names)

    def mentioned(self) -> set[str]:
        return {name for node in self._model.graph.nodes for name in (*node.inputs, *outer_names(node))}

    def declared(self) -> list[DeclaredInput]:
        graph = self._model.graph
        return [item for item in graph.inputs if item.name not in graph.weights]

    def _start(self, inputs: Sequence[tuple[str, Any]]) -> Names:
        wanted = self.declared()
        described = ", ".join(map(str, wanted))
        values = matched([item.name for item in wanted], inputs)
        if values is None:
            raise ShapeError(f"the network was exported for the inputs ({described}); {were_given(inputs)}")
        names: Names = {}
        for item in wanted:
            tensor = values[item.name]
            if not isinstance(tensor, Tensor):
                raise ShapeError(
                    f"the network was exported for the inputs ({described}), all of them tensors; one with its number is given "
                    "like scalar:int64=16000"
                )
            sizes = tensor.shape if item.sizes is None else item.sizes
            fits = len(sizes) == tensor.rank and all(
                size == own for size, own in zip(sizes, tensor.shape, strict=True) if isinstance(size, int)
            )
            if not fits or item.dtype != tensor.dtype:
                raise ShapeError(
                    f"the network was exported for the inputs ({described}), not {show(tensor.shape)}:{tensor.dtype}"
                )
            names[item.name] = tensor
        return names

    def _run(self, recorder: Recorder, graph: OnnxGraph, names: Names) -> None:
        try:
            graph = in_eight_bits(in_order(graph), self._account)
            version = self._model.versions.get("", 0)
            nodes, silent = Rewriter(with_copies(graph, self._account), self._account, version).nodes()
        except RULE_ERRORS as error:
            raise ModelError(f"ONNX file: a node lacks inputs or outputs of its operator ({error!r:.120})") from error
        for name, header in graph.weights.items():
            recorder.weights[name] = names[name] = shapes.weight(NodeCall(recorder, OnnxNode("Constant"), (), 0), header)
        aside = Recorder(self._account)
        for number, node in enumerate(nodes):
            if not self._depth:
                self.done = number / len(nodes)
            self._step(aside if id(node) in silent else recorder, node, names, {})
            for made in (names.get(name) for name in node.outputs if id(node) in silent):
                if isinstance(made, Tensor):
                    made.memory.writer = -1  # no launch of this list

    def _step(self, recorder: Recorder, node: OnnxNode, names: Names, own: dict[str, Any]) -> None:
        self.position = f"node {(node.name or node.key)[:80]}"
        self._account.step()
        if own:
            node = _filled(node, own)
        inputs = []
        for name in node.inputs:
            if name and name not in names:
                raise ModelError(f"ONNX file: nothing makes the value {name!r:.80}")
            inputs.append(names[name] if name else None)
        recorder.scope = node.name if self._by_node else node.scope
        launches = len(recorder.reads)
        try:
            result = self._apply(recorder, node, inputs, names)
        except DataDependent as error:
            error.operator = error.operator or _spelled(node)
            raise
        except RULE_ERRORS as error:
            raise ShapeError(f"operator {node.key} cannot take these inputs: {error}") from error
        if len(recorder.reads) == launches or "::" in node.key:  # weights in another form; rows of tables, scales
            for value in inputs:
                if isinstance(value, Tensor):
                    value.memory.read = True
        outputs = result if isinstance(result, tuple) else (result,)
        names.update((name, value) for name, value in zip(node.outputs, outputs, strict=False) if name)

    def _apply(self, recorder: Recorder, node: OnnxNode, inputs: list[Any], names: Names) -> Any:
        call = NodeCall(recorder, node, inputs, self._model.versions.get(node.domain, 0))
        function = self._model.functions.get(f"{node.domain}::{node.operator}")
        if function is not None:
            return self._inlined(recorder, function, call)
        if node.key == "If":
            return self._branch(recorder, call, names)
        if node.key == "Loop":
            return self._loop(recorder, call, names)
        if node.key == "Scan":
            return self._scan(recorder, call, names)
        if node.written:
            call.aside = lambda wanted: self._aside(node, names, wanted)
        rule = RULES.get(node.key)
        if rule is None and (node.domain.startswith(_VENDORS) or (node.operator in WITHOUT_RULE and not node.domain)):
            raise UnsupportedOperator(f"operator {node.key:.120} of ONNX has no rule")
        if rule is None:
            raise DataDependent(
                "it is a custom operator: the file does not define its result; export without it, or accept its end"
            )
        try:
            with recorder.as_floats(FLOATS in node.attributes):
                made = rule(call)
        except DataDependent as error:
            error.operator = _spelled(node)  # not ATen's, whose rule it may use
            raise
        return self._written(recorder, node, names) if made is NotImplemented else made

    def _written(self, recorder: Recorder, node: OnnxNode, names: Names) -> Any:
        for part in node.written:
            self._step(recorder, part, names, {})
        return tuple(names[name] for name in node.outputs)

    def _aside(self, node: OnnxNode, names: Names, wanted: Sequence[str]) -> list[Any]:
        aside, inner, position, needed = Recorder(self._account), ChainMap({}, names), self.position, set(wanted)
        parts = []
        for part in reversed(node.written):
            if needed.intersection(part.outputs):
                parts.append(part)
                needed.update(part.inputs)
        for part in reversed(parts):
            self._step(aside, part, inner, {})
        self.position = position
        return [inner[name] for name in wanted]

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > self._account.budget.recursion:
            raise BudgetExceeded(f"functions and graphs call each other more than {self._depth} deep")

    def _inlined(self, recorder: Recorder, function: ModelFunction, call: NodeCall) -> Any:
        self._enter()
        names: Names = dict(zip(function.inputs, call.inputs, strict=False))
        names.update((name, None) for name in function.inputs[len(call.inputs) :])
        own = {**call.node.attributes, "": None}
        scope = call.node.scope
        for node in function.nodes:
            node.scope = scope
            self._step(recorder, node, names, own)
        self._depth -= 1
        return tuple(names.get(name) for name in function.outputs)

    def _branch(self, recorder: Recorder, call: NodeCall, names: Names) -> Any:
        graph = call.attribute("then_branch" if _truth(call.value(0), "a branch depends") else "else_branch")
        return self._inner(recorder, graph, dict(names))

    def _inner(self, recorder: Recorder, graph: Any, names: Names) -> Any:
        if not isinstance(graph, OnnxGraph):
            raise ModelError("ONNX file: an If or a Loop without a graph")
        self._enter()
        outer = self.position
        self._run(recorder, graph, names)
        self.position = outer
        self._depth -= 1
        missing = next((name for name in graph.outputs if name not in names), None)
        if missing is not None:
            raise ModelError(f"ONNX file: nothing makes the value {missing!r:.80}")
        return tuple(names[name] for name in graph.outputs)

    def _loop(self, recorder: Recorder, call: NodeCall, names: Names) -> Any:
        graph = call.attribute("body")
        if not isinstance(graph, OnnxGraph) or not (call.given(0) or call.given(1)):
            raise ModelError("ONNX file: a Loop without a body, or without an end")
        rounds = int(call.numbers(0)[0]) if call.given(0) else _ENDLESS
        going: Any = call.inputs[1] if call.given(1) else held((), "bool", [True])
        carried = list(call.inputs[2:])
        collected: list[list[Tensor]] = [[] for _ in graph.outputs[1 + len(carried) :]]
        place = 0
        while place < rounds and _truth(going, "the end of a loop depends"):
            self._account.items(place + 1)
            values = [held((), "int64", [place]), going, *carried]
            given = {item.name: value for item, value in zip(graph.inputs, values, strict=False)}
            going, *results = self._inner(recorder, graph, {**names, **given})
            carried = results[: len(carried)]
            for bucket, value in zip(collected, results[len(carried) :], strict=False):
                bucket.append(value)
            place += 1
        return (*carried, *(call.aten("stack", bucket) for bucket in collected))

    def _scan(self, recorder: Recorder, call: NodeCall, names: Names) -> Any:
        graph, count = call.attribute("body"), call.attribute("num_scan_inputs", 0)
        if not isinstance(graph, OnnxGraph) or not 0 < count <= len(call.inputs):
            raise ModelError("ONNX file: a Scan without a body, or without inputs")
        if call.version < 9:
            raise UnsupportedOperator("operator Scan of operator set 8 is not followed; export with a newer set")
        carried, scanned = (
            list(call.inputs[:-count]),
            [call.tensor(place) for place in range(len(call.inputs) - count, len(call.inputs))],
        )
        axes = call.attribute("scan_input_axes") or [0] * count
        backwards = call.attribute("scan_input_directions") or [0] * count
        rounds = {x.shape[dim_of(x.rank, axis)] for x, axis in zip(scanned, axes, strict=True)}
        if len(rounds) != 1:
            raise ShapeError(f"operator Scan over inputs of different lengths: {sorted(rounds)[:8]}")
        (length,) = rounds
        self._account.items(length)
        collected: list[list[Tensor]] = [[] for _ in graph.outputs[len(carried) :]]
        for place in range(length):
            at = [length - 1 - place if back else place for back in backwards]
            slices = [call.aten("select", x, axis, i) for x, axis, i in zip(scanned, axes, at, strict=True)]
            given = {item.name: value for item, value in zip(graph.inputs, [*carried, *slices], strict=True)}
            results = self._inner(recorder, graph, {**names, **given})
            carried = list(results[: len(carried)])
            for bucket, value in zip(collected, results[len(carried) :], strict=True):
                bucket.append(value)
        where = call.attribute("scan_output_axes") or [0] * len(collected)
        return (*carried, *(call.aten("stack", bucket, axis) for bucket, axis in zip(collected, where, strict=True)))


#: Domains of ONNX and of ONNX Runtime.
_VENDORS = ("ai.onnx", "com.microsoft", "com.ms.")
#: Operators of ONNX's own that are not followed; any other without a rule is a plug-in.
WITHOUT_RULE = frozenset(
    {
        *(
            "Det",
            "LinearAttention",
            "MaxRoiPool",
            "NegativeLogLikelihoodLoss",
            "RegexFullMatch",
            "SequenceErase",
            "SequenceMap",
        ),
        *("SoftmaxCrossEntropyLoss", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"),
    }
)
#: Number of rounds that means no limit.
_ENDLESS = (1 << 63) - 1


def _truth(value: Any, what: str) -> bool:
    """Truth of a condition. Raises DataDependent, or ShapeError for several numbers."""
    try:
        numbers = numbers_in(value)
    except DataDependent:
        raise DataDependent(f"{what} on the contents of a tensor") from None
    if len(numbers) != 1:
        raise ShapeError(f"a condition of {len(numbers)} truth values")
    return bool(numbers[0])


def in_order(graph: OnnxGraph) -> OnnxGraph:
    """Graph in topological order; converters may append nodes at the end."""
    maker = {name: place for place, node in enumerate(graph.nodes) for name in node.outputs if name}
    needed = [
        {maker[name] for name in (*node.inputs, *outer_names(node)) if maker.get(name, place) != place}
        for place, node in enumerate(graph.nodes)
    ]
    if all(max(before, default=-1) < place for place, before in enumerate(needed)):
        return graph
    users: list[list[int]] = [[] for _ in needed]
    for place, before in enumerate(needed):
        for other in before:
            users[other].append(place)
    ready = [place for place, before in enumerate(needed) if not before]
    heapq.heapify(ready)
    order = []
    while ready:
        place = heapq.heappop(ready)
        order.append(place)
        for user in users[place]:
            needed[user].discard(place)
            if not needed[user]:
                heapq.heappush(ready, user)
    if len(order) < len(needed):
        stuck = graph.nodes[next(place for place, before in enumerate(needed) if before)]
        raise ModelError(
            f"ONNX file: nodes need each other's results in a circle, node {(stuck.name or stuck.key)!r:.80} among them"
        )
    return replace(graph, nodes=[graph.nodes[place] for place in order])


def _spelled(node: OnnxNode) -> str:
    return node.key[:200] if "::" in node.key else f"onnx::{node.key[:200]}"


def _filled(node: OnnxNode, own: dict[str, Any]) -> OnnxNode:
    given = node.attributes.items()
    attributes = {name: own.get(value.name) if isinstance(value, AttributeReference) else value for name, value in given}
    return replace(node, attributes=attributes)
