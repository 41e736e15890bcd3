# SPDX-License-Identifier: Apache-2.0
"""Quantised networks in ONNX: an operator between a ``DequantizeLinear`` and a ``QuantizeLinear`` works in 8 bits.

A graph has operators of their own (``QLinearConv`` and the like), or floating-point ones with conversions ("QDQ"). The latter
work in 8 bits if all their inputs come from 8 bits, as in engines; these conversions launch nothing. The output has 8 bits if
converted at once, or after elementwise operators. Weights count in their stored bits, with scales.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ..budget import Account
from ..errors import ShapeError, UnsupportedOperator
from ..network import PACKED_TYPES
from ..operators.layout import show
from ..operators.values import Tensor
from . import layers
from .attention import attended
from .call import NodeCall, onnx_operator
from .layers import flipped, in_rows
from .model import TYPES, OnnxGraph, OnnxNode, TensorHeader, outer_names

FLOATS = "as floats"
"""Attribute of a node that works in 8 bits and makes floating-point numbers."""

_TYPES = {"uint8": "quint8", "int8": "qint8", "int32": "qint32", "quint8": "quint8", "qint8": "qint8", "qint32": "qint32"}
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_ELEMENTS = ("Relu", "LeakyRelu", "Clip", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Elu", "PRelu", "Gelu", "Abs", "Neg")
_POOLS = ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "ReduceMean", "ReduceMax", "Softmax")
_MOVES = ("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Split", "Resize", "Upsample", "Pad", "Expand")
_ALONE = frozenset({*_ELEMENTS, *_POOLS, *_MOVES, "DepthToSpace", "SpaceToDepth", "Identity", "Tile", "Gather"})
_TOGETHER = frozenset({"Add", "Sub", "Mul", "Div", "Concat", "Max", "Min", "Sum"})
_INTO, _FROM = "QuantizeLinear", "DequantizeLinear"
#: Types in which products run.
_NARROW = frozenset({"uint8", "int8", *(name for name in PACKED_TYPES if name.startswith("float8"))})


def in_eight_bits(graph: OnnxGraph, account: Account) -> OnnxGraph:
    """Graph without conversions around 8-bit work."""
    if not any(node.operator == _FROM for node in graph.nodes):
        return graph
    return _Narrowing(graph, account).graph()


class _Narrowing:
    def __init__(self, graph: OnnxGraph, account: Account) -> None:
        self._graph = graph
        self._account = account
        self._maker = {name: node for node in graph.nodes for name in node.outputs if name}
        self._users: dict[str, list[OnnxNode]] = {}
        self._constant = set(graph.weights)
        for node in graph.nodes:
            for name in node.inputs:
                self._users.setdefault(name, []).append(node)
            passes = node.operator in (_INTO, _FROM, "Identity", *_MOVES) and bool(node.inputs)
            if node.operator == "Constant" or (passes and node.inputs[0] in self._constant):
                self._constant.update(node.outputs)
        self._ends: dict[str, bool] = {}

    def graph(self) -> OnnxGraph:
        narrow: set[str] = set()  # values of 8 bits
        nodes: list[OnnxNode] = []
        for node in self._graph.nodes:
            self._account.step()
            if node.operator == _INTO and node.inputs[0] not in self._constant:
                narrow.update(node.outputs if self._type_of(node) in _NARROW else ())
            elif node.operator == _FROM and node.inputs[0] in narrow | self._constant:
                narrow.update(node.outputs)  # for those that work in 8 bits; the rest read it converted
            elif node.operator in _MOVES and node.inputs[0] in self._constant:
                narrow.update(node.outputs if node.inputs[0] in narrow else ())
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

    def _is_narrow(self, node: OnnxNode, narrow: set[str]) -> bool:
        if node.domain not in ("", "ai.onnx"):
            return False
        if node.operator in _PRODUCTS:
            read = node.inputs[:2]
            types = {self._type_of(maker) for name in read if (maker := self._conversion(name)) is not None}
            if not types <= _NARROW or (types & PACKED_TYPES.keys() and len(types) > 1):
                return False
        elif node.operator in _ALONE:
            read = node.inputs[:1]
        elif node.operator in _TOGETHER:
            read = [name for name in node.inputs if name not in self._constant or name in narrow]
        else:
            return False
        return bool(read) and all(name in narrow for name in read)

    def _conversion(self, name: str) -> OnnxNode | None:
        maker = self._maker.get(name)
        while maker is not None and maker.operator in _MOVES and name in self._constant:
            name = maker.inputs[0]
            maker = self._maker.get(name)
        return maker if maker is not None and maker.operator == _FROM else None

    def _type_of(self, node: OnnxNode) -> str:
        source = node.inputs[0]
        if node.operator == _FROM and source not in self._graph.weights:
            before = self._maker.get(source)
            return self._type_of(before) if before is not None and before.operator == _INTO else "uint8"
        header = self._header(source if node.operator == _FROM else node.inputs[2] if len(node.inputs) > 2 else "")
        return header.dtype if header is not None else TYPES.get(node.attributes.get("output_dtype", 0), "uint8")

    def _header(self, name: str) -> TensorHeader | None:
        maker = self._maker.get(name)
        value = self._graph.weights.get(name) if maker is None else maker.attributes.get("value")
        return value if isinstance(value, TensorHeader) else None

    def _stored(self, name: str, nodes: list[OnnxNode]) -> str:
        maker = self._maker.get(name)
        moved = maker is not None and maker.operator != _FROM and name in self._constant
        if maker is None or (maker.operator != _FROM and not (moved and self._conversion(name))):
            return name
        source = maker.inputs[0]
        if source not in self._constant:
            return source
        kept = f"{name}, as stored"
        if moved:
            nodes.append(OnnxNode("stored", "aten", maker.name, [name, ""], [kept], {}, maker.scope))
            return kept
        if not any(kept in node.outputs for node in nodes[-4:]):
            before = self._maker.get(source)
            inner = before.inputs[0] if before is not None and before.operator == _INTO else source
            bits = [source] if inner == source else [inner, before.inputs[2] if before and len(before.inputs) > 2 else ""]
            nodes.append(OnnxNode("stored", "aten", maker.name, bits, [kept], {}, maker.scope))
        return kept

    def _ends_in_bits(self, name: str) -> bool:
        """True if a value is converted to 8 bits, at once or after elementwise operators."""
        if name not in self._ends:
            self._ends[name] = False  # values that make each other
            users = self._users.get(name, [])
            self._ends[name] = bool(users) and name not in self._graph.outputs and all(map(self._goes_on, users))
        return self._ends[name]

    def _goes_on(self, node: OnnxNode) -> bool:
        if node.operator == _INTO:
            return True
        return node.operator in _ALONE and bool(node.outputs) and self._ends_in_bits(node.outputs[0])


def _bits_of(call: NodeCall, place: int) -> str:
    """Type by a zero point or an attribute, by default uint8."""
    dtype = call.tensor(place).dtype if call.given(place) else TYPES.get(call.attribute("output_dtype", 0), "uint8")
    if dtype not in _TYPES and dtype not in PACKED_TYPES and dtype != "int16":
        valid = ", ".join(["int8, uint8, int16", *list(PACKED_TYPES)[:10]])
        raise UnsupportedOperator(f"operator {call.node.key} to {dtype} is not followed; valid: {valid}")
    return _TYPES.get(dtype, dtype)


def stored(call: NodeCall, x: Tensor, dtype: str = "") -> Tensor:
    if not x.parameter:
        return x
    wanted = x.memory.packed or dtype or _TYPES.get(x.dtype, x.dtype)
    return call.recorder.tensor(x.shape, wanted, x.strides, parameter=True, of=x)


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
    """A weight stays as stored, with its scales, and is converted at its use."""
    x, parts = call.tensor(0), [call.optional(place) for place in range(min(len(call.inputs), 3))]
    dtype = TYPES.get(call.attribute("output_dtype", 0), call.tensor(1).dtype)
    if not x.parameter:
        return call.recorder.launch("dequantize", [x], call.recorder.tensor(x.shape, dtype))
    if not x.memory.element_bytes:
        x.memory.element_bytes = sum(part.nbytes for part in parts if part is not None) / max(x.numel, 1)
        x.memory.packed = x.dtype if x.dtype in PACKED_TYPES else ""
    return call.recorder.tensor(x.shape, dtype, x.strides, parameter=True, of=x)


@onnx_operator("DynamicQuantizeLinear")
def quantize_by_extremes(call: NodeCall) -> Any:
    x = call.tensor(0)
    scale = call.recorder.launch("aminmax", [x], call.recorder.tensor((), x.dtype))
    made = call.recorder.launch("quantize_per_tensor", [x], call.recorder.tensor(x.shape, "quint8"))
    return made, scale, call.recorder.tensor((), "uint8")


def _operand(call: NodeCall, x: Tensor) -> Tensor:
    if x.parameter:
        return stored(call, x)
    return x if x.dtype not in _TYPES or x.is_quantized else call.recorder.tensor(x.shape, _TYPES[x.dtype], x.strides, of=x)


@onnx_operator("QLinearConv")
def convolution(call: NodeCall) -> Any:
    """Inputs: image, weight and output, each with scale and zero point, then the bias."""
    given = [_operand(call, call.tensor(0)), _operand(call, call.tensor(3)), call.tensor(8) if call.given(8) else None]
    return layers.conv(NodeCall(call.recorder, call.node, given, call.version))


@onnx_operator("com.microsoft::QGemm")
def gemm(call: NodeCall) -> Any:
    left, right = in_rows(call, _operand(call, call.tensor(0)), _operand(call, call.tensor(3)))
    with call.recorder.as_floats(not call.given(8)):
        return call.aten("linear", left, right, call.optional(6))


@onnx_operator("MatMulInteger", "ConvInteger")
def to_integers(call: NodeCall) -> Any:
    """32-bit sums of 8-bit products; their conversion is in the graph."""
    x, weight = (_operand(call, call.tensor(place)) for place in range(2))
    if not x.is_quantized:
        raise UnsupportedOperator(f"operator {call.node.key} of numbers that are not quantised is not followed")
    with call.recorder.as_floats(True, "int32"):
        if call.node.operator == "MatMulInteger":
            return call.aten("matmul", x, weight)
        return layers.conv(NodeCall(call.recorder, call.node, [x, weight], call.version))


def _on_bits(name: str, spelling: str, *places: int) -> None:
    @onnx_operator(spelling)
    def rule(call: NodeCall) -> Any:
        return call.aten(name, *(_operand(call, call.tensor(place)) for place in places))


_on_bits("matmul", "QLinearMatMul", 0, 3)
_on_bits("add", "com.microsoft::QLinearAdd", 0, 3)
_on_bits("mul", "com.microsoft::QLinearMul", 0, 3)
_on_bits("sigmoid", "com.microsoft::QLinearSigmoid", 0)
_on_bits("leaky_relu", "com.microsoft::QLinearLeakyRelu", 0)


def average_pool(call: NodeCall) -> Any:
    return layers.average_pool(NodeCall(call.recorder, call.node, [call.tensor(0)], call.version))


@onnx_operator("com.microsoft::QLinearConcat")
def concatenate(call: NodeCall) -> Any:
    """Inputs: scale and zero point of the output, then each part with its own."""
    parts = [_operand(call, call.tensor(place)) for place in range(2, len(call.inputs), 3)]
    if not parts:
        raise ShapeError("operator QLinearConcat without parts")
    return call.aten("cat", parts, call.attribute("axis", 0))


@onnx_operator("com.microsoft::QLinearSoftmax")
def softmax(call: NodeCall) -> Any:
    x = call.tensor(0)
    axis = call.attribute("axis", -1) % max(x.rank, 1)
    return call.recorder.launch("softmax", [x], call.recorder.tensor(x.shape, x.dtype), {"dim": axis})


def _times_integers(call: NodeCall, x: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
    with call.recorder.as_floats():
        return call.aten("linear", _operand(call, x), flipped(call.recorder, _operand(call, weight)), bias)


@onnx_operator("com.microsoft::MatMulIntegerToFloat")
def to_floats(call: NodeCall) -> Any:
    """Inputs: both operands, their scales and zero points, a bias."""
    left, right, bias = call.tensor(0), call.tensor(1), call.optional(6)
    if right.rank == 2:
        return _times_integers(call, left, right, bias)
    with call.recorder.as_floats():
        made = call.aten("matmul", _operand(call, left), _operand(call, right))
    return made if bias is None else call.aten("add", made, bias)


@onnx_operator("com.microsoft::DynamicQuantizeMatMul")
def quantize_and_multiply(call: NodeCall) -> Any:
    """Inputs: the operand to quantise, the weight, its scale and zero point, a bias."""
    quantized, *_ = quantize_by_extremes(call)
    return _times_integers(call, quantized, call.tensor(1), call.optional(4))


@onnx_operator("com.microsoft::QAttention")
def quantized_attention(call: NodeCall) -> Any:
    """Inputs: rows, weight, bias, their scales, a mask, zero points, past keys and values."""
    packed = _times_integers(call, call.tensor(0), call.tensor(1), call.optional(2))
    return attended(call, packed, 8, call.optional(5))


@onnx_operator("com.microsoft::DynamicQuantizeLSTM")
def quantized_lstm(call: NodeCall) -> Any:
    """LSTM with transposed 8-bit weights; inputs 8 to 11 are their scales and zero points."""
    weights = []
    for place in (1, 2):
        x = call.tensor(place)
        if x.rank != 3:
            raise ShapeError(f"operator {call.node.key} with a weight of shape {show(x.shape)}")
        weights.append(call.recorder.tensor((x.shape[0], x.shape[2], x.shape[1]), x.dtype, parameter=True, of=x))
    given = [call.tensor(0), *weights, *call.inputs[3:8]]
    node = replace(call.node, operator="LSTM", domain="")
    return layers.recurrent(NodeCall(call.recorder, node, given, call.version))
