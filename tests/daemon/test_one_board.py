# SPDX-License-Identifier: Apache-2.0
"""One daemon per board, whatever its folders; commands find the daemon that runs on a board."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetdvfs.daemon.cli.setup.board import SetUpBoard
from jetdvfs.daemon.wire.protocol import admin_socket
from jetdvfs.tests.support.daemons.board_daemon import LOW, Board, Daemon, eventually, served_board

CLI = [sys.executable, "-m", "jetdvfs.daemon.cli"]


def jetdvfs(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("JETDVFS_")} | environment
    return subprocess.run([*CLI, *map(str, words)], capture_output=True, text=True, check=False, timeout=60, env=env)


@pytest.fixture
def daemon(board: Board, found: dict[str, str], tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(board, tmp_path / "first") as daemon:
        daemon.client().close()
        yield daemon
    assert board.settings() == found


def refused(board: Board, folder: Path) -> str:
    """The log of a second daemon, which must end with 5."""
    second = Daemon(board, folder)
    assert second.process.wait(30) == 5
    return second.log.read_text()


def test_a_lease_that_there_is_not_has_no_log(board: Board, daemon: Daemon) -> None:
    with daemon.client() as client:
        lease = client.hold(configuration=LOW)
        assert jetdvfs("log", "--lease", lease.id, "--socket", daemon.socket).returncode == 0
    done = jetdvfs("log", "--lease", "77", "--socket", daemon.socket)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "no lease 77" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_restore_says_that_it_needs_rights() -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        words = [*BECOME, *CLI, "restore", "--root", name, "--runtime-dir", name, "--state-dir", name]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, cwd="/")
        assert done.returncode == 3, done.stderr
        assert "restore needs the rights of root: directory" in done.stderr
    done = subprocess.run([*BECOME, *CLI, "restore"], capture_output=True, text=True, check=False, timeout=60, cwd="/")
    assert (done.returncode, done.stderr) == (3, "jetdvfs restore: restore needs the rights of root: sudo jetdvfs restore\n")


@pytest.fixture(autouse=True)
def folders(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()


def test_a_second_daemon_is_refused_whatever_its_folders_and_leaves_the_clocks_of_the_first(
    board: Board, daemon: Daemon, tmp_path: Path
) -> None:
    with daemon.client() as client:
        client.hold(configuration=LOW)
        before = board.settings()
        said = refused(board, tmp_path / "second")
        assert f"another jetdvfsd runs on the board at {board.root}" in said
        assert f"(pid {daemon.process.pid}, socket {daemon.socket})" in said
        assert said.count("\n") == 1
        assert board.settings() == before and len(client.status()["leases"]) == 1


def test_the_lock_of_a_board_ends_with_its_daemon_however_that_ends(
    board: Board, found: dict[str, str], tmp_path: Path
) -> None:
    first = Daemon(board, tmp_path / "first")
    first.client().close()
    first.kill()
    with Daemon(board, tmp_path / "second") as second, second.client() as client:
        client.hold(configuration=LOW)
    assert board.settings() == found


def test_restore_and_doctor_ask_the_daemon_that_runs_on_the_board(board: Board, daemon: Daemon, tmp_path: Path) -> None:
    with daemon.client() as client:
        client.hold(configuration=LOW)
        options = ["--root", board.root, "--runtime-dir", tmp_path / "else", "--state-dir", tmp_path / "else"]
        checks = {one["check"]: one for one in json.loads(jetdvfs("doctor", *options, "--json").stdout)["checks"]}
        assert (
            checks["baseline"]["said"] == f"kept by the daemon at {daemon.socket}, to be restored when nothing is held any more"
        )
        assert not [one for one in checks.values() if "locked by another program" in one["said"]]
        done = jetdvfs("restore", *options)
        assert (done.returncode, "1 lease ended" in done.stdout) == (0, True)
        again = jetdvfs("restore", *options)
        assert again.stdout == f"nothing to restore: the daemon at {admin_socket(daemon.socket)} holds nothing\n"


def test_restore_names_the_folder_that_it_looked_in(board: Board, found: dict[str, str], tmp_path: Path) -> None:
    done = jetdvfs("restore", "--root", board.root, "--runtime-dir", tmp_path / "else", "--state-dir", tmp_path / "state")
    assert done.returncode == 0
    assert f"no daemon runs on this board, and {tmp_path}/else/baseline keeps no baseline of this boot" in done.stdout


def test_setup_uses_the_daemon_that_runs_on_a_board(board: Board, daemon: Daemon) -> None:
    with SetUpBoard(board.root, None).daemon(own=False) as client:
        lease = client.hold(configuration=LOW)
        with daemon.client() as other:
            assert [one["lease"] for one in other.status()["leases"]] == [lease.id]
        lease.release()


def test_daemons_of_two_boards_have_their_sockets_in_one_folder(board: Board, daemon: Daemon, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, served_board(Path(folder) / "other", "folder", "orin-nano-8gb") as other:
        second = Daemon(other, tmp_path / "second", "--socket", str(daemon.socket.with_name("nano.sock")))
        second.socket = daemon.socket.with_name("nano.sock")
        with second, second.client():
            assert {path.name for path in daemon.socket.parent.iterdir()} == {
                *("jetdvfs.sock", "admin.sock"),
                *("nano.sock", "nano.admin.sock"),
            }


def test_every_verb_finds_the_board_that_the_environment_names(board: Board, found: dict[str, str], tmp_path: Path) -> None:
    told = json.loads(jetdvfs("board", "--json", JETDVFS_ROOT=str(board.root)).stdout)
    assert "xavier" in json.dumps(told).casefold()
    wrong = jetdvfs("board", JETDVFS_ROOT=str(tmp_path / "none"))
    assert wrong.returncode == 2 and "expected a folder" in wrong.stderr


#: Becomes another user, who can read this installation wherever it is.
BECOME = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
BECOME += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_ordinary_users_daemon_has_folders_of_its_own_in_which_its_clients_find_it() -> None:
    own = Path("/tmp/jetdvfs-65534")
    if own.exists():
        pytest.skip("that user has such a folder already")
    with tempfile.TemporaryDirectory() as name:
        home, root = Path(name) / "home", Path(name) / "home" / "board"
        home.mkdir()
        Path(name).chmod(0o755)
        os.chown(home, 65534, 65534)
        env = {name: value for name, value in os.environ.items() if not name.startswith(("JETDVFS_", "XDG_"))}
        env |= {"HOME": str(home), "PYTHONPATH": ""}

        def run(*command: object) -> subprocess.CompletedProcess[str]:
            words = [*BECOME, *map(str, command)]
            return subprocess.run(words, env=env, cwd="/", capture_output=True, text=True, check=False, timeout=60)

        def started(*command: object) -> subprocess.Popen[str]:
            words = [*BECOME, *map(str, command)]
            return subprocess.Popen(words, env=env, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        twin = started(*CLI, "twin", "serve", "--board", "agx-xavier", "--mount", root, "--backend", "folder", "--json")
        try:
            assert twin.stdout is not None and "mount" in twin.stdout.readline()
            command = [sys.executable, "-m", "jetdvfs.daemon.service", "--root", root]
            daemon = started(*command)
            assert eventually(lambda: (own / "jetdvfs.sock").exists() or daemon.poll() is not None)
            status = run(*CLI, "status", "--json")
            daemon.terminate()
            assert daemon.wait(30) == 0 and status.returncode == 0, daemon.communicate()[1] + status.stderr
            assert (home / ".local" / "state" / "jetdvfs" / "roots").is_dir()
            assert own.stat().st_mode & 0o777 == 0o700
            # A folder that another user has made is not used.
            shutil.rmtree(own)
            own.mkdir()
            own.chmod(0o777)
            refused = run(*command)
            assert refused.returncode == 2 and f"directory {own}: {own} belongs to another user" in refused.stderr
        finally:
            twin.terminate()
            twin.wait(30)
            shutil.rmtree(own, ignore_errors=True)
