# SPDX-License-Identifier: Apache-2.0
"""Training region of a kind's models, and uncertainty beyond it.

Held out are, separately, a fifth of the forms, a fifth of the varieties, and the fifth of kernels that move most; kinds that
share models, a fifth at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ....kernels.cost.guesses import UNMODELLED_SIGMA
from ....kernels.cost.region import LEAST_KERNELS, ModelPair, Region, Span, form_of, outside
from ....kernels.kinds import fused_of
from ...adapt.measurements import Measurements
from ...device import MeasuredDevice
from ..measure.varieties import kinds_of, spans_of, varieties_of
from .kernel_models import TARGETS, Recipe, Table, TrainedKind, TrainingOptions, kernels_of, left_out_error, table_of

_SHARE = 5
_TREES, _RATE = 250, 0.2
_LEAST_PER_DOUBLING = 0.05  # no measurement beyond the largest held-out kernels
_NOTHING = ModelPair(0.0, 0.0)


def fit_region(
    measurements: Measurements,
    board: MeasuredDevice,
    trained: TrainedKind,
    options: TrainingOptions,
    familiar: Collection[Any],
    own: ModelPair,
) -> Region:
    """Region of a kind's models, and uncertainty beyond; ``own`` are deviations inside."""
    kinds: Mapping[str, Mapping[str, int]] = {}
    spans: Mapping[str, Span] = {}
    more: list[tuple[float | None, ...]] = []
    own_kernels = [measurements.invocations[what] for what in kernels_of(measurements, trained.kind)]
    fused = {row.name for row in fused_of(trained.kind)}
    for target, inside in zip(TARGETS, own, strict=True):
        model = trained.of(target)
        if model is None:
            more.append((0.0, 0.0, 0.0, 0.0))
            continue
        table = table_of(measurements, board, trained.kind, target, familiar)
        numbers, first, number = np.unique(table.kernel, return_index=True, return_inverse=True)
        table, rows = replace(table, kernel=number), table.features[first]
        measured = [own_kernels[number] for number in numbers]
        of_kind = [trained.kind if kernel.kind in fused else kernel.kind for kernel in measured]
        if not spans:  # every kernel is timed, not each one's power is measured
            kinds = kinds_of(zip(of_kind, (kernel.dtype for kernel in measured), strict=True))
            spans = spans_of(trained.kind, rows)
        of_variety = varieties_of(trained.kind, rows)
        without = partial(_without, table, model.recipe, options)
        form, variety = (_some(names, options.seed) for names in (list(map(form_of, of_variety)), of_variety))
        large = _largest(rows)
        more.append(
            (
                _more_by_kind(of_kind, table, without, inside, options.seed),
                _more(without(form), inside),
                _more(without(variety), inside),
                _per_doubling(trained.kind, table, rows, large, without(large), inside),
            )
        )
    return Region(kinds, spans, *map(_pair, zip(*more, strict=True)))


def _without(table: Table, recipe: Recipe, options: TrainingOptions, left_out: NDArray[np.bool_]) -> NDArray[np.float64]:
    return left_out_error(table, left_out[table.kernel], _coarser(recipe), options) if left_out.any() else np.zeros(0)


def _coarser(recipe: Recipe) -> Recipe:
    """Recipe of fewer trees: errors beyond the region are far larger than theirs."""
    if recipe.rounds <= _TREES:
        return recipe
    return replace(recipe, rounds=_TREES, learning_rate=max(recipe.learning_rate, _RATE))


def _pair(found: Sequence[float | None]) -> ModelPair:
    return ModelPair(*(UNMODELLED_SIGMA if each is None else round(each, 4) for each in found))


def _more(errors: NDArray[np.float64], inside: float) -> float | None:
    return float(np.sqrt(max(float(np.mean(errors**2)) - inside**2, 0.0))) if len(errors) else None


def _more_by_kind(
    names: Sequence[str], table: Table, without: Callable[[NDArray[np.bool_]], NDArray[np.float64]], inside: float, seed: int
) -> float | None:
    known = np.random.default_rng([seed, 6]).permutation(_enough(names))
    of_kernel, squares = np.array(names), []
    for fold in (known[first::_SHARE] for first in range(min(_SHARE, len(known)))):
        left_out = np.isin(of_kernel, fold)
        errors, kinds = without(left_out), of_kernel[table.kernel][left_out[table.kernel]]
        squares += [float(np.mean(errors[kinds == kind] ** 2)) for kind in fold]
    return float(np.sqrt(max(float(np.mean(squares)) - inside**2, 0.0))) if squares else None


def _enough(names: Sequence[str]) -> NDArray[np.str_]:
    known, counts = np.unique(np.array(names), return_counts=True)
    return np.asarray(known[(counts >= LEAST_KERNELS) & (counts <= len(names) / 2)])


def _some(names: Sequence[str], seed: int) -> NDArray[np.bool_]:
    enough = _enough(names)
    if not len(enough):
        return np.zeros(len(names), np.bool_)
    chosen = np.random.default_rng([seed, 5]).choice(enough, max(len(enough) // _SHARE, 1), replace=False)
    return np.isin(np.array(names), chosen)


def _largest(rows: NDArray[np.float32]) -> NDArray[np.bool_]:
    moved = rows[:, 1]
    cut = np.quantile(moved, 1 - 1 / _SHARE)
    return np.asarray(moved > cut) if (moved <= cut).any() else np.zeros(len(rows), np.bool_)


def _per_doubling(
    kind: str, table: Table, rows: NDArray[np.float32], large: NDArray[np.bool_], errors: NDArray[np.float64], inside: float
) -> float | None:
    """Growth of deviation per doubling beyond the measured sizes, in quadrature."""
    if not large.any():
        return None
    region = Region({}, spans_of(kind, rows[~large]), _NOTHING, _NOTHING, _NOTHING, _NOTHING)
    doublings = np.zeros(len(rows))
    for number in np.flatnonzero(large):
        found = outside(kind, rows[number].tolist(), region)
        doublings[number] = found.doublings if found else 0.0
    beyond = doublings[table.kernel[large[table.kernel]]]
    if not beyond.any():
        return None
    more = max(float(np.sum(errors[beyond > 0] ** 2 - inside**2)), 0.0)
    return max(float(np.sqrt(more / np.sum(beyond**2))), _LEAST_PER_DOUBLING)
