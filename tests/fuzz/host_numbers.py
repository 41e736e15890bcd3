# SPDX-License-Identifier: Apache-2.0
"""ONNX files that compute sizes, from choices: a node takes what nodes before it made, mostly of the right sort."""

from __future__ import annotations

from typing import Any

from jetdvfs.tests.fuzz.choices import Choices
from jetdvfs.tests.support.models.handmade_onnx import BOOL, FLOAT, INT64, declared, graph, model, node, tensor

#: Sorts of values, by letter: a tensor of the device, a row of whole numbers, a row of one, one number, a truth, a fraction.
X, ROW, ONE, NUMBER, TRUTH, FRACTION = "xrontf"
_WHOLE = (NUMBER * 2, ROW + NUMBER, ROW * 2)
_PAIRS = (NUMBER * 2, ROW + NUMBER, ROW * 2, ONE + ROW, X + NUMBER, X * 2, FRACTION * 2)
_UNARY = (NUMBER, ROW, FRACTION, X)
#: Operators, the sorts of their inputs, the sort of what they make.
SIGNATURES: tuple[tuple[str, str, str], ...] = (
    *((name, two, two[0]) for name in ("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Min", "Max") for two in _PAIRS),
    *(("BitShift", two, two[0]) for two in _WHOLE),
    *((name, one, one) for name in ("Neg", "Abs", "Sign", "Identity", "Floor", "Round", "Sqrt", "Exp") for one in _UNARY),
    *((name, NUMBER * 2, TRUTH) for name in ("Equal", "Less", "Greater", "GreaterOrEqual")),
    *((name, TRUTH * 2, TRUTH) for name in ("And", "Or", "Xor")),
    *((name, ROW, ONE) for name in ("ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ArgMax", "Shape")),
    *((name, X, X) for name in ("Relu", "Softmax", "ReduceMean", "ReduceMax", "Transpose", "Flatten", "Trilu", "EyeLike")),
    *((name, X + ROW, X) for name in ("Reshape", "Expand", "Tile", "Pad", "Gather", "CumSum", "Squeeze", "Unsqueeze")),
    *((name, ROW + ONE, ROW) for name in ("Tile", "Reshape", "TopK", "Unsqueeze", "GatherElements", "GatherND", "Split")),
    *((name, ROW * 3, ROW) for name in ("ScatterElements", "ScatterND", "Slice", "OneHot")),
    *((name, X * 2, X) for name in ("MatMul", "Concat")),
    *((name, NUMBER, TRUTH) for name in ("Cast to bool", "IsNaN")),
    *((name, NUMBER * 3, NUMBER) for name in ("Clip", "Where")),
    *(("Where", TRUTH + pair, pair[0]) for pair in (NUMBER * 2, ROW * 2, X * 2)),
    *(("Concat", pair, ROW) for pair in (ROW * 2, ONE * 2, ONE + ROW)),
    *(("Slice", first + ONE * count, first) for first in (ROW, X) for count in (2, 3, 4)),
    *(("Gather", ROW + NUMBER, NUMBER), ("Gather", ROW * 2, ROW), ("Unsqueeze", NUMBER + ONE, ONE), ("Squeeze", ONE, NUMBER)),
    *(("Shape", X, ROW), ("Size", X, NUMBER), ("Range", NUMBER * 3, ROW), ("Not", TRUTH, TRUTH), ("NonZero", ROW, X)),
    *(("ConstantOfShape", ROW, X), ("ConstantOfShape", ONE, ROW), ("Expand", NUMBER + ROW, X), ("TopK", X + ONE, X)),
    *(("CumSum", ROW + NUMBER, ROW), ("Pad", ROW * 2, ROW), ("Clip", ROW + NUMBER * 2, ROW), ("Clip", X + FRACTION * 2, X)),
    *(("Cast to float", NUMBER, FRACTION), ("Cast to int", FRACTION, NUMBER), ("Cast to int", TRUTH, NUMBER)),
    ("Mul", X + FRACTION, X),
)
_CASTS = {"Cast to bool": BOOL, "Cast to float": FLOAT, "Cast to int": INT64}
_NUMBERS = (0, 1, 2, 3, -1, 64)
_LARGE = (4097, 1 << 24, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63))
_FRACTIONS = (
    b"\x00\x00\x00\x3f",
    bytes(4),
    b"\x00\x00\x80\x7f",
    b"\x00\x00\xc0\x7f",
    b"\xff\xff\x7f\xff",
)  # 0.5 0 inf nan -most


def host_numbers(choices: Choices) -> bytes:
    """A file of one input, 1x3x64x64 or of a side that it leaves open."""
    values = [("x", X), ("row", ROW), ("one", ONE), ("number", NUMBER), ("truth", TRUTH), ("fraction", FRACTION)]
    numbers = [choices.of(_LARGE if choices.below(16) == 0 else _NUMBERS) for _ in range(5)]
    weights = [
        tensor("row", (3,), numbers[:3], INT64),
        tensor("one", (1,), numbers[3:4], INT64),
        tensor("number", (), numbers[4:], INT64),
        tensor("truth", (), bytes([choices.below(2)]), BOOL),
        tensor("fraction", (), choices.of(_FRACTIONS), FLOAT),
    ]
    nodes: list[bytes] = []
    while choices.left and len(nodes) < 40:
        name, takes, makes = choices.of(SIGNATURES)
        inputs = [_value(values, sort, choices) for sort in takes]
        made = f"v{len(nodes)}"
        attributes: dict[str, Any] = {"to": _CASTS[name]} if name in _CASTS else {}
        if choices.below(3) == 0:
            key = choices.of(("axis", "keepdims", "fmod", "largest", "upper", "exclusive", "start", "end", "direction", "mode"))
            attributes[key] = choices.of(_NUMBERS) if key not in ("direction", "mode") else choices.of(("LEFT", "reflect"))
        elif name in ("Gather", "Concat"):
            attributes["axis"] = 0
        outputs = ["", made] if name == "TopK" and choices.below(2) else [made]
        nodes.append(node(name.partition(" ")[0], inputs, outputs, f"n/{made}", **attributes))
        values.append((made, makes))
    # What nothing uses is not computed: all of it comes out.
    image = declared("x", choices.of(((1, 3, 64, 64), (1, 3, "h", "w"))))
    return model(graph(nodes, [image], [name for name, _ in values[6:]], weights), choices.of((17, 21, 11)))


def _value(values: list[tuple[str, str]], sort: str, choices: Choices) -> str:
    """One of the last values of a sort; now and then of another, or none."""
    odd = choices.below(24)
    if odd == 0:
        return ""
    found = [name for name, of in values if of == sort or odd == 1]
    return choices.of(found[-6:])
