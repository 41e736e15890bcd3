# SPDX-License-Identifier: Apache-2.0
"""Tuned recipes, in a file for ``jetdvfs-lab train``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import asdict

from ...documents import DocumentError, convert
from ...errors import MeasurementError
from .kernel_models import Recipe

FORMAT = 1


class TunedRecipe(Struct, frozen=True):
    """Recipe of the smallest model within the accepted loss.

    Attributes:
        error, best_error: held-out root mean square of log(measured / predicted), of this and of the best.
        leaves, best_leaves: sizes of the two.
        trials, pruned: recipes tried, and stopped early.
    """

    recipe: Recipe
    error: float
    best_error: float
    leaves: float
    best_leaves: float
    trials: int
    pruned: int


class TunedRecipes(Struct, frozen=True):
    """Tuned recipes by kind and target; ``loss`` is the accepted error above the best, as a share."""

    loss: float
    record: str
    models: Mapping[str, Mapping[str, TunedRecipe]]
    made_with: Mapping[str, str]
    format: int = FORMAT

    def recipes(self) -> dict[str, tuple[Recipe, ...]]:
        return {
            f"{kind} {target}": (found.recipe,) for kind, targets in self.models.items() for target, found in targets.items()
        }

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(to_builtins(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> TunedRecipes:
        """Read the output of :meth:`save`. Raises MeasurementError for any other form."""
        try:
            tuned = convert(json.loads(path.read_bytes()), cls)
        except (OSError, ValueError, DocumentError) as error:
            raise MeasurementError(f"{path}: no recipes that 'jetdvfs-lab tune' wrote ({error!s:.120})") from error
        if tuned.format != FORMAT:
            raise MeasurementError(f"{path}: recipes of format {tuned.format}; this release reads {FORMAT}")
        return tuned


class TriedRecipe(Struct, frozen=True):
    """Completed trial."""

    recipe: Recipe
    error: float
    leaves: float


def smallest(tried: Sequence[TriedRecipe], loss: float, trials: int, pruned: int) -> TunedRecipe:
    """Smallest model with an error at most ``loss``, a share, above the best."""
    best = min(tried, key=lambda one: one.error)
    chosen = min((one for one in tried if one.error <= best.error * (1 + loss)), key=lambda one: (one.leaves, one.error))
    return TunedRecipe(chosen.recipe, chosen.error, best.error, chosen.leaves, best.leaves, trials, pruned)


def describe(tuned: TunedRecipes) -> list[dict[str, Any]]:
    return [
        {"kind": kind, "target": target, **{name: value for name, value in asdict(found).items() if name != "recipe"}}
        for kind, targets in tuned.models.items()
        for target, found in targets.items()
    ]
