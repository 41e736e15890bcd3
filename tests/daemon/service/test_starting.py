# SPDX-License-Identifier: Apache-2.0
"""Starting: what keeps the daemon from it, what it is told meanwhile, and what it tells."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon, eventually
from jetdvfs.tests.support.paths import REFERENCE

MODEL = REFERENCE / "squeezenet1_0.pt"

IMAGE = ["1x3x224x224"]


def test_asked_to_end_while_it_starts_it_ends_in_order(board: Board, found: dict[str, str], tmp_path: Path) -> None:
    with Daemon(board, tmp_path) as daemon:
        assert eventually((daemon.state / "lock").exists)
        assert daemon.stop() == 0, daemon.log.read_text()
        assert board.settings() == found


def test_a_second_daemon_on_the_same_state_does_not_start(board: Board, daemon: Daemon) -> None:
    daemon.client().close()
    command = [sys.executable, "-m", "jetdvfs.daemon.service", "--root", str(board.root), "--socket", str(daemon.socket) + "2"]
    command += ["--state-dir", str(daemon.state), "--runtime-dir", str(daemon.runtime)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 5
    assert done.stderr.count("\n") == 1 and "another jetdvfsd" in done.stderr


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--profile", "nothing-like-it"], 3, "no such bundle"),
        (["--board", "toaster"], 2, "is not described"),
        (["--root", "/nonexistent"], 2, "expected a folder, got '/nonexistent'"),
        (["--root", "/usr"], 3, "no described board fits"),
        (["--config", "/nonexistent"], 2, "No such file"),
    ],
)
def test_what_keeps_it_from_starting_is_said_in_one_line(
    board: Board, tmp_path: Path, options: list[str], code: int, text: str
) -> None:
    command = [sys.executable, "-m", "jetdvfs.daemon.service", "--root", str(board.root), "--socket", str(tmp_path / "s")]
    done = subprocess.run(
        [*command, "--state-dir", str(tmp_path), "--runtime-dir", str(tmp_path), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert done.returncode == code
    assert text in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_board_that_is_a_file_tree_elsewhere_is_predicted_by_a_simulated_profile(
    board: Board, found: dict[str, str], tmp_path: Path
) -> None:
    with Daemon(board, tmp_path) as daemon, daemon.client() as client:
        status = client.status()
        assert status["profile"] == {"name": "agx-xavier-sim", "board": "agx-xavier", "simulated": True}
        assert status["degraded"] == []
        assert client.plan(client.load(MODEL, IMAGE), "min-energy")["simulated"]


@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.3])
def test_asked_to_end_while_it_loads_it_ends_in_order(
    board: Board, found: dict[str, str], tmp_path: Path, after_s: float
) -> None:
    with Daemon(board, tmp_path) as daemon:
        assert eventually(daemon.handles_terminate)
        time.sleep(after_s)
    assert board.settings() == found


def test_a_profile_for_another_board_is_refused(board: Board, tmp_path: Path, bundle: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(bundle, other)
    manifest = json.loads((other / "manifest.json").read_text())
    (other / "manifest.json").write_text(json.dumps({**manifest, "board": "toaster"}))
    daemon = Daemon(board, tmp_path, "--profile", str(other))
    assert daemon.process.wait(20) == 3
    assert "toaster" in daemon.log.read_text()


@pytest.mark.alone
def test_it_tells_a_service_manager_how_it_is(board: Board, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(15)
        with Daemon(board, tmp_path, env={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"}) as daemon:
            heard: list[str] = []
            while "WATCHDOG=1" not in heard:
                heard += manager.recv(4096).decode().split("\n")
            assert heard[0] == "READY=1"
            started = time.monotonic()
            manager.recv(4096)
            assert time.monotonic() - started < 0.3
            assert daemon.stop() == 0
            manager.setblocking(False)
            while "STOPPING=1" not in heard:
                heard += manager.recv(4096).decode().split("\n")
    assert daemon.log.read_text().startswith("<")


@pytest.mark.parametrize("kind", ["file", "folder", "pipe", "link", "link to a socket"])
def test_what_is_no_socket_is_not_replaced_by_one(board: Board, tmp_path: Path, kind: str) -> None:
    there = tmp_path / "there"
    with socket.socket(socket.AF_UNIX) as other:
        if kind == "file":
            there.write_text("dear")
        elif kind == "folder":
            there.mkdir()
        elif kind == "pipe":
            os.mkfifo(there)
        else:
            (tmp_path / "other").touch() if kind == "link" else other.bind(str(tmp_path / "other"))
            there.symlink_to(tmp_path / "other")
        before = there.lstat()
        command = [sys.executable, "-m", "jetdvfs.daemon.service", "--root", str(board.root), "--state-dir", str(tmp_path)]
        command += ["--runtime-dir", str(tmp_path / "runtime"), "--socket", str(there)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
        assert done.returncode == 2
        assert "something else than a socket is there" in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr
        assert (there.lstat().st_ino, there.lstat().st_mode) == (before.st_ino, before.st_mode)


def test_the_socket_of_a_daemon_that_was_killed_is_replaced(daemon: Daemon) -> None:
    daemon.client().close()
    daemon.kill()
    assert daemon.socket.is_socket()
    daemon.start()
    daemon.client().close()
