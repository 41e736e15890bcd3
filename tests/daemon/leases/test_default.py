# SPDX-License-Identifier: Apache-2.0
"""Default clocks of the configuration: in force from the start while no other lease is held, undone by nobody silently."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.profiles.board import load_board
from jetdvfs.tests.support.daemons.board_daemon import GPU, LOW, Board, Daemon, eventually
from jetdvfs.tests.support.paths import REFERENCE
from jetdvfs.tests.support.verbs import run_in

TOP = load_board("agx-xavier").grid.top


def configured(tmp_path: Path, default: str) -> Path:
    path = tmp_path / "jetdvfsd.yaml"
    path.write_text(f"floors: off\n{default}")
    return path


def test_default_clocks_are_in_force_from_the_start_and_give_way_to_a_lease(
    board: Board, found: dict[str, str], tmp_path: Path
) -> None:
    config = configured(tmp_path, "default: max\n")
    with Daemon(board, tmp_path, "--config", str(config)) as daemon, daemon.client() as client:
        assert eventually(lambda: board.clocks == TOP)
        (own,) = client.status()["leases"]
        assert (own["app"], own["uid"], own["reason"]) == ("jetdvfsd", 0, "default: max, while no other lease is held")
        with client.hold(configuration=LOW) as lease:
            assert board.clocks == LOW
            held = {one["lease"]: one for one in client.status()["leases"]}
            assert held[lease.id]["raised_by"] == []
        assert eventually(lambda: board.clocks == TOP)
        daemon.stop()
    assert board.settings() == found


def test_default_clocks_are_those_of_the_file_and_follow_a_reload(board: Board, found: dict[str, str], tmp_path: Path) -> None:
    config = configured(tmp_path, "default: 1190.4,675.75,min\n")
    with Daemon(board, tmp_path, "--config", str(config)) as daemon, daemon.client():
        assert eventually(lambda: board.clocks == FrequencyConfiguration(1190400, 675750000, 204000000))
        configured(tmp_path, "default: max,318.75,max\n")
        daemon.process.send_signal(1)
        assert eventually(lambda: board.clocks == TOP._replace(gpu_hz=318750000))
        configured(tmp_path, "")
        daemon.process.send_signal(1)
        assert eventually(lambda: board.settings() == found)


def test_default_clocks_that_somebody_changes_are_named_and_set_again(board: Board, tmp_path: Path) -> None:
    config = configured(tmp_path, "default: max\n")
    with Daemon(board, tmp_path, "--config", str(config)) as daemon, daemon.client() as client:
        assert eventually(lambda: board.clocks == TOP)
        with (board.root / GPU / "userspace/set_freq").open("w") as file:
            file.write("318750000")
            file.flush()
            assert eventually(lambda: any("318.75 MHz by another program" in reason for reason in client.status()["degraded"]))
            who = f"(pid {os.getpid()}"
            assert any("may have set it" in reason and who in reason for reason in client.status()["degraded"])
        assert eventually(lambda: board.clocks == TOP)


def test_default_clocks_that_root_ended_stay_ended_until_the_next_start(
    board: Board, found: dict[str, str], tmp_path: Path
) -> None:
    config = configured(tmp_path, "default: max\n")
    with Daemon(board, tmp_path, "--config", str(config)) as daemon:
        with daemon.client() as client:
            assert eventually(lambda: board.clocks == TOP)
            client.call("Release", {"lease": client.status()["leases"][0]["lease"]})
            assert eventually(lambda: board.settings() == found)
            assert not eventually(lambda: bool(client.status()["leases"]), within_s=4)
        daemon.kill()
        daemon.start()
        with daemon.client():
            assert eventually(lambda: board.clocks == TOP)


def test_default_clocks_of_a_daemon_that_was_killed_come_back_with_the_next(
    board: Board, found: dict[str, str], tmp_path: Path
) -> None:
    config = configured(tmp_path, "default: min\n")
    with Daemon(board, tmp_path, "--config", str(config)) as daemon:
        with daemon.client() as client:
            assert eventually(lambda: bool(client.status()["leases"]) and board.settings() != found)
        daemon.kill()
        daemon.start()
        with daemon.client() as client:
            assert eventually(lambda: bool(client.status()["leases"]))
        daemon.stop()
    assert board.settings() == found


def test_a_default_may_be_a_target_for_a_model_which_gives_way_to_leases(
    board: Board, found: dict[str, str], tmp_path: Path
) -> None:
    model = REFERENCE / "squeezenet1_0.pt"
    config = configured(tmp_path, f"default: {{model: {model}, input: [1x3x224x224], target: latency_ms=20, fps: 30}}\n")
    with Daemon(board, tmp_path, "--profile", "agx-xavier-sim", "--config", str(config)) as daemon, daemon.client() as client:
        assert eventually(lambda: len(client.status()["leases"]) == 1)
        (own,) = client.status()["leases"]
        assert (own["app"], own["target"], own["network"]) == ("jetdvfsd", "latency_ms=20", "squeezenet1_0")
        assert own["reason"] == "default: latency_ms=20 for squeezenet1_0.pt, while no other lease is held"
        planned = FrequencyConfiguration(**own["configuration"])
        assert eventually(lambda: board.clocks == planned)
        with client.hold(configuration="min"):
            assert board.clocks != planned
        assert eventually(lambda: board.clocks == planned)
        configured(tmp_path, "default: max\n")
        daemon.process.send_signal(1)
        assert eventually(lambda: board.clocks == TOP)
        daemon.stop()
    assert board.settings() == found


def test_a_default_target_that_cannot_be_held_is_named_and_tried_again(board: Board, tmp_path: Path) -> None:
    model = tmp_path / "model.pt"
    config = configured(tmp_path, f"default: {{model: {model}, input: [1x3x224x224], target: min-energy}}\n")
    with Daemon(board, tmp_path, "--profile", "agx-xavier-sim", "--config", str(config)) as daemon, daemon.client() as client:
        assert eventually(
            lambda: any(f"default: model {model}: No such file" in reason for reason in client.status()["degraded"])
        )
        shutil.copyfile(REFERENCE / "squeezenet1_0.pt", model)
        assert eventually(lambda: len(client.status()["leases"]) == 1)
        assert eventually(lambda: not any("default:" in reason for reason in client.status()["degraded"]))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{model: m.pt, target: fast}", "default.target: "),
        ("{target: min-energy}", "default: expected max, min, CPU,GPU,EMC in MHz, or a mapping with model and target, got"),
        ("{model: m.pt, target: min-energy, fsp: 3}", "default.fsp: unknown member; did you mean default.fps"),
    ],
)
def test_a_default_target_that_is_none_is_refused_by_config_check(tmp_path: Path, text: str, said: str) -> None:
    done = run_in(tmp_path, "config", "check", configured(tmp_path, f"default: {text}\n"))
    assert done.returncode == 2 and said in done.stdout, done.stdout
