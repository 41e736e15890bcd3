# SPDX-License-Identifier: Apache-2.0
"""Searching for hyperparameters of a record's models, on a record of two simulated boards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from jetdvfs.profiles.adapt.measurements import Measurements
from jetdvfs.profiles.errors import MeasurementError
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.measure.one_twin import measure_twin, one_board_size, plan_twin
from jetdvfs.profiles.lab.train.kernel_models import Recipe, TrainingOptions, train_kind
from jetdvfs.profiles.lab.train.tuned_recipes import TriedRecipe, TunedRecipe, TunedRecipes, smallest
from jetdvfs.profiles.lab.train.tuning import SearchSettings, SearchSpace, problem_of, tune
from jetdvfs.profiles.reference import reference_network

pytest.importorskip("optuna", reason="tuning needs optuna")
pytest.importorskip("xgboost", reason="training needs xgboost")
distributed = pytest.importorskip("distributed", reason="a cluster needs dask and distributed")

BOARD, SPACE = "agx-xavier", SearchSpace(rounds=(4, 36), max_depth=(2, 4))


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three networks and a few random kernels on two simulated boards."""
    networks = [reference_network(name) for name in ("squeezenet1_0", "resnet18", "alexnet")]
    size = replace(one_board_size(0, 1), nodes=(0, 1), idle_configurations=1, warm_configurations=0)
    measured = measure_twin(plan_twin(BOARD, networks, size), None, lambda done, total, text: None)
    path = tmp_path_factory.mktemp("record") / "two.npz"
    measured.save(path)
    return path


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A cluster of two workers within this process."""
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


def search(record: Path, client: Any, folder: Path, trials: int) -> TunedRecipes:
    what = SearchSettings(record, folder / "study.db", trials, ("conv2d",), loss=0.05, space=SPACE, folds=2)
    return tune(what, client.get_executor(), 2)


def test_what_validates_is_of_networks_and_boards_that_did_not_train(record: Path) -> None:
    measured = Measurements.load(record)
    problem = problem_of(measured, "conv2d", "time", seed=1, count=3)
    assert problem.folds
    for training, held in problem.folds:
        assert training.any() and held.any() and not (training & held).any()
        assert not set(problem.table.node[training]) & set(problem.table.node[held])
        assert not set(problem.table.kernel[training]) & set(problem.table.kernel[held])


@pytest.mark.slow
def test_a_search_goes_on_where_it_ended_and_its_recipes_train_models(record: Path, client: Any, tmp_path: Path) -> None:
    first = search(record, client, tmp_path, 2)
    assert {found.trials for found in first.models["conv2d"].values()} == {2}
    second = search(record, client, tmp_path, 3)
    assert set(second.models["conv2d"]) == {"time", "power"}
    for target, found in second.models["conv2d"].items():
        assert found.trials == 3
        assert found.best_error <= first.models["conv2d"][target].best_error
        assert found.error <= 1.05 * found.best_error and found.leaves <= found.best_leaves
        assert SPACE.max_depth[0] <= found.recipe.max_depth <= SPACE.max_depth[1]
    second.save(tmp_path / "recipes.json")
    recipes = TunedRecipes.load(tmp_path / "recipes.json").recipes()
    assert recipes["conv2d power"] == (second.models["conv2d"]["power"].recipe,)
    measured = Measurements.load(record)
    options = TrainingOptions({"": (Recipe(6, 0.1),), **recipes})
    trained = train_kind(measured, measured.described, "conv2d", options, ())
    assert trained.time.recipe.learning_rate == recipes["conv2d time"][0].learning_rate
    assert 0 < trained.time.recipe.rounds <= recipes["conv2d time"][0].rounds


def test_the_smallest_model_within_the_loss_is_chosen() -> None:
    def tried(error: float, leaves: float) -> TriedRecipe:
        return TriedRecipe(Recipe(6, 0.1), error, leaves)

    best, near, far = tried(0.100, 5000), tried(0.101, 800), tried(0.12, 10)
    assert smallest([best, near, far], 0.02, 9, 6) == TunedRecipe(near.recipe, 0.101, 0.100, 800, 5000, 9, 6)
    assert smallest([best, near, far], 0.0, 9, 6).leaves == 5000
    assert smallest([best, near, far], 0.5, 9, 6).leaves == 10


def test_the_command_line_searches_and_its_file_is_taken_by_train(
    record: Path, client: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, made = tmp_path / "recipes.json", tmp_path / "made"
    address = client.scheduler.address
    words = ["tune", str(record), "--out", str(found), "--trials", "1", "--kind", "matmul", "--workers", address]
    assert main([*words, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["models"] == ["matmul time", "matmul power"]
    assert not list(tmp_path.iterdir())
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(row["kind"], row["target"], row["trials"]) for row in told["models"]] == [
        ("matmul", "time", 1), ("matmul", "power", 1)
    ]  # fmt: skip
    assert main(["train", str(record), "--recipes", str(found), "--out", str(made), "--dry-run"]) == 0
    assert main(["train", "--simulated", "--board", BOARD, "--recipes", str(found), "--out", str(made)]) == 2
    assert "--recipes: are of a record" in capsys.readouterr().err and not made.exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--kind", "nothing"], 3, "kind 'nothing': not in two.npz; it has conv2d"),
        (["--loss", "-1"], 2, "--loss -1: expected a percentage"),
        (["--study", "/nowhere/study.db", "--kind", "relu"], 3, "/nowhere/study.db: the search cannot be kept there"),
    ],
)
def test_what_cannot_be_searched_is_one_line(
    words: list[str], code: int, said: str, record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", str(record), "--out", str(tmp_path / "recipes.json"), *words]) == code
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1 and not list(tmp_path.iterdir())


def test_a_file_of_something_else_is_no_recipes(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(MeasurementError, match="no recipes that 'jetdvfs-lab tune' wrote"):
        TunedRecipes.load(tmp_path / "other.json")
