# SPDX-License-Identifier: Apache-2.0
"""Spellings in ONNX nodes of one PyTorch call: operators, operands, constants and attributes.

A node fits if it has exactly these inputs, and each attribute has the template's value or else its default. So a spelling with
another axis, exponent or step is listed separately.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from .model import OnnxNode
from .quantized import FLOATS

#: Any value; a constant of one number; a number that is known before the network runs; any operand, which is not followed.
X, C, S, ANY = "x", "#number", "#factor", "#any"
#: A name (with ``#``: of a constant), the value of a constant, or an operator with its operands and attributes.
Template = str | float | tuple[Any, ...]

#: Attributes that a node may have with this value alone, unless its template says otherwise.
_DEFAULTS = {"alpha": 0.2, "beta": 0.5, "keepdims": 1, "noop_with_empty_axes": 0, "allowzero": 0, "fmod": 0, "upper": 1}
_CLOSE = 4e-3  # bfloat16 has eight bits

_ERF: list[Template] = [("Erf", ("Div", X, 1.41421)), ("Erf", ("Mul", X, 0.70711))]
_CUBE: list[Template] = [("Pow", X, 3.0), ("Mul", ("Mul", X, X), X)]
_TANH: list[Template] = [("Tanh", ("Mul", ("Add", X, ("Mul", cube, 0.044715)), 0.79788)) for cube in _CUBE]
_OLD_AXES, _NEW_AXES = ({"axes": ...},), ("#axes",)
_DIFFERENCE = ("Sub", X, ("ReduceMean", X, *_OLD_AXES))
_NORM = ("Div", _DIFFERENCE, ("Sqrt", ("Add", ("ReduceMean", ("Pow", _DIFFERENCE, 2.0), *_OLD_AXES), C)))
_SCALED: list[Template] = [
    ("Mul", X, ("Reciprocal", ("Sqrt", ("Add", ("ReduceMean", ("Pow", X, 2.0), *axes), C)))) for axes in (_OLD_AXES, _NEW_AXES)
]
_QUOTIENT = ("Div", X, "#divisor")
_CAUSAL = ("Where", ("Equal", ("Trilu", ("Expand", 1.0, ANY), {"upper": 0}), 0.0), float("-inf"), 0.0)
_PERM = {"perm": ...}


def _repeated(name: str) -> list[Template]:
    spread: Template = ("Expand", ("Unsqueeze", name, ANY), ANY)
    return [("Reshape", ("Reshape", spread, ANY), ANY), ("Reshape", spread, ANY)]


def _attentions() -> Iterator[Template]:
    grouped = _repeated("key")
    for shared, inners in ((True, grouped), (False, ["key"])):
        keys: list[Template] = [("Transpose", inner, _PERM) for inner in inners]
        keys += [("Reshape", ("Transpose", ("Reshape", inner, ANY), _PERM), ANY) for inner in inners]
        keys.append(("Reshape", ("Transpose", inners[-1], _PERM), ANY))  # two reshapes may be written as one
        for key, value in itertools.product(keys, _repeated("value") if shared else ["value"]):
            scaled: Template = ("MatMul", ("Mul", "query", S), ("Mul", key, S))
            # A query that does not change is scaled before the network runs.
            for scores in (scaled, ("MatMul", "query", ("Mul", key, S)), ("MatMul", "query", key)):
                for inner in (scores, ("Add", scores, _CAUSAL), ("Add", scores, "mask")):
                    soft: Template = ("Softmax", inner, {"axis": ...})
                    yield ("MatMul", soft, value)
                    yield ("MatMul", ("Where", ("IsNaN", soft), 0.0, soft), value)


#: Spellings: the call, its template, and which of the template's names are its inputs.
TEMPLATES: list[tuple[str, Template, tuple[str, ...]]] = [
    *(("gelu", ("Mul", ("Mul", X, ("Add", inner, 1.0)), 0.5), (X,)) for inner in _ERF + _TANH),
    *(("gelu", ("Mul", ("Mul", X, 0.5), ("Add", inner, 1.0)), (X,)) for inner in _ERF + _TANH),
    *(("gelu", ("Mul", X, ("Mul", ("Add", inner, 1.0), 0.5)), (X,)) for inner in _ERF + _TANH),
    ("silu", ("Mul", X, ("Sigmoid", X)), (X,)),
    ("mish", ("Mul", X, ("Tanh", ("Softplus", X))), (X,)),
    ("hardswish", ("Mul", X, ("HardSigmoid", X, {"alpha": 0.16667, "beta": 0.5})), (X,)),
    ("hardswish", ("Div", ("Mul", X, ("Clip", ("Add", X, 3.0), 0.0, 6.0)), 6.0), (X,)),
    ("ne", ("Not", ("Equal", X, "y")), (X, "y")),
    ("floor_divide", ("Where", ("And", ("Xor", ("Less", X, 0.0), "#negative"), ("Not", ("Equal", ("Mod", X, "#by"), 0.0))),
                      ("Sub", _QUOTIENT, 1.0), _QUOTIENT), (X, "#divisor")),
    ("log_sigmoid", ("Log", ("Sigmoid", X)), (X,)),
    ("layer_norm", ("Add", ("Mul", _NORM, "#scale"), "#shift"), (X, "#scale", "#shift")),
    ("layer_norm", _NORM, (X,)),
    *(("rms_norm", ("Mul", scaled, "#scale"), (X, "#scale", "#axes")) for scaled in _SCALED),
    *(("rms_norm", scaled, (X, "#scale", "#axes")) for scaled in _SCALED),
    ("baddbmm", ("Add", ("MatMul", X, "other"), "added"), (X, "other", "added")),
    ("linear", ("Add", ("MatMul", X, "#matrix"), "#row"), (X, "#matrix", "#row")),
    ("baddbmm", ("Add", ("Mul", ("MatMul", X, "other"), C), ("Mul", "added", "#beta")), (X, "other", "added")),
    *(("attention", template, ("query", "key", "value", "mask")) for template in _attentions()),
    (
        "group_norm",
        ("Add", ("Mul", ("Reshape", ("InstanceNormalization", ("Reshape", X, "apart"), "#ones", "#zeros", {"epsilon": ...}),
         "back"), "#scale"), "#shift"),
        (X, "#scale", "#shift", "apart", "back"),
    ),
]  # fmt: skip
#: The same by the operator that comes last, with the operators that its inputs come from.
BY_LAST: dict[str, list[tuple[str, tuple[Any, ...], tuple[str, ...], frozenset[str]]]] = {}
for _call, _template, _names in TEMPLATES:
    if isinstance(_template, tuple):
        _before = frozenset(part[0] for part in _template[1:] if isinstance(part, tuple))
        BY_LAST.setdefault(_template[0], []).append((_call, _template, _names, _before))
#: Calls whose shapes must confirm the template.
DECIDED_BY_SHAPES = frozenset({"layer_norm", "rms_norm", "baddbmm", "attention", "group_norm"})


def is_close(value: Any, expected: Any) -> bool:
    """True if two attributes or numbers are equal up to half-precision rounding."""
    if isinstance(value, (int, float)) and isinstance(expected, (int, float)):
        return bool(value == expected or abs(value - expected) <= _CLOSE * abs(expected))
    return bool(value == expected)


def has_attributes(node: OnnxNode, wanted: dict[str, Any]) -> bool:
    given = node.attributes
    for name, value in given.items():
        expected = wanted[name] if name in wanted else _DEFAULTS.get(name)
        if expected is not ... and name != FLOATS and not is_close(value, expected):
            return False
    return all(value is ... or name in given or is_close(_DEFAULTS.get(name), value) for name, value in wanted.items())
