# SPDX-License-Identifier: Apache-2.0
"""Splits and scores of the bench of predictors, and its command line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from jetdvfs.kernels.graph import graph_of
from jetdvfs.kernels.network import TensorSpec
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.networks.bench import IN_TURN, SPLITS, evaluate, split
from jetdvfs.profiles.lab.networks.predictors.estimator import ProgressCallback, silent
from jetdvfs.profiles.lab.networks.predictors.loading import ABLATIONS, duplicates
from jetdvfs.profiles.lab.networks.record import MeasuredQuery, NetworkRecorder, Query, RecordContents
from jetdvfs.tests.support.profiles.measured_networks import DEVICES, measured, samples


class Constant:
    """Predicts the same for all, whatever it learns."""

    metrics: tuple[str, ...] = ()
    parameters = 0

    def fit(self, learnt: Sequence[MeasuredQuery], told: ProgressCallback = silent) -> None:
        self.metrics = tuple(learnt[0].values)

    def predict(self, queries: Sequence[Query]) -> NDArray[np.float64]:
        return np.full((len(queries), len(self.metrics)), 2.0)


@pytest.mark.parametrize("name", SPLITS)
def test_nothing_is_judged_by_what_was_learnt(name: str) -> None:
    given = samples(40)
    if name == "unseen clocks":  # of one board
        given = [msgspec.structs.replace(sample, board="device") for sample in given]
    learnt, tested = split(given, name)
    assert learnt and tested and len(learnt) + len(tested) == 80

    def traits(of: Sequence[MeasuredQuery]) -> set[object]:
        if name == "unseen family":
            return {sample.family for sample in of}
        if name == "unseen board":
            return {sample.board for sample in of}
        if name == "unseen clocks":
            return {sample.device for sample in of}
        return {sample.name for sample in of}

    assert not traits(learnt) & traits(tested)


@pytest.mark.parametrize(("name", "turns_of"), [("in distribution, in ten turns", 10), ("unseen family, in four turns", 2)])
def test_in_turn_every_network_is_tested_once_and_never_learnt_meanwhile(name: str, turns_of: int) -> None:
    turns: list[tuple[set[str], list[str]]] = []
    trait = IN_TURN[name][1]

    class Watching(Constant):
        def fit(self, learnt: Sequence[MeasuredQuery], told: ProgressCallback = silent) -> None:
            super().fit(learnt)
            turns.append(({trait(one) for one in learnt}, []))

        def predict(self, queries: Sequence[Query]) -> NDArray[np.float64]:
            turns[-1][1].extend(trait(one) for one in queries if isinstance(one, MeasuredQuery))
            return super().predict(queries)

    given = samples(40)
    (score, *_) = evaluate(given, {"watching": Watching}, [100], [name])
    assert len(turns) == turns_of and not any(learnt & set(tested) for learnt, tested in turns)
    assert sorted(each for _, tested in turns for each in tested) == sorted(map(trait, given))
    wanted = np.array([one.values[score.metric] for one in given])
    assert score.tested == 80 and score.mape == pytest.approx(100 * np.abs(2 / wanted - 1).mean())


def test_the_largest_networks_are_the_unseen_size() -> None:
    learnt, tested = split(samples(40), "unseen size")
    flops = [[sample.graph.globals["flops_total"] for sample in part] for part in (learnt, tested)]
    assert max(flops[0]) <= min(flops[1]) and len(tested) == 2 * 8


def test_a_record_of_one_device_has_no_unseen_boards_or_clocks() -> None:
    one = samples(20, devices=DEVICES[:1])
    assert not split(one, "unseen board")[1] and not split(one, "unseen clocks")[1]
    assert {score.split for score in evaluate(one, {"constant": Constant}, [100])} == set(SPLITS[:3])


def test_element_types_are_no_clocks() -> None:
    """At the top clock and at half of it, float32 and float16, which does four times the operations."""
    singles = samples(6, [(2.0, gflops, 100.0, 32.0) for gflops in (1000.0, 500.0)])
    singles = [msgspec.structs.replace(one, board="device") for one in singles]
    halves = []
    for one in singles:
        host, gflops, *rest = one.device
        network = msgspec.structs.replace(one.graph.network, inputs=(TensorSpec((1, 3, 16, 16), "float16"),))
        halves.append(msgspec.structs.replace(one, graph=graph_of(network), device=(host, 4 * gflops, *rest)))
    learnt, tested = split([*singles, *halves], "unseen clocks")
    assert {one.device[1] for one in tested} == {1000.0, 4000.0} and len(learnt) == len(tested)


def test_a_record_predicts_a_network_with_a_bound(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("scipy", reason="fits the rates")
    asked = ["networks", "predict", str(record), "alexnet", "--json"]
    assert main(asked) == 0
    found = json.loads(capsys.readouterr().out)["networks"]
    assert {(one["board"], one["metric"]) for one in found} == {
        (f"device {number}", metric) for number in (0, 1) for metric in ("latency_ms", "peak_mib")
    }
    assert all(one["predicted"] > 0 and 0.9 * one["predicted"] < one["at_most"] for one in found)
    assert main([*asked, "--predictor", "oracle"]) == 2
    assert "valid: forest" in capsys.readouterr().err
    assert main([*asked, "--predictor", "xgboost with counters"]) == 3  # the record has none
    assert "networks counters" in capsys.readouterr().err


def test_scores_are_those_of_a_count_by_hand() -> None:
    few = samples(10, devices=DEVICES[:1])
    tested = split(few, "in distribution")[1]
    clock = iter([0.0, 3.0, 3.5])
    scores = list(evaluate(few, {"constant": Constant}, [100], ["in distribution"], now=lambda: next(clock)))
    wanted = np.array([sample.values["peak_mib"] for sample in tested])
    score = next(score for score in scores if score.metric == "peak_mib")
    errors = np.abs(2 / wanted - 1)
    assert score.mape == pytest.approx(100 * errors.mean()) and score.rmspe == pytest.approx(100 * np.sqrt((errors**2).mean()))
    assert score.within_10 == (errors <= 0.1).mean() and (score.networks, score.tested) == (8, 2)
    assert (score.training_s, score.prediction_ms) == (3.0, 250.0)


def test_sizes_that_there_are_not_become_all_there_are() -> None:
    found = [score.networks for score in evaluate(samples(30), {"constant": Constant}, [5, 10, 500, 1000], ["unseen size"])]
    assert sorted(set(found)) == [5, 10, 24]


def test_a_run_that_was_stopped_is_gone_on_with(record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "scores"
    asked = ["evaluate", "--networks", str(record), "--json", "--keep", str(kept), "--metric", "peak_mib"]
    asked += ["--predictor", "roofline", "--split", "in distribution"]
    assert main([*asked, "--train-size", "5"]) == 0
    (first,) = json.loads(capsys.readouterr().out)["scores"]
    assert first["metric"] == "peak_mib"
    with kept.open("a") as file:
        file.write('{"method": "roofl')  # where it was stopped
    assert main([*asked, "--train-size", "5", "--train-size", "10"]) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert scores[0] == first and [score["networks"] for score in scores] == [5, 10]  # the time of training is that of then
    assert main([*asked, "--seed", "1"]) == 3
    assert "of another run" in capsys.readouterr().err


@pytest.fixture
def record(tmp_path: Path) -> Path:
    recorder = NetworkRecorder(tmp_path / "record", RecordContents("a formula", True, ("latency_ms", "peak_mib")))
    for network in measured(24):
        recorder.add(network)
    return tmp_path / "record"


def test_the_command_prints_one_table(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("xgboost", reason="grows the trees")
    asked = ("evaluate", "--networks", str(record), "--predictor", "roofline", "--predictor", "boosting")
    assert main([*asked, "--train-size", "10"]) == 0
    shown = capsys.readouterr().out
    assert "24 networks of a formula; simulated" in shown and "Reported by the papers" in shown
    assert sum(line.startswith(("roofline ", "boosting ")) for line in shown.splitlines()) == 2 * (len(SPLITS) - 1) * 2
    assert main([*asked, "--split", "unseen family", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["record"]["networks"] == 24 and {score["split"] for score in data["scores"]} == {"unseen family"}


def test_stored_scores_are_shown_as_a_table_and_on_the_page(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["evaluate", "--networks", str(record), "--predictor", "rates", "--predictor", "roofline", "--train-size", "10"]
    assert main([*asked, "--split", "unseen family"]) == 0
    shown = capsys.readouterr().out
    assert main([*asked, "--split", "unseen family", "--json"]) == 0
    stored = tmp_path / "scores.json"
    stored.write_text(capsys.readouterr().out)
    assert main(["evaluate", "--networks", str(stored)]) == 0
    again = capsys.readouterr().out
    times = re.compile(r"\d+\.\d+  +\d+  +\d+\.\d+ *$|-{4,}| {2,}", re.MULTILINE)  # of training and of prediction
    assert times.sub(" ", again) == times.sub(" ", shown)
    scores = {(one["method"], one["metric"]): one["mape"] for one in json.loads(stored.read_text())["scores"]}
    words = ["compare", "all", "--data", str(tmp_path), "--only", "networks"]
    assert main([*words, "--networks", str(stored)]) in (0, 4)
    page = capsys.readouterr().out
    rates, memory = scores["rates", "latency_ms"], scores["rates", "peak_mib"]
    met = "met" if rates <= 7 and memory <= 2.5 else "missed"
    said = f"left out: rates | 7.0%, 2.5% | latency_ms {rates:.1f}%, peak_mib {memory:.1f}% | {met} |"
    assert said in page and "left out: roofline |  | latency_ms" in page
    assert "`jetdvfs-lab evaluate --networks FILE`" in page
    assert main(words) == 2 and "--only networks: needs --networks FILE" in capsys.readouterr().err
    assert main(["evaluate", "--networks", str(stored), "--split", "unseen size"]) == 2
    assert "shows stored scores as they are, without --split" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"study": "fleet"}', "of another command"),
        ('{"study": "networks"}', "cannot be shown (KeyError('record'))"),
        ('{"study": "networks", "record": 3, "scores": []}', "cannot be shown (TypeError("),
        ("[", "not valid JSON"),
    ],
)
def test_a_file_that_is_no_stored_output_is_refused_in_one_line(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = tmp_path / "scores.json"
    stored.write_text(text)
    assert main(["evaluate", "--networks", str(stored)]) == 3
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and said in told
    assert "expected the output of 'jetdvfs-lab evaluate --networks FOLDER --json'" in told


def test_ablations_that_are_the_same_network_are_not_shown_as_two() -> None:
    same = {"seernet up to batch size": "seernet without SynMM, GNPB"}
    assert duplicates(ABLATIONS, 2) == same
    alone = dict.fromkeys(("seernet-multi", "seernet-multi without PCGrad"), "seernet")
    assert duplicates(ABLATIONS, 1) == {**same, **alone}


def test_the_command_says_what_is_valid(record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("evaluate", "--networks", str(record))
    for more, code, words in (
        (("--predictor", "oracle"), 2, "valid: forest"),
        (("--split", "unseen planet"), 2, "valid: in distribution"),
        (("--board", "agx-xavier"), 2, "the record has device 0"),
    ):
        assert main([*asked, *more]) == code
        assert words in capsys.readouterr().err
    assert main(["evaluate", "--networks", str(tmp_path / "none")]) == 3
