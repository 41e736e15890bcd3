# SPDX-License-Identifier: Apache-2.0
"""Rates and launches combined, and a timed hyperparameter search for any predictor."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ..record import MeasuredQuery, Query
from . import estimator
from .estimator import Estimator, ProgressCallback, silent
from .graph_network import GraphNetwork, launches
from .rates import RateEstimator
from .trees import GlobalTrees

#: Settings of a search, by kind of predictor: each trial draws one of each.
SPACES: Mapping[type[Estimator], Mapping[str, Sequence[float]]] = {
    GraphNetwork: {"rate": (3e-4, 1e-3, 2e-3, 5e-3), "batch": (8, 16, 32, 64), "epochs": (10, 20, 40, 80)},
    GlobalTrees: {
        "rounds": (50, 100, 200, 400, 800), "learning_rate": (0.03, 0.05, 0.1, 0.2, 0.3), "max_depth": (2, 3, 4, 6, 8),
        "subsample": (0.5, 0.7, 1.0), "colsample_bynode": (0.3, 0.6, 1.0), "min_child_weight": (1, 3, 6),
    },
}  # fmt: skip
_HELD = 0.2
_RATES, _DISTRUST = 0.4, 4  # largest share of rates, and how fast it falls: best of few tried on an H200's networks


class RatesAndLaunches:
    """Geometric mean of launches, and of rates where they hold."""

    def __init__(self, networks: int = 2) -> None:
        self.metrics: tuple[str, ...] = ()
        self._rates, self._launches = RateEstimator(), [launches(seed=seed) for seed in range(networks)]

    @property
    def parameters(self) -> int:
        return self._rates.parameters + sum(one.parameters for one in self._launches)

    def fit(self, samples: Sequence[MeasuredQuery], on_progress: ProgressCallback = silent) -> None:
        self.metrics = estimator.table_of(samples)[0]
        self._rates.fit(samples, on_progress)
        timed = [name for name in self.metrics if not name.endswith("_mib")]
        own = [replace(one, values={name: one.values[name] for name in timed}) for one in samples]
        for network in self._launches if timed else ():
            network.fit(own, on_progress)

    def predict(self, queries: Sequence[Query]) -> NDArray[np.float64]:
        found = self._rates.predict(queries)
        timed = [at for at, name in enumerate(self.metrics) if not name.endswith("_mib")]
        if timed:
            learnt = np.mean([np.log(network.predict(queries)) for network in self._launches], axis=0)
            # Rates of small kernels do not hold for large ones.
            share = _RATES * np.column_stack([self._rates.familiar(queries, self.metrics[at]) for at in timed]) ** _DISTRUST
            found[:, timed] = np.exp(share * np.log(np.maximum(found[:, timed], 1e-9)) + (1 - share) * learnt)
        return found


def set_to(made: Estimator, settings: Mapping[str, float]) -> Estimator:
    if isinstance(made, GraphNetwork):
        whole = {name: value if name == "rate" else int(value) for name, value in settings.items()}
        made.options = replace(made.options, **whole)
    elif isinstance(made, GlobalTrees):
        made.growth = settings
    return made


class RandomSearch:
    """Best of a random search within some processor time, by mean log error on a fifth of the networks."""

    def __init__(
        self, make: Callable[[], Estimator], seconds: float, seed: int = 0, now: Callable[[], float] = time.process_time
    ) -> None:
        self._make, self._seconds, self._seed, self._now = make, seconds, seed, now
        self._best = make()
        self.settings = ""

    @property
    def metrics(self) -> tuple[str, ...]:
        return self._best.metrics

    @property
    def parameters(self) -> int:
        return self._best.parameters

    def fit(self, samples: Sequence[MeasuredQuery], on_progress: ProgressCallback = silent) -> None:
        space = SPACES.get(type(self._best), {})
        rng = np.random.default_rng(self._seed)
        names = sorted({sample.name for sample in samples})
        held = set(rng.permutation(names)[: round(_HELD * len(names))])
        learnt, held_out = ([one for one in samples if (one.name in held) == inside] for inside in (False, True))
        wanted = np.array([list(one.values.values()) for one in held_out])
        best: Mapping[str, float] = {}
        least, tried, began = np.inf, 0, self._now()
        while space and held_out and (not tried or self._now() - began < self._seconds):
            settings = {name: rng.choice(values).item() for name, values in space.items()}
            one = set_to(self._make(), settings)
            one.fit(learnt, on_progress)
            error = float(np.abs(np.log(one.predict(held_out) / wanted)).mean())
            tried += 1
            if error < least:
                least, best = error, settings
        self.settings = ", ".join([f"{tried} trials", *(f"{name} {value:g}" for name, value in best.items())]) if tried else ""
        self._best = set_to(self._make(), best)
        self._best.fit(samples, on_progress)

    def predict(self, queries: Sequence[Query]) -> NDArray[np.float64]:
        return self._best.predict(queries)
