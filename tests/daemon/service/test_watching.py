# SPDX-License-Identifier: Apache-2.0
"""What is shown of a running daemon, and what a command is measured to cost: the real commands on a simulated board."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jetdvfs.daemon.cli.prometheus import METRICS
from jetdvfs.daemon.cli.top import lease_table
from jetdvfs.daemon.hardware.files import Files
from jetdvfs.daemon.hardware.sensors.sensors import Sensors
from jetdvfs.profiles.board import load_board
from jetdvfs.tests.support.daemons.board_daemon import LONGEST_S, LOW, Board, Daemon, eventually
from jetdvfs.tests.support.verbs import answered, on_terminal

FRAMES = """
import time
from jetdvfs import qos
with qos.hold(configuration=(1190400, 675750000, 1600000000), required=False, socket_path="/nowhere/at/all") as lease:
    for _ in range(5):
        with qos.frame(lease):
            time.sleep(0.1)
print("done")
"""


def jetdvfs(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = answered(*arguments)
    assert done.returncode == code, done.stderr
    return done


def test_a_command_is_measured_without_a_daemon_and_its_output_is_its_own(board: Board, tmp_path: Path) -> None:
    report = tmp_path / "measured.json"
    options = ["--root", str(board.root), "--output", str(report), "--every", "0.05"]
    done = jetdvfs("measure", *options, "--", sys.executable, "-c", FRAMES)
    assert done.stdout == "done\n"
    told = json.loads(report.read_text())
    assert told["frames"] == 5 and told["p50_ms"] >= 100 and told["exit_code"] == 0
    files = Files(board.root)
    drawn_mw = sum(Sensors(files, load_board(told["board"])).rails_mw()[rail] for rail in told["energy_rails"])
    assert 0.5 * drawn_mw < told["mean_power_mw"] < 2 * drawn_mw
    assert abs(told["energy_mj"] - told["mean_power_mw"] * told["elapsed_s"]) < 1e-6 * told["energy_mj"]
    assert "5 frames" in done.stderr


def test_what_a_measured_command_ends_with_is_passed_on(board: Board) -> None:
    root = ["--root", str(board.root)]
    jetdvfs("measure", *root, "--", sys.executable, "-c", "raise SystemExit(7)", code=7)
    assert "no such command" in jetdvfs("measure", *root, "--", "/no/such/thing", code=127).stderr
    assert "expected a command" in jetdvfs("measure", *root, code=2).stderr


def test_a_hold_ends_with_what_it_used_on_standard_error_alone(daemon: Daemon) -> None:
    clocks = ",".join(map(str, LOW))
    options = ["--config", clocks, "--socket", str(daemon.socket)]
    daemon.client().close()
    done = jetdvfs("hold", *options, "--", sys.executable, "-c", "import time; time.sleep(4); print('out')")
    assert done.stdout == "out\n"
    used = re.search(r"held for ([\d.]+) s; the board used ([\d.]+) J in ([\d.]+) s \(([\d.]+) W\)", done.stderr)
    assert used is not None, done.stderr
    held_s, joules, measured_s, watts = map(float, used.groups())
    assert held_s >= 4 and held_s >= measured_s >= 2 and abs(joules - measured_s * watts) < 0.05 * joules + 0.2


def test_top_and_log_show_what_is_held_and_why(daemon: Daemon) -> None:
    socket = ["--socket", str(daemon.socket)]
    with daemon.client() as client, client.hold(configuration=LOW, reason="camera", app="viewer") as lease:
        shown = jetdvfs("top", "--once", *socket).stdout
        assert "viewer" in shown and "1190.4" in shown and "\x1b" not in shown
        assert json.loads(jetdvfs("top", "--once", "--json", *socket).stdout)["leases"][0]["app"] == "viewer"
        entries = [json.loads(line) for line in jetdvfs("log", "--json", *socket).stdout.splitlines()]
        assert [entry["kind"] for entry in entries[-2:]] == ["clocks_set", "lease_begun"]
        assert entries[-1]["lease"] == lease.id and entries[-1]["reason"] == "camera"
        assert "camera" in jetdvfs("log", "--lease", lease.id, *socket).stdout


def test_top_is_drawn_anew_until_q_and_shows_what_first_frames_take(daemon: Daemon) -> None:
    with daemon.client() as client, client.hold(configuration=LOW, app="viewer") as lease:
        for latency_ms in (77.25, 12.5, 12.5):
            lease.report(latency_ms)
            lease.flush()
        screen, terminal = pty.openpty()
        command = [sys.executable, "-m", "jetdvfs.daemon.cli", "top", "--every", "0.1", "--socket", str(daemon.socket)]
        shown = b""
        wide = {**os.environ, "COLUMNS": "160"}
        with subprocess.Popen(command, stdin=terminal, stdout=terminal, cwd="/", env=wide) as top:
            os.close(terminal)
            while shown.count(b"\x1b[H") < 3 and select.select([screen], [], [], LONGEST_S)[0]:
                shown += os.read(screen, 1 << 16)
            os.write(screen, b"q")
            # What it writes is read until it has ended, or it would wait for that.
            with contextlib.suppress(OSError):
                while part := os.read(screen, 1 << 16):
                    shown += part
            assert top.wait(LONGEST_S) == 0
        os.close(screen)
    drawn = shown.decode().split("\x1b[H")[2]
    (row,) = (line for line in drawn.splitlines() if "viewer" in line)
    assert "first ms" in drawn and "77.25" in row and "12.50" in row
    assert shown.startswith(b"\x1b[?25l") and b"\x1b[?25h" in shown.rpartition(b"\x1b[H")[2]


def test_status_shows_leases_in_bold_on_a_terminal_alone(daemon: Daemon) -> None:
    with daemon.client() as client, client.hold(configuration=LOW, app="viewer"):
        words = ("status", "--socket", str(daemon.socket))
        assert "\x1b" not in jetdvfs(*words).stdout + on_terminal(*words, NO_COLOR="1")
        (bold,) = re.findall(r"\x1b\[1m(.*)\x1b\[0m", on_terminal(*words, NO_COLOR=""))
        assert "viewer" in bold


@pytest.mark.parametrize("width", [60, 100])
def test_a_narrow_terminal_goes_without_the_least_important_columns(width: int) -> None:
    lease = {
        "lease": "3", "app": "camera", "network": "resnet18", "target": "latency_ms=20", "fps": None,
        "predicted": {"latency_ms": 12.0}, "observed": {"p50_ms": 12.5, "p95_ms": 14.0}, "first_ms": 30.0,
        "frames": 120, "late": 0, "energy_mj": 5000.0,
    }  # fmt: skip
    headers = lease_table([lease], width).splitlines()[0]
    assert len(headers) <= width and {"model", "target", "late"} <= set(headers.split())
    assert ("first ms" in headers) is False and "first ms" in lease_table([lease], None)


def test_the_log_is_cut_to_its_last_lines_and_minutes(daemon: Daemon) -> None:
    socket = ["--socket", str(daemon.socket)]
    with daemon.client() as client:
        client.hold(configuration=LOW).release()
        lines = jetdvfs("log", "--json", *socket).stdout.splitlines()
        assert len(lines) > 2 and jetdvfs("log", "--json", "-n", "2", *socket).stdout.splitlines() == lines[-2:]
        assert jetdvfs("log", "--json", "--since", "10", *socket).stdout.splitlines() == lines
        assert jetdvfs("log", "--json", "--since", "0", *socket).stdout == ""
    assert "expected a whole number" in jetdvfs("log", "-n", "0", *socket, code=2).stderr


def test_a_status_is_shown_again_until_interrupted(daemon: Daemon) -> None:
    command = [sys.executable, "-m", "jetdvfs.daemon.cli", "status", "--watch", "0.2", "--socket", str(daemon.socket)]
    daemon.client().close()
    # Started from a shell's background, children would ignore interrupts.
    heeding = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/", preexec_fn=heeding) as watching:
        assert watching.stdout is not None
        boards = 0
        while boards < 3:
            boards += watching.stdout.readline().startswith("board ")
        watching.send_signal(signal.SIGINT)
        assert watching.wait(LONGEST_S) == 0
    assert "expected 0.1 to 3600 seconds" in jetdvfs("status", "--watch", "0", "--socket", str(daemon.socket), code=2).stderr


def test_log_follows_what_is_decided(daemon: Daemon) -> None:
    command = [sys.executable, "-m", "jetdvfs.daemon.cli", "log", "--follow", "--json", "--socket", str(daemon.socket)]
    client = daemon.client()
    with client, subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/") as following:
        assert following.stdout is not None
        client.hold(configuration=LOW).release()
        kinds: list[str] = []
        while "lease_ended" not in kinds:
            kinds.append(json.loads(following.stdout.readline())["kind"])
        assert kinds.index("lease_begun") < kinds.index("lease_ended")
        following.terminate()


def test_log_since_a_moment_follows_nothing_that_is_older(daemon: Daemon) -> None:
    socket = ["--socket", str(daemon.socket)]
    command = [sys.executable, "-m", "jetdvfs.daemon.cli", "log", "--follow", "--json", "--since", "0", *socket]
    with daemon.client() as client:
        before = client.hold(configuration=LOW)
        before.release()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/") as following:
            assert following.stdout is not None
            # It listens at a moment that is not seen from here: a lease is held until one is told of.
            said: list[str] = []
            while not said:
                client.hold(configuration=LOW).release()
                if select.select([following.stdout], [], [], 0.2)[0]:
                    said.append(following.stdout.readline())
            following.terminate()
    assert json.loads(said[0])["lease"] != before.id


def test_a_watched_status_is_a_line_of_json_each_time_as_it_is_made(daemon: Daemon) -> None:
    command = [sys.executable, "-m", "jetdvfs.daemon.cli", "status", "--watch", "0.2", "--json", "--socket", str(daemon.socket)]
    daemon.client().close()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/") as watching:
        assert watching.stdout is not None
        assert all(json.loads(watching.stdout.readline())["board"] for _ in range(3))
        watching.terminate()


def test_prometheus_is_told_joules_and_every_metric_is_listed(daemon: Daemon, tmp_path: Path) -> None:
    socket = ["--socket", str(daemon.socket)]
    with daemon.client() as client, client.hold(configuration=LOW, app='a "quoted" name') as lease:
        lease.report(12.5)
        lease.flush()
        told = eventually(lambda: client.status()["leases"][0].get("energy_mj") and client.status()["leases"][0]["frames"] == 1)
        assert told, (client.status(), client.log())
        path = tmp_path / "jetdvfs.prom"
        assert jetdvfs("status", "--prometheus", "--textfile", str(path), *socket).stdout == ""
        text = path.read_text()
    names = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")}
    assert names <= {metric.name for metric in METRICS}
    assert {"jetdvfs_energy_joules_total", "jetdvfs_lease_energy_joules_total", "jetdvfs_lease_observed_seconds"} <= names
    assert r'app="a \"quoted\" name"' in text
    assert all(re.fullmatch(r"#.*|[a-z_]+(\{.*\})? -?[\d.e+]+", line) for line in text.splitlines())
    assert list(tmp_path.glob(".jetdvfs*")) == []
    listed = jetdvfs("status", "--prometheus", "--describe").stdout
    assert all(f"| `{metric.name}` | {metric.kind} | {metric.meaning} |" in listed for metric in METRICS)


def test_metrics_and_measurements_are_printed_as_json(board: Board, daemon: Daemon) -> None:
    with daemon.client() as client, client.hold(configuration=LOW, app="viewer"):
        told = json.loads(jetdvfs("status", "--prometheus", "--json", "--socket", str(daemon.socket)).stdout)
        assert told["jetdvfs_up"] == [{"value": 1}]
        assert {"gpu", "cpu", "emc"} == {sample["clock"] for sample in told["jetdvfs_clock_hertz"]}
    done = jetdvfs("measure", "--root", str(board.root), "--json", "--", "sleep", "0.5")
    told = json.loads(done.stderr)
    assert told["exit_code"] == 0 and told["mean_power_mw"] <= sum(one["peak_mw"] for one in told["rails"].values())
    short = jetdvfs("measure", "--root", str(board.root), "--json", "--", "true")
    assert json.loads(short.stderr)["energy_mj"] is None and "too short to tell" in short.stderr
    seldom = jetdvfs("measure", "--root", str(board.root), "--json", "--every", "0.6", "--", "sleep", "0.7")
    assert "1 readings of the rails meanwhile" in seldom.stderr and json.loads(seldom.stderr)["energy_mj"] is None


def test_without_a_daemon_prometheus_is_told_that(tmp_path: Path) -> None:
    done = jetdvfs("status", "--prometheus", "--socket", str(tmp_path / "none.sock"), code=6)
    assert done.stdout.splitlines()[-1] == "jetdvfs_up 0"
    assert os.linesep.join(done.stderr.splitlines()).startswith("jetdvfs status: no daemon")
