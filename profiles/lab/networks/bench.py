# SPDX-License-Identifier: Apache-2.0
"""Comparison of whole-network predictors on common training and test sets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ...errors import RecordError
from .predictors.estimator import Estimator, ProgressCallback, silent
from .record import MeasuredQuery

SPLITS = ("in distribution", "unseen family", "unseen size", "unseen board", "unseen clocks")
IN_TURN: Mapping[str, tuple[int, Callable[[MeasuredQuery], str]]] = {
    "in distribution, in ten turns": (10, attrgetter("name")),
    "unseen family, in four turns": (4, attrgetter("family")),
}
"""Number of parts and their trait."""
_TESTED = 0.2
_Part: TypeAlias = tuple[list[MeasuredQuery], list[MeasuredQuery]]


class PredictorScore(Struct, frozen=True):
    """Errors of a predictor on one split and metric.

    Attributes:
        networks, tested: number of training networks, and of test samples.
        mape, rmspe: mean absolute, and root mean square percentage error.
        within_5, within_10: share of predictions off by at most 5 and 10 percent.
        training_s: processor time of all metrics.
        parameters: learned numbers, or trees.
        prediction_ms: processor time of each, in a batch.
    """

    method: str
    split: str
    metric: str
    networks: int
    tested: int
    mape: float
    rmspe: float
    within_5: float
    within_10: float
    training_s: float
    parameters: int
    prediction_ms: float
    settings: str = ""


def split(samples: Sequence[MeasuredQuery], name: str, seed: int = 0) -> tuple[list[MeasuredQuery], list[MeasuredQuery]]:
    """Training and test samples.

    Every fourth family, board or GPU clock is left out, the largest fifth of the networks, or a random fifth.
    """
    if name == "in distribution":
        names = sorted({sample.name for sample in samples})
        np.random.default_rng(seed).shuffle(names)
        held = set(names[: round(_TESTED * len(names))])
        return _parted(samples, lambda sample: sample.name in held)
    if name == "unseen size":
        flops = {sample.name: sample.graph.globals["flops_total"] for sample in samples}
        large = set(sorted(flops, key=lambda one: flops[one])[len(flops) - round(_TESTED * len(flops)) :])
        return _parted(samples, lambda sample: sample.name in large)
    top: dict[tuple[str, str], float] = {}  # clocks are shares of it: GFLOP/s tell element types apart as well
    for sample in samples:
        top[_typed(sample)] = max(top.get(_typed(sample), 0.0), sample.device[1])
    traits: Mapping[str, Callable[[MeasuredQuery], Any]] = {
        "unseen family": lambda sample: sample.family,
        "unseen board": lambda sample: sample.board,
        "unseen clocks": lambda sample: (sample.board, round(sample.device[1] / top[_typed(sample)], 3)),
    }
    trait = traits[name]
    found = sorted({trait(sample) for sample in samples})
    if name == "unseen clocks" and len(found) == len({sample.board for sample in samples}):
        return list(samples), []  # one clock for each board
    left_out = set(found[1::4]) if len(found) > 1 else set()
    return _parted(samples, lambda sample: trait(sample) in left_out)


def upper_bounds(samples: Sequence[MeasuredQuery], make: Callable[[], Estimator], seed: int = 0) -> NDArray[np.float64]:
    """(metrics,) factors that keep 95% of samples below prediction, by cross-validation."""
    ratios = []
    for learnt, tested in _turns(samples, 5, attrgetter("name"), seed):
        made = make()
        made.fit(learnt)
        ratios.append(np.array([list(sample.values.values()) for sample in tested]) / made.predict(tested))
    return np.asarray(np.quantile(np.concatenate(ratios), 0.95, axis=0))


def _turns(samples: Sequence[MeasuredQuery], turns: int, trait: Callable[[MeasuredQuery], str], seed: int) -> Iterator[_Part]:
    names = np.random.default_rng(seed).permutation(sorted({trait(sample) for sample in samples}))
    for part in range(min(turns, len(names))):
        held = set(names[part::turns])
        learnt, tested = ([one for one in samples if (trait(one) in held) == inside] for inside in (False, True))
        yield learnt, tested


def _typed(sample: MeasuredQuery) -> tuple[str, str]:
    return sample.board, sample.graph.network.inputs[0].dtype if sample.graph.network.inputs else ""


def _parted(
    samples: Sequence[MeasuredQuery], tested: Callable[[MeasuredQuery], bool]
) -> tuple[list[MeasuredQuery], list[MeasuredQuery]]:
    return [sample for sample in samples if not tested(sample)], [sample for sample in samples if tested(sample)]


def evaluate(
    samples: Sequence[MeasuredQuery],
    methods: Mapping[str, Callable[[], Estimator]],
    sizes: Sequence[int],
    splits: Sequence[str] = SPLITS,
    seed: int = 0,
    on_progress: ProgressCallback = silent,
    now: Callable[[], float] = time.process_time,
    known: Sequence[PredictorScore] = (),
) -> Iterator[PredictorScore]:
    """Scores of every method, split and training size, without ``known`` ones. Raises RecordError."""
    if not samples:
        raise RecordError("the record holds no network that was measured")
    for name in splits:
        for size, parts in _trials(samples, name, sizes, seed):
            for method, make in methods.items():
                before = [one for one in known if (one.method, one.split, one.networks) == (method, name, size)]
                yield from before or _score(method, make, name, size, parts, on_progress, now)


def _trials(
    samples: Sequence[MeasuredQuery], name: str, sizes: Sequence[int], seed: int
) -> Iterator[tuple[int, Sequence[_Part]]]:
    turns = list(_turns(samples, *IN_TURN[name], seed)) if name in IN_TURN else [split(samples, name, seed)]
    if not all(learnt and tested for learnt, tested in turns):
        return
    (pool, tested), *more = turns
    names = sorted({sample.name for sample in pool})
    if more:
        yield len(names), turns
        return
    np.random.default_rng([seed, 1]).shuffle(names)
    for size in _sizes(sizes, len(names)):
        chosen = set(names[:size])
        yield size, [([one for one in pool if one.name in chosen], tested)]


def _sizes(wanted: Sequence[int], there: int) -> list[int]:
    possible = sorted(size for size in set(wanted) if size < there)
    return possible if len(possible) == len(set(wanted)) else [*possible, there]


def _score(
    method: str,
    make: Callable[[], Estimator],
    name: str,
    size: int,
    parts: Sequence[_Part],
    on_progress: ProgressCallback,
    now: Callable[[], float],
) -> Iterator[PredictorScore]:
    found, wanted, training_s, predicting_s = [], [], 0.0, 0.0
    for learnt, tested in parts:
        estimator, began = make(), now()
        estimator.fit(learnt, lambda done, total, text: on_progress(done, total, f"{method}, {name}, {size} networks: {text}"))
        trained = now()
        found.append(estimator.predict(tested))
        training_s, predicting_s = training_s + trained - began, predicting_s + now() - trained
        wanted.append(np.array([[sample.values[metric] for metric in estimator.metrics] for sample in tested]))
    errors = _errors(np.concatenate(found), np.concatenate(wanted))
    for column, metric in enumerate(estimator.metrics):
        own = errors[:, column]
        yield PredictorScore(
            method, name, metric, size, len(errors), float(100 * own.mean()), float(100 * np.sqrt((own**2).mean())),
            float((own <= 0.05).mean()), float((own <= 0.10).mean()),
            training_s, estimator.parameters, 1e3 * predicting_s / len(errors), getattr(estimator, "settings", ""),
        )  # fmt: skip


def _errors(found: NDArray[np.float64], measured: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.abs(found - measured) / measured)
