# SPDX-License-Identifier: Apache-2.0
"""A camera pipeline and a control loop beside leased applications: neither misses a beat under the daemon."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from jetdvfs.daemon.hardware.files import Files
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.daemon.wire.client import Client, LoadedModel
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.profiles.board import list_boards
from jetdvfs.profiles.reference import reference_network
from jetdvfs.profiles.timing import SystemClock
from jetdvfs.profiles.twin.co_runners import BoardClocks
from jetdvfs.profiles.twin.tree import fuse
from jetdvfs.tests.support.boards.corunner import Beat, PeriodicWork, camera, control_loop
from jetdvfs.tests.support.daemons.board_daemon import EMC, Board, Daemon, eventually, served_board
from jetdvfs.tests.support.paths import REFERENCE

BYTES_PER_CYCLE = 64.0
LOWEST = FrequencyConfiguration(115200, 114750000, 204000000)


# The co-runners themselves


def clocks(cpu_khz: int, emc_hz: int = 2133000000) -> BoardClocks:
    return BoardClocks({"policy0": cpu_khz}, 1377000000, emc_hz)


@pytest.mark.parametrize(("khz", "missed"), [(460000, 0), (440000, 1000)])
def test_a_control_loop_misses_every_beat_for_which_its_core_is_too_slow(khz: int, missed: int) -> None:
    loop = PeriodicWork(control_loop(), BYTES_PER_CYCLE)
    for step in range(400):  # however time is cut
        loop.elapse(0.0025 * step, 0.0025, clocks(khz))
    assert loop.beats == pytest.approx(1000, abs=1)
    assert loop.missed == pytest.approx(missed, abs=1)


@pytest.mark.parametrize(("hz", "missed"), [(665600000, 0), (408000000, 30)])
def test_a_camera_misses_every_frame_for_which_the_memory_is_too_slow(hz: int, missed: int) -> None:
    frames = PeriodicWork(camera(), BYTES_PER_CYCLE)
    frames.elapse(7.0, 1.0 + 1e-6, clocks(2265600, hz))
    assert (frames.beats, frames.missed) == (30, missed)


def test_a_beat_is_made_good_where_the_clock_rises_in_time() -> None:
    work = PeriodicWork(Beat(0.1, "policy0", 100e6), BYTES_PER_CYCLE)
    work.elapse(0.0, 0.05, clocks(500000))
    work.elapse(0.05, 0.05, clocks(1600000))
    work.elapse(0.1, 0.05, clocks(500000))
    work.elapse(0.15, 0.05, clocks(1400000))
    assert (work.beats, work.missed) == (2, 1)


def test_a_core_that_is_offline_does_nothing() -> None:
    loop = PeriodicWork(control_loop("policy4"), BYTES_PER_CYCLE)
    loop.elapse(0.0, 0.1, clocks(2265600))
    assert loop.missed == loop.beats > 90
    assert loop.load(0.0, clocks(2265600)).cpu == {}


# Beside leases, with the real daemon


class Stage:
    """A board with both co-runners and an application that runs frames back to back."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.runners = {
            name: PeriodicWork(beat(), BYTES_PER_CYCLE) for name, beat in (("camera", camera), ("loop", control_loop))
        }
        for runner in self.runners.values():
            board.twin.attach(runner)
        self.network = reference_network("resnet18")

    def missed(self) -> dict[str, int]:
        with self.board.twin.present():
            return {name: runner.missed for name, runner in self.runners.items()}

    def work(self, seconds: float, fps: float | None = None) -> None:
        """Run frames, as an application of this process."""
        twin = self.board.twin
        with twin.processes.alive(os.getpid(), twin.tree):
            twin.infer(self.network, fps=fps, frames=None, seconds=seconds, pid=os.getpid())


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    if fuse.missing():
        pytest.skip(f"the simulated board needs FUSE: {fuse.missing()}")
    with tempfile.TemporaryDirectory() as name, served_board(Path(name) / "root", "fuse") as board:
        yield Stage(board)


@contextmanager
def serving(stage: Stage, folder: Path, floors: str) -> Iterator[tuple[Client, LoadedModel]]:
    """A daemon that has looked at the board for a while, and a network loaded on it."""
    (folder / "jetdvfsd.yaml").write_text(f"floors: {floors}\nprofile: agx-xavier-sim\n")
    with Daemon(stage.board, folder, "--config", str(folder / "jetdvfsd.yaml")) as daemon, daemon.client() as client:
        network = client.load(REFERENCE / "resnet18.pt", ["1x3x224x224"])
        client.predict(network)

        def seen() -> bool:
            planned = client.plan(network, "min-energy", fps=10.0)["choice"]["configuration"]
            return bool(planned["cpu_khz"] >= 450000 and planned["emc_hz"] >= 665600000)

        assert floors == "off" or eventually(seen, 10.0)
        yield client, network


LOW = (("min-energy", 10.0), ("latency_ms=100", 5.0), ("power_mw=4000", None))  # that leave others too little by themselves
TARGETS = (("min-energy", None), *LOW)


@pytest.mark.slow
@pytest.mark.alone
def test_neither_camera_nor_control_loop_misses_a_beat_under_any_target(stage: Stage, tmp_path: Path) -> None:
    before = stage.missed()
    assert before == {"camera": 0, "loop": 0}
    with serving(stage, tmp_path, "auto") as (client, network):
        for target, fps in TARGETS:
            with client.hold(network, target, fps=fps) as lease:
                stage.work(0.6, fps)
                assert stage.missed() == before, f"{target}: {lease.applied}"
                assert stage.board.read(f"{EMC}/mrq_rate_locked") == "1"
        with client.hold(configuration=LOWEST):
            stage.work(1.5)
            kept = {floor["clock"]: floor["least"] for floor in client.status()["floors"]}
        assert stage.missed() == before
    # A level more where this machine's other work makes the camera's bursts denser.
    assert 665600000 <= kept["emc_hz"] <= 800000000
    assert kept["cpu_khz"] >= 450000


@pytest.mark.alone
def test_without_floors_one_of_them_does_under_each_that_takes_low_clocks(stage: Stage, tmp_path: Path) -> None:
    with serving(stage, tmp_path, "off") as (client, network):
        for target, fps in LOW:
            before = stage.missed()
            with client.hold(network, target, fps=fps):
                stage.work(0.4, fps)
                assert stage.missed() != before, target


@pytest.mark.alone
def test_on_a_board_of_three_clusters_only_the_control_loops_own_is_kept_up(tmp_path: Path) -> None:
    if fuse.missing():
        pytest.skip(f"the simulated board needs FUSE: {fuse.missing()}")
    (tmp_path / "jetdvfsd.yaml").write_text("cpu_clusters: apart\n")
    held = FrequencyConfiguration(729600, 306000000, 665600000)
    with served_board(tmp_path / "root", "fuse", "agx-orin-64gb") as board:
        loop = PeriodicWork(control_loop("policy4"), BYTES_PER_CYCLE)
        board.twin.attach(loop)
        with Daemon(board, tmp_path, "--config", str(tmp_path / "jetdvfsd.yaml")) as daemon, daemon.client() as client:
            time.sleep(2.0)
            client.hold(configuration=held)
            time.sleep(0.7)
            status = client.status()
            # Read with other upkeep, which waits where the board is busy.
            assert eventually(lambda: {one["event"] for one in client.status()["over_current"]} == {"oc1", "oc2", "oc3"})
        policies = {one["policy"]: one for one in status["cpu_policies"]}
        assert loop.beats > 500
        assert loop.missed == 0
    assert status["mode"]["name"]
    assert [policies[name]["leads"] for name in ("policy0", "policy4", "policy8")] == [True, False, False]
    assert policies["policy0"]["accepted_khz"] == 729600
    assert 450000 <= policies["policy4"]["accepted_khz"] <= 1190400
    assert policies["policy8"]["accepted_khz"] == 115200


@pytest.mark.skipif("JETDVFS_ALL_BOARDS" not in os.environ, reason="slow: JETDVFS_ALL_BOARDS=1 looks at every board")
@pytest.mark.parametrize("floors", ["auto", "off"])
@pytest.mark.parametrize("name", list_boards())
def test_on_every_board_neither_misses_a_beat_at_the_lowest_clocks_that_may_be_held(
    name: str, floors: str, tmp_path: Path
) -> None:
    if fuse.missing():
        pytest.skip(f"the simulated board needs FUSE: {fuse.missing()}")
    (tmp_path / "jetdvfsd.yaml").write_text(f"floors: {floors}\n")
    with served_board(tmp_path / "root", "fuse", name) as board:
        twin, chip = board.twin, board.twin.description.chip
        frames, network = camera(twin.policies[0].name), reference_network("resnet18")
        # No more than a small board can do.
        most = 0.15 * chip.bytes_per_emc_cycle * twin.description.grid.emc_hz[-1] * frames.period_s
        frames = replace(frames, memory_bytes=min(frames.memory_bytes, most))
        runners = [PeriodicWork(beat, chip.bytes_per_emc_cycle) for beat in (frames, control_loop(twin.policies[-1].name))]
        for runner in runners:
            twin.attach(runner)
        with Daemon(board, tmp_path, "--config", str(tmp_path / "jetdvfsd.yaml")) as daemon, daemon.client() as client:
            time.sleep(2.0)
            grid = Hardware.probe(Files(board.root), SystemClock()).grid()
            with twin.present():
                before = [runner.missed for runner in runners]
            with client.hold(configuration=(grid.cpu_khz[0], grid.gpu_hz[0], grid.emc_hz[0])):
                with twin.processes.alive(os.getpid(), twin.tree):
                    twin.infer(network, frames=None, seconds=1.0, pid=os.getpid())
                with twin.present():
                    missed = [runner.missed - earlier for runner, earlier in zip(runners, before, strict=True)]
    if floors == "auto":
        assert missed == [0, 0]
    else:
        assert all(missed)
