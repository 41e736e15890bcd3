# SPDX-License-Identifier: Apache-2.0
"""Inputs for the fuzz target: how a string of bytes becomes a model file, and where to start from.

The first byte of an input names the layer that the rest of it stands for (:data:`LAYERS`). Some layers take the rest as it is
(the whole file, the module's pickle, the code); the others read it as a list of choices from which something well-formed
is put together, so that a fuzzer that flips bytes reaches what lies behind checksums, syntax and JSON.
"""

from __future__ import annotations

import copy
import json
import random
import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

if __package__:
    from . import handmade
else:
    import handmade

from jetdvfs.kernels.onnx.call import RULES as ONNX_OPERATORS
from jetdvfs.kernels.operators import known_operators

REFERENCE = Path(__file__).parent.parent / "profiles" / "reference"
ARCHIVES = Path(__file__).parent / "archives"
Item = TypeVar("Item")

CODE = handmade.forward(
    "y = torch.relu(x)", "if torch.eq(torch.dim(y), 4):", "  z = torch.add(y, x)", "else:", "  z = y", "return z"
)
CONSTANT_CODE = handmade.forward("y = torch.mul(x, CONSTANTS.c0)", "return torch.add(y, CONSTANTS.c1, alpha=CONSTANTS.c2)")
ATTRIBUTES = {
    "w": handmade.tensor("0", 3, 3, 1, 1),
    "n": b"K\x03",
    "a": b"](K\x01K\x02e",
    "d": b"}(" + handmade.text("k") + b"K\x01u",
    "box": b"c__torch__\nC\n)\x81K\x02b",
    "kind": b"c__torch__\nE\nK\x01R",
}


class Choices:
    """Bytes read as choices; when they are used up, every choice is the first."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def byte(self) -> int:
        if not self.left:
            return 0
        self._at += 1
        return self._data[self._at - 1]

    def below(self, limit: int) -> int:
        value = self.byte() if limit <= 256 else self.byte() << 8 | self.byte()
        return value % limit

    def of(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]

    def piece(self, size: int) -> bytes:
        start = self._at
        self._at = min(start + size, len(self._data))
        return self._data[start : self._at]


# Code

TEXTS = (
    *("torch.relu(x)", "torch.add(x, x)", "torch.append(a, a)", "a = [x, a]", "a = (a, a)", "a = [1, 2, 3]", "n = 3"),
    *("n = torch.mul(n, n)", "a = torch.add(a, a)", "x = torch.cat([x, x], 1)", "x = torch.view(x, [-1])", "while True:"),
    *("for i in range(99):", "if True:", "else:", "  ", "\n", "(self).forward(x)", "getattr(self, 'a')", "CONSTANTS.c0"),
    *("self.a = self", "__torch__.M.__new__(__torch__.M)", "annotate(List[int], [])", "torch.format('{}', a)", "return x"),
    *("x = torch.expand(x, [9999999, 3, 64, 64])", "torch._set_item(a, 0, a)", "a = {'k': a}", "x, y, = a", "n = -n"),
    *("x = torch.pad(x, [9, 9])", "torch.einsum('abcd->a', [x])", "x = torch.unbind(x, 3)[0]", "torch.pow(n, n)"),
)
TOKENS = (*(text.encode() for text in TEXTS), b"\x00", b"\xff")
VALUES = (
    *(
        "x",
        "y",
        "s",
        "[x, y]",
        "[x]",
        "[]",
        "a",
        "d",
        "t",
        "None",
        "True",
        "False",
        "0",
        "1",
        "2",
        "-1",
        "3",
        "64",
        "999999999",
    ),
    *("9223372036854775807", "-9223372036854775807", "0.5", "1e308", "nan", "[1, 1]", "[2, -1]", "[0]", "[1, 2, 3, 4]"),
    *(
        "[99999999, 99999999]",
        "'same'",
        "'%999999d'",
        "'abcd,abce->ade'",
        "6",
        "4",
        "CONSTANTS.c0",
        "self",
        "(1, 2)",
        "h",
        "[-1]",
    ),
    *(
        "torch.size(x)",
        "torch.dim(x)",
        "torch.tensor([1, 2, 3])",
        "[[1]]",
        "h",
        "[-1]",
        "self.w",
        "self.a",
        "self.d",
        "self.n",
        "i",
    ),
    *("__torch__.P(1, x)", "__torch__.E.A", "torch.len(a)", "a[0]", "x[0]", "d['k']", "torch.slice(a, 0, 1, 1)", "(x, (y,))"),
)
NAMES = "xysatdhzni"
PREAMBLE = (
    "y = torch.select(x, 0, 0)",
    "s = torch.mean(x)",
    "a = [1, 2, 3]",
    "d = annotate(Dict[str, int], {})",
    "t = torch.transpose(x, 1, 2)",
    "h = ops.prim.NumToTensor(torch.size(x, 1))",
    "n, i, z = 2, 1, x",
)
BLOCKS = (
    "while True:",
    "for i in range(200):",
    "for i in a:",
    "if torch.gt(torch.dim(x), 2):",
    "if h:",
    "while torch.lt(n, 9):",
)
INFIX = ("+", "-", "*", "/", "//", "%", "**", "@", "==", "<", "is", "is not", "in", "and", "or", "&", "|", "^", "<<")
#: Statements that work in most places, so that what follows them is reached.
PLAIN = (
    *("pass", "break", "continue", "return x", "return", "self.n = n", "self.a = a", "n = (self).g(x, n)", "n = (self).g(x)"),
    *("n = (self).g(x, n=3)", "x = (self).forward(x)", "n = __torch__.f(n)", "x, y, = (x, y)", "p = __torch__.P(1, x)"),
    *("p = __torch__.P(1, second=x)", "x = p.second", "o = __torch__.C.__new__(__torch__.C)", "n = (o).__init__(n)"),
    *("o = __torch__.C(3)", "n = o.field", "n = self.box.field", "torch._set_item(a, 0, n)", "torch._set_item(d, 'k', n)"),
    *("e = __torch__.E.A", "n = e.value", "n = self.kind", "n = __torch__.C.fixed", "torch.append(a, n)", "n = a[0]"),
    *("a = a[::2]", "a = a[1:]", "a = torch.list(torch.size(x))", "n = torch.len(a)", "n = int(n)", "n = torch.add(n, 1)"),
    *(
        "x: Tensor = y",
        "x = unchecked_cast(Tensor, x)",
        "h = isinstance(x, Tensor)",
        "h = torch.gt(n, 3)",
        "u = uninitialized(int)",
    ),
    *("x = torch.relu(x)", "y = torch.add(x, x)", "x = torch.mul(x, 2)", "s = torch.mean(x)", "x = torch.conv2d(x, self.w)"),
    *("ops.prim.RaiseException('no')", "a = [n, n]", "d = {'k': n}", "n = getattr(self, 'n')", "n = -n", "h = not h"),
    *("n = n if h else 1", "h = h and n == 1", "n = n + n", "n = n * n", "n = n // 2", "x, y = torch.chunk(x, 2, 1)", "x = x"),
)
SIGNATURES = ("x: Tensor", "x: Tensor, k: int=3", "x: Tensor, b: Optional[Tensor]=None", "x: Tensor, *, k: bool=True", "x")
SIGNATURES += ("l: List[Tensor]", "t: Tuple[Tensor]", "m: Dict[str, Tensor]", "b: Optional[Tensor]", "x: Tensor, y: Tensor")
MORE_CODE = (
    "  def g(self: __torch__.M,\n    x: Tensor,\n    n: int=2) -> int:\n    return torch.add(n, torch.dim(x))\n"
    "class P(NamedTuple):\n  first : int\n  second : Tensor\n"
    "class E(Enum):\n  A = 1\n  B = 2\n"
    "class C:\n  field : int\n  fixed : Final[int] = 3\n"
    "  def __setstate__(self: __torch__.C,\n    n: int) -> NoneType:\n    self.field = n\n"
    "  def __init__(self: __torch__.C,\n    n: int) -> NoneType:\n    self.field = n\n"
    "def f(n: int) -> int:\n  if torch.lt(n, 9):\n    m = __torch__.f(torch.add(n, 1))\n  else:\n    m = n\n  return m\n"
)


def program(choices: Choices) -> str:
    """Code of a whole model: blocks, calls and known operators on all sorts of values."""
    operators = [name for name in known_operators() if not name.startswith("builtin::")]
    lines = list(PREAMBLE)
    indent = ""

    def value(depth: int = 0) -> str:
        how = choices.below(16)
        if how == 0 and depth < 3:
            return f"({value(depth + 1)} {choices.of(INFIX)} {value(depth + 1)})"
        if how == 1 and depth < 3:
            return call(depth + 1)
        return choices.of(VALUES)

    def call(depth: int = 0) -> str:
        name = operators[choices.below(len(operators))]
        spelled = f"ops.{name.replace('::', '.')}" if "::" in name else f"torch.{name}"
        return f"{spelled}({', '.join(value(depth) for _ in range(choices.below(11)))})"

    signature = choices.of(SIGNATURES) if choices.below(4) == 0 else SIGNATURES[0]
    while choices.left and len(lines) < 80:
        how = choices.below(16)
        if how < 3:
            lines.append(f"{indent}{choices.of(NAMES)} = {call()}")
        elif how == 3:
            lines.append(f"{indent}{choices.of(NAMES)} = {value()}")
        elif how < 12:
            lines.append(indent + choices.of(PLAIN))
        elif how < 14 and len(indent) < 20:
            lines.append(indent + choices.of(BLOCKS))
            indent += "  "
        elif indent:
            lines.append(f"{indent}pass")
            indent = indent[2:]
            if how == 15:
                lines += [f"{indent}else:", f"{indent}  pass"]
    return handmade.forward(*lines, f"{indent}pass", "return x", arguments=signature) + MORE_CODE


# Pickles

OPCODES = (
    *(bytes([code]) for code in b"(012N]})tasueRbQ." + b"\x81\x85\x86\x87\x88\x89\x93\x94"),
    *(b"c__torch__\nM\n", b"c__torch__\nE\n", b"ctorch\nFloatStorage\n", b"ctorch._utils\n_rebuild_tensor_v2\n"),
    *(b"ctorch._utils\n_rebuild_qtensor\n", b"ctorch._utils\n_rebuild_parameter\n", b"ccollections\nOrderedDict\n"),
    *(b"ctorch.jit._pickle\nbuild_intlist\n", b"ctorch.jit._pickle\nrestore_type_tag\n", b"ctorch\nper_tensor_affine\n"),
    *(
        b"ctorch\ndevice\n",
        b"ctorch\nLongStorage\n",
        handmade.tensor("0", 2, 3),
        handmade.tensor("0", 2, storage="LongStorage"),
    ),
    *(handmade.text("storage"), handmade.text("0"), handmade.text("cpu"), handmade.text("w"), handmade.sizes(2, 3), b"K\x00"),
)


def pickled(choices: Choices) -> bytes:
    """A pickle of opcodes that PyTorch writes, in any order."""
    out = bytearray(b"\x80\x02")
    if choices.below(2):
        out += handmade.module(ATTRIBUTES)[2:-2]  # everything but the last BUILD
    while choices.left and len(out) < 1 << 16:
        how = choices.below(len(OPCODES) + 6)
        if how < len(OPCODES):
            out += OPCODES[how]
        else:
            kind = how - len(OPCODES)
            code, size = ((b"q", 1), (b"h", 1), (b"K", 1), (b"J", 4), (b"G", 8), (b"M", 2))[kind]
            out += code + choices.piece(size).ljust(size, b"\x00")
    return bytes(out + b".")


# Zip containers


def widened(data: bytearray, choices: Choices) -> bytearray:
    """The archive with 64-bit sizes and offsets for one of its entries, after other extra fields or before them."""
    at = data.find(b"PK\x01\x02")
    end = data.rfind(b"PK\x05\x06")
    if at < 0 or end < 0:
        return data
    compressed, size, name, extra = struct.unpack_from("<IIHH", data, at + 20)
    offset = struct.unpack_from("<I", data, at + 42)[0]
    numbers = [choices.of((number, *LIMITS)) if choices.below(4) == 0 else number for number in (size, compressed, offset)]
    field = struct.pack("<HHQQQ", 1, 24 - 8 * choices.below(3), *numbers)
    field = choices.of((field, b"FB\x04\x00ZZZZ" + field, field + b"FB\xff\x00"))
    struct.pack_into("<II", data, at + 20, 0xFFFFFFFF, 0xFFFFFFFF)
    struct.pack_into("<H", data, at + 30, len(field))
    struct.pack_into("<I", data, at + 42, 0xFFFFFFFF)
    data[at + 46 + name : at + 46 + name + extra] = field
    grown = end + len(field) - extra
    struct.pack_into("<I", data, grown + 12, struct.unpack_from("<I", data, grown + 12)[0] + len(field) - extra)
    return data


LIMITS = (0, 1, 0xFFFF, 0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, (1 << 64) - 1)


def container(choices: Choices) -> bytes:
    """A zip archive around a good model, with any of its structure bent: sizes, offsets, order, 64-bit fields, folders."""
    entries = {
        "m/data.pkl": handmade.module(ATTRIBUTES),
        "m/code/__torch__.py": CODE.encode(),
        "m/constants.pkl": handmade.EMPTY_CONSTANTS,
        "m/version": b"3\n",
        "m/byteorder": b"little",
        "m/data/0": b"\x00" * 768,
    }
    names = list(entries)
    for _ in range(choices.below(3)):
        name = choices.of(names)
        edit = choices.below(6)
        if edit == 0:
            entries.pop(name, None)
        elif edit == 1:
            entries[name] = choices.piece(choices.byte())
        elif edit == 2:
            entries["m/" + choices.of((".data/version", "extra/a", "data/1", "code/__torch__/a.py", ".format_version"))] = (
                b"10\n"
            )
        elif edit == 3:
            entries = {name: entries.pop(name, b""), **entries}
        elif edit == 4:
            entries = {f"{choices.of(('', 'other/', 'm/m/', '/', '../', 'é/'))}{key}": value for key, value in entries.items()}
        else:
            entries["m/version"] = choices.of((b"0", b"1\n", b"2", b"10", b"11", b"", b"x", b"9" * 99, b"\xff"))
    method = choices.of((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    data = bytearray(handmade.zipped(entries, method))
    marks = [b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"]
    if choices.below(4) == 0:
        data = widened(data, choices)
    for _ in range(choices.below(4)):
        mark = choices.of(marks)
        places = [at for at in range(len(data)) if data[at : at + 4] == mark]
        if not places:
            continue
        at = choices.of(places) + 4 + 2 * choices.below(20)
        width = choices.of((2, 4, 8))
        number = (
            choices.of(LIMITS) if choices.below(2) else int.from_bytes(data[at : at + width], "little") + choices.byte() - 128
        )
        data[at : at + width] = (number % (1 << 8 * width)).to_bytes(width, "little")
    if choices.below(4) == 0:
        end = data.rfind(b"PK\x05\x06")
        if 0 <= end <= len(data) - 22:
            count, size, offset = struct.unpack_from("<HII", data, end + 10)
            numbers = [
                choices.of((number, *LIMITS)) if choices.below(4) == 0 else number for number in (count, count, size, offset)
            ]
            wide = struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, *numbers)
            locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, choices.of((end, 0, (1 << 64) - 1)), 1)
            short = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
            data[end:] = wide + locator + short
    if choices.below(8) == 0:
        data += choices.piece(choices.byte())
    return bytes(data)


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
ARGUMENTS = (
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
        {"as_float": "nan"},
        {"as_ints": []},
        {"as_string": "abcd,abce->ade"},
        {"as_tensors": []},
        {"as_optional_tensor": NAMED},
    ),
)
JUNK = (
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
)
ONNX_VALUES = ("x", "w", "v", "axes", "shape", "two", "huge", "yes", "half", "", "t0", "t1", "t2", "t3", "absent")
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
    operators = (*sorted(ONNX_OPERATORS), "If", "Loop", "Constant", "Reshape", "Shape", "Own", "Concat", "Slice")

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
        domain = choices.of(("", "", "", "ai.onnx", "own"))
        return message(*inputs, (2, f"t{place % 4}"), (3, f"n/{place}"), (4, choices.of(operators)), *attributes, (7, domain))

    def inner_graph(depth: int) -> bytes:
        nodes = [(1, node(place, depth)) for place in range(choices.below(4))]
        return message(*nodes, (2, "g"), (11, declared("i")), (12, declared("t0", 1)))

    nodes = [(1, node(place, 0)) for place in range(choices.below(16))]
    weights = [(5, weight) for weight in WEIGHTS]
    image = declared("x", choices.of((1, "n", 2, 0)), 3, 64, 64)
    whole = message(*nodes, (2, "graph"), *weights, (11, image), (12, declared("t0", 1)))
    own = message((1, "Own"), (4, "x"), (5, "t0"), (7, node(0, 2)), (10, "own"))
    opset = message((1, ""), (2, choices.of((17, 7, 1, 22, 1 << 40))))
    made = bytearray(message((1, 8), (8, opset), (7, whole), (25, own)))
    for _ in range(choices.below(3)):
        made[choices.below(1 << 16) % len(made)] = choices.byte()
    return bytes(made)


# Layers


def _exported(content: bytes) -> bytes:
    return handmade.zipped({"m/archive_format": b"pt2", "m/models/model.json": content})


#: What the rest of an input stands for, by its first byte.
LAYERS: tuple[Callable[[bytes], bytes], ...] = (
    lambda content: content,
    lambda content: handmade.archive(CODE, data=content),
    lambda content: handmade.archive(CONSTANT_CODE, constants=content),
    lambda content: handmade.zipped({"m/data.pkl": handmade.PLAIN_MODULE, "m/code/__torch__.py": content}),
    _exported,
    lambda content: container(Choices(content)),
    lambda content: handmade.archive(CONSTANT_CODE, data=pickled(Choices(content)), constants=pickled(Choices(content[::-1]))),
    lambda content: handmade.archive(program(Choices(content)), data=handmade.module(ATTRIBUTES), more={"data/0": bytes(768)}),
    lambda content: _exported(graph(Choices(content))),
    lambda content: onnx_file(Choices(content)),
)
WHOLE, PICKLE, CONSTANTS, SOURCE, GRAPH_TEXT, CONTAINER, OPCODE, PROGRAM, GRAPH_CHOICES, ONNX = range(len(LAYERS))


def model_file(data: bytes) -> bytes:
    """The model file that an input stands for."""
    return LAYERS[data[0] % len(LAYERS)](data[1:]) if data else b""


def seeds() -> list[bytes]:
    """Well-formed inputs for every layer."""
    whole = handmade.archive(CODE, data=handmade.module({"w": handmade.tensor("0", 2, 3)}))
    made = [(WHOLE, whole), (PICKLE, handmade.PLAIN_MODULE), (CONSTANTS, handmade.EMPTY_CONSTANTS), (SOURCE, CODE.encode())]
    made.append((PICKLE, handmade.module({"a": handmade.tensor("0", 8, 3, 3, 3), "b": b"]", "c": b"}"})))
    made.append((CONSTANTS, b"\x80\x02(" + handmade.tensor("0") + handmade.tensor("0", 1, 3, 1, 1) + b"K\x02t."))
    made.append((GRAPH_TEXT, json.dumps(GRAPH).encode()))
    made += [(WHOLE, onnx_file(Choices(random.Random(seed).randbytes(300)))) for seed in range(8)]
    made += [(SOURCE, program(Choices(random.Random(seed).randbytes(300))).encode()) for seed in range(4)]
    made += [(layer, random.Random(seed).randbytes(120)) for layer in range(CONTAINER, len(LAYERS)) for seed in range(8)]
    for path in [
        *(REFERENCE / f"{name}.pt" for name in ("squeezenet1_0", "shufflenet_v2_x1_0")),
        *sorted(ARCHIVES.glob("*.pt*")),
    ]:
        with zipfile.ZipFile(path) as file:
            names = file.namelist()
            made += [(PICKLE, file.read(name)) for name in names if name.endswith("data.pkl")]
            made += [(CONSTANTS, file.read(name)) for name in names if name.endswith("constants.pkl")]
            made += [(SOURCE, file.read(name)) for name in names if name.endswith(".py") and "code" in name][:6]
            made += [(GRAPH_TEXT, file.read(name)) for name in names if name.endswith("models/model.json")]
        made.append((WHOLE, path.read_bytes()))
    return [bytes([layer]) + content for layer, content in made]


def mutate(data: bytes, source: random.Random) -> bytes:
    """A few random edits: bytes, runs, repeats, numbers at their limits, pieces of code."""
    edited = bytearray(data)
    for _ in range(source.choice((1, 1, 2, 4, 16))):
        at = source.randrange(len(edited) + 1)
        kind = source.randrange(7)
        if kind == 0 and edited:
            edited[at % len(edited)] = source.randrange(256)
        elif kind == 1:
            del edited[at : at + source.choice((1, 4, 64, 1024))]
        elif kind == 2:
            edited[at:at] = source.randbytes(source.choice((1, 2, 8)))
        elif kind == 3:
            start = source.randrange(len(edited) + 1)
            edited[at:at] = edited[start : start + source.choice((1, 16, 256))] * source.choice((1, 2, 50))
        elif kind == 4:
            limit = source.choice((b"\xff\xff\xff\xff", b"\x00\x00\x00\x80", b"\xff\xff\xff\x7f", b"\x00\x00\x00\x00"))
            edited[at : at + 4] = limit
        elif kind == 5:
            line = b"\n" + b"  " * source.randrange(5) if source.random() < 0.8 else b""
            edited[at:at] = line + source.choice(TOKENS)
        else:
            lines = bytes(edited).split(b"\n")
            place = source.randrange(len(lines))
            lines[place:place] = [b"    " + source.choice(TOKENS) for _ in range(source.randrange(1, 6))]
            edited = bytearray(b"\n".join(lines))
    return bytes(edited[: 1 << 20])
