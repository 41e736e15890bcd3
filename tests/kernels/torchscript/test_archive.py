# SPDX-License-Identifier: Apache-2.0
"""Files that are damaged, hostile or something else: each ends in one clear error, and nothing in them is executed."""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from jetdvfs.kernels.budget import Budget
from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import BudgetExceeded, ModelError, ShapeError, UnsupportedOperator
from jetdvfs.kernels.network import TensorSpec
from jetdvfs.kernels.torchscript.archive import Archive
from jetdvfs.tests.support.models import handmade
from jetdvfs.tests.support.models.reading import SMALL, read
from jetdvfs.tests.support.paths import REFERENCE

IMAGE = [TensorSpec((1, 3, 224, 224))]


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
    with pytest.raises(ModelError, match="no model in this folder"):
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
