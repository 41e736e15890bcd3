# SPDX-License-Identifier: Apache-2.0
"""The daemon on boards in the states that people find them in: a GPU that comes late, locked and stuck clocks."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.profiles.twin.serve import serve
from jetdvfs.profiles.twin.simulated_board import simulated_board
from jetdvfs.profiles.twin.tree import fuse
from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon, eventually
from jetdvfs.tests.support.paths import REFERENCE
from jetdvfs.tests.support.verbs import run_in

pytestmark = pytest.mark.skipif(bool(fuse.missing()), reason="the simulated board needs FUSE")

LOW = FrequencyConfiguration(1190400, 612000000, 2133000000)
RAILGATE = "sys/devices/platform/gpu.0/railgate_enable"
EMC = "sys/kernel/debug/bpmp/debug/clk/emc"
MODEL = REFERENCE / "resnet18.pt"
IMAGE = ["1x3x224x224"]


@contextmanager
def board_in(tmp_path: Path, name: str, **state: Any) -> Iterator[tuple[Board, Daemon]]:
    """A simulated board in some state, with a daemon on it that keeps no clock up for what else runs on this machine."""
    config = tmp_path / "jetdvfsd.yaml"
    config.write_text("floors: off\n")
    folder = Path(tempfile.mkdtemp(prefix="board-"))
    twin = simulated_board(name, **state)
    try:
        with serve(twin, folder / "root", "fuse"):
            board = Board(twin, folder / "root")
            with Daemon(board, tmp_path, "--config", str(config)) as daemon:
                yield board, daemon
                daemon.stop()
    finally:
        shutil.rmtree(folder)


def said(daemon: Daemon) -> str:
    return daemon.log.read_text()


def hold_line(daemon: Daemon, *words: object) -> str:
    """What ``jetdvfs hold`` says of a model's lease."""
    model = (MODEL, "--input", *IMAGE, "--target", "min-energy", "--fps", "15")
    done = run_in(Path("/"), "hold", *model, "--socket", daemon.socket, *words, "--", "true")
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_clocks_are_held_before_the_gpu_was_used_and_its_clock_follows_when_it_comes(tmp_path: Path) -> None:
    with board_in(tmp_path, "orin-nano-8gb", jetpack="7", desktop=False) as (board, daemon), daemon.client() as client:
        lease = client.hold(configuration=LOW)
        assert lease.applied is not None and not lease.applied["verified"]
        assert lease.applied["notes"] == ["GPU clock: 612 MHz is set when its files come"]
        assert (board.clocks.cpu_khz, board.clocks.emc_hz) == (LOW.cpu_khz, LOW.emc_hz)
        assert any("comes once the GPU is used" in reason for reason in client.status()["degraded"])
        board.write(RAILGATE, 0)
        assert eventually(lambda: board.clocks == LOW)
        assert eventually(lambda: client.status()["applied"]["verified"])
        assert "taken over" not in said(daemon)
        lease.release()
        assert eventually(lambda: board.read(f"{EMC}/mrq_rate_locked") == "0")
        assert board.clocks != LOW


def test_a_target_is_planned_over_all_gpu_clocks_before_the_gpu_was_used(tmp_path: Path) -> None:
    with board_in(tmp_path, "orin-nano-8gb", desktop=False) as (board, daemon), daemon.client() as client:
        line = hold_line(daemon)
        assert "predicted for clocks that are not in force" in line and "below top clocks" not in line
        early = client.hold(client.load(MODEL, IMAGE), "min-energy", fps=15)
        board.write(RAILGATE, 0)
        assert early.plan is not None
        planned = FrequencyConfiguration(**early.plan["choice"]["configuration"])
        assert eventually(lambda: board.clocks == planned)
        late = client.hold(client.load(MODEL, IMAGE), "min-energy", fps=15)
        assert late.plan is not None
        assert late.plan["considered"] == early.plan["considered"] == 704
        assert late.plan["choice"]["configuration"] == early.plan["choice"]["configuration"]
        early.release()
        late.release()
        assert "below top clocks" in hold_line(daemon)


@pytest.mark.parametrize("name", ["orin-nano-8gb", "agx-thor"])
def test_a_memory_clock_that_jetson_clocks_locked_past_its_limits_is_held_all_the_same(name: str, tmp_path: Path) -> None:
    with board_in(tmp_path, name, jetpack="7") as (board, daemon), daemon.client() as client:
        top_hz = board.twin.description.grid.emc_hz[-1]
        board.write(f"{EMC}/mrq_rate_locked", 1)
        board.write(f"{EMC}/rate", top_hz)
        lease = client.hold(client.load(MODEL, IMAGE), "min-energy", fps=10)
        assert lease.plan is not None and lease.applied is not None
        assert lease.applied["verified"], lease.applied["notes"]
        assert board.clocks == FrequencyConfiguration(**lease.plan["choice"]["configuration"])
        assert board.clocks.emc_hz < top_hz
        lease.release()
        assert eventually(lambda: (board.read(f"{EMC}/mrq_rate_locked"), board.read(f"{EMC}/rate")) == ("1", str(top_hz)))


@pytest.mark.slow
def test_a_target_is_planned_again_for_a_clock_that_does_not_follow(tmp_path: Path) -> None:
    with board_in(tmp_path, "orin-nano-8gb") as (board, daemon), daemon.client() as client:
        network = client.load(MODEL, IMAGE)
        free = client.hold(network, "min-energy", fps=15)
        assert free.plan is not None and free.plan["choice"]["configuration"]["gpu_hz"] != 306000000
        free.release()
        board.twin.faults.stick("gpu", 306000000)
        assert "predicted for clocks that are not in force" in hold_line(daemon)
        lease = client.hold(network, "min-energy", fps=15)
        assert lease.applied is not None and not lease.applied["verified"]
        assert eventually(lambda: client.status()["leases"][0]["configuration"]["gpu_hz"] == 306000000)
        assert eventually(lambda: client.status()["applied"]["verified"])
        assert client.status()["leases"][0]["predicted"]["latency_ms"] > free.plan["choice"]["latency_ms"]
        lease.release()
        board.twin.faults.clear()
        again = client.hold(network, "min-energy", fps=15)
        assert again.plan is not None and again.plan["choice"]["configuration"] == free.plan["choice"]["configuration"]


@pytest.mark.slow
def test_a_clock_that_stops_following_while_held_has_its_lease_planned_again(tmp_path: Path) -> None:
    with board_in(tmp_path, "orin-nano-8gb") as (board, daemon), daemon.client() as client:
        lease = client.hold(client.load(MODEL, IMAGE), "min-energy", fps=15)
        assert lease.plan is not None and lease.plan["choice"]["configuration"]["gpu_hz"] != 306000000
        board.twin.faults.stick("gpu", 306000000)
        assert eventually(lambda: client.status()["leases"][0]["configuration"]["gpu_hz"] == 306000000)
        assert eventually(lambda: client.status()["applied"]["verified"])
        board.twin.faults.clear()


def test_a_higher_power_mode_is_planned_for_as_soon_as_it_is_in_force(tmp_path: Path) -> None:
    with board_in(tmp_path, "orin-nano-8gb") as (board, daemon), daemon.client() as client:
        network = client.load(MODEL, IMAGE)
        lease = client.hold(network, "power_mw=60000")
        assert lease.plan is not None
        top = lease.plan["choice"]["configuration"]["gpu_hz"]
        gpu = next(path for path in board.twin.description.section("gpu")["devfreq"] if (board.root / path[1:]).exists())
        board.write(f"{gpu[1:]}/max_freq", 612000000)
        assert eventually(lambda: client.status()["leases"][0]["configuration"]["gpu_hz"] == 612000000)
        board.write(f"{gpu[1:]}/max_freq", top)
        assert eventually(lambda: client.status()["leases"][0]["configuration"]["gpu_hz"] == top)
