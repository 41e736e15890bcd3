# SPDX-License-Identifier: Apache-2.0
"""The board as it was found: after a kill, by hand, by the administrator, and at the end."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from jetdvfs.daemon.errors import (
    NoDaemon,
)
from jetdvfs.tests.support.daemons.board_daemon import CPU, EMC, GPU, LOW, Board, Daemon


def test_killed_while_holding_the_next_start_brings_the_baseline_back(
    board: Board, found: dict[str, str], daemon: Daemon
) -> None:
    client = daemon.client()
    client.hold(configuration=LOW)
    daemon.kill()
    assert board.settings() != found
    with pytest.raises(NoDaemon):
        client.status()
    daemon.start()
    with daemon.client() as again:
        assert board.settings() == found
        assert again.status()["baseline"] == "none"


def test_killed_while_holding_what_somebody_else_set_since_is_left_alone(
    board: Board, found: dict[str, str], daemon: Daemon
) -> None:
    daemon.client().hold(configuration=LOW)
    daemon.kill()
    board.write(f"{CPU}/scaling_governor", "performance")
    daemon.start()
    with daemon.client() as again:
        assert board.read(f"{CPU}/scaling_governor") == "performance"
        assert board.read(f"{GPU}/governor") == found[f"{GPU}/governor"]
        assert board.read(f"{EMC}/mrq_rate_locked") == "0"
        with again.hold(configuration=LOW):
            assert board.clocks == LOW
        assert board.read(f"{CPU}/scaling_governor") == "performance"
    board.write(f"{CPU}/scaling_governor", found[f"{CPU}/scaling_governor"])


def test_a_dry_run_of_restore_leaves_a_running_daemon_alone(board: Board, daemon: Daemon) -> None:
    folders = ["--root", str(board.root), "--state-dir", str(daemon.state), "--runtime-dir", str(daemon.runtime)]
    command = [sys.executable, "-m", "jetdvfs.daemon.cli", "restore", "--dry-run", *folders]
    with daemon.client() as client, client.hold(configuration=LOW):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (5, "", 1)
        assert "a running daemon does not tell its restores" in done.stderr
        assert len(client.status()["leases"]) == 1


def test_restore_by_hand_works_without_a_daemon(board: Board, found: dict[str, str], daemon: Daemon) -> None:
    daemon.client().hold(configuration=LOW)
    daemon.kill()
    command = [
        sys.executable,
        "-m",
        "jetdvfs.daemon.cli",
        "restore",
        "--root",
        str(board.root),
        "--state-dir",
        str(daemon.state),
        "--runtime-dir",
        str(daemon.runtime),
    ]
    before = board.settings()
    tried = subprocess.run([*command, "--dry-run"], capture_output=True, text=True, check=True)
    assert "would restore" in tried.stdout and board.settings() == before
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    assert [f"would restore  {line}" for line in json.loads(done.stdout)["restored"]] == tried.stdout.splitlines()
    assert board.settings() == found
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    kept = f"{daemon.runtime}/baseline keeps no baseline of this boot"
    assert again.stdout == f"nothing to restore: no daemon runs on this board, and {kept}\n"
    # A lock without a baseline is not known to be ours.
    board.write(f"{EMC}/mrq_rate_locked", 1)
    assert "locked by another program" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert board.read(f"{EMC}/mrq_rate_locked") == "1"
    unlock = [sys.executable, "-m", "jetdvfs.daemon.cli", "board", "unlock", "--root", str(board.root)]
    subprocess.run(unlock, capture_output=True, check=True)
    assert board.settings() == found
    daemon.start()
    daemon.client().close()


def test_restore_asks_a_running_daemon(board: Board, found: dict[str, str], daemon: Daemon) -> None:
    with daemon.client() as client:
        client.hold(configuration=LOW)
        command = [sys.executable, "-m", "jetdvfs.daemon.cli", "restore", "--root", str(board.root)]
        command += ["--state-dir", str(daemon.state), "--runtime-dir", str(daemon.runtime), "--socket", str(daemon.socket)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "1 lease ended\n" in done.stdout
        assert board.settings() == found
        assert client.status()["leases"] == []


def test_stopping_gives_the_board_back(board: Board, found: dict[str, str], daemon: Daemon) -> None:
    daemon.client().hold(configuration=LOW)
    assert board.settings() != found
    assert daemon.stop() == 0
    assert board.settings() == found
    assert not daemon.socket.exists() and not daemon.admin.exists()
