# SPDX-License-Identifier: Apache-2.0
"""Who may ask: the group's members, root, and nobody else."""

from __future__ import annotations

import contextlib
import grp
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from jetdvfs.daemon import qos
from jetdvfs.daemon.errors import (
    LimitReached,
    NotPermitted,
)
from jetdvfs.daemon.wire.client import Client
from jetdvfs.tests.support.daemons.board_daemon import LOW, Board, Daemon
from jetdvfs.tests.support.daemons.other_users import open_to_everybody, somebody_else


def as_nobody(path: Path, group_id: int = 65534) -> Client:
    with somebody_else(group_id):
        return Client(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")
def test_another_user_may_ask_but_neither_end_foreign_leases_nor_reach_the_admin_socket(daemon: Daemon, tmp_path: Path) -> None:
    with daemon.client() as client:
        lease = client.hold(configuration=LOW)
        assert stat.S_IMODE(daemon.admin.stat().st_mode) == 0o600
        # What the sockets' permissions would keep out is kept out by who is asking, too.
        open_to_everybody(daemon.socket)
        open_to_everybody(daemon.admin)
        with as_nobody(daemon.socket) as other, pytest.raises(NotPermitted):
            other.release(lease.id)
        with as_nobody(daemon.admin) as other, pytest.raises(NotPermitted):
            other.call("Restore", {})
        with as_nobody(daemon.socket) as other:
            assert [one["uid"] for one in other.status()["leases"]] == [0]
        assert len(client.status()["leases"]) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")
def test_root_gets_through_when_others_have_taken_every_place(board: Board, found: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("clients: {connections: 16, leases: 16}\n")
    with (
        tempfile.TemporaryDirectory() as folder,
        Daemon(board, Path(folder), "--config", str(tmp_path / "config.yaml")) as daemon,
        contextlib.ExitStack() as taken,
    ):
        daemon.client().close()
        Path(folder).chmod(0o755)
        daemon.socket.chmod(0o666)
        held: list[str] = []
        for user_id in range(61000, 61020):
            with somebody_else(65533, user_id), pytest.raises(LimitReached):
                client = taken.enter_context(Client(daemon.socket))
                while True:
                    held.append(client.hold(configuration=LOW).id)
        assert len(held) == 14
        jetdvfs = [sys.executable, "-m", "jetdvfs.daemon.cli"]
        env = {**os.environ, "JETDVFS_SOCKET": str(daemon.socket)}
        for words in (["status"], ["hold", "--config", ",".join(map(str, LOW)), "--", "true"], ["release", held[0]]):
            done = subprocess.run([*jetdvfs, *words], capture_output=True, text=True, env=env)
            assert done.returncode == 0, done.stderr
        restore = ["restore", "--root", str(board.root), "--state-dir", str(daemon.state)]
        restore += ["--runtime-dir", str(daemon.runtime), "--socket", str(daemon.socket)]
        done = subprocess.run([*jetdvfs, *restore], capture_output=True, text=True)
        assert done.returncode == 0 and "13 leases ended" in done.stdout, done
        assert board.settings() == found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")
def test_only_the_group_named_may_ask_and_others_are_told_how_to(board: Board, tmp_path: Path) -> None:
    group = grp.getgrgid(65534).gr_name
    (tmp_path / "config.yaml").write_text(f"socket_group: {group}\n")
    with Daemon(board, tmp_path, "--config", str(tmp_path / "config.yaml")) as daemon:
        daemon.client().close()
        for folder in daemon.socket.parents:
            if folder != Path(tempfile.gettempdir()) and folder.is_relative_to(tempfile.gettempdir()):
                folder.chmod(0o755)
        as_nobody(daemon.socket).close()
        with pytest.raises(NotPermitted, match=f"permission denied on {daemon.socket}: join the group {group} ") as caught:
            as_nobody(daemon.socket, group_id=65533)
        assert caught.value.exit_code == 3
        with pytest.raises(NotPermitted, match=r"admin\.sock: only root may use it"):
            as_nobody(daemon.admin)
        with somebody_else(65533), qos.hold(configuration=LOW, socket_path=daemon.socket, required=False) as lease:
            assert lease.applied is None
