# SPDX-License-Identifier: Apache-2.0
"""Every verb that predicts, and decompose before anything is predicted, says what is guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from jetdvfs.daemon.cli import main
from jetdvfs.kernels.cost.features import feature_rows
from jetdvfs.kernels.cost.region import ModelPair, Region
from jetdvfs.profiles.lab.cli import main as lab
from jetdvfs.profiles.lab.measure.varieties import spans_of
from jetdvfs.tests.support.paths import REFERENCE
from jetdvfs.tests.support.profiles.analytic import conv2d, network, recurrent, relu
from jetdvfs.tests.support.profiles.only import COST, only_profile

MEASURED = [conv2d(channels) for channels in (16, 32, 64)]
SPANS = spans_of("conv2d", feature_rows("conv2d", MEASURED))
REGION = Region(
    {"conv2d": {"float32": 3}}, SPANS, ModelPair(0.2, 0.2), ModelPair(0.5, 0.5), ModelPair(0.4, 0.3), ModelPair(0.1, 0.1)
)
WHY = "grouped: none measured"


@pytest.fixture(autouse=True)
def profile(monkeypatch: pytest.MonkeyPatch) -> None:
    models = {**COST.kernels, "conv2d": replace(COST.kernels["conv2d"], region=REGION)}
    only_profile(monkeypatch, replace(COST, kernels=models))


@pytest.fixture
def familiar(tmp_path: Path) -> str:
    return written(tmp_path / "familiar.json", network(conv2d(32), relu()))


@pytest.fixture
def strange(tmp_path: Path) -> str:
    """Four of its six convolutions are of a kind that nobody measured."""
    return written(tmp_path / "strange.json", network(conv2d(64), *[conv2d(64, groups=4)] * 4, conv2d(64)))


def written(path: Path, made: Any) -> str:
    path.write_text(json.dumps(made.to_json()))
    return str(path)


def out_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert (lab if arguments[0] == "paper" else main)((*arguments, "--profile", "small-sim")) == 0
    return capsys.readouterr().out


def json_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(out_of(capsys, *arguments, "--json"))


def test_a_recurrent_layer_is_named_and_said_to_be_taken_for_its_products(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = written(tmp_path / "listener.json", network(conv2d(32), recurrent()))
    said = out_of(capsys, "plan", listed, "--target", "min-energy")
    assert "(lstm, no model)" in said
    assert "no model for lstm (1 launch, " in said and "taken for the products it is made of, step by step" in said


@pytest.mark.parametrize("verb", [("predict",), ("plan", "--target", "min-energy"), ("predict", "--explain")])
def test_what_is_guessed_is_named_with_its_share(
    verb: tuple[str, ...], strange: str, familiar: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"conv2d, {WHY} (4 launches, " in out_of(capsys, verb[0], strange, *verb[1:])
    assert "guessed" not in out_of(capsys, verb[0], familiar, *verb[1:]).lower()
    (guess,) = json_of(capsys, verb[0], strange, *verb[1:])["guessed"]
    assert (guess["kind"], guess["why"], guess["launches"]) == ("conv2d", WHY, 4) and 0 < guess["time_share"] < 1
    assert json_of(capsys, verb[0], familiar, *verb[1:])["guessed"] == []


def test_a_plan_of_which_much_is_guessed_says_so_before_all_else(
    strange: str, familiar: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = json_of(capsys, "plan", strange, "--target", "min-energy")
    said = f"Guessed: {plan['choice']['guessed_share']:.0%} of the GPU's time (conv2d, {WHY})"
    assert plan["why"].startswith(said)
    assert out_of(capsys, "plan", strange, "--target", "min-energy").splitlines()[0] == said
    assert "Guessed" not in out_of(capsys, "plan", familiar, "--target", "min-energy")


def test_a_plan_of_batches_of_which_much_is_guessed_says_so_before_all_else(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("plan", str(REFERENCE / "squeezenet1_0.pt"), "--input", "1x3x64x64", "--batches", "2,4", "--deadline", "1000")
    assert out_of(capsys, *asked).startswith("Guessed: ")


def test_decompose_tells_it_before_anything_is_predicted(
    strange: str, familiar: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"guessed by profile small-sim, whose models were trained on nothing like them:\n  conv2d  {WHY}  4" in out_of(
        capsys, "decompose", strange
    )
    assert "guessed by profile small-sim: nothing" in out_of(capsys, "decompose", familiar)
    (kind,) = json_of(capsys, "decompose", strange)["guessed"]
    assert (kind["why"], kind["launches"]) == (WHY, 4) and 0 < kind["flops_share"] < 0.5


def test_characterize_points_to_the_verb_that_has_them(strange: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "guessed in handmade: " in out_of(capsys, "paper", "characterize", strange)


def test_explain_marks_the_kernels(strange: str, capsys: pytest.CaptureFixture[str]) -> None:
    marked = [line for line in out_of(capsys, "predict", "--explain", strange).splitlines() if line.endswith(" guessed")]
    assert len(marked) == 1 and marked[0].startswith("conv2d")
