# SPDX-License-Identifier: Apache-2.0
"""Where a kind's models were trained, and how much less they know beyond: found by leaving such regions out of training.

Two regions are left out, each by itself: a fifth of the varieties, and the fifth of the kernels that move most.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.cost.guesses import UNMODELLED_SIGMA
from ...kernels.cost.region import LEAST_KERNELS, Pair, Region, Span, outside, spans_of, varieties_of
from ..board import BoardDescription
from ..measuring.measurements import Measurements
from .kernel_models import TARGETS, Table, TrainedKind, TrainingOptions, left_out_error, table_of

_SHARE = 5
_LEAST_PER_DOUBLING = 0.05  # nobody has looked further than the largest kernels left out
_NOTHING = Pair(0.0, 0.0)


def fit_region(
    measurements: Measurements,
    board: BoardDescription,
    trained: TrainedKind,
    options: TrainingOptions,
    familiar: Collection[Any],
    own: Pair,
) -> Region:
    """The region of a kind's models.

    Where nothing can be left out, because all kernels are of one variety or of one size, nothing is known of others: the
    deviation there is that of kernels without a model.

    Args:
        trained: the models, whose recipes are taken.
        own: their deviations inside.
    """
    spans: Mapping[str, Span] = {}
    by_variety, by_size = [], []
    for target, inside in zip(TARGETS, own, strict=True):
        table, rows = _numbered(table_of(measurements, board, trained.kind, target, familiar))
        recipe = getattr(trained, target).recipe
        spans = spans if spans and target != "time" else spans_of(trained.kind, rows)
        strange = _some_varieties(trained.kind, rows, options.seed)
        by_variety.append(_deviation(left_out_error(table, strange[table.kernel], recipe, options)) if strange.any() else None)
        large = _largest(rows)
        by_size.append(
            _per_doubling(trained.kind, table, rows, large, left_out_error(table, large[table.kernel], recipe, options), inside)
            if large.any()
            else None
        )
    return Region(spans, _pair(by_variety), _pair(by_size))


def _pair(found: list[float | None]) -> Pair:
    return Pair(*(UNMODELLED_SIGMA if each is None else round(each, 4) for each in found))


def _numbered(table: Table) -> tuple[Table, NDArray[np.float32]]:
    """A table whose kernels are numbered from 0 on, and the features of each; not every kernel is measured for every table."""
    _, first, number = np.unique(table.kernel, return_index=True, return_inverse=True)
    return replace(table, kernel=number), table.features[first]


def _some_varieties(kind: str, rows: NDArray[np.float32], seed: int) -> NDArray[np.bool_]:
    """Which kernels are of the varieties that are left out: some that were measured well enough, not those of most kernels."""
    of_kernel = np.array(varieties_of(kind, rows))
    names, counts = np.unique(of_kernel, return_counts=True)
    enough = names[(counts >= LEAST_KERNELS) & (counts <= len(rows) / 2)]
    if not len(enough):
        return np.zeros(len(rows), np.bool_)
    chosen = np.random.default_rng([seed, 5]).choice(enough, max(len(enough) // _SHARE, 1), replace=False)
    return np.isin(of_kernel, chosen)


def _largest(rows: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Which kernels are the fifth that moves most bytes, by the feature that every kind has."""
    moved = rows[:, 1]
    cut = np.quantile(moved, 1 - 1 / _SHARE)
    return np.asarray(moved > cut) if (moved <= cut).any() else np.zeros(len(rows), np.bool_)


def _per_doubling(
    kind: str,
    table: Table,
    rows: NDArray[np.float32],
    large: NDArray[np.bool_],
    errors: NDArray[np.float64],
    inside: float,
) -> float | None:
    """What the deviation grows by with each doubling beyond what was measured, in quadrature; None where none was beyond."""
    region = Region(spans_of(kind, rows[~large]), _NOTHING, _NOTHING)
    doublings = np.zeros(len(rows))
    for number in np.flatnonzero(large):
        found = outside(kind, rows[number].tolist(), region)
        doublings[number] = found.doublings or 0.0 if found else 0.0
    beyond = doublings[table.kernel[large[table.kernel]]]
    if not beyond.any():
        return None
    more = max(float(np.sum(errors[beyond > 0] ** 2 - inside**2)), 0.0)
    return max(float(np.sqrt(more / np.sum(beyond**2))), _LEAST_PER_DOUBLING)


def _deviation(errors: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(errors**2)))
