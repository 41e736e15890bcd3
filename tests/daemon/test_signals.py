# SPDX-License-Identifier: Apache-2.0
"""Signals and the configuration read again: the daemon never ends with clocks held, and never by accident."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetdvfs.daemon.errors import UsageError
from jetdvfs.daemon.wire import protocol
from jetdvfs.daemon.wire.client import Client
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.tests.support.daemons.board_daemon import LOW, Board, Daemon, eventually

TOP = FrequencyConfiguration(2265600, 1377000000, 2133000000)
ENDING = ["SIGTERM", "SIGINT", "SIGQUIT", "SIGABRT", "SIGXCPU", "SIGPWR", "SIGSYS", "SIGTRAP"]
STRAY = ["SIGUSR1", "SIGUSR2", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGIO", "SIGPIPE", "SIGXFSZ", "SIGRTMIN", "SIGRTMAX"]


@pytest.fixture
def daemon(board: Board, tmp_path: Path, config: Path) -> Iterator[Daemon]:
    with Daemon(board, tmp_path, "--config", str(config)) as daemon:
        yield daemon


def catches(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.split("SigCgt:")[1].split()[0], 16) & 1 << number - 1)


def catchable() -> set[signal.Signals]:
    """Every signal that can be caught, would end a process, and is not a fault of its own."""
    faults = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
    harmless = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH}
    stopping = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGSTOP}
    return set(signal.Signals) - faults - harmless - stopping - {signal.SIGKILL}


def test_every_signal_that_would_end_a_process_is_caught_or_ignored(daemon: Daemon) -> None:
    daemon.client().close()
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    heeded = [int(status.split(f"{name}:")[1].split()[0], 16) for name in ("SigCgt", "SigIgn")]
    assert not {number.name for number in catchable() if not (heeded[0] | heeded[1]) >> number - 1 & 1}


@pytest.mark.parametrize("name", ENDING)
def test_a_signal_that_ends_it_leaves_the_board_as_it_was_found(
    board: Board, found: dict[str, str], daemon: Daemon, name: str
) -> None:
    daemon.client().hold(configuration=LOW)
    assert board.clocks == LOW
    daemon.process.send_signal(signal.Signals[name])
    assert daemon.process.wait(15) == 0
    assert board.settings() == found
    assert f"ending, by {name}" in daemon.log.read_text()


def test_a_signal_that_its_parent_blocks_ends_it_all_the_same(board: Board, tmp_path: Path) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        daemon = Daemon(board, tmp_path)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    with daemon:
        daemon.client().close()
        daemon.process.terminate()
        assert daemon.process.wait(15) == 0


def test_a_signal_that_another_thread_takes_ends_it_too(board: Board, found: dict[str, str], daemon: Daemon) -> None:
    with daemon.client() as client:
        client.status()
    time.sleep(3.0)  # until it waits for whatever comes
    pid = daemon.process.pid
    others = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir() if int(task.name) != pid]
    assert ctypes.CDLL(None).tgkill(pid, others[0], int(signal.SIGTERM)) == 0
    assert daemon.process.wait(5) == 0
    assert board.settings() == found


def test_stray_signals_change_nothing(board: Board, daemon: Daemon) -> None:
    with daemon.client() as client, client.hold(configuration=LOW):
        for name in STRAY:
            daemon.process.send_signal(signal.Signals[name])
            assert len(client.status()["leases"]) == 1
        assert board.clocks == LOW


def test_signals_by_the_dozen_end_it_in_order_all_the_same(board: Board, found: dict[str, str], daemon: Daemon) -> None:
    daemon.client().hold(configuration=LOW)
    while daemon.process.poll() is None:
        for name in ("SIGHUP", "SIGTERM", "SIGUSR1", "SIGINT", "SIGQUIT"):
            daemon.process.send_signal(signal.Signals[name])
        time.sleep(0.002)
    assert daemon.process.returncode == 0
    assert board.settings() == found
    assert not daemon.socket.exists() and not daemon.baseline.exists()


@pytest.mark.parametrize("name", ["SIGHUP", "SIGQUIT", "SIGUSR2"])
@pytest.mark.parametrize("after_s", [0.0, 0.2])
def test_a_signal_while_it_starts_does_the_same(
    board: Board, found: dict[str, str], tmp_path: Path, name: str, after_s: float
) -> None:
    with Daemon(board, tmp_path) as daemon:
        assert eventually(lambda: catches(daemon.process.pid, signal.SIGHUP))
        time.sleep(after_s)
        daemon.process.send_signal(signal.Signals[name])
        if name in ENDING:
            assert daemon.process.wait(15) == 0
        else:
            daemon.client().close()
    assert board.settings() == found


def test_sighup_reads_the_configuration_again(board: Board, daemon: Daemon, config: Path) -> None:
    with daemon.client() as client, client.hold(configuration=TOP):
        config.write_text("limits: {gpu_hz: {max: 675750000}}\ncpu_leader: policy0\naxes: [gpu]\n")
        daemon.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: board.clocks == TOP._replace(gpu_hz=675750000))
        assert eventually(lambda: any("1377 MHz is needed" in text for text in client.status()["degraded"]))
        assert "axes: its change takes effect at the next start" in client.status()["degraded"]
        assert "cpu_leader is ignored" in daemon.log.read_text()
        config.write_text("")
        daemon.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: board.clocks == TOP)
        assert eventually(lambda: client.status()["degraded"] == [])


@pytest.mark.parametrize(
    "text", ["limits: {gpu_hz: {max: fast}}\n", "limits: [", "{" * 500, "\x00", "limits: {gpu_hz: {min: 5, max: 2}}"]
)
def test_a_wrong_file_leaves_the_configuration_before_in_force_and_is_named(
    board: Board, daemon: Daemon, config: Path, text: str
) -> None:
    config.write_text("limits: {gpu_hz: {max: 675750000}}\n")
    with daemon.client() as client, Client(daemon.admin, interface=protocol.ADMIN_INTERFACE) as admin:
        assert admin.call("Reload", {}) == {"warnings": []}
        config.write_text(text)
        with pytest.raises(UsageError):
            admin.call("Reload", {})
        daemon.process.send_signal(signal.SIGHUP)
        said = "the configuration was not read again, the one before stays in force"
        assert eventually(lambda: [said for one in client.status()["degraded"] if one.startswith(said)])
        assert said[:36] in daemon.log.read_text()
        with pytest.raises(UsageError, match=r"nearest: 675\.75 MHz"):
            client.hold(configuration=TOP)
        config.unlink()
        with pytest.raises(UsageError, match="No such file"):
            admin.call("Reload", {})
        config.write_text("")
        assert admin.call("Reload", {}) == {"warnings": []}
        with client.hold(configuration=TOP):
            assert client.status()["degraded"] == []


def test_a_reload_answers_with_limits_that_no_level_fits(board: Board, daemon: Daemon, config: Path) -> None:
    with (
        daemon.client() as client,
        Client(daemon.admin, interface=protocol.ADMIN_INTERFACE) as admin,
        client.hold(configuration=TOP),
    ):
        for text, mhz, khz in (
            ("max: 50000", "max 50", 115200),
            ("min: 200000, max: 250000", "min 200 MHz and max 250", 192000),
        ):
            config.write_text(f"limits: {{cpu_khz: {{{text}}}}}")
            warned = (
                f"limits.cpu_khz: no CPU frequency that this board offers fits {mhz} MHz; {khz / 1000:g} MHz is set instead"
            )
            assert admin.call("Reload", {}) == {"warnings": [warned]}
            assert board.clocks == TOP._replace(cpu_khz=khz)
            assert warned in client.status()["degraded"]


def test_limits_that_no_level_fits_are_named_at_the_start(board: Board, config: Path, tmp_path: Path) -> None:
    config.write_text("limits: {emc_hz: {max: 100000000}}")
    with Daemon(board, tmp_path, "--config", str(config)) as daemon, daemon.client() as client:
        text = "limits.emc_hz: no EMC frequency that this board offers fits max 100 MHz; 204 MHz is set instead"
        assert text in client.status()["degraded"] and text in daemon.log.read_text()
        with client.hold(configuration=TOP._replace(emc_hz=204000000)):
            assert board.clocks.emc_hz == 204000000


def test_the_service_manager_is_told_of_a_reload(board: Board, config: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(15)
        env = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        with Daemon(board, tmp_path, "--config", str(config), env=env) as daemon:
            heard: list[str] = []
            while "READY=1" not in heard:
                heard += manager.recv(4096).decode().split("\n")
            heard.clear()
            os.kill(daemon.process.pid, signal.SIGHUP)
            while "READY=1" not in heard:
                heard += manager.recv(4096).decode().split("\n")
            (reloading, since) = heard[heard.index("RELOADING=1") :][:2]
            assert reloading and since.startswith("MONOTONIC_USEC=")
