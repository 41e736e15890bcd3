# SPDX-License-Identifier: Apache-2.0
"""The socket of the daemon that runs on a board."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jetdvfs.daemon.arguments import board_socket
from jetdvfs.daemon.system import state
from jetdvfs.daemon.system.state import board_held, board_locked, socket_of
from jetdvfs.daemon.wire.protocol import default_socket


def test_the_note_of_a_killed_daemon_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bases = [tmp_path / "system", tmp_path / "own"]
    monkeypatch.setattr(state, "RUNTIME_DIR", bases[0])
    monkeypatch.setattr(state, "runtime_base", lambda: bases[1])
    root = tmp_path / "root"
    root.mkdir()
    status = root.stat()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with board_locked(root):
        for base, pid in zip(bases, (gone.pid, os.getpid()), strict=True):
            (base / "boards").mkdir(parents=True, mode=0o700)
            base.chmod(0o700)
            note = base / "boards" / f"{status.st_dev:x}-{status.st_ino:x}.json"
            note.write_text(json.dumps({"pid": pid, "socket": f"/{base.name}"}))
        assert socket_of(root) == Path("/own")
        note.unlink()
        assert socket_of(root) is None and board_socket(root) == default_socket()
    with board_held(root, tmp_path / "s"):
        assert board_socket(root) == tmp_path / "s"
