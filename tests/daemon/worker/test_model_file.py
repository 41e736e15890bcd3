# SPDX-License-Identifier: Apache-2.0
"""What a client sends in a model's place: only a regular file is read, bounded and as it was."""

from __future__ import annotations

import io
import os
import pickle
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from jetdvfs.daemon.errors import InputError
from jetdvfs.daemon.worker.model_file import ModelFile
from jetdvfs.tests.support.daemons.reading_workers import MODEL, refusal


def test_a_pipe_is_refused() -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, b"PK")
        assert "a pipe" in refusal(reading)
    finally:
        os.close(reading)
        os.close(writing)


def test_what_is_no_regular_file_is_refused_by_name(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    device = os.open("/dev/zero", os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as sock:
        assert "a directory" in refusal(folder)
        assert "a character device" in refusal(device)
        assert "a socket" in refusal(sock.fileno())
    os.close(folder)
    os.close(device)


def test_a_descriptor_that_is_not_open_for_reading_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(MODEL.read_bytes())
    with path.open("ab") as file:
        assert "cannot be read" in refusal(file.fileno())


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\0" * 5000, MODEL.read_bytes()[:-400]])
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    with path.open("rb") as file:
        refusal(file.fileno())


def test_a_pickle_that_calls_something_is_refused_and_calls_nothing(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
            return os.system, (f"touch {tmp_path}/called",)

    path = tmp_path / "model.pt"
    with zipfile.ZipFile(MODEL) as source, zipfile.ZipFile(path, "w") as target:
        for entry in source.infolist():
            evil = entry.filename.endswith("/data.pkl")
            target.writestr(entry.filename, pickle.dumps(Evil(), protocol=2) if evil else source.read(entry))
    tmp_path.chmod(0o777)
    with path.open("rb") as file:
        assert "system" in refusal(file.fileno())
    assert not (tmp_path / "called").exists()


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(MODEL.read_bytes())
    with path.open("rb") as handle:
        file = ModelFile(handle.fileno())
        os.truncate(path, 100)
        file.seek(90)
        assert len(file.read(50)) == 10
        with pytest.raises(InputError, match="shrank"):
            file.read(50)
        with pytest.raises(InputError, match="shrank"):
            file.check()


def test_a_file_that_changed_while_it_was_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(MODEL.read_bytes())
    with path.open("rb") as handle:
        file = ModelFile(handle.fileno())
        file.read(100)
        with path.open("ab") as writer:
            writer.write(b"more")
        with pytest.raises(InputError, match="changed"):
            file.check()


def test_no_more_than_the_bound_is_read_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(b"x" * 1000)
    with path.open("rb") as handle:
        file = io.BufferedReader(ModelFile(handle.fileno(), read_bytes=600), buffer_size=100)
        with pytest.raises(InputError, match="would have to be read"):
            file.read()
