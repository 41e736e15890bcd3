# SPDX-License-Identifier: Apache-2.0
"""Hyperparameter search in the ranges of MIRAGE (SEC '21), Table 2."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from ...adapt.measurements import Measurements
from ...errors import MeasurementError
from .assembly import make_folds
from .held_out import measured_kinds, whole_networks
from .kernel_models import TARGETS, Recipe, Table, boosting_parameters, kernels_of, table_of
from .tuned_recipes import TriedRecipe, TunedRecipe, TunedRecipes, smallest


class SearchSpace(Struct, frozen=True):
    """Inclusive ranges; marked ones are searched by logarithm."""

    rounds: tuple[int, int] = (100, 3000)
    max_depth: tuple[int, int] = (5, 11)
    min_child_weight: tuple[int, int] = (5, 8)
    share: tuple[float, float] = (0.8, 1.0)  # subsample, colsample_bytree
    learning_rate: tuple[float, float] = (0.005, 0.1)  # logarithm
    regularisation: tuple[float, float] = (0.0001, 0.01)  # reg_alpha, reg_lambda; logarithm

    def suggested(self, trial: Any) -> Recipe:
        return Recipe(
            max_depth=trial.suggest_int("max_depth", *self.max_depth),
            learning_rate=trial.suggest_float("learning_rate", *self.learning_rate, log=True),
            min_child_weight=trial.suggest_int("min_child_weight", *self.min_child_weight),
            subsample=trial.suggest_float("subsample", *self.share),
            colsample_bytree=trial.suggest_float("colsample_bytree", *self.share),
            reg_alpha=trial.suggest_float("reg_alpha", *self.regularisation, log=True),
            reg_lambda=trial.suggest_float("reg_lambda", *self.regularisation, log=True),
            rounds=trial.suggest_int("n_estimators", *self.rounds),
        )

    @staticmethod
    def recipe(parameters: dict[str, Any]) -> Recipe:
        return Recipe(**{"rounds" if name == "n_estimators" else name: value for name, value in parameters.items()})


FOLDS = 4
_STEP = 3  # growth of trees from one report to the next

Mask = NDArray[np.bool_]


class TuningProblem(Struct, frozen=True):
    """One model's training set, and (training, validation) rows of each fold."""

    table: Table
    folds: tuple[tuple[Mask, Mask], ...]


def problem_of(measurements: Measurements, kind: str, target: str, seed: int, count: int = FOLDS) -> TuningProblem:
    """Problem of a kind and target. Raises MeasurementError."""
    own = whole_networks(measurements)
    signatures = {network.name: {launch.signature for launch in network.launches} for network in own.networks}
    familiar = set().union(*signatures.values())
    table = table_of(own, own.described, kind, target, familiar)
    kernels = [own.invocations[number].signature for number in kernels_of(own, kind)]
    group = np.random.default_rng([seed, 5]).permutation(len(kernels)) % count
    folds = []
    for number, fold in enumerate(make_folds(own.networks, own.nodes, min(count, len(own.networks)), seed)):
        left_out = {network.name for network in fold.networks}
        others = set().union(*(found for name, found in signatures.items() if name not in left_out))
        held = np.array(
            [group[at] == number if one not in familiar else one not in others for at, one in enumerate(kernels)], np.bool_
        )[table.kernel]
        strange = np.isin(table.node, fold.nodes) if fold.nodes else held
        masks = (~held & ~strange, held & strange)
        if all(mask.any() for mask in masks):
            folds.append(masks)
    if not folds:
        raise MeasurementError(f"{kind}: no kernels of it can be left out with a network and a board; measure more of it")
    return TuningProblem(table, tuple(folds))


def cross_validate(
    problem: TuningProblem, recipe: Recipe, threads: int, seed: int, first: int, on_trial: Callable[[float, int], None]
) -> tuple[float, float]:
    """Root mean square of log(measured / predicted) over the folds, and mean leaves of a model.

    ``on_trial`` is called with error and trees from ``first`` trees on, each time at three times as many; it raises to stop.
    """
    import xgboost

    parameters = boosting_parameters(recipe, threads, seed)

    def matrix(mask: Mask) -> Any:
        part = problem.table.where(mask)
        return xgboost.DMatrix(part.features, part.label, weight=part.weight, nthread=threads)

    data = [(matrix(training), matrix(held)) for training, held in problem.folds]
    boosters: list[Any] = [None] * len(data)
    done, error = 0, float("inf")
    for rounds in _reports(first, recipe.rounds):
        squares = []
        for number, (training, held) in enumerate(data):
            boosters[number] = xgboost.train(parameters, training, rounds - done, xgb_model=boosters[number])
            off = held.get_label() - boosters[number].predict(held)
            squares.append(float(np.average(off**2, weights=held.get_weight())))
        done, error = rounds, float(np.sqrt(np.mean(squares)))
        on_trial(error, rounds)
    leaves = [sum(tree.count("leaf=") for tree in booster.get_dump()) for booster in boosters]
    return error, float(np.mean(leaves))


def _reports(first: int, rounds: int) -> Sequence[int]:
    found = [first]
    while found[-1] < rounds:
        found.append(found[-1] * _STEP)
    return [*(at for at in found if at < rounds), rounds]


Progress = Callable[[int, int, str], None]

_LOOK_S = 1.0
_BUSY_S = 60.0  # longest lock of the file by one worker
_REDUCTION = 3


class SearchSettings(Struct, frozen=True):
    """Settings of a search.

    Attributes:
        storage: file of the search.
        trials: recipes per model.
        kinds: empty for all with enough values.
        loss: accepted error of a smaller model above the best, as a share of it.
        threads: per worker.
    """

    record: Path
    storage: Path
    trials: int
    kinds: tuple[str, ...] = ()
    loss: float = 0.02
    threads: int = 1
    seed: int = 0
    space: SearchSpace = field(default_factory=SearchSpace)
    folds: int = FOLDS


class StudyShare(Struct, frozen=True):
    search: SearchSettings
    study: str
    kind: str
    target: str
    trials: int
    seed: int


def tune(
    search: SearchSettings, executor: Executor, workers: int, progress: Progress = lambda done, total, text: None
) -> TunedRecipes:
    """Search until each study has its trials, including those in the file. Raises MeasurementError."""
    import distributed
    import optuna
    import xgboost

    models = models_of(search)
    digest = hashlib.sha256(search.record.read_bytes()).hexdigest()[:12]
    names = {model: f"{' '.join(model)} {digest} {search.folds} {search.seed}" for model in models}
    with _storage_errors(search.storage):
        studies = {model: _study(search, name, search.seed) for model, name in names.items()}
        shares = []
        for model, study in studies.items():
            left = max(search.trials - len(_finished(study)), 0)
            each = [left // workers + (number < left % workers) for number in range(workers)]
            seeds = (search.seed + 1000 * (len(study.trials) + number) for number in range(workers))
            of_model = [StudyShare(search, names[model], *model, count, seed) for count, seed in zip(each, seeds, strict=True)]
            shares += [share for share in of_model if share.trials]
        total, began = search.trials * len(models), time.monotonic()
        before = total - sum(share.trials for share in shares)
        futures: list[Future[None]] = [executor.submit(run_share, share) for share in shares]
        waiting, told = set(futures), -1
        try:
            while waiting:
                over, waiting = wait(waiting, timeout=_LOOK_S)
                for future in over:
                    future.result()
                done = sum(min(len(_finished(study)), search.trials) for study in studies.values())
                left_s = (time.monotonic() - began) / max(done - before, 1) * (total - done)
                if done != told:
                    progress(done, total, f"recipes tried; {left_s / 60:.0f} min left" if done > before else "recipes tried")
                told = done
        except distributed.KilledWorker as error:
            kept = f"finished trials are kept in {search.storage}; the same command resumes there"
            raise MeasurementError(f"workers ended one after the other, perhaps for want of memory; {kept}") from error
        finally:
            for future in futures:
                future.cancel()
        found: dict[str, dict[str, TunedRecipe]] = {}
        for (kind, target), study in studies.items():
            found.setdefault(kind, {})[target] = _chosen(search, study, kind)
    return TunedRecipes(search.loss, search.record.name, found, {"optuna": optuna.__version__, "xgboost": xgboost.__version__})


def run_share(share: StudyShare) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    search = share.search
    problem = problem_of(Measurements.load(search.record), share.kind, share.target, search.seed, search.folds)
    study = _study(search, share.study, share.seed)

    def objective(trial: Any) -> float:
        def told(error: float, rounds: int) -> None:
            trial.report(error, rounds)
            if trial.should_prune():
                raise optuna.TrialPruned

        recipe = search.space.suggested(trial)
        error, leaves = cross_validate(problem, recipe, search.threads, search.seed, search.space.rounds[0], told)
        trial.set_user_attr("leaves", leaves)
        return error

    study.optimize(objective, n_trials=share.trials)


def models_of(search: SearchSettings) -> Sequence[tuple[str, str]]:
    """Kind and target of each tuned model. Raises MeasurementError."""
    own = whole_networks(Measurements.load(search.record))
    kinds = measured_kinds(own)
    if strange := [kind for kind in search.kinds if kind not in kinds]:
        raise MeasurementError(f"kind {strange[0]!r:.40}: not in {search.record.name}; it has {', '.join(kinds)}")
    targets = tuple(TARGETS) if own.powered else ("time",)
    return [(kind, target) for kind in search.kinds or kinds for target in targets]


def _study(search: SearchSettings, name: str, seed: int) -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = optuna.storages.RDBStorage(f"sqlite:///{search.storage}", engine_kwargs={"connect_args": {"timeout": _BUSY_S}})
    first, most = search.space.rounds
    return optuna.create_study(
        study_name=name,
        storage=storage,
        sampler=optuna.samplers.TPESampler(seed=seed),
        pruner=optuna.pruners.HyperbandPruner(min_resource=first, max_resource=most, reduction_factor=_REDUCTION),
        load_if_exists=True,
    )


def _finished(study: Any) -> list[Any]:
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state.name in ("COMPLETE", "PRUNED")]


def _chosen(search: SearchSettings, study: Any, kind: str) -> TunedRecipe:
    trials = _finished(study)
    tried = [
        TriedRecipe(SearchSpace.recipe(trial.params), trial.value, trial.user_attrs["leaves"])
        for trial in trials
        if trial.state.name == "COMPLETE"
    ]
    if not tried:
        raise MeasurementError(f"{kind}: each of {len(trials)} recipes was given up early; try more (--trials)")
    return smallest(tried, search.loss, len(trials), len(trials) - len(tried))


@contextlib.contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    import optuna
    import sqlalchemy

    try:
        yield
    except (optuna.exceptions.StorageInternalError, sqlalchemy.exc.SQLAlchemyError) as error:
        why = " ".join(str(error.__cause__ or error).split())[:120]
        raise MeasurementError(f"{path}: the search cannot be kept there ({why})") from error
