# SPDX-License-Identifier: Apache-2.0
"""Feeds the archive reader with damaged and hostile files, and stops at anything but one of its own errors.

Three ways to run it, over the same ``attempt``::

    python tests/fuzz_archive.py --seconds 60 --seed 0      # mutations from the standard library's random numbers
    python tests/fuzz_archive.py --atheris [libFuzzer options]  # coverage-guided, where atheris is installed
    from tests.fuzz_archive import attempt                   # one input, for a test

The first byte of an input says which layer the rest of it replaces: the file, the module pickle,
the constants, the code, or the graph of an exported program.
An input that breaks the reader is written to ``--corpus``.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import random
import resource
import sys
import time
import zipfile
from collections import Counter
from pathlib import Path

if __package__:
    from . import handmade
else:
    import handmade

from jetdvfs.kernels.budget import Budget
from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import KernelsError
from jetdvfs.kernels.network import TensorSpec
from jetdvfs.kernels.operators import known_operators

REFERENCE = Path(__file__).parent.parent / "profiles" / "reference"
INPUTS = [TensorSpec((1, 3, 64, 64))]
BUDGET = Budget(steps=50_000, pickle_steps=100_000, calls=20_000, wall_s=2.0)
#: What one input may take; the budget's wall time and the parser's own work.
SECONDS = 4.0
GROWTH_MB = 150
CODE = handmade.forward(
    "y = torch.relu(x)", "if torch.eq(torch.dim(y), 4):", "  z = torch.add(y, x)", "else:", "  z = y", "return z"
)
TOKENS = [
    *(b"torch.relu(x)", b"torch.add(x, x)", b"torch.append(a, a)", b"a = [x, a]", b"a = (a, a)", b"a = [1, 2, 3]", b"n = 3"),
    *(b"n = torch.mul(n, n)", b"a = torch.add(a, a)", b"x = torch.cat([x, x], 1)", b"x = torch.view(x, [-1])", b"while True:"),
    *(
        b"for i in range(99):",
        b"if True:",
        b"else:",
        b"  ",
        b"\n",
        b"(self).forward(x)",
        b"getattr(self, 'a')",
        b"CONSTANTS.c0",
    ),
    *(b"self.a = self", b"__torch__.M.__new__(__torch__.M)", b"annotate(List[int], [])", b"torch.format('{}', a)", b"return x"),
    *(b"x = torch.expand(x, [9999999, 3, 64, 64])", b"torch._set_item(a, 0, a)", b"a = {'k': a}", b"x, y, = a", b"n = -n"),
    *(
        b"x = torch.pad(x, [9, 9])",
        b"torch.einsum('abcd->a', [x])",
        b"x = torch.unbind(x, 3)[0]",
        b"torch.pow(n, n)",
        b"\x00",
        b"\xff",
    ),
]


NAMED = {"as_tensor": {"name": "x"}}
CALLS = (("conv2d", [NAMED, {"as_tensor": {"name": "w"}}, {"as_none": True}, {"as_ints": [1, 1]}]), ("relu_", [NAMED]))
CALLS += (
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


def archive_around(layer: int, data: bytes) -> bytes:
    """A whole file in which one layer is the given bytes."""
    if layer == 1:
        return handmade.archive(CODE, data=data)
    if layer == 2:
        return handmade.archive(CODE, constants=data)
    if layer == 3:
        return handmade.zipped({"m/data.pkl": handmade.PLAIN_MODULE, "m/code/__torch__.py": data})
    if layer == 4:
        return handmade.zipped({"m/archive_format": b"pt2", "m/models/model.json": data})
    return data


def attempt(data: bytes) -> str:
    """Read one input; the name of how that ended.

    Raises:
        Exception: whatever the reader raises beyond its own errors.
        AssertionError: it took too long or too much memory.
    """
    layer, content = (data[0] % 5, data[1:]) if data else (0, b"")
    began, before = time.monotonic(), resident_mb()
    try:
        decompose(io.BytesIO(archive_around(layer, content)), INPUTS, budget=BUDGET)
        outcome = "decomposed"
    except KernelsError as error:
        assert "\n" not in str(error), "an error of more than one line"
        outcome = type(error).__name__
    taken = time.monotonic() - began
    assert taken < SECONDS, f"took {taken:.1f} s"
    grown = resident_mb() - before
    assert grown < GROWTH_MB, f"grew by {grown:.0f} MB"
    return outcome


def resident_mb() -> float:
    """The most memory this process has ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def seeds() -> list[bytes]:
    """Well-formed inputs for every layer."""
    whole = handmade.archive(CODE, data=handmade.module({"w": handmade.tensor("0", 2, 3)}))
    made = [b"\x00" + whole, b"\x01" + handmade.PLAIN_MODULE, b"\x02" + handmade.EMPTY_CONSTANTS, b"\x03" + CODE.encode()]
    made.append(b"\x01" + handmade.module({"a": handmade.tensor("0", 8, 3, 3, 3), "b": b"]", "c": b"}"}))
    made.append(b"\x04" + json.dumps(GRAPH).encode())
    for name in ("squeezenet1_0", "shufflenet_v2_x1_0"):
        path = REFERENCE / f"{name}.pt"
        with zipfile.ZipFile(path) as file:
            names = file.namelist()
            made.append(b"\x01" + file.read(next(entry for entry in names if entry.endswith("data.pkl"))))
            made += [b"\x03" + file.read(entry) for entry in names if entry.endswith(".py") and "code" in entry][:6]
        made.append(b"\x00" + path.read_bytes())
    return made


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
            edited[at : at + 4] = source.choice(
                (b"\xff\xff\xff\xff", b"\x00\x00\x00\x80", b"\xff\xff\xff\x7f", b"\x00\x00\x00\x00")
            )
        elif kind == 5:
            line = b"\n" + b"  " * source.randrange(5) if source.random() < 0.8 else b""
            edited[at:at] = line + source.choice(TOKENS)
        else:
            lines = bytes(edited).split(b"\n")
            place = source.randrange(len(lines))
            lines[place:place] = [b"    " + source.choice(TOKENS) for _ in range(source.randrange(1, 6))]
            edited = bytearray(b"\n".join(lines))
    return bytes(edited[: 1 << 20])


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
        "9223372036854775807",
    ),
    *(
        "-9223372036854775807",
        "0.5",
        "1e308",
        "nan",
        "[1, 1]",
        "[2, -1]",
        "[0]",
        "[1, 2, 3, 4]",
        "[-1]",
        "[99999999, 99999999]",
        "'same'",
        "'%999999d'",
    ),
    *(
        "'abcd,abce->ade'",
        "6",
        "4",
        "CONSTANTS.c0",
        "self",
        "(1, 2)",
        "torch.size(x)",
        "torch.dim(x)",
        "torch.tensor([1, 2, 3])",
        "h",
        "[[1]]",
    ),
)
PREAMBLE = (
    "y = torch.select(x, 0, 0)",
    "s = torch.mean(x)",
    "a = [1, 2, 3]",
    "d = annotate(Dict[str, int], {})",
    "t = torch.transpose(x, 1, 2)",
    "h = ops.prim.NumToTensor(torch.size(x, 1))",
)


def generate(source: random.Random) -> bytes:
    """Code that calls known operators on all sorts of values."""
    names = [name for name in known_operators() if not name.startswith("builtin::")]
    lines = list(PREAMBLE)
    indent = ""
    for _ in range(source.randrange(1, 9)):
        name = source.choice(names)
        spelled = f"ops.{name.replace('::', '.')}" if "::" in name else f"torch.{name}"
        values = ", ".join(source.choice(VALUES) for _ in range(source.choice((1, 1, 2, 2, 3, 3, 4, 5, 8, 10))))
        lines.append(f"{indent}{source.choice('xysatdhz')} = {spelled}({values})")
        if source.random() < 0.1:
            lines.append(f"{indent}{source.choice(('while True:', 'for i in range(200):', 'if torch.gt(torch.dim(x), 2):'))}")
            indent += "  "
    return b"\x03" + handmade.forward(*lines, f"{indent}pass", "return x").encode()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--corpus", type=Path, default=Path("fuzz-failures"))
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
    source, pool = random.Random(arguments.seed), seeds()
    outcomes: Counter[str] = Counter()
    failures, slowest = 0, 0.0
    end = time.monotonic() + arguments.seconds
    while time.monotonic() < end:
        data = generate(source) if source.random() < 0.5 else mutate(source.choice(pool), source)
        began = time.monotonic()
        try:
            outcome = attempt(data)
        except Exception as error:
            failures += 1
            arguments.corpus.mkdir(exist_ok=True)
            path = arguments.corpus / hashlib.sha256(data).hexdigest()[:16]
            path.write_bytes(data)
            print(f"{path}: {type(error).__name__}: {str(error)[:200]}", flush=True)
            outcome = "FAILED"
        slowest = max(slowest, time.monotonic() - began)
        outcomes[outcome] += 1
        if outcome == "decomposed" and len(pool) < 500 and source.random() < 0.05:
            pool.append(data)
    counted = f"{outcomes.total()} inputs, {failures} failures, slowest {slowest:.2f} s"
    print(f"{counted}, peak {resident_mb():.0f} MB: {dict(outcomes)}")
    return 1 if failures else 0


def with_atheris() -> None:
    import atheris

    atheris.instrument_all()
    atheris.Setup([argument for argument in sys.argv if argument != "--atheris"], lambda data: attempt(data) and None)
    atheris.Fuzz()


if __name__ == "__main__":
    if "--atheris" in sys.argv:
        with_atheris()
    sys.exit(main())
