# SPDX-License-Identifier: Apache-2.0
"""Code and pickles of TorchScript files, put together from choices."""

from __future__ import annotations

from jetdvfs.kernels.operators import known_operators
from jetdvfs.tests.fuzz.choices import Choices
from jetdvfs.tests.support.models import handmade

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
    "for i in range(3):",
    "for i in range(torch.dim(x)):",
    "for i in a:",
    "if torch.gt(torch.dim(x), 2):",
    "if h:",
    "while torch.lt(n, 9):",
    "with self.box as y:",
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
    *("a = [x, y]", "torch.append(a, torch.relu(x))", "x = a[0]", "x = torch.cat(a, 1)", "d = {'k': x}", "x = d['k']"),
    *("x = torch.add(x, 0)", "x = torch.mul(x, 1)", "y = torch.add_(x, y)", "x = torch.add(x, torch.arange(4))"),
    *(
        "s = torch.mean(x)",
        "s = torch.mean(x)",
        "x = torch.addmm(x, y, y)",
        "torch.copy_(y, x)",
        "x = torch.zeros([1, 3, 64, 64])",
    ),
    *("ops.prim.RaiseException('no')", "a = [n, n]", "d = {'k': n}", "n = getattr(self, 'n')", "n = -n", "h = not h"),
    *("n = n if h else 1", "h = h and n == 1", "n = n + n", "n = n * n", "n = n // 2", "x, y = torch.chunk(x, 2, 1)", "x = x"),
)
SIGNATURES: tuple[str, ...] = (
    "x: Tensor",
    "x: Tensor, k: int=3",
    "x: Tensor, b: Optional[Tensor]=None",
    "x: Tensor, *, k: bool=True",
    "x",
)
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
