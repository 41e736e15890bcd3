# SPDX-License-Identifier: Apache-2.0
"""Pickles that call, name or hold what PyTorch does not write: refused, and nothing in them is executed."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from jetdvfs.kernels.errors import ModelError
from jetdvfs.tests.support.models import handmade
from jetdvfs.tests.support.models.reading import read


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
