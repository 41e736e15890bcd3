# SPDX-License-Identifier: Apache-2.0
"""The demonstration, whole: a simulated board, the real daemon, an application, a table, pictures, the baseline."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.daemon.cli import main
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.profiles.board import list_boards, load_board
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.reference import reference_network
from jetdvfs.profiles.twin.cli.demo import DemoRun, applied_plan, clock_files, offered
from jetdvfs.profiles.twin.tree import fuse
from jetdvfs.tests.support.boards.twin_fakes import TreeFiles, VirtualClock, fake_board

BACKENDS = [pytest.param(name, marks=pytest.mark.slow) for name in ("fuse", "folder")]


@pytest.fixture(scope="module", params=BACKENDS)
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if request.param == "fuse" and fuse.missing():
        pytest.skip(f"needs FUSE: {fuse.missing()}")
    out = tmp_path_factory.mktemp("pictures")
    command = [
        sys.executable,
        "-m",
        "jetdvfs.daemon.cli",
        "twin",
        "demo",
        "--json",
        "--out",
        str(out),
        "--backend",
        request.param,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_every_target_is_met_by_what_was_observed(shown: dict[str, Any]) -> None:
    asked = [run for run in shown["runs"] if run["met"] is not None]
    assert len(asked) == 4
    assert all(run["met"] for run in asked)


def test_what_is_observed_is_near_what_was_predicted(shown: dict[str, Any]) -> None:
    for run in shown["runs"]:
        assert run["p50_ms"] == pytest.approx(run["predicted_ms"], rel=0.15), run
        assert run["observed_mj"] == pytest.approx(run["predicted_mj"], rel=0.25), run


def test_each_target_costs_less_energy_than_the_top_clocks(shown: dict[str, Any]) -> None:
    for top, chosen in zip(shown["runs"][0::2], shown["runs"][1::2], strict=True):
        assert top["met"] is None
        assert chosen["observed_mj"] < top["observed_mj"]


def test_every_clock_is_back_at_its_baseline(shown: dict[str, Any]) -> None:
    assert shown["baseline"]
    assert all(values["before"] == values["after"] for values in shown["baseline"].values())


def test_every_write_is_listed_holds_and_releases_in_turn(shown: dict[str, Any]) -> None:
    holds, releases = shown["writes"][0::2], shown["writes"][1::2]
    assert all(entry["files"] for entry in holds + releases)
    assert all("released" in entry["hold"] for entry in releases)
    assert holds[0]["files"][-1]["value"] == "2265600"


def test_the_list_of_writes_is_a_file_beside_the_pictures(shown: dict[str, Any]) -> None:
    listed = Path(shown["writes_listed"]).read_text()
    assert all(f"{write['path']}  <-  {write['value']}" in listed for entry in shown["writes"] for write in entry["files"])
    assert all(f"{path}  {values['before']}  ->  {values['after']}" in listed for path, values in shown["baseline"].items())


def test_the_pictures_show_the_plans_of_the_table(shown: dict[str, Any]) -> None:
    """The daemon plans within its own limits and for a die temperature of its own; a picture has the same clocks and energy."""
    cost = load_bundle("agx-xavier-sim").cost
    for figures in (run for run in shown["runs"] if run["met"] is not None):
        run = DemoRun(**{**figures, "configuration": FrequencyConfiguration(**figures["configuration"])})
        predicted = surface(reference_network(run.network), cost)
        if run.temperature_c is not None:
            predicted = predicted.warmed(run.temperature_c)
        drawn = applied_plan(predicted, run)
        assert drawn.configuration == run.configuration
        assert drawn.latency_ms == pytest.approx(run.predicted_ms, rel=0.01)
        assert (drawn.energy_per_frame_mj or drawn.energy_mj) == pytest.approx(run.predicted_mj, rel=0.01)


def test_without_matplotlib_nothing_is_started(tmp_path: Path) -> None:
    program = "import sys; sys.modules['matplotlib'] = None; from jetdvfs.daemon.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "twin", "demo", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3 and done.stdout == ""
    assert "sudo apt-get install python3-matplotlib, or from a clone: pip install '.[plot]'" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", list_boards())
def test_a_change_of_any_clock_shows_in_the_files_that_are_compared(name: str, tmp_path: Path) -> None:
    description, twin = load_board(name), fake_board(VirtualClock(), name)
    files = TreeFiles(twin)
    top, limits = offered(files, description)
    before = clock_files(files, description)
    hardware = Hardware.probe(files, twin.clock, baseline=tmp_path / "baseline.json")
    lowest = FrequencyConfiguration(*(getattr(limits, axis)[0] for axis in top._fields))
    assert hardware.apply(lowest, "test").verified
    changed = {path for path, value in clock_files(files, description).items() if value != before[path]}
    for policy in description.cpu_policies:
        assert any(f"/{policy.name}/" in path for path in changed)
    assert any(path.startswith(tuple(description.section("gpu")["devfreq"])) for path in changed)
    emc = tuple(value for value in description.section("emc").values() if isinstance(value, str))
    assert any(path.startswith(emc) for path in changed)
    hardware.restore()
    assert clock_files(files, description) == before
    assert hardware.apply(top, "test").verified


def test_a_profile_of_another_board_is_refused_and_the_way_to_one_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["twin", "demo", "--board", "tx2", "--profile", "agx-xavier-sim", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "valid: tx2-sim" in said and "jetdvfs-lab train --board tx2 --simulated" in said
    assert not (tmp_path / "out").exists()


def test_the_pictures_are_drawn_and_the_board_is_called_simulated(shown: dict[str, Any]) -> None:
    assert shown["simulated"] is True
    assert len(shown["pictures"]) == 4
    for path in shown["pictures"]:
        assert Path(path).read_bytes().startswith(b"\x89PNG")
