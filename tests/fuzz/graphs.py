# SPDX-License-Identifier: Apache-2.0
"""Graphs of ``torch.export`` and ONNX, put together from choices."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Sequence
from typing import Any

from jetdvfs.kernels.onnx.call import RULES as ONNX_OPERATORS
from jetdvfs.kernels.operators import known_operators
from jetdvfs.tests.fuzz.choices import Choices

# Exported graphs

NAMED = {"as_tensor": {"name": "x"}}
CALLS = (
    ("conv2d", [NAMED, {"as_tensor": {"name": "w"}}, {"as_none": True}, {"as_ints": [1, 1]}]),
    ("relu_", [NAMED]),
    ("add", [NAMED, {"as_float": 2.0}]),
    ("view", [NAMED, {"as_sym_ints": [{"as_int": -1}]}]),
    ("chunk", [NAMED, {"as_int": 3}]),
)
GRAPH = {
    "graph_module": {
        "signature": {"input_specs": [{"parameter": {"arg": {"name": "w"}}}, {"user_input": {"arg": NAMED}}]},
        "graph": {
            "tensor_values": {
                name: {"dtype": 7, "sizes": [{"as_int": size} for size in sizes], "strides": [{"as_int": 1}] * len(sizes)}
                for name, sizes in (("x", (1, 3, 64, 64)), ("w", (8, 3, 3, 3)))
            },
            "nodes": [
                {
                    "target": f"torch.ops.aten.{name}.default",
                    "inputs": [{"name": "", "arg": argument, "kind": 1} for argument in arguments],
                    "outputs": [{"as_tensor": {"name": name}}],
                    "metadata": {},
                }
                for name, arguments in CALLS
            ],
        },
    }
}
#: A graph within a graph, with its own names for what it is given.
WITHIN = {
    "as_graph": {
        "name": "inner",
        "graph": {
            "inputs": [{"as_tensor": {"name": "in"}}],
            "outputs": [{"as_tensor": {"name": "out"}}],
            "tensor_values": {"in": {"dtype": 7, "sizes": [{"as_int": 3}], "strides": [{"as_int": 1}]}},
            "nodes": [
                {
                    "target": "torch.ops.aten.relu.default",
                    "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "in"}}, "kind": 1}],
                    "outputs": [{"as_tensor": {"name": "out"}}],
                    "metadata": {},
                }
            ],
        },
    }
}
HIGHER_ORDER = ("wrap_with_set_grad_enabled", "wrap_with_autocast", "cond", "tag_activation_checkpoint", "while_loop")
INNER = ([{"as_bool": True}, WITHIN, NAMED], [{"as_bool": False}, WITHIN, WITHIN, {"as_tensors": [{"name": "x"}]}])
ARGUMENTS: tuple[dict[str, Any], ...] = (
    *(
        NAMED,
        {"as_tensor": {"name": "w"}},
        {"as_none": True},
        {"as_int": 1},
        {"as_int": -1},
        {"as_ints": [1, 1]},
        {"as_float": 0.5},
    ),
    *(
        {"as_tensors": [{"name": "x"}, {"name": "w"}]},
        {"as_optional_tensors": [{"as_tensor": {"name": "x"}}, {"as_none": True}]},
    ),
    *({"as_bool": True}, {"as_string": "none"}, {"as_sym_int": {"as_name": "s0"}}, {"as_sym_ints": [{"as_int": 99999999}] * 3}),
    *(
        {"as_scalar_type": 7},
        {"as_memory_format": 2},
        {"as_device": {}},
        {"as_layout": 1},
        {"as_int": 1 << 62},
        {"as_float": "nan"},
    ),
    *(
        {"as_graph": {}},
        WITHIN,
        {"as_ints": []},
        {"as_string": "abcd,abce->ade"},
        {"as_tensors": []},
        {"as_optional_tensor": NAMED},
    ),
)
JUNK: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1 << 40,
    1 << 70,
    0.5,
    "x",
    "",
    [],
    {},
    [[]],
    {"as_int": 1},
    {"name": "x"},
    ["x"] * 9,
    {"as_int": "s0"},
)


def graph(choices: Choices) -> bytes:
    """The JSON of an exported program: known operators on all sorts of arguments, and any part of it bent."""
    made: Any = copy.deepcopy(GRAPH)
    operators = [name for name in known_operators() if "::" not in name]
    nodes = made["graph_module"]["graph"]["nodes"]
    for number in range(choices.below(12)):
        name = choices.of(operators)
        nodes.append(
            {
                "target": choices.of((f"torch.ops.aten.{name}.default", f"_operator.{name}", f"torch.ops.aten.{name}")),
                "inputs": [
                    {"name": choices.of(("", "dim", "alpha")), "arg": choices.of(ARGUMENTS), "kind": 1 + choices.below(8) // 7}
                    for _ in range(choices.below(9))
                ],
                "outputs": [
                    choices.of(({"as_tensor": {"name": choices.of(("x", "w", f"t{number}"))}}, {"as_int": {"as_name": "s0"}}))
                ],
                "metadata": choices.of(({}, {"nn_module_stack": "a,b,c;L__self__,layer.0,torch.nn.Linear"})),
            }
        )
    for number in range(choices.below(3)):
        arguments = [*choices.of(INNER), *([choices.of(ARGUMENTS)] if choices.below(3) == 0 else [])]
        nodes.append(
            {
                "target": f"torch.ops.higher_order.{choices.of(HIGHER_ORDER)}",
                "inputs": [{"name": "", "arg": copy.deepcopy(argument), "kind": 1} for argument in arguments],
                "outputs": [choices.of(({"as_tensor": {"name": f"u{number}"}}, {"as_tensors": [{"name": "x"}]}))],
                "metadata": {},
            }
        )
    for _ in range(choices.below(5)):
        place: Any = made
        while True:
            keys: list[Any] = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = choices.of(keys)
            inner = place[key]
            if not isinstance(inner, (dict, list)) or choices.below(5) == 0:
                how = choices.below(4)
                if how == 0:
                    del place[key]
                elif how == 1 and isinstance(place, list):
                    place[key:key] = [copy.deepcopy(inner)] * choices.byte()
                else:
                    place[key] = copy.deepcopy(choices.of(JUNK))
                break
            place = inner
    return json.dumps(made).encode()


# ONNX


def varint(number: int) -> bytes:
    out = bytearray()
    number &= (1 << 64) - 1
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes((*out, number))


def message(*fields: tuple[int, int | float | str | bytes]) -> bytes:
    """A protocol-buffer message of numbered fields."""
    out = b""
    for number, value in fields:
        if isinstance(value, float):
            out += varint(number << 3 | 5) + struct.pack("<f", value)
        elif isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


def tensor_of(name: str, dtype: int, dims: Sequence[int], data: bytes) -> bytes:
    return message(*((1, size) for size in dims), (2, dtype), (8, name), (9, data))


def declared(name: str, *dims: int | str) -> bytes:
    shape = message(*((1, message((1 if isinstance(size, int) else 2, size))) for size in dims))
    return message((1, name), (2, message((1, message((1, 1), (2, shape))))))


WEIGHTS = (
    tensor_of("w", 1, (8, 3, 3, 3), bytes(864)),
    tensor_of("v", 1, (8,), bytes(32)),
    tensor_of("axes", 7, (2,), struct.pack("<2q", 0, 1)),
    tensor_of("shape", 7, (2,), struct.pack("<2q", 1, -1)),
    tensor_of("two", 7, (), struct.pack("<q", 2)),
    tensor_of("huge", 7, (1,), struct.pack("<q", 1 << 62)),
    tensor_of("yes", 9, (), b"\x01"),
    tensor_of("half", 1, (), struct.pack("<f", 0.5)),
    tensor_of("w8", 3, (8, 3, 3, 3), bytes(216)),
    tensor_of("zero", 3, (), b"\x00"),
)
ONNX_VALUES = ("x", "w", "v", "axes", "shape", "two", "huge", "yes", "half", "w8", "zero", "", "t0", "t1", "t2", "t3", "absent")
ONNX_ATTRIBUTES = (
    *("axis", "axes", "perm", "kernel_shape", "strides", "pads", "dilations", "group", "to", "keepdims", "alpha", "epsilon"),
    *("transA", "mode", "equation", "value", "split", "hidden_size", "direction", "num_heads", "auto_pad", "blocksize", "perm"),
    *(
        "then_branch",
        "else_branch",
        "body",
        "shape",
        "start",
        "end",
        "k",
        "largest",
        "ceil_mode",
        "output_shape",
        "num_outputs",
    ),
)
NUMBERS = (0, 1, 2, 3, -1, 64, 1 << 31, -(1 << 63), (1 << 63) - 1, 7)


def onnx_file(choices: Choices) -> bytes:
    """An ONNX file: known operators on all sorts of values and attributes, graphs within graphs, and any byte of it bent."""
    operators = (*sorted(ONNX_OPERATORS), "If", "Loop", "Scan", "Constant", "Reshape", "Shape", "Own", "Concat", "Slice")

    def attribute(depth: int) -> bytes:
        kind = choices.below(8)
        values: list[tuple[int, int | float | str | bytes]]
        if kind < 2:
            values = [(3, choices.of(NUMBERS)), (20, 2)]
        elif kind < 4:
            values = [*((8, choices.of(NUMBERS)) for _ in range(choices.below(5))), (20, 7)]
        elif kind == 4:
            values = [(2, 0.5), (20, 1)]
        elif kind == 5:
            values = [(4, choices.of(("bilinear", "SAME_UPPER", "abcd->a", "constant", "reverse"))), (20, 3)]
        elif kind == 6 or depth > 2:
            values = [(5, choices.of(WEIGHTS)), (20, 4)]
        else:
            values = [(6, inner_graph(depth + 1)), (20, 5)]
        return message((1, choices.of(ONNX_ATTRIBUTES)), *values)

    def node(place: int, depth: int) -> bytes:
        inputs = [(1, choices.of(ONNX_VALUES)) for _ in range(choices.below(5))]
        attributes = [(5, attribute(depth)) for _ in range(choices.below(4))]
        domain = choices.of(("", "", "", "ai.onnx", "com.microsoft", "own"))
        return message(*inputs, (2, f"t{place % 4}"), (3, f"n/{place}"), (4, choices.of(operators)), *attributes, (7, domain))

    def inner_graph(depth: int) -> bytes:
        nodes = [(1, node(place, depth)) for place in range(choices.below(4))]
        return message(*nodes, (2, "g"), (11, declared("i")), (12, declared("t0", 1)))

    nodes = [(1, node(place, 0)) for place in range(choices.below(16))]
    weights = [(5, weight) for weight in WEIGHTS]
    sizes: tuple[int | str, ...] = (1, "n", 2, 0)
    image = declared("x", choices.of(sizes), 3, 64, 64)
    whole = message(*nodes, (2, "graph"), *weights, (11, image), (12, declared("t0", 1)))
    own = message((1, "Own"), (4, "x"), (5, "t0"), (7, node(0, 2)), (10, "own"))
    opset = message((1, ""), (2, choices.of((17, 7, 1, 22, 1 << 40))))
    made = bytearray(message((1, 8), (8, opset), (7, whole), (25, own)))
    for _ in range(choices.below(3)):
        made[choices.below(1 << 16) % len(made)] = choices.byte()
    return bytes(made)
