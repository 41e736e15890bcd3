# SPDX-License-Identifier: Apache-2.0
"""Files that are damaged, hostile or something else: each ends in one clear error, and nothing in them is executed."""

from __future__ import annotations

import dataclasses
import io
import os
import pickle
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.kernels.budget import Budget
from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import BudgetExceeded, KernelsError, ModelError, ShapeError, UnsupportedOperator
from jetdvfs.kernels.network import Network, TensorSpec
from jetdvfs.kernels.torchscript.archive import Archive
from jetdvfs.tests.support.models import handmade
from jetdvfs.tests.support.paths import REFERENCE

IMAGE = [TensorSpec((1, 3, 224, 224))]
SMALL = [TensorSpec((2, 3))]


def read(data: bytes, inputs: Sequence[TensorSpec] = SMALL, **options: Any) -> Network:
    return decompose(io.BytesIO(data), inputs, **options)


def test_a_handmade_archive_decomposes() -> None:
    code = handmade.forward("y = torch.relu(x)", "return torch.add(y, x)")
    network = read(handmade.archive(code))
    assert [(launch.kind, launch.inputs) for launch in network.launches] == [("relu", ((2, 3),)), ("add", ((2, 3), (2, 3)))]


def test_a_deflated_archive_decomposes_like_a_stored_one() -> None:
    code = handmade.forward("return torch.relu(x)")
    entries = {"m/data.pkl": handmade.PLAIN_MODULE, "m/code/__torch__.py": code.encode()}
    assert read(handmade.zipped(entries, zipfile.ZIP_DEFLATED)).launches == read(handmade.zipped(entries)).launches


@pytest.mark.parametrize("kept", [0, 3, 100, 5_000, 40_000, 80_000])
def test_truncated_archive_is_refused(kept: int) -> None:
    data = (REFERENCE / "resnet18.pt").read_bytes()
    assert kept < len(data)
    with pytest.raises(ModelError, match=r"not a TorchScript file|truncated|empty"):
        read(data[:kept], IMAGE)


def test_every_truncation_of_a_small_archive_is_a_model_error() -> None:
    data = handmade.archive(handmade.forward("return torch.relu(x)"))
    for kept in range(len(data)):
        with pytest.raises(ModelError):
            read(data[:kept])


def test_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"absent\.pt: No such file"):
        decompose(tmp_path / "absent.pt", SMALL)


def test_directory_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="Is a directory"):
        decompose(tmp_path, SMALL)


def test_a_pipe_is_refused() -> None:
    reader, writer = os.pipe()
    os.close(writer)
    with os.fdopen(reader, "rb") as stream, pytest.raises(ModelError, match="regular file"):
        decompose(stream, SMALL)


def test_a_zip_that_is_no_torchscript_file_is_refused() -> None:
    with pytest.raises(ModelError, match=r"not a TorchScript file.*data\.pkl"):
        read(handmade.zipped({"word/document.xml": b"<xml/>"}))


def test_a_state_dictionary_is_refused_with_a_hint() -> None:
    with pytest.raises(ModelError, match=r"weights saved by torch\.save.*torch\.export\.save"):
        read(handmade.zipped({"m/data.pkl": b"\x80\x02}.", "m/version": b"3\n"}))


class _Caller:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {_Caller.marker}",)

    marker = ""


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_that_calls_os_system_is_refused_and_runs_nothing(tmp_path: Path, protocol: int) -> None:
    _Caller.marker = str(tmp_path / "was-here")
    data = pickle.dumps(_Caller(), protocol=protocol)
    with pytest.raises(ModelError, match=r"(posix|nt)\.system"):
        read(handmade.archive(handmade.forward("return x"), data=data))
    assert not (tmp_path / "was-here").exists()


GLOBALS = ["builtins\neval", "builtins\ngetattr", "torch\nload", "os\nsystem", "torch.storage\n_load_from_bytes"]


@pytest.mark.parametrize("name", GLOBALS)
def test_a_pickle_that_names_another_global_is_refused_by_that_name(name: str) -> None:
    data = b"\x80\x02c" + name.encode() + b"\n)R."
    with pytest.raises(ModelError, match=name.replace("\n", r"\.")):
        read(handmade.archive(handmade.forward("return x"), data=data))


@pytest.mark.parametrize("opcode", [b"i", b"o", b"P", b"S", b"V", b"I", b"L", b"\x82", b"\x92", b"\x8e", b"\x96", b"\xff"])
def test_a_pickle_opcode_that_pytorch_does_not_write_is_refused(opcode: bytes) -> None:
    with pytest.raises(ModelError, match="opcode"):
        read(handmade.archive(handmade.forward("return x"), data=b"\x80\x02(" + opcode + b"\x01\x01\n."))


DAMAGED = [b"", b".", b"\x80", b"\x80\x02(", b"\x80\x02t.", b"\x80\x02h\x05.", b"\x80\x02X\xff\xff\xff\xff.", b"\x80\x02R."]


@pytest.mark.parametrize("data", DAMAGED)
def test_a_damaged_pickle_is_a_model_error(data: bytes) -> None:
    with pytest.raises(ModelError, match=r"data\.pkl"):
        read(handmade.archive(handmade.forward("return x"), data=data))


def test_a_flipped_byte_in_the_code_is_noticed() -> None:
    code = handmade.forward("return torch.relu(x)")
    data = handmade.archive(code)
    with pytest.raises(ModelError, match="damaged"):
        read(data.replace(b"torch.relu", b"torch.gelu", 1))


def test_unknown_operator_is_named_with_its_source_line() -> None:
    code = handmade.forward("y = torch.relu(x)", "return torch.quantum_sort(y)")
    with pytest.raises(UnsupportedOperator, match=r"aten::quantum_sort .*code/__torch__\.py:7"):
        read(handmade.archive(code))


def test_unknown_operator_in_a_branch_that_is_not_taken_does_no_harm() -> None:
    code = handmade.forward(
        "if torch.eq(torch.dim(x), 9):", "  y = torch.quantum_sort(x)", "else:", "  y = x", "return torch.relu(y)"
    )
    assert read(handmade.archive(code)).kinds == {"relu": 1}


def test_code_that_imports_or_calls_builtins_is_refused(tmp_path: Path) -> None:
    marker = tmp_path / "was-here"
    for line in (
        "import os",
        f"y = __import__('os').system('touch {marker}')",
        f"y = eval(\"open('{marker}', 'w')\")",
        f"y = open('{marker}', 'w')",
        "y = x.__class__.__mro__",
        "y = (lambda: 0)()",
        "y = [z for z in range(9)]",
    ):
        with pytest.raises(ModelError):
            read(handmade.archive(handmade.forward(line, "return torch.relu(x)")))
    assert not marker.exists()


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ([TensorSpec((1, 4, 224, 224))], "needs 3 channels"),
        ([TensorSpec((224, 224))], "conv2d"),
        ([TensorSpec((1, 3, 5, 5))], "does not fit|too small"),
        ([TensorSpec((1, 3, 224, 224), "int64")], "int64"),
        ([], r"takes the inputs"),
        (IMAGE * 3, "takes the inputs"),
    ],
)
def test_input_of_the_wrong_shape_is_one_clear_error(inputs: Sequence[TensorSpec], text: str) -> None:
    with pytest.raises(ShapeError, match=text) as caught:
        decompose(REFERENCE / "alexnet.pt", inputs)
    assert "\n" not in str(caught.value)


def test_unknown_method_lists_the_methods_there_are() -> None:
    with pytest.raises(ModelError, match="forward"):
        decompose(REFERENCE / "alexnet.pt", IMAGE, method="backward")


ENDLESS = {
    "loop": ["n = 0", "while True:", "  n = torch.add(n, 1)", "return x"],
    "list doubled": ["a = [1]", "while True:", "  a = torch.add(a, a)", "return x"],
    "list extended by itself": ["a = [1]", "while True:", "  torch.extend(a, a)", "return x"],
    "string doubled": ["a = 'aa'", "while True:", "  a = torch.add(a, a)", "return x"],
    "number squared": ["a = 3", "while True:", "  a = torch.mul(a, a)", "return x"],
    "power": ["a = torch.pow(9, 999999999)", "return x"],
    "list multiplied": ["a = torch.mul([1], 9999999999)", "return x"],
    "range": ["for i in range(9999999999):", "  pass", "return x"],
    "launches": ["while True:", "  y = torch.relu(x)", "return x"],
    "recursion": ["return (self).forward(x, )"],
    "tensor grown": ["while True:", "  x = torch.cat([x, x])", "return x"],
    "rank grown": ["while True:", "  x = torch.unsqueeze(x, 0)", "return x"],
    "chunks": ["x = torch.expand(torch.select(torch.select(x, 0, 0), 0, 0), [999999999])", "y = torch.unbind(x)", "return x"],
    "nested pairs compared": ["a = (1, 2)", "b = (1, 2)", *["a = (a, a)", "b = (b, b)"] * 60, "c = torch.eq(a, b)", "return x"],
    "nested pairs printed": ["a = (1, 2)", *["a = (a, a)"] * 60, "c = torch.format('{}', a)", "return torch.conv2d(a, x)"],
    "deep brackets": ["y = " + "(" * 150 + "x" + ")," * 150, "return x"],
    "deep operators": ["y = " + "-" * 5000 + "1", "return x"],
    "deep attributes": ["y = x" + ".a" * 5000, "return x"],
    "deep sum": ["y = 1" + " + 1" * 20000, "return x"],
    "deep blocks": ["  " * depth + "if True:" for depth in range(99)] + ["  " * 99 + "pass", "return x"],
    "long number": ["y = " + "9" * 100_000, "return x"],
}


@pytest.mark.parametrize("name", ENDLESS)
def test_code_that_would_never_end_is_stopped_by_the_budget(name: str) -> None:
    began = time.monotonic()
    with pytest.raises(KernelsError):
        read(handmade.archive(handmade.forward(*ENDLESS[name])), budget=Budget(steps=100_000, wall_s=5))
    assert time.monotonic() - began < 5


def test_wall_time_is_bounded_by_the_budget() -> None:
    code = handmade.forward("while True:", "  y = torch.dim(x)", "return x")
    began = time.monotonic()
    with pytest.raises(BudgetExceeded, match=r"longer than 0\.2 s"):
        read(handmade.archive(code), budget=Budget(wall_s=0.2))
    assert time.monotonic() - began < 2


TWICE = handmade.archive(handmade.forward("y = torch.relu(torch.relu(x))", "return y"))
LOOP = handmade.archive(handmade.forward("n = 0", "while True:", "  n = torch.add(n, 1)", "return x"))
KEPT = handmade.archive(handmade.forward("a = []", "while True:", "  torch.append(a, torch.mul([1], 60000))", "return x"))
CHILD = handmade.archive(handmade.forward("return x"), data=handmade.module({"c": handmade.PLAIN_MODULE[2:-1]}))
GRAPH = handmade.zipped({"m/models/model.json": b'{"graph_module": 1}'})
#: For each limit of the budget, a value and a file that crosses it.
CROSSED = {
    "entries": (2, TWICE),
    "directory_bytes": (10, TWICE),
    "entry_bytes": (10, TWICE),
    "graph_bytes": (10, GRAPH),
    "total_bytes": (10, TWICE),
    "source_bytes": (10, TWICE),
    "piece_bytes": (10, TWICE),
    "ast_depth": (1, TWICE),
    "ast_nodes": (2, TWICE),
    "pickle_steps": (3, TWICE),
    "steps": (600, LOOP),
    "recursion": (1, handmade.archive(handmade.forward("return (self).forward(x, )"))),
    "rank": (1, TWICE),
    "elements": (3, TWICE),
    "items": (2, handmade.archive(handmade.forward("a = torch.mul([1], 3)", "return x"))),
    "calls": (1, TWICE),
    "tree_objects": (1, CHILD),
    "wall_s": (1e-9, TWICE),
    "memory_bytes": (8 << 20, KEPT),
}


def test_every_limit_of_the_budget_has_a_test() -> None:
    assert set(CROSSED) == {limit.name for limit in dataclasses.fields(Budget)}


@pytest.mark.parametrize("name", CROSSED)
def test_every_limit_of_the_budget_can_be_lowered_and_holds(name: str) -> None:
    limit, data = CROSSED[name]
    lowered: dict[str, Any] = {name: limit}
    with pytest.raises(BudgetExceeded):
        read(data, budget=Budget(**lowered))


def test_a_budget_cannot_be_raised() -> None:
    with pytest.raises(BudgetExceeded, match="at most"):
        Budget(steps=10**9)


def test_a_deflated_entry_larger_than_it_says_is_refused() -> None:
    entries = {"m/data.pkl": handmade.PLAIN_MODULE, "m/code/__torch__.py": b"x" * 1_000_000}
    data = bytearray(handmade.zipped(entries, zipfile.ZIP_DEFLATED))
    directory = data.rfind(b"PK\x01\x02")
    data[directory + 24 : directory + 28] = struct.pack("<I", 100)
    with pytest.raises(ModelError, match="damaged"):
        read(bytes(data))


def test_a_bomb_is_not_unpacked() -> None:
    entries = {"m/data.pkl": b"\x00" * (100 << 20), "m/code/__torch__.py": b""}
    with pytest.raises(BudgetExceeded, match="104857600 bytes"):
        read(handmade.zipped(entries, zipfile.ZIP_DEFLATED))


def test_weights_are_never_read() -> None:
    class Counting(io.BytesIO):
        taken = 0

        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            self.taken += len(data)
            return data

    weights = b"\x00" * (8 << 20)
    code = handmade.forward("weight = self.weight", "return torch.linear(x, weight)")
    data = handmade.archive(code, data=handmade.module({"weight": handmade.tensor("0", 1024, 2048)}), more={"data/0": weights})
    stream = Counting(data)
    network = decompose(stream, [TensorSpec((1, 2048))])
    assert network.launches[0].params["n"] == 1024
    assert stream.taken < 100_000


def with_hole(code: str, data: bytes, name: str, size: int, path: Path) -> Path:
    """An archive whose last entry has this size and no bytes on the disk."""
    whole = handmade.archive(code, data=data)
    end = whole.rfind(b"PK\x05\x06")
    count, length, offset = struct.unpack_from("<HII", whole, end + 10)
    wide = struct.pack("<HHQQ", 1, 16, size, size)
    local = struct.pack("<4s5H3I2H", b"PK\x03\x04", 45, 0, 0, 0, 0, 0, *[0xFFFFFFFF] * 2, len(name), len(wide))
    fixed = (45, 45, 0, 0, 0, 0, 0, *[0xFFFFFFFF] * 2, len(name), len(wide), 0, 0, 0, 0, offset)
    central = struct.pack("<4s6H3I5H2I", b"PK\x01\x02", *fixed) + name.encode() + wide
    start = offset + len(local) + len(name) + len(wide) + size
    last = length + len(central)
    end64 = struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count + 1, count + 1, last, start)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, start + last, 1)
    short = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, count + 1, count + 1, last, 0xFFFFFFFF, 0)
    with path.open("wb") as file:
        file.write(whole[:offset] + local + name.encode() + wide)
        file.seek(start)
        file.write(whole[offset:end][:length] + central + end64 + locator + short)
    return path


def cost_of(path: Path, shape: tuple[int, ...]) -> tuple[int, int]:
    """What a process of its own takes to read a file: bytes read from it, and the most memory held, in kB."""
    program = (
        "from jetdvfs.kernels.decompose import decompose; from jetdvfs.kernels.network import TensorSpec;"
        "read = lambda: int(open('/proc/self/io').readline().split()[1]); before = read();"
        f"network = decompose({str(path)!r}, [TensorSpec({shape})]); print(read() - before, network.kinds == {{'matmul': 1}});"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    lines = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert lines[1] == "True"
    return int(lines[0]), int(lines[2])


def test_an_archive_of_a_gigabyte_costs_no_more_than_its_headers(tmp_path: Path) -> None:
    code = handmade.forward("return torch.matmul(x, self.weight)")
    costs = []
    for side in (256, 16384, 65536):  # 256 kB, 1 GB, 16 GB
        data = handmade.module({"weight": handmade.tensor("0", side, side, count=0)})
        path = with_hole(code, data, "model/data/0", side * side * 4, tmp_path / f"{side}.pt")
        assert path.stat().st_size > side * side * 4
        costs.append(cost_of(path, (1, side)))
    (small, small_kb), *larger = costs
    for taken, held_kb in larger:
        assert taken < small + 4096
        assert held_kb < min(small_kb + 2048, 40 * 1024)


LONG = "[" + "1," * 1_900_000 + "]"
LONG_DEFAULT = (
    f"return (self).g(x)\n  def g(self: __torch__.M,\n    x: Tensor,\n    y: List[int]={LONG}) -> Tensor:\n    return x"
)
LONG_FIELD = f"return x\nclass N:\n  field : Final[List[int]] = {LONG}\n  def f(self):\n      return 1"
HUNGRY = {
    "lists kept": ["a = []", "while True:", "  torch.append(a, torch.mul([1], 60000))", "return x"],
    "strings kept": ["a = []", "while True:", "  torch.append(a, torch.add(torch.mul('a', 65000), 'b'))", "return x"],
    "tensors kept": ["a = []", "while True:", "  torch.append(a, torch.unbind(torch.expand(s, [60000])))", "return x"],
    "pairs kept": ["a = [1]", "while True:", "  a = [a, [a, a, a, a, a, a, a]]", "return x"],
    "long launches": ["a = torch.mul([x], 60000)", "while True:", "  y = torch.cat(a)", "return x"],
    "long statement": [f"y = {LONG}", "return x"],
    "long sum": ["y = " + "1+" * 1_900_000 + "1", "return x"],
    "long default": [LONG_DEFAULT],
    "long field": ["y = __torch__.N.field", LONG_FIELD],
    "many functions": ["return x", *(f"def f{place}():\n      return 1" for place in range(400_000))],
}


@pytest.mark.parametrize("name", HUNGRY)
def test_no_file_takes_more_than_200_mb(name: str, tmp_path: Path) -> None:
    lines = ["s = torch.select(torch.select(x, 0, 0), 0, 0)", *HUNGRY[name]]
    (tmp_path / "model.pt").write_bytes(handmade.archive(handmade.forward(*lines)))
    program = (
        "from jetdvfs.kernels.budget import Budget; from jetdvfs.kernels.decompose import decompose;"
        "from jetdvfs.kernels.errors import BudgetExceeded; from jetdvfs.kernels.network import TensorSpec\n"
        f"try: decompose({str(tmp_path / 'model.pt')!r}, [TensorSpec((2, 3))], budget=Budget(wall_s=2))\n"
        "except BudgetExceeded: print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    began = time.monotonic()
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30).stdout
    assert int(out) < 200 * 1024
    assert time.monotonic() - began < 10


def test_a_directory_with_64_bit_sizes_is_read() -> None:
    data = handmade.archive(handmade.forward("return torch.relu(x)"))
    end = data.rfind(b"PK\x05\x06")
    count, size, offset = struct.unpack_from("<HII", data, end + 10)
    wide = struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, offset)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, end, 1)
    short = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    assert read(data[:end] + wide + locator + short).kinds == {"relu": 1}


def test_two_entries_of_one_name_are_refused() -> None:
    entry = handmade.zipped({"m/a": b"1", "m/b": b"2"}).replace(b"m/b", b"m/a")
    with pytest.raises(ModelError, match="two entries"):
        Archive(io.BytesIO(entry), Budget())


@pytest.fixture(scope="module")
def reader() -> list[str]:
    """What a process of its own reports after reading the largest of the reference networks."""
    program = (
        "import sys; from jetdvfs.kernels.decompose import decompose; from jetdvfs.kernels.network import TensorSpec;"
        f"decompose({str(REFERENCE / 'densenet161.pt')!r}, [TensorSpec((1, 3, 224, 224))]);"
        "print([name for name in ('torch', 'pickle', 'zipfile', 'treelite', 'numpy') if name in sys.modules]);"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.splitlines()


def test_reading_a_model_loads_no_framework(reader: list[str]) -> None:
    assert reader[0] == "[]"


def test_reading_a_model_takes_less_than_40_mb(reader: list[str]) -> None:
    assert int(reader[1]) < 40 * 1024


def test_an_enumeration_of_the_model_steers_a_branch() -> None:
    code = 'class E(Enum):\n  A = "a"\n  B = "b"\n' + handmade.forward(
        "how = self.how", "if torch.eq(how, __torch__.E.B):", "  y = torch.relu(x)", "else:", "  y = torch.tanh(x)", "return y"
    )
    for member, kind in (("a", "tanh"), ("b", "relu")):
        data = handmade.module({"how": b"c__torch__\nE\n" + handmade.text(member) + b"R"})
        assert read(handmade.archive(code, data=data)).kinds == {kind: 1}


def test_archives_of_older_pytorch_spell_out_defaults_and_are_read() -> None:
    code = handmade.forward(
        "y = torch.add(x, x, alpha=1)",
        "z = torch.mean(torch.clone(y, memory_format=None), [1], False, dtype=None)",
        "w = torch.zeros([2], dtype=6, layout=0, device=torch.device('cpu'), pin_memory=False)",
        "return torch.contiguous(torch.softmax(torch.sub(z, w, alpha=1), 0, None), memory_format=0)",
    )
    entries = {"old/data.pkl": handmade.PLAIN_MODULE, "old/code/__torch__.py": code.encode(), "old/version": b"2\n"}
    kinds = [launch.kind for launch in read(handmade.zipped(entries)).launches]
    assert kinds == ["add", "clone", "mean", "zeros", "sub", "softmax"]
