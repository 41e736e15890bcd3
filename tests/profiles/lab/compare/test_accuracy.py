# SPDX-License-Identifier: Apache-2.0
"""Published engines beside predictions, and the page of every comparison."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.reference import reference_model
from jetdvfs.tests.support.paths import DOCS, ROOT

HEADING = "board,model,input,as,latency_ms,gpu_mhz"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "published"
    folder.mkdir()
    shutil.copy(reference_model("squeezenet1_0"), folder / "squeezenet.pt")
    rows = [f"nano,squeezenet.pt,1x3x224x224,{way},{ms},{mhz}" for way, ms, mhz in (
        ("engine-half", 9, ""), ("engine-half", 20, 460), ("engine", 15, ""))]  # fmt: skip
    (folder / "engines.csv").write_text("\n".join([HEADING, *rows]))
    return tmp_path


def test_engines_are_predicted_at_the_clock_of_their_row(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["compare", "engines", "--data", str(data), "--json"])
    told = json.loads(capsys.readouterr().out)
    half, slow, single = sorted(told["engines"], key=lambda one: (one["compiled"] == "engine", one["latency_ms"]))
    assert 1.5 * half["predicted_ms"] < slow["predicted_ms"] < 2.5 * half["predicted_ms"] < 2.5 * single["predicted_ms"]
    groups = {(one["board"], one["as"]): one["error"] for one in told["groups"]}
    assert groups["nano", "engine"] == pytest.approx(abs(single["error"]))
    assert code == (4 if max(groups.values()) > 0.15 else 0)


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("nano,squeezenet.pt,1x3x224x224,eager,9,", "as 'eager', latency_ms 9.0; expected one of engine, engine-half"),
        ("nano,none.pt,1x3x224x224,engine,9,", "row 1: .*none.pt"),
        ("moon,squeezenet.pt,1x3x224x224,engine,9,", "row 1: .*moon-sim"),
    ],
)
def test_a_row_that_is_no_engine_is_refused_by_its_number(
    data: Path, row: str, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "published" / "engines.csv").write_text(f"{HEADING}\n{row}\n")
    assert main(["compare", "engines", "--data", str(data)]) == 3
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert re.search(fault, told), told


def test_the_page_has_measure_goal_and_figure_and_names_absent_tables(data: Path, tmp_path: Path) -> None:
    page = tmp_path / "accuracy.md"
    asked = ["compare", "all", "--data", str(data), "--only", "engines", "--only", "tokens", "--write", str(page)]
    assert main(asked) in (0, 4)
    text = page.read_text()
    assert "| nano, engine-half: latency, median | 15.0% |" in text and "not compared: the data lack its table" in text
    assert "Simulated: mean error" in text and "| agx-xavier-sim |" in text


def test_a_figure_that_misses_its_goal_by_a_hair_is_not_shown_as_the_goal(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["compare", "engines", "--data", str(data), "--json"])
    (predicted_ms,) = {one["predicted_ms"] for one in json.loads(capsys.readouterr().out)["engines"] if one["latency_ms"] == 15}
    row = f"nano,squeezenet.pt,1x3x224x224,engine,{predicted_ms / 1.1502:.9f},"
    (data / "published" / "engines.csv").write_text(f"{HEADING}\n{row}\n")
    page = tmp_path / "accuracy.md"
    main(["compare", "all", "--data", str(data), "--only", "engines", "--write", str(page)])
    assert "| nano, engine: latency, median | 15.0% | 15.02% | missed |" in page.read_text()


def test_the_page_of_the_repository_shows_its_stored_comparison_of_predictors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = ROOT / "tests/fixtures/records/h200_networks.json"
    assert main(["compare", "all", "--data", str(tmp_path), "--only", "networks", "--networks", str(stored)]) in (0, 4)
    section = capsys.readouterr().out.partition("`jetdvfs-lab evaluate --networks FILE`")[2].partition("\n## ")[0]
    rows = {(one["split"], one["method"]) for one in json.loads(stored.read_text())["scores"]}
    assert section.count("(ours)") == sum("(ours)" in method for _, method in rows) > 0
    assert section.rstrip() in (DOCS / "accuracy.md").read_text(encoding="utf-8")
    assert main(["evaluate", "--networks", str(stored)]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n{name}" in shown for name in ("seernet, searched", "dnnperf", "dippm", "xgboost-added", "rates"))
