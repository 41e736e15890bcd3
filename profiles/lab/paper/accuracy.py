# SPDX-License-Identifier: Apache-2.0
"""Prediction errors in the six figures of MIRAGE (SEC '21), section 6."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

LIMITS = (5.0, 10.0, 15.0, 20.0)
"""In percent."""


class PredictionErrors(Struct, frozen=True):
    """Errors of n predictions.

    Attributes:
        within: percent of them with a relative error below each of :data:`LIMITS`.
        rmse, mae: root mean square and mean absolute error, in the predicted unit.
    """

    within: tuple[float, ...]
    rmse: float
    mae: float
    mean_percent: float
    count: int


class PredictionComparison(Struct, frozen=True):
    """Predicted and observed values in one unit, and boards, (n,)."""

    predicted: NDArray[np.float64]
    observed: NDArray[np.float64]
    board: NDArray[np.int64]

    @property
    def error_percent(self) -> NDArray[np.float64]:
        return np.asarray(100.0 * np.abs(self.predicted / self.observed - 1.0))

    def where(self, mask: NDArray[np.bool_]) -> PredictionComparison:
        return PredictionComparison(self.predicted[mask], self.observed[mask], self.board[mask])

    @classmethod
    def joined(cls, parts: list[PredictionComparison]) -> PredictionComparison:
        names = ("predicted", "observed", "board")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def accuracy(self, weight: ArrayLike | None = None) -> PredictionErrors:
        heavy = np.ones(len(self.observed)) if weight is None else np.asarray(weight, np.float64)
        error, off = self.error_percent, self.predicted - self.observed
        return PredictionErrors(
            within=tuple(float(100.0 * np.average(error < limit, weights=heavy)) for limit in LIMITS),
            rmse=float(np.sqrt(np.average(off**2, weights=heavy))),
            mae=float(np.average(np.abs(off), weights=heavy)),
            mean_percent=float(np.average(error, weights=heavy)),
            count=len(error),
        )


def mean_of(rows: list[PredictionErrors]) -> PredictionErrors:
    """Mean of each figure, as in the last rows of the paper's tables."""
    return PredictionErrors(
        within=tuple(float(share) for share in np.mean([row.within for row in rows], axis=0)),
        rmse=float(np.mean([row.rmse for row in rows])),
        mae=float(np.mean([row.mae for row in rows])),
        mean_percent=float(np.mean([row.mean_percent for row in rows])),
        count=sum(row.count for row in rows),
    )
