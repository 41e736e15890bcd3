# SPDX-License-Identifier: Apache-2.0
"""Which nodes stand for one call: trees of operators as exporters write them.

A template is an operator and what stands for its inputs, or the name of any value: the same one wherever it stands. Names that
begin with ``#`` are of what does not change from run to run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

#: Any value; a constant of one number; a number that is known before the network runs; whatever.
X, C, S, ANY = "x", "#number", "#factor", "#any"
Template = str | tuple[Any, ...]

_ERF: list[Template] = [("Erf", ("Div", X, C)), ("Erf", ("Mul", X, C))]
_CUBE: list[Template] = [("Pow", X, C), ("Mul", ("Mul", X, X), X)]
_TANH: list[Template] = [("Tanh", ("Mul", ("Add", X, ("Mul", cube, C)), C)) for cube in _CUBE]
_DIFFERENCE = ("Sub", X, ("ReduceMean", X))
_NORM = ("Div", _DIFFERENCE, ("Sqrt", ("Add", ("ReduceMean", ("Pow", _DIFFERENCE, C)), C)))
_SCALED = ("Mul", X, ("Reciprocal", ("Sqrt", ("Add", ("ReduceMean", ("Pow", X, C)), C))))
_QUOTIENT = ("Div", X, "#divisor")
_CAUSAL = ("Where", ("Equal", ("Trilu", ("Expand", C, ANY)), C), C, C)


def _repeated(name: str) -> list[Template]:
    """Heads that several queries share, written out once for each."""
    spread: Template = ("Expand", ("Unsqueeze", name, ANY), ANY)
    return [("Reshape", ("Reshape", spread, ANY), ANY), ("Reshape", spread, ANY)]


def _attentions() -> Iterator[Template]:
    """The spellings of attention: with the keys turned at once or as a stack of matrices, masked or not, checked or not."""
    grouped = _repeated("key")
    for shared, inners in ((True, grouped), (False, ["key"])):
        keys: list[Template] = [("Transpose", inner) for inner in inners]
        keys += [("Reshape", ("Transpose", ("Reshape", inner, ANY)), ANY) for inner in inners]
        keys.append(("Reshape", ("Transpose", inners[-1]), ANY))  # what is reshaped twice may be reshaped once
        for key, value in itertools.product(keys, _repeated("value") if shared else ["value"]):
            scaled: Template = ("MatMul", ("Mul", "query", S), ("Mul", key, S))
            # A query that does not change is scaled before the network runs.
            for scores in (scaled, ("MatMul", "query", ("Mul", key, S)), ("MatMul", "query", key)):
                for inner in (scores, ("Add", scores, _CAUSAL), ("Add", scores, "mask")):
                    soft: Template = ("Softmax", inner)
                    yield ("MatMul", soft, value)
                    yield ("MatMul", ("Where", ("IsNaN", soft), C, soft), value)


#: What is recognised: the call, its template, and which of the template's names are its inputs.
TEMPLATES: list[tuple[str, Template, tuple[str, ...]]] = [
    *(("gelu", ("Mul", ("Mul", X, ("Add", inner, C)), C), (X,)) for inner in _ERF + _TANH),
    *(("gelu", ("Mul", ("Mul", X, C), ("Add", inner, C)), (X,)) for inner in _ERF + _TANH),
    *(("gelu", ("Mul", X, ("Mul", ("Add", inner, C), C)), (X,)) for inner in _ERF + _TANH),
    ("silu", ("Mul", X, ("Sigmoid", X)), (X,)),
    ("mish", ("Mul", X, ("Tanh", ("Softplus", X))), (X,)),
    ("hardswish", ("Mul", X, ("HardSigmoid", X)), (X,)),
    ("hardswish", ("Div", ("Mul", X, ("Clip", ("Add", X, C), C, C)), C), (X,)),
    ("ne", ("Not", ("Equal", X, "y")), (X, "y")),
    ("floor_divide", ("Where", ("And", ("Xor", ("Less", X, C), C), ("Not", ("Equal", ("Mod", X, C), C))), ("Sub", _QUOTIENT, C),
                      _QUOTIENT), (X, "#divisor")),
    ("log_sigmoid", ("Log", ("Sigmoid", X)), (X,)),
    ("layer_norm", ("Add", ("Mul", _NORM, "#scale"), "#shift"), (X, "#scale", "#shift")),
    ("layer_norm", _NORM, (X,)),
    ("rms_norm", ("Mul", _SCALED, "#scale"), (X, "#scale")),
    ("rms_norm", _SCALED, (X,)),
    ("baddbmm", ("Add", ("MatMul", X, "other"), "added"), (X, "other", "added")),
    ("linear", ("Add", ("MatMul", X, "#matrix"), "#row"), (X, "#matrix", "#row")),
    ("baddbmm", ("Add", ("Mul", ("MatMul", X, "other"), C), ("Mul", "added", "#beta")), (X, "other", "added")),
    *(("attention", template, ("query", "key", "value", "mask")) for template in _attentions()),
    (
        "group_norm",
        ("Add", ("Mul", ("Reshape", ("InstanceNormalization", ("Reshape", X, ANY), "#ones", "#zeros"), ANY), "#scale"),
         "#shift"),
        (X, "#scale", "#shift"),
    ),
]  # fmt: skip
#: The same by the operator that comes last.
BY_LAST: dict[str, list[tuple[str, Template, tuple[str, ...]]]] = {}
for _entry in TEMPLATES:
    BY_LAST.setdefault(_entry[1][0], []).append(_entry)
