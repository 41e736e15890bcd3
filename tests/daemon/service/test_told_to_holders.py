# SPDX-License-Identifier: Apache-2.0
"""Holders hear what becomes of their leases: released by another, without frames, planned by remembered frames."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from jetdvfs import qos
from jetdvfs.daemon.errors import LeaseEnded
from jetdvfs.daemon.wire.client import Client
from jetdvfs.daemon.wire.protocol import ADMIN_INTERFACE
from jetdvfs.tests.support.daemons.board_daemon import LOW, Board, Daemon, eventually
from jetdvfs.tests.support.paths import REFERENCE
from jetdvfs.tests.support.verbs import answered

MODEL = REFERENCE / "squeezenet1_0.pt"
HOLD = ["hold", "--config", "1190.4,675.75,1600"]


@pytest.fixture
def environment(daemon: Daemon) -> dict[str, str]:
    daemon.client().close()
    return {**os.environ, "JETDVFS_SOCKET": str(daemon.socket)}


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    with daemon.client() as client:
        yield client


def jetdvfs(environment: dict[str, str], *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = answered(*words, **environment)
    assert done.returncode == code, done.stderr
    return done


def test_an_application_hears_that_another_released_its_lease(
    board: Board, found: dict[str, str], environment: dict[str, str], client: Client, daemon: Daemon
) -> None:
    heard: list[str] = []
    with qos.hold(configuration=LOW, socket_path=daemon.socket, on_change=heard.append) as lease:
        jetdvfs(environment, "release", lease.id)
        assert eventually(lambda: not lease.held, 8)
        assert eventually(lambda: lease.over) and isinstance(lease.error, LeaseEnded)
        assert board.settings() == found
        time.sleep(0.5)
        assert client.status()["leases"] == []  # it is not held again
    (said,) = heard
    assert f"lease {lease.id} was ended by uid {os.getuid()}" in said and "pid" in said
    (entry,) = (entry for entry in client.log(lease.id) if entry["kind"] == "lease_ended")
    assert f"uid {os.getuid()}" in entry["message"]


def test_an_application_hears_that_the_board_was_restored(daemon: Daemon, client: Client) -> None:
    heard: list[str] = []
    with qos.hold(configuration=LOW, socket_path=daemon.socket, on_change=heard.append) as lease:
        with Client(daemon.admin, interface=ADMIN_INTERFACE) as admin:
            assert admin.call("Restore", {})["leases"] == 1
        assert eventually(lambda: bool(heard), 8)
    assert "restore" in heard[0] and not lease.held


def test_a_report_for_a_released_lease_says_who_ended_it(environment: dict[str, str], client: Client) -> None:
    lease = client.hold(configuration=LOW)
    jetdvfs(environment, "release", lease.id)
    with pytest.raises(LeaseEnded, match=f"lease {lease.id} was ended by uid {os.getuid()}"):
        lease.missed()


def test_hold_without_a_command_ends_once_released_and_says_by_whom(environment: dict[str, str], client: Client) -> None:
    command = [sys.executable, "-m", "jetdvfs.daemon.cli", *HOLD]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as holding:
        assert eventually(lambda: bool(client.status()["leases"]))
        (lease,) = client.status()["leases"]
        jetdvfs(environment, "release", lease["lease"])
        output, errors = holding.communicate(timeout=15)
    assert holding.returncode == 0
    assert f"lease {lease['lease']} was ended by uid" in errors, (output, errors)


def test_hold_with_a_command_says_that_its_lease_was_released_and_the_command_goes_on(
    environment: dict[str, str], client: Client
) -> None:
    command = [sys.executable, "-m", "jetdvfs.daemon.cli", *HOLD, "--", "sh", "-c", "sleep 3; exit 3"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as holding:
        assert eventually(lambda: bool(client.status()["leases"]))
        jetdvfs(environment, "release", client.status()["leases"][0]["lease"])
        _, errors = holding.communicate(timeout=20)
    assert holding.returncode == 3 and "was ended by uid" in errors


@pytest.mark.slow
def test_a_target_whose_frames_do_not_come_is_said_after_ten_seconds(environment: dict[str, str], client: Client) -> None:
    command = [sys.executable, "-m", "jetdvfs.daemon.cli", "hold", "--target", "latency_ms=20", "--", "sleep", "40"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as holding:
        assert eventually(lambda: bool(client.status()["leases"]))
        assert client.status()["leases"][0]["silent"] is None
        assert holding.stderr is not None
        said = next(line for line in holding.stderr if "no frames reported" in line)
        holding.terminate()
    assert "clocks stay at the highest" in said
    assert int(re.findall(r"for (\d+) s", said)[0]) in range(10, 15)


def test_hold_answers_in_one_line_with_its_reasons_on_request(environment: dict[str, str]) -> None:
    hold = ["hold", str(MODEL), "--input", "1x3x224x224", "--target", "latency_ms=200"]
    line, *rest = jetdvfs(environment, *hold, "--", "true").stderr.splitlines()
    form = r"squeezenet1_0 at CPU \d+, GPU \d+, EMC \d+ MHz: [\d.]+ ms \(asked: 200\), [\d.]+ mJ, \d+% (below|above) top clocks"
    assert re.match(form, line) and "simulated" in line, line
    assert len(line) <= 160 and not any("one step" in other.lower() for other in rest)
    assert "Against the top clocks" in jetdvfs(environment, *hold, "-v", "--", "true").stderr
    (summary,) = (other for other in rest if "held for" in other)
    assert "too short to tell" in summary and "energy per frame" not in summary


def test_a_dry_run_prints_the_daemons_plan_and_sets_nothing(
    board: Board, found: dict[str, str], environment: dict[str, str], client: Client
) -> None:
    model = ["hold", str(MODEL), "--input", "1x3x224x224", "--dry-run"]
    assert "nothing is set" in jetdvfs(environment, *model, "--target", "min-energy").stdout
    told = json.loads(jetdvfs(environment, *model, "--target", "min-energy", "--json").stdout)
    assert told["choice"]["configuration"] and told["simulated"]
    jetdvfs(environment, *model, "--target", "latency_ms=0.001", code=4)
    assert "CPU 1190, GPU 676, EMC 1600 MHz would be set" in jetdvfs(environment, *HOLD, "--dry-run").stdout
    wrong = jetdvfs(environment, "hold", "--config", "1190.4,700,1600", "--dry-run", code=2).stderr
    assert "GPU 700 MHz may not be set; nearest: 675.75 and" in wrong
    assert wrong == jetdvfs(environment, "hold", "--config", "1190.4,700,1600", "--", "true", code=2).stderr
    assert "would be set" in jetdvfs(environment, "hold", "--target", "latency_ms=20", "--dry-run").stdout
    assert "ask Hold" in jetdvfs(environment, "hold", "--target", "hours=6", "--dry-run", code=2).stderr
    assert board.settings() == found and all(entry["kind"] != "lease_begun" for entry in client.log())


def test_what_is_remembered_is_shown_and_forgotten_by_name(environment: dict[str, str], client: Client, daemon: Daemon) -> None:
    network = client.load(MODEL, ["1x3x224x224"])
    with client.hold(network, "latency_ms=500", app="camera") as lease:
        predicted_ms = client.status()["leases"][0]["predicted"]["latency_ms"]
        for _ in range(4):
            for _ in range(6):
                lease.report(1.5 * predicted_ms)
            lease.flush()
            time.sleep(0.2)
        assert eventually(lambda: client.status()["leases"][0]["frames"] == 24)
    told = jetdvfs(environment, "status", "--learned").stdout
    assert "squeezenet1_0" in told and "camera" in told and "1.5" in told
    (one,) = json.loads(jetdvfs(environment, "status", "--learned", str(MODEL), "--json").stdout)["programs"]
    assert one["frames"] >= 10 and one["uid"] == os.getuid()
    assert (
        "nothing is remembered of other.pt; remembered: squeezenet1_0"
        in jetdvfs(environment, "status", "--learned", "other.pt", code=2).stderr
    )
    assert "--forget needs --learned" in jetdvfs(environment, "status", "--forget", code=2).stderr
    hold = ["hold", str(MODEL), "--input", "1x3x224x224", "--target", "latency_ms=500", "--", "true"]
    assert re.search(r"corrected by \d+ frames of camera", jetdvfs(environment, *hold).stderr)
    assert jetdvfs(environment, "status", "--learned", MODEL.stem, "--forget").stdout == "forgotten: 1 program\n"
    assert jetdvfs(environment, "status", "--learned").stdout == "nothing is remembered\n"
    assert "corrected" not in jetdvfs(environment, *hold).stderr
    daemon.process.send_signal(signal.SIGCONT)
