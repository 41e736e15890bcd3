# SPDX-License-Identifier: Apache-2.0
"""Leases that set some of the clocks: the others stay their governors', and that is said wherever clocks are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jetdvfs.kernels.grid import FrequencyConfiguration, governed
from jetdvfs.tests.support.daemons.board_daemon import CPU, EMC, GPU, LOW, Board, Daemon, eventually
from jetdvfs.tests.support.paths import REFERENCE
from jetdvfs.tests.support.verbs import run_in

HERE = Path("/")
PREDICT = ("predict", REFERENCE / "resnet18.pt", "--input", "1x3x224x224", "--profile", "agx-xavier-sim")


def plain_daemon(board: Board, tmp_path: Path, more: str = "") -> Daemon:
    """A daemon that keeps no clock up for other work."""
    config = tmp_path / "jetdvfsd.yaml"
    config.write_text(f"floors: off\n{more}")
    return Daemon(board, tmp_path, "--config", str(config))


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        (",612,", {"cpu_khz", "emc_hz"}),
        ("max,612,", {"emc_hz"}),
        (" , ,204", {"cpu_khz", "gpu_hz"}),
        ("max", set()),
        (",,", set()),
    ],
)
def test_empty_clocks_of_a_text_are_their_governors(text: str, axes: set[str]) -> None:
    assert governed(text) == axes


def test_one_clock_is_held_and_the_files_of_the_others_are_not_written(
    board: Board, found: dict[str, str], tmp_path: Path
) -> None:
    with plain_daemon(board, tmp_path) as daemon, daemon.client() as client:
        done = run_in(HERE, "hold", "--config", ",675.75,", "--dry-run", "--socket", daemon.socket)
        assert done.stdout == "GPU 676 MHz, CPU and EMC left to their governors would be set\n"
        lease = client.hold(configuration=",675.75,")
        assert lease.applied is not None and lease.applied["verified"] and not lease.applied["notes"]
        assert lease.applied["governed"] == ["cpu_khz", "emc_hz"]
        assert board.clocks.gpu_hz == LOW.gpu_hz
        assert all(write["path"].startswith(f"/{GPU}") for write in client.status()["writes"])
        left = {path: value for path, value in board.settings().items() if not path.startswith(GPU)}
        assert left == {path: value for path, value in found.items() if not path.startswith(GPU)}
        shown = run_in(HERE, "status", "--socket", daemon.socket).stdout
        assert "needs GPU 675.75 MHz, CPU and EMC left to their governors" in shown
        why = run_in(HERE, "status", "--why", "--socket", daemon.socket).stdout
        assert "no lease sets it: governor schedutil chooses" in why
        assert not client.status()["degraded"]
        lease.release()
        assert board.settings() == found


def test_a_clock_goes_back_to_its_governor_once_no_lease_sets_it(board: Board, found: dict[str, str], tmp_path: Path) -> None:
    with plain_daemon(board, tmp_path) as daemon, daemon.client() as client:
        with client.hold(configuration=",675.75,"):
            with client.hold(configuration="1190.4,318.75,1600"):
                assert board.clocks == LOW
                assert board.read(f"{EMC}/mrq_rate_locked") == "1"
                first, second = client.status()["leases"]
                assert first["raised_by"] == [] and second["raised_by"] == [first["lease"]]
            assert board.clocks.gpu_hz == LOW.gpu_hz
            assert board.read(f"{EMC}/mrq_rate_locked") == "0"
            assert board.read(f"{CPU}/scaling_governor") == found[f"{CPU}/scaling_governor"]
            assert client.status()["applied"]["governed"] == ["cpu_khz", "emc_hz"]
        assert board.settings() == found


def test_a_governor_that_others_change_is_theirs_while_a_lease_leaves_that_clock(board: Board, tmp_path: Path) -> None:
    with plain_daemon(board, tmp_path) as daemon, daemon.client() as client:
        with client.hold(configuration=",675.75,"):
            board.write(f"{CPU}/scaling_governor", "performance")
            with client.hold(configuration=LOW):
                assert board.clocks == LOW
            assert board.read(f"{CPU}/scaling_governor") == "performance"
            assert not client.status()["degraded"]
        assert board.read(f"{CPU}/scaling_governor") == "performance"


def test_default_clocks_may_be_those_of_one_clock(board: Board, found: dict[str, str], tmp_path: Path) -> None:
    with plain_daemon(board, tmp_path, "default: ',max,'\n") as daemon, daemon.client():
        assert eventually(lambda: board.clocks.gpu_hz == 1377000000)
        assert board.read(f"{EMC}/mrq_rate_locked") == "0"
        assert board.read(f"{CPU}/scaling_governor") == found[f"{CPU}/scaling_governor"]
        daemon.stop()
    assert board.settings() == found


def test_clusters_that_are_set_apart_are_left_with_the_cpu(board: Board, found: dict[str, str], tmp_path: Path) -> None:
    with plain_daemon(board, tmp_path, "cpu_clusters: apart\n") as daemon, daemon.client() as client:
        with client.hold(configuration=",675.75,1600") as lease:
            assert lease.applied is not None and lease.applied["clusters"] == []
            assert board.clocks._replace(cpu_khz=LOW.cpu_khz) == LOW
            assert board.read(f"{CPU}/scaling_governor") == found[f"{CPU}/scaling_governor"]
        assert board.settings() == found


def test_a_prediction_is_for_the_highest_level_of_clocks_that_governors_choose_and_says_so() -> None:
    done = run_in(HERE, *PREDICT, "--config", ",675.75,")
    assert done.returncode == 0, done.stderr
    (row,) = (line for line in done.stdout.splitlines() if line.startswith("asked for"))
    assert row.startswith("asked for, CPU and EMC left to their governors, at most ") and "2265.6" in row and "675.75" in row
    points = json.loads(run_in(HERE, *PREDICT, "--config", ",675.75,", "--json").stdout)["points"]
    top = FrequencyConfiguration(2265600, 675750000, 2133000000)
    assert points[-1]["configuration"] == top._asdict()


def test_a_configuration_without_any_clock_is_refused() -> None:
    done = run_in(HERE, "hold", "--config", ",,", "--", "true")
    assert done.returncode == 2 and "configuration ',,'" in done.stderr and done.stderr.count("\n") == 1
