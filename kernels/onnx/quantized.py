# SPDX-License-Identifier: Apache-2.0
"""8-bit networks in ONNX: what stands between a ``DequantizeLinear`` and a ``QuantizeLinear`` works in 8 bits, as in engines.

A graph says it in one of two ways. Where it has operators of their own (``QLinearConv`` and the like), they are what they say.
In the other one ("QDQ") each operator is that of floating point, with its inputs converted before and its output after: where
all it takes comes from 8 bits, it works in them, and neither conversion launches anything. Its output is of 8 bits where it is
converted at once, or after operators that change each element alone or none; else it is of floating point. What remains of the
conversions is launched. Weights count in the bits they are stored in.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..budget import Account
from ..errors import ShapeError, UnsupportedOperator
from ..operators.values import Tensor
from .call import NodeCall, onnx_operator
from .layers import flipped
from .model import Graph, Node, outer_names

FLOATS = "as floats"
"""The attribute of a node that works in 8 bits and makes floating-point numbers."""

_TYPES = {"uint8": "quint8", "int8": "qint8", "int32": "qint32", "quint8": "quint8", "qint8": "qint8", "qint32": "qint32"}
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_ELEMENTS = ("Relu", "LeakyRelu", "Clip", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Elu", "PRelu", "Gelu", "Abs", "Neg")
_POOLS = ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "ReduceMean", "ReduceMax", "Softmax")
_MOVES = ("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Split", "Resize", "Upsample", "Pad", "Expand")
_ALONE = frozenset({*_ELEMENTS, *_POOLS, *_MOVES, "DepthToSpace", "SpaceToDepth", "Identity", "Tile", "Gather"})
_TOGETHER = frozenset({"Add", "Sub", "Mul", "Div", "Concat", "Max", "Min", "Sum"})
_INTO, _FROM = "QuantizeLinear", "DequantizeLinear"


def in_eight_bits(graph: Graph, account: Account) -> Graph:
    """The graph without the conversions that stand around what works in 8 bits."""
    if not any(node.operator == _FROM for node in graph.nodes):
        return graph
    return _Narrowing(graph, account).graph()


class _Narrowing:
    def __init__(self, graph: Graph, account: Account) -> None:
        self._graph = graph
        self._account = account
        self._maker = {name: node for node in graph.nodes for name in node.outputs if name}
        self._users: dict[str, list[Node]] = {}
        self._constant = set(graph.weights)
        for node in graph.nodes:
            for name in node.inputs:
                self._users.setdefault(name, []).append(node)
            if node.operator == "Constant" or (
                node.operator in (_INTO, _FROM, "Identity") and node.inputs[0] in self._constant
            ):
                self._constant.update(node.outputs)
        self._ends: dict[str, bool] = {}

    def graph(self) -> Graph:
        narrow: set[str] = set()  # what is of 8 bits
        nodes: list[Node] = []
        for node in self._graph.nodes:
            self._account.step()
            if node.operator == _INTO and node.inputs[0] not in self._constant:
                narrow.update(node.outputs)
            elif node.operator == _FROM and node.inputs[0] in narrow | self._constant:
                narrow.update(node.outputs)  # for those that work in 8 bits; others read it converted
            elif self._is_narrow(node, narrow):
                ends = all(self._ends_in_bits(name) for name in node.outputs[:1])
                if ends:
                    narrow.update(node.outputs)
                nodes.append(replace(node, inputs=[self._stored(name, nodes) for name in node.inputs]))
                if not ends:
                    nodes[-1].attributes = {**node.attributes, FLOATS: 1}
                continue
            nodes.append(node)
        read = {name for node in nodes for name in (*node.inputs, *outer_names(node))} | set(self._graph.outputs)
        left = [node for node in nodes if node.operator not in (_INTO, _FROM) or read.intersection(node.outputs)]
        return replace(self._graph, nodes=left)

    def _is_narrow(self, node: Node, narrow: set[str]) -> bool:
        """Whether all that a node takes comes from 8 bits."""
        if node.domain not in ("", "ai.onnx"):
            return False
        if node.operator in _PRODUCTS:
            read = node.inputs[:2]
        elif node.operator in _ALONE:
            read = node.inputs[:1]
        elif node.operator in _TOGETHER:
            read = [name for name in node.inputs if name not in self._constant or name in narrow]
        else:
            return False
        return bool(read) and all(name in narrow for name in read)

    def _stored(self, name: str, nodes: list[Node]) -> str:
        """An input as it is stored: what its conversion takes, where it has one."""
        maker = self._maker.get(name)
        if maker is None or maker.operator != _FROM:
            return name
        source = maker.inputs[0]
        if source not in self._constant:
            return source
        kept = f"{name}, as stored"
        if not any(kept in node.outputs for node in nodes[-4:]):
            before = self._maker.get(source)
            inner = before.inputs[0] if before is not None and before.operator == _INTO else source
            bits = [source] if inner == source else [inner, before.inputs[2] if before and len(before.inputs) > 2 else ""]
            nodes.append(Node("stored", "aten", maker.name, bits, [kept], {}, maker.scope))
        return kept

    def _ends_in_bits(self, name: str) -> bool:
        """Whether a value is converted to 8 bits, at once or after operators on its elements alone."""
        if name not in self._ends:
            self._ends[name] = False  # values that make each other
            users = self._users.get(name, [])
            self._ends[name] = bool(users) and name not in self._graph.outputs and all(map(self._goes_on, users))
        return self._ends[name]

    def _goes_on(self, node: Node) -> bool:
        if node.operator == _INTO:
            return True
        return node.operator in _ALONE and bool(node.outputs) and self._ends_in_bits(node.outputs[0])


def _bits_of(call: NodeCall, place: int) -> str:
    """The type that a zero point says; without one, 8 bits without a sign."""
    if not call.given(place):
        return "quint8"
    dtype = call.tensor(place).dtype
    if dtype not in _TYPES:
        raise UnsupportedOperator(f"operator {call.node.key} to {dtype} is not followed; valid: int8, uint8")
    return _TYPES[dtype]


def stored(call: NodeCall, x: Tensor, dtype: str = "") -> Tensor:
    """A constant as it is stored in a few bits."""
    if not x.parameter:
        return x
    wanted = dtype or _TYPES.get(x.dtype, x.dtype)
    return call.recorder.tensor(x.shape, wanted, x.strides, parameter=True)


@onnx_operator("aten::stored")
def keep(call: NodeCall) -> Any:
    return stored(call, call.tensor(0), (_bits_of(call, 1) if call.given(1) else "qint8") if len(call.inputs) > 1 else "")


@onnx_operator("QuantizeLinear")
def quantize(call: NodeCall) -> Any:
    x, dtype = call.tensor(0), _bits_of(call, 2)
    if x.is_quantized:
        return x
    if x.parameter:
        return stored(call, x, dtype)
    kind = "quantize_per_channel" if call.tensor(1).numel > 1 else "quantize_per_tensor"
    return call.recorder.launch(kind, [x], call.recorder.tensor(x.shape, dtype))


@onnx_operator("DequantizeLinear")
def dequantize(call: NodeCall) -> Any:
    x = call.tensor(0)
    if x.parameter:
        return call.recorder.tensor(x.shape, call.tensor(1).dtype, x.strides, parameter=True)
    return call.recorder.launch("dequantize", [x], call.recorder.tensor(x.shape, call.tensor(1).dtype))


@onnx_operator("DynamicQuantizeLinear")
def quantize_by_extremes(call: NodeCall) -> Any:
    x = call.tensor(0)
    scale = call.recorder.launch("aminmax", [x], call.recorder.tensor((), x.dtype))
    made = call.recorder.launch("quantize_per_tensor", [x], call.recorder.tensor(x.shape, "quint8"))
    return made, scale, call.recorder.tensor((), "uint8")


@onnx_operator("QLinearConv")
def convolution(call: NodeCall) -> Any:
    """Inputs: the picture, the weight and the output, each with scale and zero point, then the bias."""
    from .layers import conv

    given = [call.tensor(0), stored(call, call.tensor(3)), call.tensor(8) if call.given(8) else None]
    return conv(NodeCall(call.recorder, call.node, given, call.version))


@onnx_operator("QLinearMatMul")
def product(call: NodeCall) -> Any:
    return call.aten("matmul", call.tensor(0), stored(call, call.tensor(3)))


@onnx_operator("com.microsoft::QGemm")
def gemm(call: NodeCall) -> Any:
    left, right = call.tensor(0), stored(call, call.tensor(3))
    left = flipped(call.recorder, left) if call.attribute("transA", 0) else left
    right = right if call.attribute("transB", 0) else flipped(call.recorder, right)
    with call.recorder.as_floats(not call.given(8)):
        return call.aten("linear", left, right, call.optional(6))


@onnx_operator("MatMulInteger", "ConvInteger")
def to_integers(call: NodeCall) -> Any:
    """A product of 8-bit numbers, as the 32-bit sums it makes; their conversion stands in the graph."""
    x, weight = call.tensor(0), stored(call, call.tensor(1))
    if not x.is_quantized:
        raise UnsupportedOperator(f"operator {call.node.key} of numbers that are not quantised is not followed")
    with call.recorder.as_floats(True, "int32"):
        if call.node.operator == "MatMulInteger":
            return call.aten("matmul", x, weight)
        from .layers import conv

        return conv(NodeCall(call.recorder, call.node, [x, weight], call.version))


def _pair(name: str, spelling: str) -> None:
    @onnx_operator(spelling)
    def rule(call: NodeCall) -> Any:
        return call.aten(name, stored(call, call.tensor(0)), stored(call, call.tensor(3)))


_pair("add", "com.microsoft::QLinearAdd")
_pair("mul", "com.microsoft::QLinearMul")


def _single(name: str, spelling: str) -> None:
    @onnx_operator(spelling)
    def rule(call: NodeCall) -> Any:
        return call.aten(name, call.tensor(0))


_single("sigmoid", "com.microsoft::QLinearSigmoid")
_single("leaky_relu", "com.microsoft::QLinearLeakyRelu")


def global_average_pool(call: NodeCall) -> Any:
    x = call.tensor(0)
    return call.aten(f"adaptive_avg_pool{x.rank - 2}d", x, [1] * (x.rank - 2))


def average_pool(call: NodeCall) -> Any:
    from .layers import average_pool as plain

    return plain(NodeCall(call.recorder, call.node, [call.tensor(0)], call.version))


@onnx_operator("com.microsoft::QLinearConcat")
def concatenate(call: NodeCall) -> Any:
    """Inputs: scale and zero point of the output, then each part with its own."""
    parts = [stored(call, call.tensor(place)) for place in range(2, len(call.inputs), 3)]
    if not parts:
        raise ShapeError("operator QLinearConcat without parts")
    return call.aten("cat", parts, call.attribute("axis", 0))


@onnx_operator("com.microsoft::QLinearSoftmax")
def softmax(call: NodeCall) -> Any:
    x = call.tensor(0)
    axis = call.attribute("axis", -1) % max(x.rank, 1)
    return call.recorder.launch("softmax", [x], call.recorder.tensor(x.shape, x.dtype), {"dim": axis})
