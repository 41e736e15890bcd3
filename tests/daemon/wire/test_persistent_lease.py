# SPDX-License-Identifier: Apache-2.0
"""Leases and frames when the real daemon is killed, stopped, frozen or started anew: the application never waits for it."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from jetdvfs import Client, qos
from jetdvfs.daemon.errors import InputError, NoDaemon, UsageError
from jetdvfs.daemon.wire import persistent_lease
from jetdvfs.daemon.wire.persistent_lease import PersistentLease
from jetdvfs.tests.support.daemons.board_daemon import LOW, Board, Daemon, eventually
from jetdvfs.tests.support.paths import REFERENCE

MODEL = REFERENCE / "squeezenet1_0.pt"
IMAGE = ["1x3x224x224"]
FRAMES = 4000


@pytest.fixture
def daemon(
    board: Board, found: dict[str, str], tmp_path: Path, bundle: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Daemon]:
    with Daemon(board, tmp_path, "--profile", str(bundle), "--config", str(config)) as daemon:
        monkeypatch.setenv("JETDVFS_SOCKET", str(daemon.socket))
        monkeypatch.setattr(persistent_lease, "LONGEST_WAIT_S", 0.5)
        daemon.client().close()
        yield daemon
        daemon.process.send_signal(signal.SIGCONT)
    assert board.settings() == found


def frames_ms(lease: PersistentLease, count: int = FRAMES) -> list[float]:
    """What frames without anything in them cost the application, the cheapest first."""
    costs = []
    for _ in range(count):
        before = time.perf_counter()
        with qos.frame(lease):
            pass
        costs.append((time.perf_counter() - before) * 1e3)
    return sorted(costs)


def why_not(lease: PersistentLease) -> type[Exception] | None:
    """The kind of error that keeps it from being held; None while it is held."""
    assert lease.held == (lease.error is None)
    return type(lease.error) if lease.error else None


def kill(daemon: Daemon) -> None:
    daemon.kill()


def stop(daemon: Daemon) -> None:
    assert daemon.stop() == 0


def freeze_and_kill(daemon: Daemon) -> None:
    daemon.process.send_signal(signal.SIGSTOP)
    daemon.kill()


@pytest.mark.parametrize("end", [kill, stop, freeze_and_kill])
def test_a_lease_lost_with_the_daemon_is_held_again_by_the_next(
    board: Board, daemon: Daemon, end: Callable[[Daemon], None]
) -> None:
    heard: list[str] = []
    with qos.hold(configuration=LOW, reason="camera", on_change=heard.append) as lease:
        assert why_not(lease) is None and heard == []
        os.link(daemon.socket, daemon.socket.with_name("before"))  # so that the next socket is another file
        end(daemon)
        assert eventually(lambda: not lease.held)
        assert why_not(lease) is NoDaemon and lease.interruptions == 1
        frames_ms(lease, 100)
        daemon.start()
        assert eventually(lambda: lease.held)
        assert not daemon.socket.samefile(daemon.socket.with_name("before"))
        assert board.clocks == LOW and why_not(lease) is None
        with daemon.client() as client:
            (seen,) = client.status()["leases"]
            assert (seen["lease"], seen["reason"], seen["pid"]) == (lease.id, "camera", os.getpid())
            frames_ms(lease, 100)
            assert eventually(lambda: (client.status()["leases"][0]["observed"] or {"frames": 0})["frames"] == 100)
    assert heard == ["lease lost: the daemon went away; holding again", f"holding again as lease {lease.id}"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("jetdvfs")]


def test_the_model_that_was_loaded_is_held_for_also_when_its_file_was_replaced(daemon: Daemon, tmp_path: Path) -> None:
    model = tmp_path / "model.pt"
    shutil.copy(MODEL, model)
    with qos.hold(model, IMAGE, "latency_ms=30", fps=20) as lease:
        plan = lease.plan
        assert plan is not None
        (tmp_path / "other.pt").write_bytes(b"something else")
        (tmp_path / "other.pt").rename(model)
        daemon.kill()
        daemon.start()
        assert eventually(lambda: lease.interruptions == 1 and lease.held), lease.error
        assert lease.plan == plan
    descriptors = psutil.Process().num_fds()
    with qos.hold(MODEL, IMAGE, "latency_ms=30"):
        assert psutil.Process().num_fds() > descriptors
    assert psutil.Process().num_fds() == descriptors


@pytest.mark.alone
def test_frames_never_wait_for_a_daemon_that_is_frozen_dead_or_new(board: Board, daemon: Daemon) -> None:
    costs: dict[str, list[float]] = {}
    with qos.hold(configuration=LOW) as lease:
        costs["healthy"] = frames_ms(lease)
        daemon.process.send_signal(signal.SIGSTOP)
        for _ in range(20):  # more than a socket takes
            costs["frozen"] = frames_ms(lease)
            lease.flush()
        assert lease.dropped > 0
        daemon.kill()
        costs["dead"] = frames_ms(lease)
        daemon.start()
        costs["new"] = frames_ms(lease)
        assert eventually(lambda: lease.held)
    for state, sorted_ms in costs.items():
        assert statistics.median(sorted_ms) < 0.02, state
        # The machine may be busy with other things for a moment, the daemon is never waited for.
        assert sorted_ms[int(0.99 * FRAMES)] < 1 and sum(sorted_ms) < 1000, state


@pytest.mark.alone
def test_the_end_of_a_block_waits_for_a_frozen_daemon_for_about_a_second_and_the_lease_ends_with_its_connection(
    board: Board, found: dict[str, str], daemon: Daemon
) -> None:
    with Client() as shared, shared.hold(configuration=LOW) as other:
        with qos.hold(configuration=LOW) as lease:
            frames_ms(lease, 100)
            daemon.process.send_signal(signal.SIGSTOP)
            started = time.monotonic()
        with other:
            pass
        assert 1.5 < time.monotonic() - started < 4
        daemon.process.send_signal(signal.SIGCONT)
        # A connection outlives an answer that came too late.
        assert eventually(lambda: shared.status()["leases"] == [])
        assert board.settings() == found
        with shared.hold(configuration=LOW):
            assert board.clocks == LOW


@pytest.mark.alone
def test_an_application_that_can_do_without_has_its_lease_as_soon_as_there_is_a_daemon(board: Board, daemon: Daemon) -> None:
    assert daemon.stop() == 0
    heard: list[str] = []
    started = time.monotonic()
    with qos.hold(MODEL, IMAGE, "min-energy", required=False, on_change=heard.append) as lease:
        assert time.monotonic() - started < 2
        assert why_not(lease) is NoDaemon and heard == []
        frames_ms(lease, 100)
        daemon.start()
        assert eventually(lambda: lease.held)
        assert lease.plan is not None and lease.interruptions == 0
        assert heard == [f"holding as lease {lease.id}"]
    daemon.client().close()


def test_what_the_next_daemon_refuses_for_good_is_given_up_and_said(daemon: Daemon, config: Path) -> None:
    heard: list[str] = []
    with qos.hold(configuration=LOW, on_change=heard.append) as lease:
        daemon.kill()
        config.write_text("limits: {gpu_hz: {max: 318750000}}")
        daemon.start()
        assert eventually(lambda: lease.over)
        assert isinstance(lease.error, UsageError) and "may not be set" in heard[-1] and heard[-1].startswith("given up: ")
        frames_ms(lease, 100)
    daemon.client().close()


def test_a_model_that_cannot_be_read_any_more_is_tried_a_few_times(daemon: Daemon, tmp_path: Path) -> None:
    model = tmp_path / "model.pt"
    shutil.copy(MODEL, model)
    heard: list[str] = []
    with qos.hold(model, IMAGE, "latency_ms=30", on_change=heard.append) as lease:
        model.write_bytes(b"of the same file")
        daemon.kill()
        daemon.start()
        assert eventually(lambda: lease.over)
        assert isinstance(lease.error, InputError)
        assert [line.split(":")[0] for line in heard] == ["lease lost", "not held for now", "given up"]
    daemon.client().close()


def test_what_the_next_daemon_cannot_grant_now_is_asked_for_until_it_can(daemon: Daemon, config: Path) -> None:
    heard: list[str] = []
    with Client() as client:
        fastest_ms = client.predict(client.load(MODEL, IMAGE))["fastest"]["latency_ms"]
    with qos.hold(MODEL, IMAGE, f"latency_ms={1.2 * fastest_ms}", on_change=heard.append) as lease:
        config.write_text("limits: {gpu_hz: {max: 120000000}, cpu_khz: {max: 120000}}\nclients: {leases: 1}")
        daemon.kill()
        daemon.start()
        assert eventually(lambda: any("is not attainable" in text for text in heard)), heard
        assert heard[-1].startswith("not held for now: ") and not lease.held and not lease.over
        with daemon.client() as client:
            config.write_text("clients: {leases: 1}")
            with client.hold(configuration=(115200, 114750000, 1600000000)):
                daemon.process.send_signal(signal.SIGHUP)
                assert eventually(lambda: "at most 1" in heard[-1])
            assert eventually(lambda: lease.held)
        assert len(heard) == 4


def test_a_released_lease_is_not_held_again(board: Board, found: dict[str, str], daemon: Daemon) -> None:
    with qos.hold(configuration=LOW) as lease, daemon.client() as client:
        client.release(lease.id)
        assert board.settings() == found
        frames_ms(lease, 100)
        time.sleep(0.3)
        assert client.status()["leases"] == []


def in_a_child(work: Callable[[], object]) -> int:
    """Run this in a forked child; its exit code, -9 where it hangs."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_neither_speaks_for_its_parent_nor_hangs(board: Board, daemon: Daemon) -> None:
    with Client() as client, client.hold(configuration=LOW) as plain, qos.hold(configuration=LOW) as own:

        def work() -> None:
            frames_ms(own, 5000)
            plain.report(1.0)
            plain.flush()
            assert not own.held
            with pytest.raises(NoDaemon):
                client.status()
            own.__exit__(None, None, None)
            plain.__exit__(None, None, None)
            client.close()
            with Client() as another:  # a child makes its own connection
                assert len(another.status()["leases"]) == 2

        for _ in range(20):
            frames_ms(own, 300)  # so that the threads are at work
            plain.report(1.0)
            assert in_a_child(work) == 0
        assert own.held and board.clocks == LOW and len(client.status()["leases"]) == 2


def test_a_child_that_outlives_its_parent_holds_nothing(board: Board, found: dict[str, str], daemon: Daemon) -> None:
    program = """
import os, sys, time
from jetdvfs import qos
with qos.hold(configuration=(1190400, 675750000, 1600000000)) as lease:
    child = os.fork()
    if child:
        print(child, flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert board.clocks == LOW
        parent.kill()
        parent.wait()
        assert eventually(lambda: board.settings() == found)
        os.kill(child, signal.SIGKILL)


@pytest.mark.alone
@pytest.mark.parametrize("how", ["sys.exit(0)", "raise KeyboardInterrupt", "os._exit(0)"])
def test_a_frozen_daemon_does_not_keep_an_application_from_ending(daemon: Daemon, how: str) -> None:
    program = f"""
import os, signal, sys
from jetdvfs import Client, qos
with qos.hold(configuration=(1190400, 675750000, 1600000000)) as lease:
    leaked = Client().hold(configuration=(1190400, 675750000, 1600000000))
    os.kill({daemon.process.pid}, signal.SIGSTOP)
    for _ in range(10000):
        leaked.report(1.0)
        with qos.frame(lease):
            pass
    {how}
"""
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=20)
    assert time.monotonic() - started < 5
    assert done.returncode in (0, 1, -2), done.stderr


def test_the_command_goes_on_without_the_daemon_and_the_lease_comes_back(
    board: Board, found: dict[str, str], daemon: Daemon
) -> None:
    hold = [sys.executable, "-m", "jetdvfs.daemon.cli", "hold", "--config", ",".join(map(str, LOW))]
    with subprocess.Popen([*hold, "--", "cat"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None and process.stdin is not None
        assert "in force" in process.stderr.readline()
        daemon.kill()
        assert process.stderr.readline() == "jetdvfs hold: lease lost: the daemon went away; holding again\n"
        assert process.poll() is None
        daemon.start()
        assert process.stderr.readline() == "jetdvfs hold: holding again as lease 1\n"
        assert board.clocks == LOW
        process.stdin.close()
        assert process.wait(10) == 0 and process.stderr.read().startswith("jetdvfs hold: held for ")
    assert eventually(lambda: board.settings() == found)


def test_without_a_command_what_is_refused_for_good_ends_it(daemon: Daemon, config: Path) -> None:
    hold = [sys.executable, "-m", "jetdvfs.daemon.cli", "hold", "--config", ",".join(map(str, LOW))]
    with subprocess.Popen(hold, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "held until interrupted\n"
        config.write_text("limits: {gpu_hz: {max: 318750000}}")
        daemon.kill()
        daemon.start()
        assert process.wait(15) == 2
        assert "may not be set" in process.stderr.read().splitlines()[-1]
    daemon.client().close()
