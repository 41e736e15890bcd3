# SPDX-License-Identifier: Apache-2.0
"""Trees on global features (Jung et al.): random forest, gradient boosting, XGBoost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from .....kernels.text import needing
from ....errors import RecordError
from ..record import DEVICE_FEATURES, MeasuredQuery, Query
from . import estimator
from .encodings import JUNG, jung_features
from .estimator import ProgressCallback, Targets, silent

Method = Literal["rf", "gb", "xgb"]

#: Number of rounds, and XGBoost parameters: the defaults of scikit-learn's two, and of XGBoost's own regressor.
_METHODS: Mapping[Method, tuple[int, Mapping[str, float]]] = {
    "rf": (1, {"num_parallel_tree": 100, "learning_rate": 1.0, "subsample": 0.632, "colsample_bynode": 1.0, "max_depth": 24,
               "reg_lambda": 0.0, "min_child_weight": 1.0}),
    "gb": (100, {"learning_rate": 0.1, "max_depth": 3, "reg_lambda": 0.0, "min_child_weight": 1.0}),
    "xgb": (100, {"learning_rate": 0.3, "max_depth": 6, "reg_lambda": 1.0, "min_child_weight": 1.0}),
}  # fmt: skip
NAMES = (*JUNG, *DEVICE_FEATURES)


class FeatureAddition(Struct, frozen=True):
    """Recursive feature addition in order of importance; the union over ``runs`` is taken.

    Attributes:
        least: least rise of the coefficient of determination to keep a feature.
    """

    runs: int = 5
    least: float = 0.001


class GlobalTrees:
    """An :class:`~jetdvfs.profiles.lab.networks.predictors.estimator.Estimator`, one model per metric.

    Args:
        addition: choice of features; None for all.
        counted: True to use a host GPU's counters as features.
    """

    def __init__(
        self, method: Method = "xgb", addition: FeatureAddition | None = None, *, counted: bool = False, seed: int = 0
    ) -> None:
        self.method, self.addition, self.counted, self.seed = method, addition, counted, seed
        self.growth: Mapping[str, float] = {}
        self.metrics: tuple[str, ...] = ()
        self.features: tuple[str, ...] = NAMES
        self._trees: list[Any] = []
        self._targets = Targets(np.zeros(0), np.ones(0))

    @property
    def settings(self) -> str:
        return f"features {', '.join(self.features)}" if self.addition is not None else ""

    @property
    def parameters(self) -> int:
        return sum(
            booster.num_boosted_rounds() * int(_METHODS[self.method][1].get("num_parallel_tree", 1)) for booster in self._trees
        )

    def fit(self, samples: Sequence[MeasuredQuery], on_progress: ProgressCallback = silent) -> None:
        metrics, values = estimator.table_of(samples)
        targets = Targets.fit(values)
        names = (*(_common_counters(samples) if self.counted else ()), *NAMES)
        scaled, rows = targets.scaled(values), _rows(samples, names)
        groups = [sample.name for sample in samples]
        chosen = list(range(rows.shape[1]))
        if self.addition is not None:
            chosen = sorted({at for column in scaled.T for at in self._added(rows, column, groups)})
        self.features = tuple(names[at] for at in chosen)
        self._trees = []
        for number, column in enumerate(scaled.T):
            on_progress(number, len(metrics), f"{self.method} of {metrics[number]}")
            self._trees.append(grown(self.method, rows[:, chosen], column, self.seed, self.growth))
        self._targets, self.metrics = targets, metrics
        on_progress(len(metrics), len(metrics), self.method)

    def predict(self, queries: Sequence[Query]) -> NDArray[np.float64]:
        estimator.check_fitted(self.metrics)
        rows = _xgboost().DMatrix(_rows(queries, self.features))
        found = np.stack([booster.predict(rows) for booster in self._trees], axis=-1)
        return self._targets.back(found)

    def _added(self, rows: NDArray[np.float32], column: NDArray[np.float64], groups: Sequence[str]) -> set[int]:
        assert self.addition is not None
        kept: set[int] = set()
        for run in range(self.addition.runs):
            rng = np.random.default_rng([self.seed, run])
            names = sorted(set(groups))
            held = set(rng.permutation(names)[: max(len(names) // 3, 1)])
            outside = np.array([group in held for group in groups])
            gains = grown(self.method, rows[~outside], column[~outside], run, self.growth).get_score(importance_type="gain")
            order = sorted((int(name[1:]) for name in gains), key=lambda at: -gains[f"f{at}"])
            own, best = order[:1], -np.inf
            for at in order:
                tried = list(dict.fromkeys([*own, at]))
                booster = grown(self.method, rows[~outside][:, tried], column[~outside], run, self.growth)
                score = _determination(booster.predict(_xgboost().DMatrix(rows[outside][:, tried])), column[outside])
                if score > best + self.addition.least:
                    own, best = tried, score
            kept |= set(own)
        return kept


def grown(
    method: Method, rows: NDArray[np.float32], column: NDArray[np.float64], seed: int, growth: Mapping[str, float] | None = None
) -> Any:
    """Booster of one column. Raises RecordError without XGBoost."""
    xgboost = _xgboost()
    rounds, told = _METHODS[method]
    own = dict(growth or {})
    rounds = rounds if method == "rf" else int(own.pop("rounds", rounds))
    settings = {**told, **own, "objective": "reg:squarederror", "seed": seed, "nthread": 1, "tree_method": "hist"}
    return xgboost.train(settings, xgboost.DMatrix(rows, column, nthread=1), rounds)


def _rows(queries: Sequence[Query], names: Sequence[str]) -> NDArray[np.float32]:
    kept: dict[int, Mapping[str, float]] = {}
    rows = []
    for query in queries:
        if id(query.graph) not in kept:
            kept[id(query.graph)] = dict(zip(JUNG, jung_features(query.graph), strict=True))
        known = {**query.counters, **kept[id(query.graph)], **dict(zip(DEVICE_FEATURES, query.device, strict=True))}
        missing = [name for name in names if name not in known]
        if missing:
            raise RecordError(f"{query.graph.name}: was not counted: {', '.join(missing)[:200]}")
        rows.append([known[name] for name in names])
    return np.array(rows, np.float32)


def _common_counters(samples: Sequence[MeasuredQuery]) -> list[str]:
    common = set.intersection(*(set(sample.counters) for sample in samples))
    if not common:
        raise RecordError("not all networks of the record were counted on a host GPU; 'jetdvfs-lab networks counters' does")
    return sorted(common)


def _determination(found: NDArray[Any], measured: NDArray[np.float64]) -> float:
    return 1 - float(((found - measured) ** 2).sum() / max(((measured - measured.mean()) ** 2).sum(), 1e-12))


def _xgboost() -> Any:
    with needing("trees", "train", RecordError):
        import xgboost
    return xgboost
