# SPDX-License-Identifier: Apache-2.0
"""Interface of whole-network predictors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ....errors import RecordError
from ..record import MeasuredQuery, Query

ProgressCallback = Callable[[int, int, str], None]


def silent(done: int, total: int, text: str) -> None:
    """Ignore training progress."""


class Estimator(Protocol):
    """Predicts metrics of a network on a device at a configuration."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Predicted metrics, by their record's names; empty before fitting."""
        ...

    @property
    def parameters(self) -> int: ...

    def fit(self, samples: Sequence[MeasuredQuery], on_progress: ProgressCallback = silent) -> None:
        """Learn from samples. Raises RecordError."""
        ...

    def predict(self, queries: Sequence[Query]) -> NDArray[np.float64]:
        """(queries, metrics), in the metrics' units. Raises RecordError before fitting."""
        ...


class Targets:
    """Metrics as logarithms of mean 0 and deviation 1."""

    def __init__(self, mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> None:
        self.mean, self.deviation = mean, deviation

    @classmethod
    def fit(cls, values: NDArray[np.float64]) -> Targets:
        logarithms = np.log(values)
        deviation = logarithms.std(0)
        return cls(logarithms.mean(0), np.where(deviation > 1e-9, deviation, 1.0))

    def scaled(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray((np.log(values) - self.mean) / self.deviation)

    def back(self, scaled: NDArray[Any]) -> NDArray[np.float64]:
        # Extrapolation far beyond the learned range stays finite.
        return np.asarray(np.exp(np.clip(scaled.astype(np.float64), -50, 50) * self.deviation + self.mean))


def table_of(samples: Sequence[MeasuredQuery]) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Metrics of samples, and values (samples, metrics). Raises RecordError."""
    if not samples:
        raise RecordError("there are no samples to learn from")
    metrics = tuple(samples[0].values)
    for sample in samples:
        if tuple(sample.values) != metrics:
            raise RecordError(f"{sample.name}: has {', '.join(sample.values)}; expected {', '.join(metrics)}")
    values = np.array([list(sample.values.values()) for sample in samples], np.float64)
    if not (np.isfinite(values).all() and (values > 0).all()):
        wrong = samples[int(np.flatnonzero(~((values > 0) & np.isfinite(values)).all(1))[0])]
        raise RecordError(f"{wrong.name}: {dict(wrong.values)}: expected numbers above 0")
    return metrics, values


def check_fitted(metrics: Sequence[str]) -> None:
    if not metrics:
        raise RecordError("the predictor was not fitted; fit it first")
