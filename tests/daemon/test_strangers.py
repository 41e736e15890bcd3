# SPDX-License-Identifier: Apache-2.0
"""What any member of the group may try with descriptors and floods, against the real daemon on a simulated board."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from jetdvfs.daemon.errors import DaemonError, InputError, LimitReached
from jetdvfs.daemon.wire import protocol
from jetdvfs.daemon.wire.client import Client
from jetdvfs.daemon.worker.workers import WorkerSettings
from jetdvfs.tests.support.daemons.board_daemon import LOW, Board, Daemon, asked_meanwhile, eventually, served_board
from jetdvfs.tests.support.daemons.flood import FLOODS, flood
from jetdvfs.tests.support.daemons.other_users import open_to_everybody
from jetdvfs.tests.support.daemons.silent_files import lingering_socket, silent_files
from jetdvfs.tests.support.paths import REFERENCE

MODEL = REFERENCE / "squeezenet1_0.pt"
IMAGE = ["1x3x224x224"]
LOAD = {"inputs": [{"shape": [1, 3, 224, 224]}], "name": "model"}
ANSWER_S = 0.1


@pytest.fixture
def daemon(board: Board, tmp_path: Path, bundle: Path) -> Iterator[Daemon]:
    found = board.settings()
    (tmp_path / "config.yaml").write_text("worker: {timeout_s: 2}\n")
    with Daemon(board, tmp_path, "--profile", str(bundle), "--config", str(tmp_path / "config.yaml")) as daemon:
        yield daemon
    assert board.settings() == found


def call(method: str, parameters: dict[str, Any] | None = None, **more: Any) -> bytes:
    return protocol.encode({"method": f"{protocol.INTERFACE}.{method}", "parameters": parameters or {}, **more})


def connected(daemon: Daemon) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(20)
    sock.connect(str(daemon.socket))
    return sock


def answer(sock: socket.socket) -> dict[str, Any]:
    data = bytearray()
    while not data.endswith(b"\0"):
        chunk = sock.recv(1 << 16)
        if not chunk:
            raise EOFError
        data += chunk
    return protocol.decode(bytes(data[:-1]))


@contextmanager
def answered_meanwhile(daemon: Daemon) -> Iterator[list[float]]:
    """Asks for the status all the while, often enough; gives how long the answers took, in seconds."""
    with daemon.client() as client:
        client.status()  # from now on the sensors are sampled
    with asked_meanwhile(daemon, 0.005) as took:
        yield took
        assert eventually(lambda: len(took) > 30)


def in_time(took: list[float]) -> bool:
    """Whether answers came in time, but for a few: this machine has other work too."""
    return sorted(took)[int(len(took) * 0.9)] < ANSWER_S and max(took) < 10 * ANSWER_S


@pytest.mark.alone
def test_a_model_whose_file_cannot_be_read_or_closed_holds_up_its_reader_and_nobody_else(
    board: Board, daemon: Daemon, tmp_path: Path
) -> None:
    found = board.settings()
    daemon.client().close()
    with silent_files(tmp_path / "silent") as descriptors:
        with answered_meanwhile(daemon) as took:
            with Client(daemon.socket) as client:
                client.hold(configuration=LOW)
                with pytest.raises(InputError, match="took more than 2 s"):
                    client.load_descriptor(descriptors["read"], IMAGE)
                for _ in range(2):
                    with pytest.raises(InputError, match="TorchScript"):
                        client.load_descriptor(descriptors["flush"], IMAGE)
                # Two of its readers cannot be ended, so this user's models are read no more; the rest goes on.
                with pytest.raises(LimitReached, match="2 readers of models of uid"):
                    client.load(MODEL, IMAGE)
                assert len(client.status()["leases"]) == 1
            assert eventually(lambda: board.settings() == found)
        assert in_time(took), sorted(took)[-5:]
        with Client(daemon.socket) as client:
            client.hold(configuration=LOW)
            assert daemon.stop() == 0
        assert board.settings() == found


def refused(sock: socket.socket) -> str:
    """What the daemon says before it hangs up."""
    text = str(answer(sock)["parameters"]["message"])
    with pytest.raises((EOFError, ConnectionResetError)):
        answer(sock)
    return text


@pytest.mark.alone
def test_the_daemon_never_gets_hold_of_a_descriptor_however_it_is_sent(board: Board, daemon: Daemon, tmp_path: Path) -> None:
    daemon.client().close()
    process = psutil.Process(daemon.process.pid)
    with silent_files(tmp_path / "silent") as descriptors, answered_meanwhile(daemon) as took:
        send = [descriptors["flush"]]
        for method in ("Status", "LoadNetwork", "Hold"):
            parameters: dict[str, Any] = {"network": {}} if method == "LoadNetwork" else {}
            with connected(daemon) as sock:
                socket.send_fds(sock, [call(method, parameters)], send)
                assert "takes no descriptor" in answer(sock)["parameters"]["message"]
                sock.sendall(call("Status"))  # the connection goes on
                assert answer(sock)["parameters"]["status"]
        for data, why in (
            (call("Status") + call("Status"), "by itself"),
            (call("LoadModel", LOAD)[:-3], "by itself"),
            (b"x" * 40000 + b"\0", "in one piece"),
        ):
            with connected(daemon) as sock:
                socket.send_fds(sock, [data], send)
                assert why in refused(sock)
        with connected(daemon) as sock:
            socket.send_fds(sock, [call("LoadModel", LOAD)], send * 3)
            assert "exactly one descriptor" in answer(sock)["parameters"]["message"]
        with connected(daemon) as sock:
            # An urgent byte is not passed over, nor what comes with it dropped.
            socket.send_fds(sock, [b"x"], send, socket.MSG_OOB)
            assert "by itself" in refused(sock)
        for size in range(1, 20):
            with connected(daemon) as sock:  # and goes at once
                socket.send_fds(sock, [call("LoadModel", LOAD)[:size]], send)
    assert in_time(took), sorted(took)[-5:]
    assert eventually(lambda: process.num_fds() < 16)


def test_a_socket_that_lingers_is_dropped_by_somebody_else(daemon: Daemon) -> None:
    daemon.client().close()
    with answered_meanwhile(daemon) as took:
        for unfinished in (True, False):
            with lingering_socket() as lingering, connected(daemon) as sock:
                data = call("Status")
                socket.send_fds(sock, [data[:-1] if unfinished else data], [lingering.fileno()])
                lingering.close()  # from here on the last reference lies in the daemon's queue
                assert "descriptor" in answer(sock)["parameters"]["message"]
                time.sleep(0.2)
    assert in_time(took), sorted(took)[-5:]


def test_sockets_within_sockets_are_dropped_by_somebody_else(daemon: Daemon) -> None:
    daemon.client().close()
    with answered_meanwhile(daemon) as took:
        for _ in range(10):
            with lingering_socket() as lingering, connected(daemon) as sock:
                outer, inner = socket.socketpair()
                with outer, inner:
                    socket.send_fds(outer, [b"x"], [lingering.fileno(), outer.fileno()])
                    socket.send_fds(sock, [b"{"], [inner.fileno()])
                lingering.close()
                assert "by itself" in refused(sock)
    assert in_time(took), sorted(took)[-5:]


@pytest.mark.skipif(os.geteuid() != 0, reason="the kernel lets an ordinary user have no thousands of descriptors on their way")
def test_thousands_of_descriptors_in_messages_that_never_end_are_one_line_in_the_log(daemon: Daemon) -> None:
    daemon.client().close()
    process = psutil.Process(daemon.process.pid)
    with MODEL.open("rb") as file, answered_meanwhile(daemon) as took:
        for number in range(200):
            with connected(daemon) as sock:
                socket.send_fds(sock, [b"{"], [file.fileno()] * 250)
                if number % 2:  # the others go at once
                    assert "by itself" in refused(sock)
    assert in_time(took), sorted(took)[-5:]
    assert eventually(lambda: process.num_fds() < 16)
    assert daemon.log.read_text().count("by itself") == 1
    assert daemon.log.stat().st_size < 10_000


def test_a_refused_load_leaves_the_connection_and_its_leases(board: Board, daemon: Daemon) -> None:
    with daemon.client() as client, client.hold(configuration=LOW):
        with pytest.raises(DaemonError, match=r"takes the inputs \(x: Tensor\)"):
            client.load(MODEL, [])
        assert client.load(MODEL, IMAGE).info["launches"]
        assert board.clocks == LOW


def test_a_client_that_dies_while_its_model_is_read_gives_the_clocks_back(board: Board, daemon: Daemon, tmp_path: Path) -> None:
    found = board.settings()
    daemon.client().close()
    with silent_files(tmp_path / "silent") as descriptors:
        with connected(daemon) as sock:
            sock.sendall(call("Hold", {"configuration": LOW._asdict()}))
            assert "lease" in answer(sock)["parameters"]
            socket.send_fds(sock, [call("LoadModel", LOAD)], [descriptors["read"]])
            assert eventually(lambda: psutil.Process(daemon.process.pid).children())
        # Long before the reading of a model ends by itself.
        assert eventually(lambda: board.settings() == found, WorkerSettings().model_timeout_s / 4)


@pytest.fixture(scope="module")
def lasting(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("lasting")
    with served_board(folder / "board", "auto") as board, Daemon(board, folder, "--profile", str(bundle)) as daemon:
        daemon.client().close()
        open_to_everybody(daemon.socket)
        yield daemon


@pytest.mark.alone
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("kind", [*FLOODS, "connections"])
def test_whatever_one_user_sends_another_is_answered_in_time(lasting: Daemon, kind: str) -> None:
    daemon = lasting
    with answered_meanwhile(daemon) as took, flood(daemon.socket, kind):
        for _ in range(20):
            started = time.monotonic()
            with daemon.client() as client:
                client.status()
            took.append(time.monotonic() - started)
    assert in_time(took), sorted(took)[-5:]
    assert daemon.log.stat().st_size < 10_000


def test_restore_has_its_own_socket_which_clients_cannot_fill(board: Board, daemon: Daemon) -> None:
    with daemon.client() as client:
        client.hold(configuration=LOW)
        socks = [connected(daemon) for _ in range(70)]
        for sock in socks:
            with suppress(OSError, EOFError):
                sock.sendall(call("Status"))
                answer(sock)
        with pytest.raises(LimitReached):
            Client(daemon.socket).status()
        with Client(daemon.admin, interface=protocol.ADMIN_INTERFACE) as admin:
            assert admin.call("Restore", {})["leases"] == 1
        for sock in socks:
            sock.close()


def test_it_ends_also_with_such_descriptors_in_connections_that_it_has_not_let_in(daemon: Daemon) -> None:
    with daemon.client() as client, lingering_socket() as lingering:
        client.hold(configuration=LOW)
        daemon.process.send_signal(signal.SIGSTOP)
        socks = [connected(daemon) for _ in range(40)]
        for sock in socks:
            socket.send_fds(sock, [b"{"], [lingering.fileno()])
        lingering.close()
        daemon.process.send_signal(signal.SIGTERM)
        daemon.process.send_signal(signal.SIGCONT)
        started = time.monotonic()
        assert daemon.stop() == 0
        assert time.monotonic() - started < 5
        for sock in socks:
            sock.close()
