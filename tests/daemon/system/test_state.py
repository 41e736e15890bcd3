# SPDX-License-Identifier: Apache-2.0
"""Where the daemon keeps how it found a board."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from jetdvfs.daemon.errors import HardwareBusy
from jetdvfs.daemon.system.state import board_held, board_locked, default_runtime_dir, default_state_dir, locked


def test_every_root_has_a_baseline_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    one, other = tmp_path / "a" / "b", tmp_path / "a-b"
    folders = {default_state_dir(root) for root in (Path("/"), one, other)}
    assert len(folders) == 3
    assert default_state_dir(Path("/")) == tmp_path / "state"
    assert default_state_dir(tmp_path / "a" / "." / "b") == default_state_dir(one)


def test_what_lasts_for_one_boot_is_in_the_runtime_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    of_a_user = Path(f"/tmp/jetdvfs-{os.geteuid()}")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    assert default_runtime_dir(Path("/")) == (of_a_user if os.geteuid() else Path("/run/jetdvfs"))
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    assert default_runtime_dir(Path("/")) == tmp_path
    assert default_runtime_dir(tmp_path / "a").is_relative_to(tmp_path / "roots")


def test_one_process_at_a_time_has_a_directory(tmp_path: Path) -> None:
    with locked(tmp_path / "new"), pytest.raises(HardwareBusy, match="another jetdvfsd holds"), locked(tmp_path / "new"):
        pass
    with locked(tmp_path / "new"):
        pass


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A board's file tree whose sockets have paths that are short enough."""
    with TemporaryDirectory() as name:
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        yield Path(name)


def test_a_board_whose_daemon_serves_is_busy_at_once(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    with board_held(short, short / "socket"), socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short / "socket"))
        listener.listen()
        with pytest.raises(HardwareBusy, match="another jetdvfsd runs on the board"), board_locked(short):
            pass
    assert waits == []


def test_a_daemon_that_ends_is_waited_for(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as ending:
        ending.enter_context(board_held(short, short / "socket"))
        waits: list[float] = []

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            ending.close()

        monkeypatch.setattr(time, "sleep", sleep)
        with board_locked(short):
            assert len(waits) == 1
