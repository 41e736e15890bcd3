# SPDX-License-Identifier: Apache-2.0
"""The hyperparameters that are searched, and their ranges: Table 2 of MIRAGE (SEC '21)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..kernel_models import Recipe


@dataclass(frozen=True)
class Space:
    """Ranges, both ends included; those marked so are searched by their logarithm."""

    rounds: tuple[int, int] = (100, 3000)
    max_depth: tuple[int, int] = (5, 11)
    min_child_weight: tuple[int, int] = (5, 8)
    share: tuple[float, float] = (0.8, 1.0)  # subsample, colsample_bytree
    learning_rate: tuple[float, float] = (0.005, 0.1)  # logarithm
    regularisation: tuple[float, float] = (0.0001, 0.01)  # reg_alpha, reg_lambda; logarithm

    def suggested(self, trial: Any) -> Recipe:
        """What an Optuna trial is to try."""
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
        """What a trial tried, by its parameters."""
        return Recipe(**{"rounds" if name == "n_estimators" else name: value for name, value in parameters.items()})
