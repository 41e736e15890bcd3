# SPDX-License-Identifier: Apache-2.0
"""A board that restarts under a running daemon: its clocks are given back as they are found in the new boot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.tests.support.daemons.board_daemon import LOW, Daemon, served_board

HIGH = FrequencyConfiguration(2265600, 1377000000, 2133000000)


@pytest.mark.parametrize("held", [False, True], ids=["idle", "while a lease is held"])
def test_a_hold_after_a_restart_is_given_back_although_the_daemon_is_killed(held: bool, tmp_path: Path) -> None:
    root = tmp_path / "board"
    with served_board(root, "folder") as board:
        daemon = Daemon(board, tmp_path)
        client = daemon.client()
        client.hold(configuration=LOW)  # the daemon knows the first boot
        if not held:
            client.close()
            with daemon.client() as other:
                other.status()
    with served_board(root, "folder") as board:
        found = board.settings()
        with daemon.client() as after:
            after.hold(configuration=HIGH)
            assert board.settings() != found
            daemon.kill()
        command = [sys.executable, "-m", "jetdvfs.daemon.cli", "restore", "--root", str(root)]
        command += ["--state-dir", str(daemon.state), "--runtime-dir", str(daemon.runtime)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "restored" in done.stdout
        assert board.settings() == found
    client.close()
