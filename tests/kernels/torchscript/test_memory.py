# SPDX-License-Identifier: Apache-2.0
"""How much memory reading takes, of honest files and of others."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jetdvfs.tests.support.models import handmade
from jetdvfs.tests.support.paths import REFERENCE


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


SOME = {"lists kept", "long statement", "many functions"}


@pytest.mark.parametrize("name", [name if name in SOME else pytest.param(name, marks=pytest.mark.slow) for name in HUNGRY])
def test_no_file_takes_more_than_200_mb(name: str, tmp_path: Path) -> None:
    lines = ["s = torch.select(torch.select(x, 0, 0), 0, 0)", *HUNGRY[name]]
    (tmp_path / "model.pt").write_bytes(handmade.archive(handmade.forward(*lines)))
    program = (
        "from jetdvfs.kernels.budget import Budget; from jetdvfs.kernels.decompose import decompose;"
        "from jetdvfs.kernels.errors import BudgetExceeded; from jetdvfs.kernels.network import TensorSpec\n"
        f"try: decompose({str(tmp_path / 'model.pt')!r}, [TensorSpec((2, 3))], budget=Budget(cpu_s=2))\n"
        "except BudgetExceeded: print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    began = time.monotonic()
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30).stdout
    assert int(out) < 200 * 1024
    assert time.monotonic() - began < 10


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
