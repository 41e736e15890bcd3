# SPDX-License-Identifier: Apache-2.0
"""How soon programs are known on real boards: tables that others measured, observed at some configurations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jetdvfs.kernels.correction.observation import Observation
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.train.transfer_table import two_rates
from jetdvfs.profiles.reference import reference_network

NANO = load_board("nano")


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """A table of a Nano that computes as its chip's rates have it and half as fast, in the columns of a published one."""
    rows = ["Throughput,Energy,Latency,Batch Size,Frequency,Directory"]
    for batch in (1, 2):
        flops = sum(call.flops for call in reference_network("inception_v3", batch).launches)
        for hertz in NANO.grid.gpu_hz:
            seconds = 2 * flops / (NANO.chip.flops_per_gpu_cycle["float32"] * hertz) + 0.002
            watts = 2 + 3 * hertz / NANO.grid.gpu_hz[-1]
            rows.append(f"{batch / seconds},{watts * seconds},{seconds},{batch},{hertz},Nano")
    (tmp_path / "gpu-clock-sweeps").mkdir()
    (tmp_path / "gpu-clock-sweeps" / "profiling.csv").write_text("\n".join(rows))
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["compare", "transfer", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_real_board_is_known_after_few_observations_and_each_way_says_how_well(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = told(capsys, "--data", str(tables))
    assert not found["simulated"] and found["published"]["observations"] == 50
    assert [(row["board"], row["programs"], row["observations"]) for row in found["rows"]] == [
        ("nano", 2, 0),
        ("nano", 2, 3),
        ("nano", 2, 10),
    ]
    first, _, last = (row["errors"] for row in found["rows"])
    assert set(first) == {"profile", "launches, two rates"}
    assert set(last) == {"profile", "no profile", "overlap fit", "launches, two rates"}
    assert last["launches, two rates"]["power_mean_percent"] is None
    for way in first:
        assert last[way]["latency_mean_percent"] < 0.3 * first[way]["latency_mean_percent"]
    assert max(last["no profile"].values()) < 1.5


def test_what_is_told_of_tables_can_be_read(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "transfer", "nano-sim", "--data", str(tables)]) == 0
    said = capsys.readouterr().out
    assert "gpu-clock-sweeps" in said and "overlap fit" in said and "PowerTrain, as published (arXiv 2407.13944)" in said


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "expected a profile, or --data DIR"),
        (["nano-sim", "resnet18", "--data", "."], "--data takes no models and no --orders"),
    ],
)
def test_transfer_says_what_it_needs(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "transfer", *words]) == 2
    assert complaint in capsys.readouterr().err


def test_two_rates_are_found_where_there_are_no_more() -> None:
    network, grid = reference_network("squeezenet1_0"), NANO.grid
    places = [grid.configuration((0, gpu, emc)) for gpu, emc in ((0, 0), (5, 2), (11, 9), (3, 8))]
    before = two_rates(network, NANO.chip, grid, [])
    seen = [Observation(one, 1.7 * float(before[grid.index(one)])) for one in places]
    np.testing.assert_allclose(two_rates(network, NANO.chip, grid, seen), 1.7 * before, rtol=0.02)
