# SPDX-License-Identifier: Apache-2.0
"""What ``docs/models.md`` says of the format, row by row, and files that each PyTorch since 1.6 wrote."""

from __future__ import annotations

import io
import re
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import KernelsError, ModelError, ShapeError
from jetdvfs.kernels.network import Network, TensorSpec
from jetdvfs.kernels.torchscript.source import NEWEST, OLDEST, UPGRADES
from jetdvfs.tests.support.models import handmade
from jetdvfs.tests.support.models.reading import SMALL, read
from jetdvfs.tests.support.paths import DOCS, FIXTURES

ARCHIVES = FIXTURES / "archives"
DOCUMENT = (DOCS / "models.md").read_text()
ARITHMETIC = {"floor_divide_scalar": 1, "div_scalar": 1, "div": 1, "full": 1, "linspace": 1, "logspace": 1, "arange": 1}
ARITHMETIC |= {"gelu": 1, "var": 1, "std": 1, "norm": 1, "abs": 1, "sum": 1, "add": 4}


def with_version(version: int | str, *lines: str, entry: str = "version", inputs: Sequence[TensorSpec] = SMALL) -> Network:
    """A network whose forward has these lines, in a file of this version."""
    entries = {"m/data.pkl": handmade.PLAIN_MODULE, "m/code/__torch__.py": handmade.forward(*lines).encode()}
    return read(handmade.zipped({**entries, f"m/{entry}": f"{version}\n".encode()}), inputs)


# Files that PyTorch wrote


@pytest.mark.parametrize("path", sorted(ARCHIVES.glob("arith-trace-*.pt")), ids=lambda path: path.stem)
def test_every_pytorch_wrote_the_same_network(path: Path) -> None:
    network = decompose(path, [TensorSpec((2, 3)), TensorSpec((2, 3), "int64")])
    assert network.kinds == ARITHMETIC
    assert next(launch for launch in network.launches if launch.kind == "full").dtype == "float32"


QUANTISED = ("quantized-script-1.7.pt", "qtensor-script-1.12.pt")
OTHERS: dict[str, tuple[tuple[int, ...], dict[str, int]]] = {
    "attention-freeze-1.6.pt": ((5, 1, 8), {"matmul": 4, "clone": 3, "add": 2, "mul_scalar": 1, "softmax": 1}),
    "flow-freeze-1.8.pt": ((2, 4), {"matmul": 3, "relu": 3, "sigmoid": 2, "mul_scalar": 4, "stack": 1, "sum": 1, "add": 1}),
    "lite-script-1.9.pt": ((2, 4), {"matmul": 4, "relu": 1, "leaky_relu": 1, "elu": 1, "softmax": 1}),
    "mangled-script-1.6.pt": ((2, 4), {"matmul": 2, "tanh": 2, "relu": 1}),
    "typed-script-1.6.pt": ((2, 4), {"add": 10, "to": 4, "sum": 3}),
    "enum-script-2.2.pt": ((2, 4), {"relu": 1}),
    "interface-2.1.pt2": ((2, 4), {"matmul": 4, "relu": 1, "leaky_relu": 1, "softmax": 1}),
    "conv-2.2.pt2": ((1, 3, 8, 8), {"conv2d": 2, "conv_transpose2d": 1, "batch_norm": 1, "relu": 1, "matmul": 1}),
    "transformer-2.4.pt2": ((5, 1, 8), {"matmul": 4, "attention": 1, "layer_norm": 3, "add": 2, "clone": 1, "relu": 1}),
    "shapes-2.7.pt2": ((1, 3, 8, 8), {"div_scalar": 1, "arange": 1, "to": 1, "mul_scalar": 1, "add": 1, "cat": 1, "clone": 1}),
    "attention-2.8.pt2": ((5, 1, 8), {"matmul": 4, "clone": 2, "mul_scalar": 1, "softmax": 1, "mean": 1}),
}


def test_every_file_written_by_pytorch_has_its_test() -> None:
    names = {path.name for path in ARCHIVES.iterdir() if not path.name.startswith("arith-trace-")}
    assert names == {*OTHERS, *QUANTISED}


@pytest.mark.parametrize("name", OTHERS)
def test_archives_of_older_pytorch_are_read(name: str) -> None:
    shape, kinds = OTHERS[name]
    found = decompose(ARCHIVES / name, [TensorSpec(shape)]).kinds
    assert {kind: found.get(kind) for kind in kinds} == kinds


@pytest.mark.parametrize("name", QUANTISED)
def test_an_8_bit_quantised_archive_is_listed_with_its_types(name: str) -> None:
    inputs = [TensorSpec((1, 3, 8, 8) if name.startswith("quantized") else (2, 3))]
    launches = decompose(ARCHIVES / name, inputs).launches
    assert {launch.dtype for launch in launches} <= {"qint8", "quint8", "float32"}
    if name.startswith("quantized"):
        assert [launch.dtype for launch in launches if launch.kind == "conv2d"] == ["quint8"]


# Versions


def test_the_document_lists_the_versions_that_are_read_and_the_operators_they_change() -> None:
    assert f"versions {OLDEST} to {NEWEST}" in DOCUMENT
    rows = re.findall(r"^\| `(\w+)` \| before (\d+) \|", DOCUMENT, re.MULTILINE)
    assert {(name, int(before)) for name, before in rows} == {
        (name, upgrade.before) for upgrade in UPGRADES for name in upgrade.operators
    }


@pytest.mark.parametrize("version", [0, 11, 99, "", "x", "3.5", "-1", "9" * 40])
def test_a_version_that_is_not_defined_is_refused(version: int | str) -> None:
    with pytest.raises(ModelError, match="versions 1 to 10"):
        with_version(version, "return torch.relu(x)")


@pytest.mark.parametrize("version", range(OLDEST, NEWEST + 1))
def test_every_defined_version_is_read(version: int) -> None:
    assert with_version(version, "return torch.relu(x)").kinds == {"relu": 1}


def test_the_version_under_data_is_the_one_that_counts() -> None:
    entries = {
        "m/data.pkl": handmade.PLAIN_MODULE,
        "m/code/__torch__.py": handmade.forward("return torch.full([2], 1)").encode(),
    }
    for inner, dtype in ((b"4", "float32"), (b"5", "int64")):
        data = handmade.zipped({**entries, "m/version": b"7", "m/.data/version": inner})
        assert read(data).launches[0].dtype == dtype


INTEGERS = [TensorSpec((2, 3), "int64")]


@pytest.mark.parametrize("call", ["torch.div(x, 2)", "torch.div(x, x)", "torch.div_(x, x)", "x / x"])
def test_before_version_4_integer_division_stays_integer(call: str) -> None:
    assert with_version(3, f"return {call}", inputs=INTEGERS).launches[0].dtype == "int64"
    assert with_version(4, f"return {call}", inputs=INTEGERS).launches[0].dtype == "float32"


@pytest.mark.parametrize("call", ["torch.div(x, 2.)", 'torch.div(x, 2, rounding_mode="floor")', "torch.div(x, torch.mean(y))"])
def test_before_version_4_other_divisions_are_as_ever(call: str) -> None:
    lines = ("y = torch.to(x, 6)", f"return {call}")
    old, new = (with_version(version, *lines, inputs=INTEGERS) for version in (3, 4))
    assert old.launches == new.launches


def test_before_version_4_sizes_divide_without_remainder() -> None:
    lines = ("n = torch.div(ops.prim.NumToTensor(torch.size(x, 1)), CONSTANTS.c0)", "m = int(torch.mul(n, CONSTANTS.c0))")
    code = handmade.forward(*lines, "return torch.zeros([m], dtype=6)")
    constants = b"\x80\x02" + handmade.tensor("0", storage="LongStorage") + b"\x85."
    shapes = []
    for version in (b"3", b"4"):
        entries = {"data.pkl": handmade.PLAIN_MODULE, "code/__torch__.py": code.encode(), "version": version}
        entries |= {"constants.pkl": constants, "constants/0": struct.pack("<q", 2)}
        data = handmade.zipped({f"m/{name}": content for name, content in entries.items()})
        shapes.append(read(data, [TensorSpec((2, 7))]).launches[-1].output)
    assert shapes == [(6,), (7,)]


@pytest.mark.parametrize(
    ("call", "old", "new"),
    [
        ("torch.full([2], 1)", "float32", "int64"),
        ("torch.full([2], True)", "float32", "bool"),
        ("torch.full([2], 1, dtype=4)", "int64", "int64"),
        ("torch.full([2], 1, dtype=None)", "float32", "int64"),
        ("torch.full([2], 1.)", "float32", "float32"),
    ],
)
def test_before_version_5_full_is_floating_unless_told(call: str, old: str, new: str) -> None:
    assert [with_version(version, f"return {call}").launches[0].dtype for version in (4, 5)] == [old, new]


@pytest.mark.parametrize(("name", "before"), [("linspace", 8), ("logspace", 9)])
def test_steps_could_be_left_out_for_a_hundred(name: str, before: int) -> None:
    for call in (f"torch.{name}(0, 1, None)", f"torch.{name}(0, 1, steps=None)"):
        assert with_version(before - 1, f"return {call}").launches[0].output == (100,)
        with pytest.raises(ShapeError):
            with_version(before, f"return {call}")
    assert with_version(before - 1, f"return torch.{name}(0, 1, 5)").launches[0].output == (5,)


# Entries


IGNORED: tuple[str, ...] = (
    ".data/serialization_id",
    ".format_version",
    ".storage_alignment",
    "traced_inputs.pkl",
    "bytecode.pkl",
)
IGNORED += ("mobile_debug.pkl", "mobile_debug_handles.pkl", "callstack_debug_map.pkl")


def test_entries_that_say_nothing_of_the_network_are_not_looked_at() -> None:
    more = dict.fromkeys((*IGNORED, "extra/labels.txt", "code/__torch__.py.debug_pkl"), b"\xffnot a pickle")
    assert read(handmade.archive(handmade.forward("return torch.relu(x)"), more=more)).kinds == {"relu": 1}
    assert all(f"`{name}`" in DOCUMENT for name in (*IGNORED, "extra/*", "code/**.py.debug_pkl"))


@pytest.mark.parametrize(("order", "packed"), [(None, "<q"), (b"little", "<q"), (b"big", ">q")])
def test_numbers_are_read_in_the_byte_order_of_the_archive(order: bytes | None, packed: str) -> None:
    code = handmade.forward("if bool(CONSTANTS.c0 == 3):", "  y = torch.relu(x)", "else:", "  y = torch.tanh(x)", "return y")
    more = {"constants/0": struct.pack(packed, 3)}
    if order:
        more["byteorder"] = order
    constants = b"\x80\x02" + handmade.tensor("0", storage="LongStorage") + b"\x85."
    assert read(handmade.archive(code, constants=constants, more=more)).kinds == {"relu": 1}


def test_the_top_folder_may_have_any_name() -> None:
    for folder in ("archive", "my model.v2", "ü"):
        entries = {f"{folder}/data.pkl": handmade.PLAIN_MODULE}
        entries[f"{folder}/code/__torch__.py"] = handmade.forward("return torch.relu(x)").encode()
        assert read(handmade.zipped(entries)).kinds == {"relu": 1}


def test_padding_between_header_and_data_is_skipped() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        code = handmade.forward("return torch.relu(x)").encode()
        for name, content in (("m/data.pkl", handmade.PLAIN_MODULE), ("m/code/__torch__.py", code)):
            entry = zipfile.ZipInfo(name)
            entry.extra = struct.pack("<2sH", b"FB", 40) + b"Z" * 40
            file.writestr(entry, content)
    assert read(stream.getvalue()).kinds == {"relu": 1}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x18\x00\x00\x00PTMF" + bytes(64), "mobile interpreter"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", "weights saved by torch.save"),
        (handmade.zipped({"a/model.json": b"{}", "a/tensors/0": b""}), r"no data\.pkl"),
        (handmade.zipped({"a/.data/extern_modules": b"", "a/model/model.pkl": b""}), r"a torch\.package"),
        (handmade.zipped({"a/data.pkl": b"\x80\x02}.", "a/version": b"3\n"}), "data without code"),
    ],
    ids=["flatbuffer", "pickled state", "PyTorch before 1.4", "torch.package", "torch.save"],
)
def test_other_files_of_pytorch_are_called_what_they_are_not(data: bytes, text: str) -> None:
    with pytest.raises(ModelError, match=text):
        read(data)


def test_errors_of_old_files_are_one_line() -> None:
    for path in sorted(ARCHIVES.iterdir()):
        try:
            decompose(path, [TensorSpec((1, 1))])
        except KernelsError as error:
            assert "\n" not in str(error)
