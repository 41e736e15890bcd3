# SPDX-License-Identifier: Apache-2.0
"""Judging hyperparameters by grouped folds: what validates a model is of networks, and of boards, that did not train it.

MIRAGE (SEC '21, section 4.3) leaves boards out, each once. Networks are left out here too, with the kernels that are theirs
alone, and every random kernel once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....adapt.measurements import Measurements
from ....errors import MeasurementError
from ..assembly import make_folds
from ..kernel_models import Recipe, Table, boosting_parameters, kernels_of, table_of
from ..left_out import whole_networks

FOLDS = 4
_STEP = 3  # from one report to the next, so many times the trees

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Problem:
    """One model's training set and its folds: the rows that train, and those that validate."""

    table: Table
    folds: tuple[tuple[Mask, Mask], ...]


def problem_of(measurements: Measurements, kind: str, target: str, seed: int, count: int = FOLDS) -> Problem:
    """The model of a kind and target as a problem.

    Raises:
        MeasurementError: less than two networks were measured as a whole, or nothing of this kind can be left out.
    """
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
    return Problem(table, tuple(folds))


def judge(
    problem: Problem, recipe: Recipe, threads: int, seed: int, first: int, told: Callable[[float, int], None]
) -> tuple[float, float]:
    """Root mean square of log(measured / predicted) over the folds, and how many leaves a model has in the mean.

    Args:
        first: after how many trees the error is told for the first time, then after three times as many, and so on.
        told: called with the error so far and the trees; it may raise to give up.
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
        told(error, rounds)
    leaves = [sum(tree.count("leaf=") for tree in booster.get_dump()) for booster in boosters]
    return error, float(np.mean(leaves))


def _reports(first: int, rounds: int) -> Sequence[int]:
    found = [first]
    while found[-1] < rounds:
        found.append(found[-1] * _STEP)
    return [*(at for at in found if at < rounds), rounds]
