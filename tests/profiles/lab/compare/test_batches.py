# SPDX-License-Identifier: Apache-2.0
"""Batches that are planned for are looked up in a table of the published form; and in the published one where it is at hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jetdvfs.profiles.errors import ComparisonDataError
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.compare.batches import at, best, cells, deadlines_ms

HEADER = "Throughput,Energy,Latency,Batch Size,Frequency,Directory"
# As a Nano would be that is a fifth slower than predicted: seconds and joules of one and of two images.
ROWS = ["1,1.1,0.24,1,614400000,Nano", "1,1.0,0.20,1,768000000,Nano", "1,1.2,0.18,1,921600000,Nano"]
ROWS += ["1,2.0,0.44,2,614400000,Nano", "1,1.9,0.38,2,768000000,Nano", "1,2.2,0.34,2,921600000,Nano"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "profiling.csv").write_text("\n".join([HEADER, *ROWS, "1,9,9,3,921600000,Nano"]))
    return tmp_path


def test_the_best_is_what_costs_least_within_the_deadline(data: Path) -> None:
    measured = cells(data)["Nano"]
    assert len(measured) == len(ROWS)  # batches of three are not planned for
    assert deadlines_ms(measured)[0] == pytest.approx(1.5 * 180)
    cheapest, quick = best(measured, 400), best(measured, 250)
    assert cheapest is not None and (cheapest.batch, cheapest.gpu_hz) == (2, 768e6)
    assert cheapest.item_mj == pytest.approx(950)
    assert quick is not None and (quick.batch, quick.gpu_hz) == (1, 768e6)
    assert best(measured, 100) is None
    assert at(measured, 2, 768_100_000) is cheapest and at(measured, 2, 691_200_000) is None


@pytest.mark.parametrize("row", ["1,1,x,1,614400000,Nano", "1,1,0.2,1,-1,Nano", "1,1,1,1,1,Elsewhere", "1,1"])
def test_another_table_is_refused(row: str, tmp_path: Path) -> None:
    (tmp_path / "profiling.csv").write_text(f"{HEADER}\n{row}\n")
    with pytest.raises(ComparisonDataError, match="table"):
        cells(tmp_path)


def test_choices_are_printed_beside_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clocks = [691_200_000 + step * 76_800_000 for step in range(4)]
    rows = [f"1,{0.6 + hz / 2e9},{0.19 * clocks[-1] / hz},1,{hz},Nano" for hz in clocks]  # a fifth slower than predicted
    (tmp_path / "profiling.csv").write_text("\n".join([HEADER, *rows]))
    assert main(["compare", "batches", "--data", str(tmp_path), "--json"]) in (0, 4)
    choices = json.loads(capsys.readouterr().out)
    errors: dict[bool, list[float]] = {False: [], True: []}
    for choice in choices:
        assert choice["real_ms"] == pytest.approx(190 * clocks[-1] / choice["gpu_hz"]) and choice["regret"] >= -1e-9
        assert choice["late"] == (choice["real_ms"] > choice["deadline_ms"])
        errors[choice["observed"]].append(abs(choice["predicted_ms"] / choice["real_ms"] - 1))
    assert max(errors[True]) < min(errors[False])  # what was seen of a batch size corrects what is predicted of it


def test_a_folder_without_the_table_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "batches", "--data", str(tmp_path)]) == 3
    assert capsys.readouterr().err.count("\n") == 1
