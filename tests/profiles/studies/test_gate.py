# SPDX-License-Identifier: Apache-2.0
"""The gate of version 2: its rows stand where real boards did, and a miss is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jetdvfs.daemon.cli import main
from jetdvfs.kernels.network import Network
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.errors import ComparisonDataError
from jetdvfs.profiles.measuring.sampling import Sampler
from jetdvfs.profiles.reference import reference_names, reference_network
from jetdvfs.profiles.studies import difficulty
from jetdvfs.profiles.studies.comparison import gate

LITTLE = gate.Effort(samples=650, configurations=4, rounds=8, threads=1)
BOARD = load_board(gate.BOARD)


@pytest.fixture(scope="module")
def networks() -> list[Network]:
    return [reference_network(name) for name in reference_names()]


def test_networks_and_the_sums_of_their_kernels_stand_as_in_the_paper(networks: list[Network]) -> None:
    rows = list(gate.sums(networks, BOARD))
    assert len(rows) == 12
    assert [row.name for row in rows if not row.passed] == []


def test_boards_lie_as_far_apart_as_in_the_paper(networks: list[Network]) -> None:
    rows = list(gate.boards(networks, BOARD))
    assert [row.name for row in rows if not row.passed] == []
    middle, tail = (row.value for row in rows if "runtime" in row.name)
    assert middle < tail


def test_every_kind_of_the_paper_has_raw_features_of_its_own(networks: list[Network]) -> None:
    configurations = [BOARD.grid.top] * 20
    for kind in difficulty.ALL_KINDS:
        calls = Sampler(networks, 3).draw(kind, 20, real_share=0.5)
        features = difficulty.plain_features(kind, calls, configurations)
        assert features.shape[0] == 20 and np.isfinite(features).all()
        assert set(difficulty.PAPER_WITHIN_10[kind]) == {"runtime", "power"}


def test_convolutions_of_networks_and_random_ones_are_judged_apart(networks: list[Network]) -> None:
    pytest.importorskip("xgboost", reason="the gate trains XGBoost models")
    rows = list(gate.KindModels("conv2d", networks, BOARD, LITTLE).rows())
    assert len(rows) == 4
    whole, own, drawn = (row.value for row in rows[:3])
    assert min(own, drawn) <= whole <= max(own, drawn)
    assert "network shapes" in rows[1].name and "random shapes" in rows[2].name


def test_whole_networks_are_judged_by_the_sum_of_their_kernels(networks: list[Network]) -> None:
    pytest.importorskip("xgboost", reason="the gate trains XGBoost models")
    few = [network for network in networks if network.name in ("resnet18", "alexnet")]
    models = {kind: gate.KindModels(kind, networks, BOARD, LITTLE) for kind in ("conv2d", "batch_norm")}
    rows = list(gate.table_6(few, BOARD, models, LITTLE))
    assert [row.part for row in rows] == ["networks"] * 3
    assert all(0.0 <= row.value <= 100.0 for row in rows)
    assert rows[0].value <= rows[1].value


def test_kernels_are_judged_beside_those_of_real_gpus(tmp_path: Path) -> None:
    pytest.importorskip("xgboost", reason="the gate trains XGBoost models")
    assert list(gate.kernels(LITTLE, None)) == []
    with pytest.raises(ComparisonDataError, match=r"no measurements conv\.csv\.gz"):
        list(gate.kernels(LITTLE, tmp_path))
    random = np.random.default_rng(1)
    import gzip

    def write(name: str, columns: str, rows: list[str]) -> None:
        with gzip.open(tmp_path / name, "wt", encoding="utf-8") as stream:
            print("Device,latency_ms," + columns, *rows, sep="\n", file=stream)

    devices = ("Tesla V100", "Tesla T4")
    sizes = [(device, *random.integers(16, 400, 4).tolist()) for device in devices for _ in range(60)]
    write("conv.csv.gz", "B,Input_Channel,Output_Channel,Kernel_Size,Input_Size,Stride,Padding", [
        f"{d},{a * b * 1e-3},{1 + a % 8},{b},{c},3,{8 + e % 50},1,1" for d, a, b, c, e in sizes
    ])  # fmt: skip
    write("add.csv.gz", "B,H", [f"{d},{a * b * 1e-5},{a},{b}" for d, a, b, _, _ in sizes])
    write("linear.csv.gz", "M,N,K", [f"{d},{a * b * c * 1e-8},{a},{b},{c}" for d, a, b, c, _ in sizes])
    rows = list(gate.kernels(LITTLE, tmp_path))
    assert [row.name.split(" with")[0] for row in rows] == ["conv2d"] * 2 + ["add"] * 2 + ["matmul"] * 2
    assert all(row.low < row.real < row.high and row.value > 0 for row in rows)


def test_a_row_passes_within_its_band_only() -> None:
    row = gate.Row("kinds", "relu", 90.0, 95.0, 85.0, 105.0)
    assert row.passed
    assert not replace(row, value=84.9).passed and not replace(row, value=105.1).passed


def test_the_command_prints_every_row_and_fails_when_one_misses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [gate.Row("kinds", "relu runtime", 90.0, 95.0, 85.0, 105.0), gate.Row("sums", "vgg16, ms", 60.0, 36.6, 31.1, 42.1)]
    monkeypatch.setattr(gate, "rows", lambda networks, effort, data: iter(found))
    asked = ["profile", "gate", "--silicon", "2"]
    assert main(asked) == 4
    said = capsys.readouterr().out
    assert "agx-xavier-2" in said and "MISSED" in said and "1 of 2 rows missed" in said
    assert main([*asked, "--json"]) == 4
    assert [row["passed"] for row in json.loads(capsys.readouterr().out)] == [True, False]
    assert main([*asked, "--board", "tx2"]) == 2
    assert "the board of the paper; valid: agx-xavier" in capsys.readouterr().err
    del found[1]
    assert main(asked) == 0
    assert "gate passed" in capsys.readouterr().out
