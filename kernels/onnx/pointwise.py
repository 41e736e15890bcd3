# SPDX-License-Identifier: Apache-2.0
"""Elementwise ONNX operators, and those along a dimension."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError, UnsupportedOperator
from ..kinds import KINDS
from ..operators.layout import dim_of
from ..operators.recorder import DataDependent
from ..operators.registry import HOST_RULES
from ..operators.values import SCALAR_CODES, Tensor
from .call import NodeCall, as_aten, data_dependent, held, numbers_in, onnx_operator
from .model import TYPES


def combined(call: NodeCall, name: str, reverse: str | None = None, **options: Any) -> Any:
    first, second = call.operand(0), call.operand(1)
    if not isinstance(first, Tensor):
        if not isinstance(second, Tensor):
            first = call.tensor(0)
        elif reverse:
            return call.aten(reverse, second, first)
    return call.aten(name, first, second, **options)


def _two(name: str, spelling: str, reverse: str | None = None) -> None:
    @onnx_operator(spelling)
    def rule(call: NodeCall) -> Any:
        return combined(call, name, reverse)


#: The operator that does the same with its operands exchanged: ATen wants the tensor first where the other one is a number.
_EXCHANGED = {"add": "add", "sub": "rsub", "mul": "mul", "eq": "eq", "lt": "gt", "le": "ge", "ne": "ne", "gt": "lt", "ge": "le"}

for _row in KINDS.values():
    for _spelling in _row.onnx:
        if _row.operands == 1:
            as_aten(_row.name, _spelling)
        else:
            _two(_row.name, _spelling, _EXCHANGED.get(_row.name))
as_aten("selu", "Selu")  # launches "elu"
for _name, _spelling in (
    ("isinf", "IsInf"),
    ("bitwise_not", "BitwiseNot"),
    ("acosh", "Acosh"),
    ("asinh", "Asinh"),
    ("atanh", "Atanh"),
    ("threshold", "ThresholdedRelu"),
):
    as_aten(_name, _spelling)
as_aten("prelu", "PRelu", operands=2)
_two("logical_xor", "Xor")
_two("floor_divide", "aten::floor_divide")


@onnx_operator("Div")
def div(call: NodeCall) -> Any:
    """Integers are divided without remainder."""
    whole = all(call.tensor(place).dtype.startswith(("int", "uint")) for place in range(2))
    return combined(call, "div", rounding_mode="trunc") if whole else combined(call, "div")


@onnx_operator("Pow")
def power(call: NodeCall) -> Any:
    """Result in the type of its base."""
    made, dtype = combined(call, "pow"), call.tensor(0).dtype
    return made if made.dtype == dtype else call.aten("to", made, SCALAR_CODES[dtype])


@onnx_operator("Mod")
def mod(call: NodeCall) -> Any:
    return combined(call, "fmod" if call.attribute("fmod", 0) else "remainder")


@onnx_operator("BitShift")
def bit_shift(call: NodeCall) -> Any:
    return combined(call, f"bitwise_{'right' if call.attribute('direction', '') == 'RIGHT' else 'left'}_shift")


@onnx_operator("Shrink")
def shrink(call: NodeCall) -> Any:
    return call.aten("softshrink" if call.attribute("bias", 0.0) else "hardshrink", call.tensor(0))


@onnx_operator("Softsign")
def softsign(call: NodeCall) -> Any:
    x = call.tensor(0)
    return call.aten("div", x, call.aten("add", call.aten("abs", x), 1))


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


@onnx_operator("Mean")
def mean(call: NodeCall) -> Any:
    total = call.tensor(0)
    for place in range(1, len(call.inputs)):
        total = call.aten("add", total, call.tensor(place))
    return call.aten("div", total, len(call.inputs))


@onnx_operator("Clip")
def clip(call: NodeCall) -> Any:
    """Between 0 and 6, or -1 and 1, it is ``relu6`` or ``hardtanh``, which PyTorch dispatches as one."""
    bounds = [call.operand(place) if call.given(place) else call.attribute(name) for place, name in ((1, "min"), (2, "max"))]
    if bounds in ([0, 6], [-1, 1]) and call.tensor(0).value is None:
        return call.aten("hardtanh", call.tensor(0))
    return call.aten("clamp_min" if bounds[1] is None else "clamp", call.tensor(0), *bounds[: 1 if bounds[1] is None else 2])


@onnx_operator("Where")
def where(call: NodeCall) -> Any:
    one, other = call.operand(1), call.operand(2)
    if isinstance(other, Tensor) and not isinstance(one, Tensor):
        return call.aten("masked_fill", other, call.tensor(0), one)
    if not isinstance(one, Tensor):
        one, other = call.tensor(1), call.tensor(2)  # numbers alone have no element type
    return call.aten("where", call.tensor(0), one, other)


@onnx_operator("Cast")
def cast(call: NodeCall) -> Any:
    code = call.attribute("to", 0)
    if code not in TYPES:
        raise UnsupportedOperator(f"operator Cast to element type {code} of ONNX is not followed")
    return converted(call, call.tensor(0), TYPES[code])


def converted(call: NodeCall, x: Tensor, dtype: str) -> Any:
    """Tensor in another element type, maybe one that PyTorch packs."""
    if dtype in SCALAR_CODES:
        return call.aten("to", x, SCALAR_CODES[dtype])
    return x if x.dtype == dtype else call.recorder.launch("to", [x], call.recorder.tensor(x.shape, dtype))


@onnx_operator("CastLike")
def cast_like(call: NodeCall) -> Any:
    return converted(call, call.tensor(0), call.tensor(1).dtype)


@onnx_operator("Softmax", "LogSoftmax")
def softmax(call: NodeCall) -> Any:
    name = "softmax" if call.node.operator == "Softmax" else "log_softmax"
    return call.aten(name, call.tensor(0), call.attribute("axis", -1 if call.version >= 13 else 1))


def _reduced(call: NodeCall, name: str, x: Tensor, *options: Any) -> Any:
    """Along its axes, by default all, unless ``noop_with_empty_axes``."""
    axes = call.integers("axes", 1)
    if not axes and call.attribute("noop_with_empty_axes", 0):
        return x
    return call.aten(name, x, *options, axes or None, bool(call.attribute("keepdims", 1)))


def _reduction(name: str, spelling: str) -> None:
    @onnx_operator(spelling)
    def rule(call: NodeCall) -> Any:
        return _reduced(call, name, call.tensor(0))


for _aten, _spelling in (
    ("mean", "ReduceMean"),
    ("sum", "ReduceSum"),
    ("prod", "ReduceProd"),
    ("amax", "ReduceMax"),
    ("amin", "ReduceMin"),
    ("logsumexp", "ReduceLogSumExp"),
):
    _reduction(_aten, _spelling)


def _norm(order: int, spelling: str) -> None:
    @onnx_operator(spelling)
    def rule(call: NodeCall) -> Any:
        if "aten.abs." in call.node.origin:  # of complex numbers, which ONNX has as pairs
            x = call.tensor(0)
            return call.recorder.launch("abs", [x], call.recorder.tensor(x.shape[:-1], x.dtype))
        return _reduced(call, "norm", call.tensor(0), order)


_norm(1, "ReduceL1")
_norm(2, "ReduceL2")


@onnx_operator("LpNormalization")
def normalize(call: NodeCall) -> Any:
    x = call.tensor(0)
    return call.aten("div", x, call.aten("norm", x, call.attribute("p", 2), [call.attribute("axis", -1)], True))


@onnx_operator("MeanVarianceNormalization")
def standardize(call: NodeCall) -> Any:
    x, axes = call.tensor(0), call.attribute("axes", [0, 2, 3])
    mean = call.aten("mean", x, axes, True)
    squares = call.aten("mean", call.aten("pow", x, 2), axes, True)
    deviation = call.aten("sqrt", call.aten("sub", squares, call.aten("pow", mean, 2)))
    return call.aten("div", call.aten("sub", x, mean), call.aten("add", deviation, 1e-9))


@onnx_operator("ReduceSumSquare")
def sum_of_squares(call: NodeCall) -> Any:
    return _reduced(call, "sum", call.aten("pow", call.tensor(0), 2))


@onnx_operator("ReduceLogSum")
def logarithm_of_sum(call: NodeCall) -> Any:
    return call.aten("log", _reduced(call, "sum", call.tensor(0)))


@onnx_operator("Hardmax")
def hardmax(call: NodeCall) -> Any:
    x, axis = call.tensor(0), call.attribute("axis", -1 if call.version >= 13 else 1)
    return call.aten("scatter", call.aten("zeros_like", x), axis, call.aten("argmax", x, axis, True), 1.0)


@onnx_operator("ArgMax", "ArgMin")
def argmax(call: NodeCall) -> Any:
    name = call.node.operator.lower()
    return call.aten(name, call.tensor(0), call.attribute("axis", 0), bool(call.attribute("keepdims", 1)))


@onnx_operator("CumSum", "CumProd")
def cumulative(call: NodeCall) -> Any:
    x, axis, total = call.tensor(0), int(call.numbers(1)[0]), call.node.operator.lower()
    turned = bool(call.attribute("reverse", 0))
    x = call.aten("flip", x, [axis]) if turned else x
    made = call.aten(total, x, axis, dtype=SCALAR_CODES[x.dtype])
    if call.attribute("exclusive", 0):
        made = call.aten("sub", made, x) if total == "cumsum" else call.aten("div", made, x, rounding_mode="trunc")
    return call.aten("flip", made, [axis]) if turned else made


@onnx_operator("TopK")
def topk(call: NodeCall) -> Any:
    count = call.integers("k", 1) or [0]
    return call.aten("topk", call.tensor(0), count[0], call.attribute("axis", -1), bool(call.attribute("largest", 1)))


@onnx_operator("Einsum")
def einsum(call: NodeCall) -> Any:
    return call.aten("einsum", call.attribute("equation", ""), [call.tensor(place) for place in range(len(call.inputs))])


@onnx_operator("Dropout")
def dropout(call: NodeCall) -> Any:
    if call.given(2) and any(call.numbers(2)):
        raise ShapeError("dropout in training mode: export the model after calling its eval()")
    kept = [call.aten("ones_like", call.tensor(0), dtype=SCALAR_CODES["bool"])] if call.node.outputs[1:] else []
    return (call.aten("dropout", call.tensor(0), 0.5, False), *kept)


@onnx_operator("SwiGLU")
def gated(call: NodeCall) -> Any:
    return call.aten("mul", call.aten("silu", call.tensor(0)), call.tensor(1))


@onnx_operator("ai.onnx.ml::Binarizer")
def binarize(call: NodeCall) -> Any:
    x = call.tensor(0)
    return call.aten("to", call.aten("gt", x, call.attribute("threshold", 0.0)), SCALAR_CODES[x.dtype])


@onnx_operator("NonZero")
def nonzero(call: NodeCall) -> Any:
    x = call.tensor(0)
    try:
        numbers = numbers_in(x)
    except DataDependent:
        raise DataDependent("which elements are not zero decides the shape") from None
    found = HOST_RULES["nonzero"](held(x.shape, x.dtype, numbers))
    return HOST_RULES["t"](found)


@onnx_operator("Compress")
def compress(call: NodeCall) -> Any:
    try:
        kept = [place for place, flag in enumerate(call.numbers(1)) if flag]
    except DataDependent:
        raise DataDependent("a mask decides the shape") from None
    x, axis = call.tensor(0), call.attribute("axis")
    x = call.aten("reshape", x, [-1]) if axis is None else x
    return call.aten("index", x, [None] * dim_of(x.rank, axis or 0) + [held((len(kept),), "int64", kept)])


data_dependent("the number of different elements decides the shape", "Unique")
data_dependent("the picture in the file decides the shape", "ImageDecoder")
data_dependent("non-maximum suppression decides how many boxes stay", "NonMaxSuppression")
