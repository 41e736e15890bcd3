# SPDX-License-Identifier: Apache-2.0
"""Graphs of nodes in an ONNX file, and headers of their weights (onnx/onnx.proto, by field number)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from ..budget import Account
from ..declared_inputs import DeclaredInput
from ..errors import BudgetExceeded, ModelError
from ..network import numel
from ..operators.host.arrays import FEW
from ..operators.values import READABLE, Number
from .wire import BYTES, FIXED32, Field, Wire, signed, single

#: ``TensorProto.DataType``; strings are not followed.
TYPES: Mapping[int, str] = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "int16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "int32",
    13: "int64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1",
    24: "float8_e8m0fnu",
    25: "uint2",
    26: "int2",
}
FORMATS = READABLE | {"bfloat16": "H"}


class TensorHeader(Struct, frozen=True):
    """Weight or constant: name, shape, element type, and place of its numbers."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    wire: Wire
    parts: tuple[Field, ...]
    external: bool = False

    def numbers(self) -> list[Number]:
        """Contents, if few and in the file, else ModelError."""
        count = numel(self.shape)
        if count > FEW or self.external or self.dtype not in FORMATS:
            raise ModelError(f"constant {self.name!r:.80}: the numbers of {count} {self.dtype} elements are not read")
        numbers: list[Number] = []
        halves = self.dtype in ("float16", "bfloat16")
        for part in self.parts:
            if part.number == 4:
                numbers += self.wire.floats(part)
            elif part.number in (5, 7) and not halves:
                numbers += self.wire.packed(part)
            elif part.number in (5, 9, 10):
                code = "d" if part.number == 10 else FORMATS[self.dtype]
                if part.number == 5:
                    bits = [item & 0xFFFF for item in self.wire.packed(part)]
                    data = struct.pack(f"<{len(bits)}H", *bits)
                else:
                    data = self.wire.bytes(part.value, part.end)
                size = struct.calcsize(code)
                read = struct.unpack(f"<{len(data) // size}{code}", data[: len(data) // size * size])
                numbers += read if self.dtype != "bfloat16" else [single(item << 16) for item in read]
            else:
                raise ModelError(f"constant {self.name!r:.80}: its numbers are written in a way that is not read")
        if len(numbers) != count:
            raise ModelError(f"constant {self.name!r:.80}: its shape {self.shape} needs {count} numbers, it has {len(numbers)}")
        return numbers


class OnnxNode(Struct):
    """One operator call, with notes of PyTorch's exporters.

    Attributes:
        scope: its module.
        origin: its call of ATen, by the newer exporter; ``line`` is its line of Python.
        written: original nodes of a joined call, which run if shapes do not fit the call.
    """

    operator: str = ""
    domain: str = ""
    name: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    scope: str = ""
    origin: str = ""
    line: str = ""
    written: list[OnnxNode] = field(default_factory=list)

    @property
    def key(self) -> str:
        return self.operator if self.domain in ("", "ai.onnx") else f"{self.domain}::{self.operator}"


class OnnxGraph(Struct):
    """Nodes in execution order, with inputs, weights and outputs."""

    nodes: list[OnnxNode] = field(default_factory=list)
    weights: dict[str, TensorHeader] = field(default_factory=dict)
    inputs: list[DeclaredInput] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


class ModelFunction(Struct, frozen=True):
    """Operator defined by other operators in the file."""

    inputs: Sequence[str]
    outputs: Sequence[str]
    nodes: Sequence[OnnxNode]


class AttributeReference(Struct, frozen=True):
    """Reference to an attribute of the function."""

    name: str


class OnnxModel:
    """ONNX file opened for one decomposition. Raises ModelError, or BudgetExceeded if too large.

    Attributes:
        functions: operators it defines, by domain and name.
        versions: the operator set of each domain.
    """

    def __init__(self, wire: Wire, account: Account) -> None:
        self._wire = wire
        self._account = account
        self._nodes = 0
        self._scopes: set[str] = set()
        self.functions: dict[str, ModelFunction] = {}
        self.versions: dict[str, int] = {}
        graph: OnnxGraph | None = None
        for item in wire.fields(0, wire.length):
            if item.number == 7 and item.wire == BYTES:
                graph = self._graph(item, 0)
            elif item.number == 8 and item.wire == BYTES:
                parts = {part.number: part for part in wire.fields(item.value, item.end)}
                domain = wire.text(parts[1]) if 1 in parts else ""
                self.versions["" if domain == "ai.onnx" else domain] = parts[2].value if 2 in parts else 0
            elif item.number == 25 and item.wire == BYTES:
                self._function(item)
        if graph is None:
            raise ModelError("not an ONNX file: it holds no graph (models of Core ML and of TensorFlow start like one)")
        self.graph = graph

    def _graph(self, at: Field, depth: int) -> OnnxGraph:
        if depth > 8:
            raise BudgetExceeded("ONNX file: graphs are nested too deeply")
        graph = OnnxGraph()
        wire = self._wire
        for item in wire.fields(at.value, at.end):
            if item.wire != BYTES:
                continue
            if item.number == 1:
                graph.nodes.append(self._node(item, depth))
            elif item.number == 5:
                weight = self._tensor(item)
                graph.weights[weight.name] = weight
                if len(graph.weights) > self._account.budget.tree_objects:
                    raise BudgetExceeded(f"ONNX file has more than {self._account.budget.tree_objects} weights")
            elif item.number == 11:
                graph.inputs.append(self._declared(item))
            elif item.number == 12:
                graph.outputs.append(self._declared(item).name)
            elif item.number == 15:
                raise ModelError("ONNX file: sparse weights are not followed")
        return graph

    def _function(self, at: Field) -> None:
        wire = self._wire
        texts: dict[int, list[str]] = {number: [] for number in (1, 4, 5, 10, 13)}
        nodes: list[OnnxNode] = []
        for item in wire.fields(at.value, at.end):
            if item.number in texts:
                texts[item.number].append(wire.text(item))
            elif item.number == 7 and item.wire == BYTES:
                nodes.append(self._node(item, 0))
        name, domain, overload = (texts[number][-1] if texts[number] else "" for number in (1, 10, 13))
        if not overload:
            self.functions[f"{domain}::{name}"] = ModelFunction(texts[4], texts[5], nodes)

    def _node(self, at: Field, depth: int) -> OnnxNode:
        self._nodes += 1
        if self._nodes > self._account.budget.calls:
            raise BudgetExceeded(f"ONNX file has more than {self._account.budget.calls} nodes")
        node = OnnxNode()
        wire = self._wire
        for item in wire.fields(at.value, at.end):
            if item.number == 1:
                node.inputs.append(wire.text(item))
            elif item.number == 2:
                node.outputs.append(wire.text(item))
            elif item.number == 3:
                node.name = wire.text(item)
            elif item.number == 4:
                node.operator = wire.text(item)
            elif item.number == 7:
                node.domain = wire.text(item)
            elif item.number == 5 and item.wire == BYTES:
                name, value = self._attribute(item, depth)
                node.attributes[name] = value
            elif item.number == 9 and item.wire == BYTES:
                self._note(node, item)
        if not node.scope:
            node.scope = self._first_called(_path_in(node.name))
        return node

    def _first_called(self, scope: str) -> str:
        """Module path without the count that the older exporter appends from its second call on."""
        stem, _, count = scope.rpartition("_")
        if stem in self._scopes and count.isdecimal():
            return stem
        self._scopes.add(scope)
        return scope

    def _note(self, node: OnnxNode, at: Field) -> None:
        parts = {item.number: item for item in self._wire.fields(at.value, at.end)}
        key = self._wire.text(parts[1]) if 1 in parts else ""
        if key == "pkg.torch.onnx.name_scopes" and 2 in parts:
            names = [part.strip(" '\"") for part in self._wire.text(parts[2]).strip("[]").split(",")]
            node.scope = names[-2] if len(names) > 1 else ""
        elif key == "pkg.torch.onnx.fx_node" and 2 in parts:
            node.origin = self._wire.text(parts[2])
        elif key == "pkg.torch.onnx.stack_trace" and 2 in parts:
            node.line = self._wire.text(parts[2]).rstrip().rpartition("\n")[2].strip()

    def _attribute(self, at: Field, depth: int) -> tuple[str, Any]:
        wire = self._wire
        name = ""
        value: Any = None
        integers: list[int] = []
        floats: list[float] = []
        strings: list[str] = []
        kind = 0
        for item in wire.fields(at.value, at.end):
            if item.number == 1:
                name = wire.text(item)
            elif item.number == 20:
                kind = item.value
            elif item.number == 21:
                value = AttributeReference(wire.text(item))
            elif item.number == 2 and item.wire == FIXED32:
                value = single(item.value)
            elif item.number == 3:
                value = signed(item.value)
            elif item.number == 4:
                value = wire.text(item)
            elif item.number == 5 and item.wire == BYTES:
                value = self._tensor(item)
            elif item.number == 6 and item.wire == BYTES:
                value = self._graph(item, depth + 1)
            elif item.number == 7:
                floats += wire.floats(item)
            elif item.number == 8:
                integers += wire.packed(item)
            elif item.number == 9:
                strings.append(wire.text(item))
            self._account.items(len(integers) + len(floats) + len(strings))
        if value is None:
            # A number that is zero, or a list without items, is not written at all: the attribute's type says which it is.
            empty: dict[int, Any] = {1: 0.0, 2: 0, 3: ""}
            value = empty.get(kind, integers or floats or strings)
        return name, value

    def _tensor(self, at: Field) -> TensorHeader:
        wire = self._wire
        name, code = "", 0
        sizes: list[int] = []
        parts: list[Field] = []
        external = False
        for item in wire.fields(at.value, at.end):
            if item.number == 1:
                sizes += wire.packed(item)
            elif item.number == 2:
                code = item.value
            elif item.number == 8:
                name = wire.text(item)
            elif item.number in (4, 5, 7, 9, 10, 11):
                parts.append(item)
                self._account.items(len(parts))
            elif item.number == 14:
                external = item.value == 1
        if len(sizes) > self._account.budget.rank or min(sizes, default=0) < 0:
            raise ModelError(f"constant {name!r:.80} has an invalid shape")
        if code not in TYPES:
            raise ModelError(f"constant {name!r:.80} is of element type {code} of ONNX, which is not followed")
        return TensorHeader(name, tuple(sizes), TYPES[code], wire, tuple(parts), external)

    def _declared(self, at: Field) -> DeclaredInput:
        wire = self._wire
        name, code = "", 1
        sizes: tuple[int | str, ...] | None = None
        for item in wire.fields(at.value, at.end):
            if item.number == 1:
                name = wire.text(item)
            elif item.number == 2 and item.wire == BYTES:
                for kind in wire.fields(item.value, item.end):
                    if kind.number == 1 and kind.wire == BYTES:
                        code, sizes = self._tensor_type(kind)
        return DeclaredInput(name, sizes, TYPES.get(code, f"element type {code}"))

    def _tensor_type(self, at: Field) -> tuple[int, tuple[int | str, ...] | None]:
        wire = self._wire
        code = 1
        sizes: list[int | str] | None = None
        for item in wire.fields(at.value, at.end):
            if item.number == 1:
                code = item.value
            elif item.number == 2 and item.wire == BYTES:
                sizes = []
                for dimension in wire.fields(item.value, item.end):
                    known = dimension.number == 1 and dimension.wire == BYTES
                    parts = {part.number: part for part in wire.fields(dimension.value, dimension.end)} if known else {}
                    size = signed(parts[1].value) if 1 in parts else 0
                    # Some exporters write free sizes as 0 or -1.
                    sizes.append(size if size > 0 else wire.text(parts[2]) if 2 in parts else "")
                    self._account.items(len(sizes))
        return code, None if sizes is None else tuple(sizes)


def outer_names(node: OnnxNode) -> set[str]:
    """Names used by the graphs within a node, outer ones included."""
    names: set[str] = set()
    for graph in node.attributes.values():
        if isinstance(graph, OnnxGraph):
            names.update(graph.outputs)
            for inner in graph.nodes:
                names.update(inner.inputs, outer_names(inner))
    return names


def _path_in(name: str) -> str:
    """Module path in a node's name of the older exporter: ``/layer1/layer1.0/conv1/Conv`` is layer1.0.conv1."""
    path = previous = ""
    for part in name.split("/")[1:-1]:
        path = part if not path else path + part[len(previous) :] if part.startswith(f"{previous}.") else f"{path}.{part}"
        previous = part
    return path
