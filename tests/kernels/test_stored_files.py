# SPDX-License-Identifier: Apache-2.0
"""A file is replaced as a whole or left as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jetdvfs.kernels.stored_files import replacing


def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "p.png"
    for before in (None, "old"):
        if before is not None:
            path.write_text(before)
        with pytest.raises(OSError, match="No space"), replacing(path) as file:
            file.write(b"half")
            raise OSError(28, os.strerror(28))
        assert [one.read_text() for one in tmp_path.iterdir()] == ([before] if before else [])


def test_what_is_written_has_the_usual_mode_keeps_that_of_a_file_and_follows_links(tmp_path: Path) -> None:
    path, link = tmp_path / "s.npz", tmp_path / "link"
    with replacing(path) as file:
        file.write(b"one")
    (tmp_path / "other").touch()
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode
    path.chmod(0o640)
    link.symlink_to(path)
    with replacing(link) as file:
        file.write(b"two")
    with replacing(tmp_path / "given", 0o604) as file:
        file.write(b"three")
    assert (tmp_path / "given").stat().st_mode & 0o777 == 0o604
    assert link.is_symlink() and path.read_bytes() == b"two" and path.stat().st_mode & 0o777 == 0o640


def test_a_device_is_written_and_not_replaced() -> None:
    with replacing("/dev/null") as file:
        file.write(b"gone")
    assert Path("/dev/null").is_char_device()


def test_content_is_on_the_disk_before_its_name_and_the_name_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced = tmp_path / "s.npz", []
    path.write_text("old")

    def fsync(handle: int) -> None:
        place = Path(f"/proc/self/fd/{handle}")
        synced.append((None if place.is_dir() else place.read_text(), path.read_text()))

    monkeypatch.setattr(os, "fsync", fsync)
    for durable in (True, False):
        with replacing(path, durable=durable) as file:
            file.write(b"new")
    assert synced == [("new", "old"), (None, "new")]
