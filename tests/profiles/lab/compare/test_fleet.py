# SPDX-License-Identifier: Apache-2.0
"""Study of a simulated fleet: boards, growth, new boards, and its stored output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.profiles.adapt.measurements import Measurements
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.compare.fleet import COUNTS, FleetBoards, GrowthRow, extrapolated, grown, on_new_boards
from jetdvfs.profiles.lab.measure.learned import read_learned
from jetdvfs.profiles.reference import reference_network
from jetdvfs.tests.support.paths import DOCS, ROOT

FLEET = FleetBoards("orin-nano-8gb", 1, tuple(map(reference_network, ("resnet18", "squeezenet1_0"))))
SHARES = {"host": 0.08, "compute": 0.02, "memory": 0.01}
STUDY: dict[str, Any] = {
    "study": "fleet", "simulated": True, "board": "orin-nano-8gb", "silicon": "test~1", "boards": 50, "workers": 2,
    "killed_after": 16, "digest": "0" * 64, "file_bytes": [36_000, 4_800], "networks": ["resnet18"], "new_boards": 2,
    "spread": {"boards": 50, "learned": 25, "latency": SHARES, "energy": SHARES},
    "growth": [
        {"boards": boards, "merge_s": boards / 20, "record_bytes": 8_000 * boards, "train_s": 30.0, "profile_bytes": 75_000}
        for boards in (10, 50)
    ],
    "powers": {"merge_s": 1.0, "record_bytes": 1.0, "train_s": 0.0, "profile_bytes": 0.0},
    "extrapolated": {
        "boards": 10_000, "merge_s": [500, 501], "record_bytes": [8e7, 8e7], "train_s": [30, 30], "profile_bytes": [1e5, 1e5]},
    "rows": [
        {"profile": "the fleet's", "networks": "known", "observations": count, "latency_percent": 4.0, "power_percent": 3.0,
         "regret": 0.02, "missed": 0.0}
        for count in (0, 1)
    ],
}  # fmt: skip


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.json"
    path.write_text(json.dumps(STUDY))
    return path


def test_a_stored_study_is_printed_again(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "fleet", "--stored", str(stored)]) == 0
    told = capsys.readouterr().out
    assert "simulated: 50 boards orin-nano-8gb, silicon test~1" in told and "one of them killed after 16" in told
    assert "50 simulated boards measured by 2 workers" in told
    assert "grows by the power 1.00; 10,000 boards, extrapolated by it and by a line" in told and "; 500 or 501 s" in told
    assert main(["compare", "fleet", "--stored", str(stored), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == STUDY


def test_the_page_has_the_stored_study_and_calls_it_simulated(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "all", "--data", str(tmp_path), "--only", "fleet"]
    assert main([*words, "--fleet", str(stored)]) == 0
    page = capsys.readouterr().out
    assert "## A simulated fleet, and new boards of it" in page and "`jetdvfs-lab compare fleet --stored FILE`" in page
    assert "| spread of latency over the boards |  | host 8.0%, compute 2.0%, memory 1.0% |  |" in page
    assert "2 new boards, known networks, the fleet's profile, after 0, 1 observations: error of latency / power" in page
    assert main(words) == 2
    assert "--only fleet: needs --fleet FILE" in capsys.readouterr().err


def test_the_page_of_the_repository_shows_its_stored_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = ROOT / "tests/fixtures/records/fleet.json"
    assert main(["compare", "all", "--data", str(tmp_path), "--only", "fleet", "--fleet", str(stored)]) == 0
    section = capsys.readouterr().out.partition("## A simulated fleet")[2].partition("\n## ")[0]
    assert section and section in (DOCS / "accuracy.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"study": "fl', "not valid JSON"),
        ('{"boards": 3}', "of another command"),
        ("", "JSON"),
        ('{"study": "fleet"}', "KeyError"),
    ],
)
def test_a_file_that_is_no_study_is_refused(text: str, said: str, stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored.write_text(text)
    assert main(["compare", "fleet", "--stored", str(stored)]) == 3
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and said in told and "expected the output of 'jetdvfs-lab compare fleet --json'" in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "expected --folder DIR, or --stored FILE"),
        (["--folder", ".", "--kill", "--workers", "tcp://10.0.0.1:8786"], "--kill: kills a process of this machine"),
    ],
)
def test_a_study_needs_a_folder_and_kills_only_its_own_processes(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "fleet", *words]) == 2
    assert said in capsys.readouterr().err


def test_new_boards_are_predicted_better_after_observations() -> None:
    fleet = FleetBoards(FLEET.board, 1, FLEET.networks[1:])
    rows = on_new_boards({"shipped": load_bundle("orin-nano-8gb-sim")}, fleet, (), 1, lambda done, total, text: None)
    assert [(row.profile, row.networks, row.observations) for row in rows] == [("shipped", "known", count) for count in COUNTS]
    assert rows[-1].latency_percent < 0.5 * rows[0].latency_percent and all(row.regret >= 0 for row in rows)


def test_costs_are_extrapolated_by_their_power_and_by_a_line() -> None:
    rows = [GrowthRow(boards, boards / 10, 1000 * boards, 20.0 + boards, 5000) for boards in (10, 25, 50, 100, 200)]
    found = extrapolated(rows)
    assert found["powers"]["merge_s"] == pytest.approx(1.0) and found["powers"]["profile_bytes"] == pytest.approx(0.0)
    by_power, by_line = found["extrapolated"]["train_s"]
    assert by_power < by_line == pytest.approx(10_020)
    assert found["extrapolated"]["record_bytes"] == pytest.approx((1e7, 1e7))


@pytest.mark.slow
def test_boards_measure_the_same_again_and_train_one_profile(tmp_path: Path) -> None:
    files = []
    for node in range(12):
        path = tmp_path / FLEET.name(node)
        path.write_bytes(FLEET(node))
        files.append(path)
    assert files[0].read_bytes() == FLEET(0) and files[1].read_bytes() == FLEET(1)
    assert Measurements.load(files[0]).nodes == (0,) and read_learned(files[1]).board == FLEET.board
    (row,), bundle = grown(files, [12], tmp_path, lambda done, total, text: None)
    fleet = bundle.manifest.fleet
    assert fleet is not None and (fleet.boards, fleet.learned) == (12, 6) and row.record_bytes > 0
    assert bundle.manifest.latency_shares.host >= fleet.latency.host > 0
