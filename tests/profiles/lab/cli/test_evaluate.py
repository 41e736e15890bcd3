# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab evaluate``: errors, bounds, and plans beside an exhaustive search, of simulated boards."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jetdvfs.profiles.bundle.bundle import read_manifest
from jetdvfs.profiles.bundle.finding import resolve_bundle
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.twin.silicon.chip import load_chip
from jetdvfs.tests.support.profiles.analytic import network, relu

PLANNERS = {"plan", "plan with confidence 0.95", "floor"}


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network that mostly sorts, for which no shipped profile has a model."""
    path = tmp_path_factory.mktemp("lists") / "sorting.json"
    path.write_text(json.dumps(network(relu(), *[relu(kind="sort")] * 8).to_json()))
    return path


@pytest.fixture(scope="module")
def found(strange: Path) -> Any:
    command = ["evaluate", "squeezenet1_0", str(strange), "--boards", "2", "--configs", "20", "--json"]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(command) == 0
    return json.loads(printed.getvalue())


@pytest.mark.slow
def test_boards_are_the_first_that_the_profile_was_not_trained_on(found: Any) -> None:
    trained = read_manifest(resolve_bundle("agx-xavier-sim")).nodes
    nodes = [node for node in range(100) if node not in trained][:2]
    assert found["nodes"] == nodes and found["trained_on"] == [] and found["simulated"] is True
    assert found["silicon"] == load_chip("agx-xavier").version
    assert [[board["node"] for board in one["boards"]] for one in found["networks"]] == [nodes, nodes]


def test_every_network_has_errors_bounds_and_what_became_of_four_targets(found: Any) -> None:
    for one in found["networks"]:
        assert set(one["plans"]) == PLANNERS
        for board in one["boards"]:
            assert {error["method"] for error in board["errors"]} == {"timeline", "sum", "floor"}
            assert all(error["configurations"] == 20 for error in board["errors"])
            assert all(len(trials) == 4 for trials in board["trials"].values())


def test_engines_are_compared_with_boards_that_run_them(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["evaluate", "squeezenet1_0", "--profile", "tx2-sim", "--boards", "1", "--configs", "10"]
    figures = {}
    for compiled in ("engine", "engine-half"):
        assert main([*asked, "--as", compiled, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["as"] == compiled
        figures[compiled] = found["networks"][0]["boards"][0]
    limits_ms = []
    for board in figures.values():
        floor = next(error for error in board["errors"] if error["method"] == "floor")
        assert floor["latency_percent"] < 6  # it knows the training boards' engines
        limits_ms.append(float(board["trials"]["floor"][0]["target"].partition("latency_ms=")[2]))
    assert limits_ms[1] < 0.8 * limits_ms[0]
    assert main([*asked, "--as", "engine-half"]) == 0
    assert "tx2-2 run as engine-half, boards" in capsys.readouterr().out


def test_what_is_not_like_the_training_is_guessed_and_further_off(found: Any) -> None:
    familiar, sorting = found["networks"]
    assert familiar["guessed_share"] == 0 and sorting["guessed_share"] > 0.5

    def error(one: Any, method: str) -> float:
        return float(np.mean([e["latency_percent"] for b in one["boards"] for e in b["errors"] if e["method"] == method]))

    assert error(sorting, "timeline") > error(familiar, "timeline")
    assert error(familiar, "floor") < error(familiar, "sum")
    assert max(error(familiar, "floor"), error(sorting, "floor")) < 5


def test_confidence_costs_energy_and_keeps_targets(found: Any) -> None:
    plain, confident = (found["networks"][0]["plans"][name] for name in ("plan", "plan with confidence 0.95"))
    assert confident["missed"] <= plain["missed"] and confident["mean_regret"] >= plain["mean_regret"]
    assert found["plans"]["plan"]["trials"] == sum(one["plans"]["plan"]["trials"] for one in found["networks"])


def test_the_report_shows_networks_the_floor_and_the_worst(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "alexnet", "--node", "3", "--configs", "10"]) == 0
    shown = capsys.readouterr()
    assert f"simulated {load_chip('agx-xavier').version}, boards 3; it was trained on board 3" in shown.out
    for words in ("alexnet", "mean", "floor", "missed", "guessed", "The worst", "regret, plan", "alexnet on board 3"):
        assert words in shown.out
    assert "100% done" in shown.err


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (("resnet0",), 3, "resnet0: no such file; reference networks: alexnet"),
        (("--boards", "0"), 2, "--boards: expected a whole number from 1"),
        (("--boards", "2", "--node", "1"), 2, "not allowed with argument --boards"),
        (("--perturbed", "one"), 2, "--perturbed"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    words: tuple[str, ...], code: int, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        ended = main(["evaluate", *words])
    except SystemExit as error:
        ended = error.code if isinstance(error.code, int) else 1
    said = capsys.readouterr()
    assert (ended, said.out, said.err.count("\n")) == (code, "", 1) and named in said.err


def test_a_kind_that_the_silicon_does_not_know_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = network(relu()).to_json()
    unknown = json.loads(json.dumps(made).replace('"relu"', '"sponge"'))
    (tmp_path / "sponge.json").write_text(json.dumps(unknown))
    assert main(["evaluate", str(tmp_path / "sponge.json"), "--configs", "2"]) == 3
    assert "sponge" in capsys.readouterr().err.splitlines()[-1]
