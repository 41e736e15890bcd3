# SPDX-License-Identifier: Apache-2.0
"""Holding and releasing from the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jetdvfs.daemon.errors import UsageError
from jetdvfs.profiles.board import load_board
from jetdvfs.tests.support.daemons.board_daemon import LOW, Board, Daemon, eventually
from jetdvfs.tests.support.models import handmade
from jetdvfs.tests.support.paths import REFERENCE
from jetdvfs.tests.support.verbs import answered

MODEL = REFERENCE / "squeezenet1_0.pt"

IMAGE = ["1x3x224x224"]


def test_the_command_line_holds_while_a_command_runs(board: Board, found: dict[str, str], daemon: Daemon) -> None:
    daemon.client().close()
    jetdvfs = [sys.executable, "-m", "jetdvfs.daemon.cli"]
    env = {**os.environ, "JETDVFS_SOCKET": str(daemon.socket)}
    clocks = ",".join(map(str, LOW))
    inner = [*jetdvfs, "status", "--json"]
    done = subprocess.run(
        [*jetdvfs, "hold", "--config", clocks, "--json", "--", *inner], capture_output=True, text=True, env=env
    )
    assert done.returncode == 0, done.stderr
    held, ended = map(json.loads, done.stderr.splitlines())
    assert held["applied"]["verified"] and ended["lease"] == held["lease"] and 0 < ended["used"]["held_s"] < 60
    (lease,) = json.loads(done.stdout)["leases"]  # the command's output, and nothing else
    assert lease["configuration"] == LOW._asdict()
    assert board.settings() == found
    failing = [*jetdvfs, "hold", str(MODEL), "--input", IMAGE[0], "--target", "min-energy", "--", "sh", "-c", "exit 7"]
    assert subprocess.run(failing, capture_output=True, env=env).returncode == 7
    unattainable = [*jetdvfs, "hold", str(MODEL), "--input", IMAGE[0], "--target", "latency_ms=0.01", "--", "true"]
    done = subprocess.run(unattainable, capture_output=True, text=True, env=env)
    assert done.returncode == 4 and done.stderr.count("\n") == 1
    assert answered("status", JETDVFS_SOCKET=str(daemon.socket)).stdout.startswith("board      NVIDIA")
    assert answered("status", JETDVFS_SOCKET=f"{daemon.socket}.gone").returncode == 6


def test_the_command_line_takes_a_scalar_input_and_clocks_in_mhz(
    board: Board, found: dict[str, str], daemon: Daemon, tmp_path: Path
) -> None:
    model = tmp_path / "scaled.pt"
    code = handmade.forward("return torch.relu(torch.mul(x, n))", arguments="x: Tensor,\n    n: Tensor")
    model.write_bytes(handmade.archive(code))
    daemon.client().close()
    hold = [sys.executable, "-m", "jetdvfs.daemon.cli", "hold"]
    env = {**os.environ, "JETDVFS_SOCKET": str(daemon.socket)}
    inputs = ["--input", "8x16", "--input", "scalar:int64"]
    for asked in ([str(model), *inputs, "--target", "min-energy"], ["--config", "1190.4,675.75,1600"]):
        done = subprocess.run([*hold, *asked, "--json", "--", "true"], capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stderr
        held = json.loads(done.stderr.splitlines()[0])
        assert held["applied"]["verified"]
    assert held["applied"]["requested"] == LOW._asdict()
    assert board.settings() == found


def test_a_target_with_a_unit_is_kept_and_shown_in_its_canonical_form(board: Board, daemon: Daemon) -> None:
    with daemon.client() as client:
        jetdvfs = [sys.executable, "-m", "jetdvfs.daemon.cli"]
        env = {**os.environ, "JETDVFS_SOCKET": str(daemon.socket)}
        hold = [*jetdvfs, "hold", "--target", "latency<=0.5s", "--", *jetdvfs, "status", "--json"]
        done = subprocess.run(hold, capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stderr
        assert done.stderr.startswith("latency_ms=500: ")
        (lease,) = json.loads(done.stdout)["leases"]
        assert lease["target"] == "latency_ms=500"
        network = client.load(MODEL, IMAGE)
        assert client.plan(network, "0.5s")["target"] == "latency_ms=500"
        held = client.hold(network, "power=30W")
        held.change(target="1s")
        assert [lease["target"] for lease in client.status()["leases"]] == ["latency_ms=1000"]
        with pytest.raises(UsageError, match="target '20': expected a number with one of the units us, ms, s, "):
            held.change(target="20")


def test_the_highest_and_lowest_clocks_are_those_that_the_daemon_offers_as_the_lease_begins(
    board: Board, found: dict[str, str], tmp_path: Path
) -> None:
    config = tmp_path / "jetdvfsd.yaml"
    # Floors follow what other work is seen to use, which differs from one hold to the next.
    config.write_text("floors: off\nlimits: {gpu_hz: {min: 420750000, max: 905250000}}\n")
    grid = load_board("agx-xavier").grid
    with Daemon(board, tmp_path, "--config", str(config)) as daemon, daemon.client() as client:

        def held(text: str, *options: str) -> subprocess.CompletedProcess[str]:
            command = [] if options else ["--", "true"]
            return answered("hold", "--config", text, "--json", *options, *command, JETDVFS_SOCKET=str(daemon.socket))

        top = {"cpu_khz": grid.cpu_khz[-1], "gpu_hz": 905250000, "emc_hz": grid.emc_hz[-1]}
        lowest = client.preview(configuration="min")
        assert lowest == {"cpu_khz": grid.cpu_khz[0], "gpu_hz": 420750000, "emc_hz": grid.emc_hz[0]}
        for text, expected in (("max", top), ("min", lowest), ("max,675.75,max", {**top, "gpu_hz": 675750000})):
            done = held(text)
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stderr.splitlines()[0])["applied"]["requested"] == expected
            assert json.loads(held(text, "--dry-run").stdout)["configuration"] == expected
        for options in ((), ("--dry-run",)):
            done = held("max,most,max", *options)
            assert done.returncode == 2 and "each may be max or min" in done.stderr and done.stderr.count("\n") == 1
            done = held("max,612,max", *options)
            assert done.returncode == 2 and "GPU 612 MHz may not be set; nearest: " in done.stderr
        with client.hold(configuration="max") as lease:
            assert client.status()["leases"][0]["configuration"] == top and lease.plan is None
        with pytest.raises(UsageError, match="either configuration or configuration_text"):
            client.call("Hold", {"configuration": top, "configuration_text": "max"})
    assert board.settings() == found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("command", "after_s"), [([], 0.0), (["--", "sleep", "60"], 0.0), (["--", "sleep", "60"], 0.2)])
def test_the_command_line_gives_back_when_it_is_told_to_end(
    board: Board, found: dict[str, str], daemon: Daemon, command: list[str], after_s: float, number: signal.Signals
) -> None:
    with daemon.client() as client:
        hold = [sys.executable, "-m", "jetdvfs.daemon.cli", "hold", "--config", ",".join(map(str, LOW)), *command]
        env = {**os.environ, "JETDVFS_SOCKET": str(daemon.socket)}
        with subprocess.Popen(
            hold, env=env, text=True, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            assert process.stdout is not None
            assert "in force" in process.stdout.readline()
            if not command:
                assert "until interrupted" in process.stdout.readline()
            time.sleep(after_s)
            # As a terminal does for an interrupt: to everybody in the foreground.
            os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
            assert process.wait(10) == (128 + number if command else 0)
        assert eventually(lambda: not client.status()["leases"])
        assert board.settings() == found


def test_a_lease_is_released_from_the_command_line(board: Board, found: dict[str, str], daemon: Daemon) -> None:
    with daemon.client() as client:
        lease = client.hold(configuration=LOW)
        env = {**os.environ, "JETDVFS_SOCKET": str(daemon.socket)}
        subprocess.run([sys.executable, "-m", "jetdvfs.daemon.cli", "release", lease.id], env=env, check=True)
        assert board.settings() == found
