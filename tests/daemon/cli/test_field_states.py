# SPDX-License-Identifier: Apache-2.0
"""Boards in states that their users found them in: what the commands say of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.daemon.cli.web.following import point
from jetdvfs.profiles.twin.serve import serve
from jetdvfs.profiles.twin.simulated_board import simulated_board
from jetdvfs.profiles.twin.states import put_into
from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon, eventually
from jetdvfs.tests.support.verbs import run, run_in, run_json


@contextmanager
def found(folder: Path, name: str, states: str, jetpack: str = "") -> Iterator[Board]:
    twin = simulated_board(name, jetpack=jetpack)
    put_into(twin, states)
    with serve(twin, folder / "board", "folder"):
        yield Board(twin, folder / "board")


def findings(folder: Path, board: Board, check: str) -> list[dict[str, Any]]:
    """What doctor says of one thing."""
    config = folder / "empty.yaml"
    config.touch()
    done = run_in(folder, "doctor", "--root", board.root, "--config", config, "--socket", folder / "none.sock", "--json")
    return [one for one in json.loads(done.stdout)["checks"] if one["check"] == check]


@pytest.mark.parametrize(
    ("name", "missing", "read"),
    [
        ("orin-nano-8gb", "VDD_IN", "VDD_CPU_GPU_CV"),
        ("agx-orin-64gb", "VDDQ_VDD2_1V8AO", "VDD_GPU_SOC"),
    ],
)
def test_power_without_one_of_its_rails_is_unknown_wherever_it_is_shown(
    name: str, missing: str, read: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with found(tmp_path, name, "total-rail-missing") as board, Daemon(board, tmp_path) as daemon:
        with daemon.client() as client:
            assert eventually(lambda: read in client.status()["rails_mw"])
            status = client.status()
            said = f"power rails {missing} cannot be read: power and energy are unknown"
            assert eventually(lambda: said in client.status()["degraded"])
        assert missing not in status["rails_mw"] and missing in status["energy_rails"]
        assert point(status, 0.0)["power_mw"] is None
        socket = ("--socket", str(daemon.socket))
        (power,) = [line for line in run(capsys, "status", *socket)[1].splitlines() if line.startswith("power ")]
        assert power.startswith(f"power      unknown ({missing}); ") and read in power
        (power,) = [line for line in run(capsys, "top", "--once", *socket)[1].splitlines() if line.startswith("power  ")]
        assert power.startswith(f"power  unknown ({missing}) ") and read in power
        samples = run_json(capsys, "status", "--prometheus", *socket)["jetdvfs_power_watts"]
        assert missing not in {sample["rail"] for sample in samples}
        done = run_in(tmp_path, "measure", "--root", board.root, "--", "sleep", "0.4")
        assert f"energy unknown ({missing}), from " in done.stderr
        assert f"power rails {missing} cannot be read: power and energy are unknown" in done.stderr
        measured = json.loads(run_in(tmp_path, "measure", "--json", "--root", board.root, "--", "sleep", "0.4").stderr)
        assert measured["energy_mj"] is None and read in measured["rails"]


def test_setup_refuses_a_board_whose_power_is_unknown_before_it_promises_anything(tmp_path: Path) -> None:
    with found(tmp_path, "orin-nano-8gb", "total-rail-missing") as board:
        done = run_in(tmp_path, "setup", "--dry-run", "--root", board.root)
        assert done.returncode == 3 and "would take" not in done.stdout
        assert "power rails VDD_IN cannot be read: a profile needs them" in done.stderr
        (said,) = findings(tmp_path, board, "power rails")
        assert said["said"] == "power rails VDD_IN cannot be read: power and energy are unknown"


def test_a_thor_without_its_carriers_monitor_sums_its_module_rails_and_keeps_a_ceiling(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = ["VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0"]
    with found(tmp_path, "agx-thor", "no-ina238") as board, Daemon(board, tmp_path) as daemon:
        with daemon.client() as client:
            assert eventually(lambda: set(parts) <= client.status()["rails_mw"].keys())
            status = client.status()
            assert status["energy_rails"] == parts
            said = f"are the sum of {', '.join(parts)}"
            assert eventually(lambda: any(said in reason for reason in client.status()["degraded"]))
            assert f" W ({'+'.join(parts)}); " in run(capsys, "status", "--socket", str(daemon.socket))[1]
            with client.hold(None, configuration="max", ceiling_c=90.0):
                assert "hotter than 90 C" in client.status()["budget"]["reason"]
        setup = run_in(tmp_path, "setup", "--dry-run", "--json", "--root", board.root)
        assert setup.returncode == 0 and json.loads(setup.stdout)["rails"] == parts
        measured = json.loads(run_in(tmp_path, "measure", "--json", "--root", board.root, "--", "sleep", "0.4").stderr)
        assert measured["energy_mj"] == pytest.approx(sum(measured["rails"][rail]["energy_mj"] for rail in parts))
        assert any("are the sum of" in note for note in measured["notes"])
        assert any("are the sum of" in one["said"] for one in findings(tmp_path, board, "power rails"))


@pytest.mark.parametrize("state", ["gpu-max-freq-zero", "gpu-limits-not-available"])
def test_a_limit_that_says_nothing_does_not_hide_the_board(
    state: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with found(tmp_path, "nano", state, "4") as board:
        shown = run_json(capsys, "board", "--root", str(board.root))
        assert shown["clocks"]["cpu_khz"]["levels"][-1] == 1479000 and "POM_5V_IN" in shown["rails_mw"]
        done = run_in(tmp_path, "setup", "--dry-run", "--root", board.root)
        assert done.returncode == 0 and "emc 10 of 10 levels" in done.stdout
        assert findings(tmp_path, board, "limits") == []


@pytest.mark.parametrize(
    ("states", "advised"),
    [
        ("no-debugfs", True),
        ("no-debugfs,no-memory-clock", True),
        ("debugfs-without-bpmp,no-memory-clock", False),
        ("debugfs-of-mainline,no-memory-clock", False),
    ],
)
def test_mounting_debugfs_is_advised_only_where_it_is_not_mounted(states: str, advised: bool, tmp_path: Path) -> None:
    with found(tmp_path, "orin-nano-8gb", states) as board:
        told = [*findings(tmp_path, board, "debugfs"), *findings(tmp_path, board, "board")]
        (said,) = [one for one in told if "memory clock" in one["said"]]
    assert (said["remedy"] == "sudo mount -t debugfs none /sys/kernel/debug") is advised
    assert ("bpmp" in said["said"].partition(";")[0]) is not advised


def test_power_modes_of_another_module_are_listed_as_such(tmp_path: Path) -> None:
    with found(tmp_path, "orin-nano-8gb", "conf-of-another-module") as board:
        lines = run_in(tmp_path, "board", "modes", "--root", board.root).stdout.splitlines()
        (said,) = findings(tmp_path, board, "power mode")
    assert lines[0] == "note: /etc/nvpmodel/nvpmodel_p3701_0000.conf is written for another module, p3701-0000"
    assert [line[4:].split(" cores")[0].split()[-1] for line in lines[1:]] == ["6", "4", "6", "6"]
    assert said["verdict"] == "note" and "is written for another module, p3701-0000" in said["said"]


def test_an_enabled_service_that_runs_jetson_clocks_is_named_whatever_its_name(tmp_path: Path) -> None:
    with found(tmp_path, "orin-nano-8gb", "jetson-clocks-at-boot") as board:
        (said,) = findings(tmp_path, board, "other services")
        with Daemon(board, tmp_path) as daemon, daemon.client():
            assert "jetson-perf.service sets clocks, too: it is enabled and runs jetson_clocks" in daemon.log.read_text()
    assert said["verdict"] == "wrong" and said["said"].startswith("jetson-perf.service sets clocks, too")
    assert said["remedy"] == "sudo systemctl disable --now jetson-perf.service"


def test_levels_beyond_the_described_ones_and_a_clock_that_is_only_capped_are_told_apart(tmp_path: Path) -> None:
    with found(tmp_path, "nano", "more-cpu-levels", "4") as board:
        shown = run_in(tmp_path, "setup", "--dry-run", "--root", board.root).stdout
    assert "cpu 17, more than the described 15, levels, gpu 12 of 12 levels" in shown
    with found(tmp_path, "orin-nano-8gb", "no-debugfs", "6") as board:
        assert "EMC  3199.00 MHz at most, not measured  cap" in run_in(tmp_path, "board", "--root", board.root).stdout


def test_a_machine_that_is_no_described_board_is_told_how_to_name_one(tmp_path: Path) -> None:
    with found(tmp_path, "agx-orin-64gb", "undescribed-module") as board:
        for verb in ("board", "setup"):
            done = run_in(tmp_path, verb, *(["--dry-run"] if verb == "setup" else []), "--root", board.root)
            assert done.returncode == 3 and "its module p3701-0008 is not described" in done.stderr
            assert "'board: NAME' in the configuration" in done.stderr
