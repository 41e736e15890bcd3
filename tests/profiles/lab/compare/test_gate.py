# SPDX-License-Identifier: Apache-2.0
"""The gate of version 2: its rows stand where real boards did, its bands follow from theirs, and a miss is said."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.kernels.network import Network
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.errors import ComparisonDataError
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.compare import desktop, gate, gate_bands
from jetdvfs.profiles.lab.compare.gate_kinds import GateEffort, GateRow, KindModels, table_6
from jetdvfs.profiles.lab.measure.sampling import Sampler
from jetdvfs.profiles.lab.paper import difficulty, published
from jetdvfs.profiles.reference import reference_names, reference_network

LITTLE = GateEffort(samples=160, configurations=4, rounds=8, threads=1)
BOARD = load_board(gate.BOARD)
ROW = GateRow("kinds", "relu runtime", 90.0, 95.0, 85.0, 99.0, "MIRAGE, Table 4")


@pytest.fixture(scope="module")
def networks() -> list[Network]:
    return [reference_network(name) for name in reference_names()]


@pytest.mark.slow
def test_networks_and_the_sums_of_their_kernels_stand_as_in_the_paper(networks: list[Network]) -> None:
    rows = list(gate.sums(networks, BOARD))
    assert len(rows) == 4
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
        assert set(difficulty.PAPER_WITHIN[kind]) == {"runtime", "power"}


def test_convolutions_of_networks_and_random_ones_are_judged_apart(networks: list[Network]) -> None:
    pytest.importorskip("xgboost", reason="the gate trains XGBoost models")
    said: list[str] = []
    rows = list(KindModels("conv2d", networks, BOARD, LITTLE, said.append).rows())
    assert len(rows) == 4
    whole, own, drawn = (row.value for row in rows[:3])
    assert min(own, drawn) <= whole <= max(own, drawn)
    assert "network shapes" in rows[1].name and "random shapes" in rows[2].name
    assert said == [f"conv2d: measuring board {node}" for node in range(19)] + [
        f"conv2d: learning {target}" for target in ("runtime", "power")
    ]


def test_whole_networks_are_judged_by_the_sum_of_their_kernels(networks: list[Network]) -> None:
    pytest.importorskip("xgboost", reason="the gate trains XGBoost models")
    few = [network for network in networks if network.name in ("resnet18", "alexnet")]
    models = {kind: KindModels(kind, networks, BOARD, LITTLE) for kind in ("conv2d", "batch_norm")}
    rows = list(table_6(few, BOARD, models, LITTLE))
    assert [row.part for row in rows] == ["networks"] * 4
    assert all(0.0 <= row.value <= 100.0 for row in rows)
    assert rows[0].value <= rows[1].value and rows[2].value <= rows[3].value
    mean, resnet = rows[0].real, rows[2].real
    assert mean == pytest.approx((59.11 + 24.60) / 2) and resnet == 24.60  # of the paper's Table 6


def test_kernels_are_judged_beside_those_of_real_gpus(tmp_path: Path) -> None:
    pytest.importorskip("xgboost", reason="the gate trains XGBoost models")
    with pytest.raises(ComparisonDataError, match=r"no measurements conv\.csv\.gz"):
        list(gate.kernels(LITTLE, tmp_path))
    random = np.random.default_rng(1)

    def write(name: str, columns: str, rows: list[str]) -> None:
        with gzip.open(tmp_path / name, "wt", encoding="utf-8") as stream:
            print("Device,latency_ms," + columns, *rows, sep="\n", file=stream)

    sizes = [(device, *random.integers(16, 400, 4).tolist()) for device in desktop.GPUS for _ in range(60)]
    write("conv.csv.gz", "B,Input_Channel,Output_Channel,Kernel_Size,Input_Size,Stride,Padding", [
        f"{d},{a * b * 1e-3},{1 + a % 8},{b},{c},3,{8 + e % 50},1,1" for d, a, b, c, e in sizes
    ])  # fmt: skip
    write("add.csv.gz", "B,H", [f"{d},{a * b * 1e-5},{a},{b}" for d, a, b, _, _ in sizes])
    write("linear.csv.gz", "M,N,K", [f"{d},{a * b * c * 1e-8},{a},{b},{c}" for d, a, b, c, _ in sizes])
    rows = list(gate.kernels(LITTLE, tmp_path))
    assert [row.name.split(",")[0] for row in rows] == ["conv2d"] * 2 + ["add"] * 2 + ["matmul"] * 2
    assert all(row.low <= row.real <= row.high and row.low < row.high and row.value > 0 for row in rows)


def test_a_simulated_kernel_takes_no_less_than_the_host_to_issue_it() -> None:
    """As where it was measured: additions of a few elements and of a few thousand take the same."""
    tiny, small, large = desktop.again_s("add", [{"B": "2", "H": str(width)} for width in (20, 2000, 20_000_000)], gate.BOARD)
    assert tiny == pytest.approx(small, rel=0.2)
    assert large > 20 * small


@pytest.mark.parametrize("limit", [5.0, 10.0])
def test_a_band_holds_what_the_paper_found_and_neither_all_nor_nothing(limit: float) -> None:
    tables = [within for kind in difficulty.PAPER_WITHIN.values() for within in kind.values()]
    for within in [*tables, *published.WITHIN_6.values()]:
        band = gate_bands.as_hard(within, limit, "paper")
        assert 0.0 < band.low < within[difficulty.LIMITS.index(limit)] < band.high < 100.0


def test_network_and_random_shapes_can_both_pass_where_all_together_do() -> None:
    within = difficulty.PAPER_WITHIN["conv2d"]["runtime"]
    own, drawn = gate_bands.network_shapes(within, "Table 4"), gate_bands.random_shapes(within, "Table 4")
    paper = within[difficulty.LIMITS.index(10.0)]
    assert own.low < paper < own.high < 100.0 and 0.0 < drawn.low < paper < drawn.high
    assert drawn.low < 2 * paper - own.high < drawn.high  # were they as easy as whole networks were


def test_bands_of_thirteen_boards_hold_what_the_paper_s_thirteen_showed() -> None:
    for name, real in gate_bands.POWER_RANGE.items():
        assert 0.5 * real < gate_bands.power_range(name).low < real < gate_bands.power_range(name).high < 1.6 * real
    quartile, decile = (gate_bands.runtime_quantile(share) for share in gate_bands.RUNTIME_UP_TO)
    assert quartile.low < 10.0 < quartile.high and (decile.low, decile.high) == (10.0, 25.0)
    real_count, over = gate_bands.over_whole()
    assert real_count == 7 and over[:2] == (5, 9)
    assert 5 < gate_bands.sums_apart().high < 10


def test_a_row_passes_within_its_band_only() -> None:
    assert ROW.passed
    assert not replace(ROW, value=84.9).passed and not replace(ROW, value=99.1).passed


def test_the_command_prints_every_row_and_fails_when_one_misses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [ROW, replace(ROW, name="vgg16", value=60.0)]
    monkeypatch.setattr(gate, "rows", lambda networks, effort, data, doing: iter(found))
    asked = ["silicon", "gate"]
    assert main(asked) == 4
    said = capsys.readouterr().out
    assert "agx-xavier-" in said and "MISSED" in said and "1 of 2 rows missed" in said and "MIRAGE, Table 4" in said
    assert "without --data no kernels were compared" in said
    assert main([*asked, "--json"]) == 4
    assert [row["passed"] for row in json.loads(capsys.readouterr().out)] == [True, False]
    del found[1]
    assert main(asked) == 0
    assert "gate passed" in capsys.readouterr().out
