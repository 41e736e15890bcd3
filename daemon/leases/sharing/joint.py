# SPDX-License-Identifier: Apache-2.0
"""One configuration for several applications on one GPU: every deadline kept given all of them, at the least energy.

Where nothing keeps them all, as many as possible are kept, and those that are not come as close as they can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....kernels.grid import FrequencyConfiguration, FrequencyGrid
from ....kernels.units import AXES
from ...planning.lease_plan import Work
from ...planning.limits import TIE, Limits, lowest_clocks
from .interference import responses_at_ms, responses_of, together

KEPT = 1 + 1e-9
"""A limit is kept up to this part of it: figures are sums."""
MOST_CONFIDENCES = 4
STEPS = (0.8, 0.95, 0.99, 0.999)
"""Where applications differ in more confidences, these count instead, each rounded up; the highest is the highest asked for."""
_COLUMNS = 256


@dataclass(frozen=True)
class Joint:
    """What was found.

    Attributes:
        configuration: the one.
        attained: whether all deadlines are kept there.
    """

    configuration: FrequencyConfiguration
    attained: bool


def jointly(works: Sequence[Work], limits: Limits, least: FrequencyConfiguration | None = None) -> Joint:
    """Choose for all of them.

    Args:
        works: at least one, all of one grid.
        limits: the range each clock must stay in, and what the board may draw.
        least: clocks that are needed at least, as far as the limits leave them.

    Raises:
        UsageError: the limits leave nothing.
    """
    grid, both = works[0].surface.grid, together(works)
    permitted = limits.permits(grid)
    affordable = permitted & limits.affords(both.power_mw)
    permitted = affordable if affordable.any() else permitted & (both.power_mw <= both.power_mw[permitted].min())
    if least is not None:
        raised = permitted & _at_least(grid, least, permitted)
        permitted = raised if raised.any() else permitted
    cautious = [
        _Cautious(place, work, work.limit_ms) for place, work in enumerate(_stepped(works)) if work.limit_ms is not None
    ]
    kept, farthest = _evaluate(works, cautious, permitted, both.energy_mj)
    among = permitted & (kept == kept[permitted].max())
    attained = bool(kept[permitted].max() == len(cautious))
    if not attained:
        among &= farthest <= farthest[among].min() * (1 + TIE)
    among &= both.energy_mj <= both.energy_mj[among].min() * (1 + TIE)
    return Joint(grid.configuration(lowest_clocks(grid, among)), attained)


def fare_ms(works: Mapping[str, Work], configuration: FrequencyConfiguration) -> dict[str, float]:
    """How long frames of each take at most at a configuration.

    Raises:
        GridError: it is none of the grid.
    """
    found = tuple(works.values())
    index = found[0].surface.grid.index(configuration)
    confidences = list({work.confidence for work in found})
    responses = responses_at_ms(found, confidences, index)
    return {
        name: float(responses[place, confidences.index(work.confidence)]) for place, (name, work) in enumerate(works.items())
    }


class _Cautious(NamedTuple):
    """An application with a limit, by its place among all of them, and with its confidence rounded up."""

    place: int
    work: Work
    limit_ms: float


def _stepped(works: Sequence[Work]) -> list[Work]:
    """The same applications, with few different confidences: of more, each is rounded up to the next of :data:`STEPS`."""
    asked = {work.confidence for work in works if work.confidence is not None}
    if len(asked) <= MOST_CONFIDENCES:
        return list(works)
    steps = (*(step for step in STEPS if step < max(asked)), max(asked))
    return [
        work if work.confidence is None else replace(work, confidence=next(step for step in steps if step >= work.confidence))
        for work in works
    ]


def _evaluate(
    works: Sequence[Work], cautious: Sequence[_Cautious], permitted: NDArray[np.bool_], energy_mj: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Number of limits kept, and the largest share of a limit that is taken, over the grid.

    Permitted configurations are looked at in order of their energy, and none any more that takes more than the first that keeps
    every limit: those, and what is not permitted, count as keeping none.
    """
    kept, farthest = np.zeros(permitted.shape, np.int64), np.full(permitted.shape, np.inf)
    order = np.flatnonzero(permitted)
    order = order[np.argsort(energy_mj.ravel()[order], kind="stable")]
    if not cautious:
        return kept, farthest
    alone = _Alone(works)
    confidences = {one.work.confidence for one in cautious}
    enough_mj = np.inf
    for start in range(0, len(order), _COLUMNS):
        columns = order[start : start + _COLUMNS]
        if energy_mj.ravel()[columns[0]] > enough_mj:
            break
        responses = {one: responses_of(works, alone.ms(one, columns)) for one in confidences}
        over = np.stack([responses[one.work.confidence][one.place] / one.limit_ms for one in cautious])
        kept.ravel()[columns] = (over <= KEPT).sum(axis=0)
        farthest.ravel()[columns] = over.max(axis=0)
        all_kept = columns[kept.ravel()[columns] == len(cautious)]
        if len(all_kept) and enough_mj == np.inf:
            enough_mj = energy_mj.ravel()[all_kept[0]] * (1 + TIE)
    return kept, farthest


class _Alone:
    """Latencies of each application's frames alone, by confidence."""

    def __init__(self, works: Sequence[Work]) -> None:
        self._works = works
        self._found: dict[tuple[int, float | None], NDArray[np.float64]] = {}

    def ms(self, confidence: float | None, columns: NDArray[np.intp]) -> NDArray[np.float64]:
        """A row per application, for some of the grid's configurations."""
        return np.stack([self._of(work, confidence)[columns] for work in self._works])

    def _of(self, work: Work, confidence: float | None) -> NDArray[np.float64]:
        key = (id(work.surface), confidence)
        if key not in self._found:
            self._found[key] = work.latency_ms(confidence).ravel()
        return self._found[key]


def _at_least(grid: FrequencyGrid, least: FrequencyConfiguration, permitted: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Where no clock is below what is needed of it; a need above all that is permitted counts as the highest of that."""
    mask = np.ones(grid.shape, bool)
    for axis, name in enumerate(AXES):
        levels = np.array(grid.levels(name))
        others = tuple({0, 1, 2} - {axis})
        highest = levels[permitted.any(axis=others)].max()
        shape = [-1 if one == axis else 1 for one in range(3)]
        mask &= (levels >= min(getattr(least, name), highest)).reshape(shape)
    return mask
