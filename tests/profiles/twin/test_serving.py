# SPDX-License-Identifier: Apache-2.0
"""The simulated board through real files, its application port, and the command that serves it."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jetdvfs.profiles.adapt.application import Application
from jetdvfs.profiles.errors import TwinError
from jetdvfs.profiles.timing import SystemClock
from jetdvfs.profiles.twin.application_port import ApplicationPort
from jetdvfs.profiles.twin.serve import serve
from jetdvfs.profiles.twin.simulated_board import SimulatedBoard
from jetdvfs.profiles.twin.tree import fuse
from jetdvfs.tests.support.boards.board_apart import start_twin
from jetdvfs.tests.support.boards.twin_fakes import CPU, DEVFREQ, EMC, INA, POLICY, fake_board, small_network

OBSTACLE = fuse.missing()
needs_fuse = pytest.mark.skipif(bool(OBSTACLE), reason=f"FUSE cannot be had here: {OBSTACLE}")
BACKENDS = [pytest.param("fuse", marks=[needs_fuse, pytest.mark.fuse]), "folder"]


@pytest.fixture
def board() -> SimulatedBoard:
    return fake_board(SystemClock())


@pytest.fixture(params=BACKENDS)
def root(request: pytest.FixtureRequest, board: SimulatedBoard, tmp_path: Path) -> Iterator[Path]:
    with serve(board, tmp_path / "root", request.param) as serving:
        assert serving.backend == request.param
        yield serving.mount


@pytest.fixture
def mounted(board: SimulatedBoard, tmp_path: Path) -> Iterator[Path]:
    if OBSTACLE:
        pytest.skip(f"FUSE cannot be had here: {OBSTACLE}")
    with serve(board, tmp_path / "root", "fuse") as serving:
        yield serving.mount


@pytest.fixture
def port(board: SimulatedBoard, tmp_path: Path) -> Iterator[Path]:
    bench = ApplicationPort(board, tmp_path / "bench")
    yield bench.path
    bench.close()


def cat(root: Path, path: str) -> str:
    return (root / path[1:]).read_text().rstrip("\n")


def echo(value: object, root: Path, path: str) -> None:
    (root / path[1:]).write_text(f"{value}\n")


def soon(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 3.0
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def test_clocks_are_set_through_files(root: Path) -> None:
    echo("userspace", root, f"{POLICY}/scaling_governor")
    assert soon(lambda: cat(root, f"{POLICY}/scaling_setspeed").isdigit())
    echo(1200000, root, f"{POLICY}/scaling_setspeed")
    assert soon(lambda: cat(root, f"{CPU}/cpu3/cpufreq/cpuinfo_cur_freq") == "1267200")
    echo("userspace", root, f"{DEVFREQ}/governor")
    assert soon((root / f"{DEVFREQ}/userspace/set_freq"[1:]).exists)
    echo(600000000, root, f"{DEVFREQ}/userspace/set_freq")
    assert soon(lambda: cat(root, "/sys/class/devfreq/17000000.gv11b/cur_freq") == "624750000")
    echo(1, root, f"{EMC}/mrq_rate_locked")
    echo(1062400000, root, f"{EMC}/rate")
    assert soon(lambda: cat(root, f"{EMC}/rate") == "1065600000")
    echo("nvhost_podgov", root, f"{DEVFREQ}/governor")
    assert soon(lambda: not (root / f"{DEVFREQ}/userspace"[1:] / "set_freq").exists())


def test_a_value_without_a_newline_written_over_a_longer_one_ends_where_the_write_ends(mounted: Path) -> None:
    descriptor = os.open(mounted / f"{DEVFREQ}/max_freq"[1:], os.O_WRONLY)
    os.write(descriptor, b"905250000")
    os.close(descriptor)
    assert cat(mounted, f"{DEVFREQ}/max_freq") == "905250000"


def test_the_writer_sees_a_refusal(mounted: Path, board: SimulatedBoard) -> None:
    for value, path, number in (
        (1267200, f"{POLICY}/scaling_setspeed", errno.EINVAL),
        ("turbo", f"{DEVFREQ}/governor", errno.EINVAL),
        (3, "/sys/devices/17000000.gv11b/tpc_pg_mask", errno.EBUSY),
        (1, f"{DEVFREQ}/cur_freq", errno.EACCES),
        (1, f"{DEVFREQ}/no_such_file", errno.EACCES),
    ):
        with pytest.raises(OSError) as caught:
            echo(value, mounted, path)
        assert caught.value.errno == number, path
    board.faults.refuse(f"{DEVFREQ}/min_freq", errno.EIO)
    with pytest.raises(OSError) as caught:
        echo(114750000, mounted, f"{DEVFREQ}/min_freq")
    assert caught.value.errno == errno.EIO


def test_a_folder_puts_back_what_the_kernel_would_refuse_and_says_so(
    board: SimulatedBoard, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with serve(board, tmp_path / "root", "folder") as serving:
        assert "refuse" in serving.notice
        echo("turbo", serving.mount, f"{DEVFREQ}/governor")
        assert soon(lambda: cat(serving.mount, f"{DEVFREQ}/governor") == "nvhost_podgov")
    assert "refused" in capfd.readouterr().err


def test_a_file_that_is_held_open_shows_the_present(mounted: Path, board: SimulatedBoard) -> None:
    descriptor = os.open(mounted / f"{DEVFREQ}/cur_freq"[1:], os.O_RDONLY)
    assert os.pread(descriptor, 100, 0) == b"114750000\n"
    echo("performance", mounted, f"{DEVFREQ}/governor")
    assert os.pread(descriptor, 100, 0) == b"1377000000\n"
    assert os.pread(descriptor, 4, 3) == b"7000"
    os.close(descriptor)


def test_permission_bits_and_links_are_there(root: Path) -> None:
    assert (root / f"{POLICY}/cpuinfo_cur_freq"[1:]).stat().st_mode & 0o777 == 0o400
    assert (root / "sys/kernel/debug").stat().st_mode & 0o777 == 0o700
    assert (root / "proc/device-tree/compatible").read_bytes() == b"nvidia,p2972-0000\0nvidia,tegra194\0"
    assert cat(root, "/sys/class/hwmon/hwmon3/in1_label") == "GPU"
    assert cat(root, f"{INA}/in3_label") == "SOC"


def test_files_that_vanish_are_gone_and_come_back(root: Path, board: SimulatedBoard) -> None:
    path = root / f"{DEVFREQ}/min_freq"[1:]
    board.faults.vanish(f"{DEVFREQ}/min_freq")
    assert soon(lambda: not path.exists())
    board.faults.clear()
    assert soon(path.exists)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_directory_with_something_in_it_is_not_taken(board: SimulatedBoard, tmp_path: Path, backend: str) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(TwinError, match="not empty"):
        serve(board, tmp_path, backend)
    assert (tmp_path / "mine").exists()


def test_an_application_runs_frames_and_learns_what_they_cost(port: Path, board: SimulatedBoard) -> None:
    with Application(port) as app:
        network = app.load(small_network())
        before = app.request("energy")
        began = time.monotonic()
        frame = app.frame(network)
        assert time.monotonic() - began >= 1e-3 * frame["latency_ms"]
        paced = app.stream(network, fps=50, seconds=0.3)
        after = app.request("energy")
    assert len(paced["latencies_ms"]) == 15
    assert paced["elapsed_s"] == pytest.approx(0.3)
    assert paced["rails_mw"]["GPU"] == pytest.approx(paced["rails_mj"]["GPU"] / paced["elapsed_s"])
    drawn = after["rails_mj"]["GPU"] - before["rails_mj"]["GPU"]
    idle_s = after["time_s"] - before["time_s"] - 1e-3 * frame["latency_ms"] - paced["elapsed_s"]
    assert drawn == pytest.approx(frame["rails_mj"]["GPU"] + paced["rails_mj"]["GPU"] + 1e3 * idle_s, rel=1e-6)


def test_the_port_answers_nonsense_with_one_line(port: Path) -> None:
    with Application(port) as app:
        network = app.load(small_network())
        for op, members in (
            ("dance", {}),
            ("load", {"network": {"launches": [{}]}}),
            ("load", {"network": {"launches": []}}),
            ("frame", {"network": "unknown"}),
            ("run", {"network": network}),
            ("run", {"network": network, "frames": 1, "fps": -1}),
            ("run", {"network": network, "seconds": "long"}),
            ("fault", {"kind": "explode"}),
        ):
            with pytest.raises(TwinError) as caught:
                app.request(op, **members)
            assert "\n" not in str(caught.value)
        assert app.frame(network)["latency_ms"] > 0


def test_faults_are_scripted_through_the_port_by_any_path_that_leads_there(port: Path, board: SimulatedBoard) -> None:
    with Application(port) as app:
        app.request("fault", kind="refuse", path="/sys/class/devfreq/17000000.gv11b/max_freq", errno="EBUSY")
        with pytest.raises(OSError) as caught:
            board.tree.write(f"{DEVFREQ}/max_freq", b"1\n")
        assert caught.value.errno == errno.EBUSY
        app.request("fault", kind="clear")
        board.tree.write(f"{DEVFREQ}/max_freq", b"905250000\n")
        assert app.request("state")["governors"]["gpu"] == "nvhost_podgov"


def test_frames_of_an_application_that_has_gone_are_given_up(port: Path) -> None:
    with Application(port) as app:
        network = app.load(small_network())
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(str(port))
    connection.sendall(json.dumps({"op": "run", "network": network, "seconds": 3000}).encode() + b"\0")
    time.sleep(0.1)
    connection.close()
    with Application(port) as app:
        time.sleep(0.1)
        assert app.frame(network)["waited_ms"] == 0.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_command_serves_until_told_to_stop_and_starts_again_after_a_crash(tmp_path: Path, backend: str) -> None:
    mount = tmp_path / "root"
    process, ready = start_twin("agx-xavier", mount, backend)
    assert ready["simulated"] is True
    assert cat(mount, "/proc/device-tree/model").startswith("NVIDIA Jetson AGX Xavier")
    process.kill()
    process.wait()
    process, ready = start_twin("agx-xavier", mount, backend)
    with Application(str(ready["bench"])) as app:
        assert app.request("state")["requested"]["cpu_khz"] == 1190400
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 0
    assert not any(mount.iterdir())
    assert not Path(str(ready["bench"])).exists()
