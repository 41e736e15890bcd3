# SPDX-License-Identifier: Apache-2.0
"""One configuration for several applications on a GPU: most deadlines kept, else nearest to all, at the least energy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ...kernels.errors import GridError
from ...kernels.grid import FrequencyConfiguration, FrequencyGrid
from ...kernels.surface import Surface
from ...kernels.units import AXES
from ..planning.lease_plan import GpuLoad
from ..planning.limits import TIE, Limits, lowest_clocks

if TYPE_CHECKING:
    from ...kernels.correction.observation import Observation

SLICE_MS = 1.024
"""GPU time slice of a process: nvgpu's ``NVGPU_TSG_TIMESLICE_DEFAULT_US``."""
EXACT = 8
"""Number of applications up to which response times are exact; beyond, bounded in linear time."""
_ROUNDS = 3
_COLUMNS = 256
_LEAST_LEFT = 0.01  # share of GPU time kept for applications without a rate


def responses_at_ms(
    works: Sequence[GpuLoad], confidences: Sequence[float | None], index: tuple[int, int, int]
) -> NDArray[np.float64]:
    """Exact response times at one configuration: a row per application, a column per confidence."""
    alone = np.array([[work.latency_at_ms(one, index) for one in confidences] for work in works])
    return _exact(_Processes.of(works), alone)


def responses_of(works: Sequence[GpuLoad], alone: NDArray[np.float64]) -> NDArray[np.float64]:
    """Response time of each application's frames, from hand-in to the end, for some configurations.

    A bound of real-time analysis, refined repeatedly: a bound limits the others' arriving frames, which lowers it. Up to
    :data:`EXACT` applications, arriving frames are rounded up pair by pair; beyond, bounded by a line.

    Args:
        alone: latency of a frame alone, a row per application and a column per configuration.
    """
    processes = _Processes.of(works)
    parts = [
        (_exact if len(works) <= EXACT else _bounded)(processes, alone[:, start : start + _COLUMNS])
        for start in range(0, alone.shape[1], _COLUMNS)
    ]
    return np.concatenate(parts, axis=1)


class _Processes(Struct, frozen=True, eq=False):
    """Processes of some applications.

    Attributes:
        own: process index of each application.
        members: one row per process: 1 for each application that belongs to it.
        paced: True for a process whose applications all have a rate.
        per_ms: frames per millisecond of each application.
    """

    own: NDArray[np.intp]
    members: NDArray[np.float64]
    paced: NDArray[np.bool_]
    per_ms: NDArray[np.float64]

    @classmethod
    def of(cls, works: Sequence[GpuLoad]) -> _Processes:
        places = {process: place for place, process in enumerate(dict.fromkeys(work.process for work in works))}
        own = np.array([places[work.process] for work in works])
        members = (own == np.arange(len(places))[:, None]).astype(np.float64)
        without_rate = np.array([work.fps is None for work in works])
        paced = members @ without_rate == 0
        return cls(own, members, paced, np.array([(work.fps or 0.0) / 1e3 for work in works]))


def _first(processes: _Processes, alone: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """GPU time of each application's process, and its response time for any load of the others."""
    blocks = (processes.members @ alone)[processes.own]
    return blocks, blocks + (len(processes.paced) - 1) * (blocks + SLICE_MS)


def _exact(processes: _Processes, alone: NDArray[np.float64]) -> NDArray[np.float64]:
    blocks, found = _first(processes, alone)
    others = np.flatnonzero(processes.paced)
    if len(processes.paced) == 1 or not len(others):
        return found
    fixed = (len(processes.paced) - 1) - (len(others) - processes.paced[processes.own])  # other processes without a rate
    own = (processes.own[:, None] == others)[:, :, None]
    turn = blocks + SLICE_MS
    for _ in range(_ROUNDS):
        arriving = np.ceil((found[:, None] + found) * processes.per_ms[:, None]) * alone
        delays = np.where(own, 0.0, np.minimum(turn[:, None], processes.members[others] @ arriving))
        found = blocks + fixed[:, None] * turn + delays.sum(axis=1)
    return found


def _bounded(processes: _Processes, alone: NDArray[np.float64]) -> NDArray[np.float64]:
    """Response times, with arriving frames bounded by the rate plus one.

    Each other process counts by turns or frames, the lower at the middle configuration; both are bounds everywhere.
    """
    blocks, found = _first(processes, alone)
    if len(processes.paced) == 1 or not processes.paced.any():
        return found
    load = processes.members @ (alone * processes.per_ms[:, None])
    turn = blocks + SLICE_MS
    other = processes.own[:, None] != np.arange(len(processes.paced))
    middle = int(np.argsort(alone.sum(axis=0))[alone.shape[1] // 2])
    for _ in range(_ROUNDS):
        frames = processes.members @ (alone * (found * processes.per_ms[:, None] + 1.0))
        by_frames = found[:, middle, None] * load[:, middle] + frames[:, middle]
        counted = other & processes.paced & (by_frames < turn[:, middle, None])
        turns = (other & ~counted).sum(axis=1)
        share = counted.astype(np.float64)
        total = blocks + turns[:, None] * turn + found * (share @ load) + share @ frames
        found = np.minimum(found, total)
    return found


class JointPrediction(Struct, frozen=True, eq=False):
    """Power and energy of several applications, over the grid.

    Energy is that of all while those without a rate make one frame each; per second if all have a rate.
    """

    power_mw: NDArray[np.float64]
    energy_mj: NDArray[np.float64]


def together(works: Sequence[GpuLoad]) -> JointPrediction:
    """Power and energy of all together: idle power, plus each frame's added energy times its rate."""
    paced = [(work, work.fps) for work in works if work.fps is not None]
    others = [work.surface for work in works if work.fps is None]
    idle_mw = works[0].surface.idle_mw
    added_mw, busy = np.zeros_like(idle_mw), np.zeros_like(idle_mw)
    for work, fps in paced:
        added_mw = added_mw + fps * _added_mj(work.surface)
        busy = busy + fps * work.surface.latency_ms / 1e3
    added_mw, busy = added_mw / np.maximum(busy, 1.0), np.minimum(busy, 1.0)
    if not others:
        power_mw = idle_mw + added_mw
        return JointPrediction(power_mw, power_mw)
    rounds_per_s = np.maximum(1.0 - busy, _LEAST_LEFT) / (np.sum([one.latency_ms for one in others], axis=0) / 1e3)
    power_mw = idle_mw + added_mw + rounds_per_s * np.sum([_added_mj(one) for one in others], axis=0)
    return JointPrediction(power_mw, power_mw / rounds_per_s)


def _added_mj(surface: Surface) -> NDArray[np.float64]:
    added_mj: NDArray[np.float64] = np.maximum(surface.energy_mj - surface.idle_mw * surface.latency_ms / 1e3, 0.0)
    return added_mj


_PASSES = 8


def without_waiting(
    in_company: Iterable[Observation],
    alone: Sequence[Observation],
    own: GpuLoad,
    others: Sequence[GpuLoad],
    *,
    all_its_own: bool = False,
) -> list[Observation]:
    """Observations in company, without the wait for other leases' frames.

    Latency within the bound with waiting is no evidence; beyond it, all frames are slower by one factor, the network's own if
    ``all_its_own``. Observations alone take precedence.
    """
    seen = {one.configuration for one in alone}
    found = list(alone)
    for one in in_company:
        if one.configuration in seen or one.latency_ms is None:
            continue
        try:
            index = own.surface.grid.index(one.configuration)
        except GridError:
            continue
        times, over = 1.0, one.latency_ms / _bound_ms(own, others, index)
        for _ in range(_PASSES if all_its_own else 1):
            times *= max(over, 1.0)
            if all_its_own and over > 1:
                over = one.latency_ms / _bound_ms(own, others, index, times)
        if times > 1:
            found.append(replace(one, latency_ms=times * float(own.surface.latency_ms[index]), power_mw=None))
    return found


def _bound_ms(own: GpuLoad, others: Sequence[GpuLoad], index: tuple[int, int, int], times: float = 1.0) -> float:
    surface = replace(own.surface, latency_ms=times * own.surface.latency_ms) if times != 1.0 else own.surface
    return float(responses_at_ms([replace(own, surface=surface), *others], [None], index)[0, 0])


KEPT = 1 + 1e-9
MOST_CONFIDENCES = 4
STEPS = (0.8, 0.95, 0.99, 0.999)
"""Substitutes for too many different confidences, each rounded up; the highest is the highest requested."""


class JointChoice(Struct, frozen=True):
    configuration: FrequencyConfiguration
    attained: bool


def jointly(works: Sequence[GpuLoad], limits: Limits, least: FrequencyConfiguration | None = None) -> JointChoice:
    """Choose the configuration for all applications, on one grid, at or above the clocks ``least``; raises UsageError."""
    grid, both = works[0].surface.grid, together(works)
    permitted = limits.permits(grid)
    affordable = permitted & limits.affords(both.power_mw)
    permitted = affordable if affordable.any() else permitted & (both.power_mw <= both.power_mw[permitted].min())
    if least is not None:
        raised = permitted & _at_least(grid, least, permitted)
        permitted = raised if raised.any() else permitted
    cautious = [
        _CautiousLimit(place, work, work.limit_ms) for place, work in enumerate(_stepped(works)) if work.limit_ms is not None
    ]
    kept, farthest = _evaluate(works, cautious, permitted, both.energy_mj)
    among = permitted & (kept == kept[permitted].max())
    attained = bool(kept[permitted].max() == len(cautious))
    if not attained:
        among &= farthest <= farthest[among].min() * (1 + TIE)
    among &= both.energy_mj <= both.energy_mj[among].min() * (1 + TIE)
    return JointChoice(grid.configuration(lowest_clocks(grid, among)), attained)


def shared_latency_ms(works: Mapping[str, GpuLoad], configuration: FrequencyConfiguration) -> dict[str, float]:
    found = tuple(works.values())
    index = found[0].surface.grid.index(configuration)
    confidences = list({work.confidence for work in found})
    responses = responses_at_ms(found, confidences, index)
    return {
        name: float(responses[place, confidences.index(work.confidence)]) for place, (name, work) in enumerate(works.items())
    }


class _CautiousLimit(NamedTuple):
    place: int
    work: GpuLoad
    limit_ms: float


def _stepped(works: Sequence[GpuLoad]) -> list[GpuLoad]:
    asked = {work.confidence for work in works if work.confidence is not None}
    if len(asked) <= MOST_CONFIDENCES:
        return list(works)
    steps = (*(step for step in STEPS if step < max(asked)), max(asked))
    return [
        work if work.confidence is None else replace(work, confidence=next(step for step in steps if step >= work.confidence))
        for work in works
    ]


def _evaluate(
    works: Sequence[GpuLoad], cautious: Sequence[_CautiousLimit], permitted: NDArray[np.bool_], energy_mj: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Number of limits kept and the largest share taken, by rising energy up to the first configuration that keeps all."""
    kept, farthest = np.zeros(permitted.shape, np.int64), np.full(permitted.shape, np.inf)
    order = np.flatnonzero(permitted)
    order = order[np.argsort(energy_mj.ravel()[order], kind="stable")]
    if not cautious:
        return kept, farthest
    alone = _SoloLatency(works)
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


class _SoloLatency:
    def __init__(self, works: Sequence[GpuLoad]) -> None:
        self._works = works
        self._found: dict[tuple[int, float | None], NDArray[np.float64]] = {}

    def ms(self, confidence: float | None, columns: NDArray[np.intp]) -> NDArray[np.float64]:
        return np.stack([self._of(work, confidence)[columns] for work in self._works])

    def _of(self, work: GpuLoad, confidence: float | None) -> NDArray[np.float64]:
        key = (id(work.surface), confidence)
        if key not in self._found:
            self._found[key] = work.latency_ms(confidence).ravel()
        return self._found[key]


def _at_least(grid: FrequencyGrid, least: FrequencyConfiguration, permitted: NDArray[np.bool_]) -> NDArray[np.bool_]:
    mask = np.ones(grid.shape, bool)
    for axis, name in enumerate(AXES):
        levels = np.array(grid.levels(name))
        others = tuple({0, 1, 2} - {axis})
        highest = levels[permitted.any(axis=others)].max()
        shape = [-1 if one == axis else 1 for one in range(3)]
        mask &= (levels >= min(getattr(least, name), highest)).reshape(shape)
    return mask
