# SPDX-License-Identifier: Apache-2.0
"""Varieties of a record's kernels, and their size ranges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ....kernels.cost.region import Span, doublings_of, names_and_sizes, type_of, variety_of


def spans_of(kind: str, rows: NDArray[np.float32]) -> dict[str, Span]:
    """Size ranges by variety, of rows of :func:`jetdvfs.kernels.cost.features.feature_rows`."""
    names, sizes = names_and_sizes(kind)
    found: dict[str, list[list[float]]] = {}
    for row in rows.tolist():
        found.setdefault(variety_of(kind, names, row), []).append(row)
    spans = {}
    for variety, own in sorted(found.items()):
        doublings = np.array([[doublings_of(names[at], row[at]) for at in sizes] for row in own])
        types = Counter(type_of(names, row) for row in own)
        low, high = (tuple(np.round(end, 3).tolist()) for end in (doublings.min(axis=0), doublings.max(axis=0)))
        spans[variety] = Span(len(own), low, high, dict(sorted(types.items())))
    return spans


def varieties_of(kind: str, rows: NDArray[np.float32]) -> list[str]:
    names, _ = names_and_sizes(kind)
    return [variety_of(kind, names, row) for row in rows.tolist()]


def kinds_of(kernels: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (kind, dtype), count in sorted(Counter(kernels).items()):
        found.setdefault(kind, {})[dtype] = count
    return found
