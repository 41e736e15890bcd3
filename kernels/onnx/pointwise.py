# SPDX-License-Identifier: Apache-2.0
"""ONNX operators that work element by element or along a dimension."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError, UnsupportedOperator
from ..kinds import KINDS
from ..operators.recorder import DataDependent
from ..operators.values import SCALAR_CODES, Tensor
from .call import NodeCall, onnx_operator
from .model import TYPES


def _one(name: str, spelling: str) -> None:
    @onnx_operator(spelling)
    def rule(call: NodeCall) -> Any:
        return call.aten(name, call.tensor(0))


def _two(name: str, spelling: str, reverse: str | None = None) -> None:
    @onnx_operator(spelling)
    def rule(call: NodeCall) -> Any:
        first, second = call.operand(0), call.operand(1)
        if not isinstance(first, Tensor):
            if not isinstance(second, Tensor):
                first = call.tensor(0)
            elif reverse:
                return call.aten(reverse, second, first)
        return call.aten(name, first, second)


#: The operator that does the same with its operands exchanged: ATen wants the tensor first where the other one is a number.
_EXCHANGED = {
    "add": "add",
    "sub": "rsub",
    "mul": "mul",
    "eq": "eq",
    "lt": "gt",
    "le": "ge",
    "ne": "ne",
    "gt": "lt",
    "ge": "le",
}

for _row in KINDS.values():
    for _spelling in _row.onnx:
        if _row.operands == 1:
            _one(_row.name, _spelling)
        else:
            _two(_row.name, _spelling, _EXCHANGED.get(_row.name))
_one("selu", "Selu")  # launches what "elu" does


def _is_number(operand: Any) -> bool:
    return not isinstance(operand, Tensor)


def _many(name: str, spelling: str) -> None:
    @onnx_operator(spelling)
    def rule(call: NodeCall) -> Any:
        first, *rest = sorted((call.operand(place) for place in range(len(call.inputs))), key=_is_number)
        made = first if isinstance(first, Tensor) else call.tensor(0)
        for operand in rest:
            made = call.aten(name, made, operand)
        return made


_many("maximum", "Max")
_many("minimum", "Min")
_many("add", "Sum")


@onnx_operator("Clip")
def clip(call: NodeCall) -> Any:
    """Between 0 and 6, or -1 and 1, it is ``relu6`` or ``hardtanh``, which PyTorch dispatches as one."""
    bounds = [call.operand(place) if call.given(place) else call.attribute(name) for place, name in ((1, "min"), (2, "max"))]
    if bounds in ([0, 6], [-1, 1]):
        return call.aten("hardtanh", call.tensor(0))
    return call.aten("clamp_min" if bounds[1] is None else "clamp", call.tensor(0), *bounds[: 1 if bounds[1] is None else 2])


@onnx_operator("PRelu")
def prelu(call: NodeCall) -> Any:
    return call.aten("prelu", call.tensor(0), call.tensor(1))


@onnx_operator("Where")
def where(call: NodeCall) -> Any:
    one, other = call.operand(1), call.operand(2)
    if isinstance(other, Tensor) and not isinstance(one, Tensor):
        return call.aten("masked_fill", other, call.tensor(0), one)
    return call.aten("where", call.tensor(0), one, other)


@onnx_operator("Cast")
def cast(call: NodeCall) -> Any:
    code = call.attribute("to", 0)
    if code not in TYPES:
        raise UnsupportedOperator(f"operator Cast to element type {code} of ONNX is not followed")
    return call.aten("to", call.tensor(0), SCALAR_CODES[TYPES[code]])


@onnx_operator("CastLike")
def cast_like(call: NodeCall) -> Any:
    return call.aten("to", call.tensor(0), SCALAR_CODES[call.tensor(1).dtype])


@onnx_operator("Softmax", "LogSoftmax")
def softmax(call: NodeCall) -> Any:
    name = "softmax" if call.node.operator == "Softmax" else "log_softmax"
    return call.aten(name, call.tensor(0), call.attribute("axis", -1 if call.version >= 13 else 1))


def _reduction(name: str, spelling: str) -> None:
    @onnx_operator(spelling)
    def rule(call: NodeCall) -> Any:
        axes = call.integers("axes", 1)
        if not axes and call.attribute("noop_with_empty_axes", 0):
            return call.tensor(0)
        return call.aten(name, call.tensor(0), axes or None, bool(call.attribute("keepdims", 1)))


for _aten, _spelling in (
    ("mean", "ReduceMean"),
    ("sum", "ReduceSum"),
    ("prod", "ReduceProd"),
    ("amax", "ReduceMax"),
    ("amin", "ReduceMin"),
    ("logsumexp", "ReduceLogSumExp"),
):
    _reduction(_aten, _spelling)


@onnx_operator("ReduceL2")
def norm(call: NodeCall) -> Any:
    return call.aten("norm", call.tensor(0), 2, call.integers("axes", 1) or None, bool(call.attribute("keepdims", 1)))


@onnx_operator("ArgMax", "ArgMin")
def argmax(call: NodeCall) -> Any:
    return call.aten("argmax", call.tensor(0), call.attribute("axis", 0), bool(call.attribute("keepdims", 1)))


@onnx_operator("CumSum")
def cumsum(call: NodeCall) -> Any:
    return call.aten("cumsum", call.tensor(0), int(call.numbers(1)[0]))


@onnx_operator("TopK")
def topk(call: NodeCall) -> Any:
    return call.aten("topk", call.tensor(0), int(call.numbers(1)[0]), call.attribute("axis", -1))


@onnx_operator("Einsum")
def einsum(call: NodeCall) -> Any:
    return call.aten("einsum", call.attribute("equation", ""), [call.tensor(place) for place in range(len(call.inputs))])


@onnx_operator("Dropout")
def dropout(call: NodeCall) -> Any:
    if call.given(2) and any(call.numbers(2)):
        raise ShapeError("dropout in training mode: export the model after calling its eval()")
    return call.aten("dropout", call.tensor(0), 0.5, False)


def _data_dependent(why: str, *spellings: str) -> None:
    @onnx_operator(*spellings)
    def rule(call: NodeCall) -> Any:
        raise DataDependent(why)


_data_dependent("which elements are not zero decides the shape", "NonZero")
_data_dependent("a mask decides the shape", "Compress")
_data_dependent("the number of different elements decides the shape", "Unique")
_data_dependent("non-maximum suppression decides how many boxes stay", "NonMaxSuppression")


def _eight_bit(*spellings: str) -> None:
    @onnx_operator(*spellings)
    def rule(call: NodeCall) -> Any:
        raise UnsupportedOperator(
            f"operator {call.node.key} belongs to an 8-bit quantised model, which has no cost model: "
            "decompose the model before quantisation"
        )


_eight_bit(
    "QuantizeLinear",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "QLinearConv",
    "QLinearMatMul",
    "ConvInteger",
    "MatMulInteger",
)
