# SPDX-License-Identifier: Apache-2.0
"""The workload study: its two criteria, what is measured and what is predicted, and the verb."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from jetdvfs.kernels.cost.model import surface
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.bundle import bundle
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.paper.characterization import NetworkRun, measured, predicted, select
from jetdvfs.profiles.lab.paper.published import KINDS
from jetdvfs.profiles.reference import reference_names, reference_network
from jetdvfs.tests.support.profiles.analytic import GRID, board, conv2d, matmul, network, relu


def a_run(**kernel_ms: float) -> NetworkRun:
    return NetworkRun("handmade", 10, 5, 10.0, kernel_ms, 1.0, 5000.0, 9.0)


def test_the_significant_kinds_are_the_fewest_that_make_95_percent() -> None:
    assert a_run(relu=0.5, conv2d=6.0, matmul=3.5).significant() == ("conv2d", "matmul")
    assert a_run(relu=0.6, conv2d=6.0, matmul=3.4).significant() == ("conv2d", "matmul", "relu")


def test_a_kind_is_selected_if_it_is_significant_and_common() -> None:
    runs = [
        a_run(conv2d=8.0, hardtanh=2.0), a_run(conv2d=8.0, relu=2.0, add=0.1), a_run(conv2d=8.0, add=0.1),
        a_run(conv2d=8.0, relu=0.1, add=0.1), a_run(conv2d=8.0),
    ]  # fmt: skip
    figures = {figure.kind: figure for figure in select(runs)}
    assert [kind for kind, figure in figures.items() if figure.selected] == ["conv2d", "relu"]
    assert (figures["hardtanh"].significant, figures["hardtanh"].networks) == (1, 1)  # significant, in one network of five
    assert (figures["add"].significant, figures["add"].networks) == (0, 3)  # common, a hundredth of the time
    assert figures["relu"].mean_share == pytest.approx((0.2 + 0.01) / 2)  # over the networks that launch it


def test_the_parts_of_a_run_add_up() -> None:
    run = a_run(conv2d=6.0, relu=1.0, cat=0.5)
    data = run.to_json(["conv2d", "relu"])
    assert (data["t_k_ms"], data["t_k_rest_ms"], data["t_ms"], data["unique_kernels"]) == (7.0, 0.5, 10.0, 3)
    assert run.selected_ms(["conv2d"]) + run.others_ms(["conv2d"]) == run.all_ms == 7.5


def test_a_prediction_is_the_surface_and_its_kernels() -> None:
    launched, cost = network(conv2d(), relu(1 << 18), matmul(300), relu(1 << 16, kind="cumsum")), board()
    run = predicted(launched, cost, GRID.top)
    assert run.time_ms == surface(launched, cost).at(GRID.top).latency_ms
    assert set(run.kernel_ms) == {"conv2d", "relu", "matmul", "cumsum"} and run.unmodelled == ("cumsum",)
    assert run.all_ms == pytest.approx(run.busy_ms)
    assert predicted(launched, cost, GRID.top, "sum").time_ms == pytest.approx(run.all_ms)


def test_repeated_kernels_are_counted_as_often_as_they_are_launched() -> None:
    once, twice = (measured(network(*[matmul(400)] * count), load_board("agx-xavier"), nodes=2) for count in (1, 2))
    assert twice.kernel_ms["matmul"] == pytest.approx(2 * once.kernel_ms["matmul"])
    assert (once.launches, twice.launches, twice.distinct) == (1, 2, 1)


def test_lower_clocks_take_longer_on_the_simulated_board() -> None:
    xavier, alexnet = load_board("agx-xavier"), reference_network("alexnet")
    slow = measured(alexnet, xavier, xavier.grid.configuration((0, 0, 0)), nodes=1)
    fast = measured(alexnet, xavier, nodes=1)
    assert slow.time_ms > 2 * fast.time_ms and slow.power_mw < fast.power_mw


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = SimpleNamespace(name="small-sim", board="agx-xavier", simulated=True)
    monkeypatch.setattr(bundle, "load_bundle", lambda name: SimpleNamespace(manifest=manifest, cost=board()))


def run_verb(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["paper", "characterize", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_one_network_is_measured_on_simulated_boards(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_verb(capsys, "squeezenet1_0", "--json")
    data = json.loads(out)
    assert code == 0 and data["simulated"] is True and data["origin"].startswith("measured")
    assert [item["network"] for item in data["networks"]] == ["squeezenet1_0"]
    assert data["selected"][0] == "conv2d" and set(data["t_k_kinds"]) <= set(KINDS)


@pytest.mark.slow
def test_without_a_model_it_is_the_papers_table_on_simulated_boards(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_verb(capsys, "--json")
    data = json.loads(out)
    assert code == 0 and data["simulated"] is True and data["origin"].startswith("measured")
    assert [item["network"] for item in data["networks"]] == list(reference_names())
    assert data["t_k_kinds"] == list(KINDS)
    assert data["selected"][0] == "conv2d" and set(data["selected"]) <= set(KINDS)  # the paper's choice, by its own criteria
    ratios = {item["network"]: item["t_k_ms"] / item["t_ms"] for item in data["networks"]}
    assert min(ratios, key=lambda name: ratios[name]) == "shufflenet_v2_x1_0"  # it waits for the host, as in the paper


def test_with_a_profile_everything_is_predicted(simulated: None, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(network(conv2d(), relu(1 << 20, kind="cumsum")).to_json()))
    code, out, _ = run_verb(capsys, "alexnet", str(file), "--profile", "p", "--config", "1000,400,1600")
    assert code == 0
    assert "2 networks on agx-xavier at CPU 1000.0 MHz, GPU 400.00 MHz, EMC 1600.0 MHz: predicted by profile small-sim" in out
    assert "simulated" in out and "no model for cumsum in handmade: bounded by the roofline" in out
    data: dict[str, Any] = json.loads(run_verb(capsys, "mobilenet_v2", "--profile", "p", "--fused", "--json")[1])
    assert "fused_pointwise" in data["networks"][0]["kernel_ms"] and "fused" in data["origin"]


def test_the_study_is_drawn(simulated: None, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures are matplotlib's; it is not installed")
    path = tmp_path / "study.png"
    assert run_verb(capsys, "alexnet", "mobilenet_v2", "--profile", "p", "--plot", str(path))[0] == 0
    assert path.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["absent"], 3, "reference networks: alexnet"),
        (["alexnet", "--input", "foo"], 3, "expected sizes joined by x"),
        (["alexnet", "--fused"], 2, "valid with --profile"),
        (["alexnet", "--profile", "p", "--board", "agx-xavier"], 2, "give one of the two"),
        (["alexnet", "--config", "1,2"], 2, "expected CPU,GPU,EMC"),
        (["alexnet", "--config", "7,7,7"], 2, "is not a frequency"),
        (["alexnet", "--board", "nano-x"], 3, "nano-x"),
        (["EMPTY", "--profile", "p"], 3, "launches no kernel"),
    ],
)
def test_what_goes_wrong_ends_in_one_line(
    arguments: list[str], code: int, says: str, simulated: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "empty.json").write_text(json.dumps(msgspec.structs.replace(network(), name="empty").to_json()))
    ended, out, err = run_verb(capsys, *(str(tmp_path / "empty.json") if word == "EMPTY" else word for word in arguments))
    assert (ended, out, err.count("\n")) == (code, "", 1)
    assert says in err
