# SPDX-License-Identifier: Apache-2.0
"""What applications cost each other whose frames share one GPU.

Frames of one process queue: they run one at a time, in the order in which they were handed in. Processes take turns: the GPU
gives each a slice of its time, about a millisecond, and goes on to the next. No application hands in a frame before its last is
done. So a frame waits at most for one of each other application of its process, and each other process delays it at most by as
much as all of that takes, and a slice; or by less, where what that process hands in meanwhile is less. Rates say how much that
is. They also say how much of the time is left over, which applications without a rate share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....kernels.surface import Surface
from ...planning.lease_plan import Work

SLICE_MS = 1.024
"""How long a process has the GPU until it is another one's turn: nvgpu's ``NVGPU_TSG_TIMESLICE_DEFAULT_US``."""
EXACT = 8
"""Number of applications up to which response times are exact; beyond it they are bounded, in linear time."""
_ROUNDS = 3
_COLUMNS = 256
_LEAST_LEFT = 0.01  # the part of the GPU's time that applications without a rate get in any case


def responses_at_ms(
    works: Sequence[Work], confidences: Sequence[float | None], index: tuple[int, int, int]
) -> NDArray[np.float64]:
    """Response times at one configuration, exact for any number of applications.

    Returns:
        A row per application and a column per confidence.
    """
    alone = np.array([[work.latency_at_ms(one, index) for one in confidences] for work in works])
    return _exact(_Processes.of(works), alone)


def responses_of(works: Sequence[Work], alone: NDArray[np.float64]) -> NDArray[np.float64]:
    """Response time of each application's frames, from hand-in to the end, for some configurations.

    A bound as real-time analysis finds it. The first bound holds for any load of the other applications. It limits the
    number of their frames that arrive meanwhile, which gives a lower bound; this step is repeated.

    Up to :data:`EXACT` applications the number of frames that arrive is rounded up pair by pair. For more, it is bounded by a
    line, whose sum over applications takes linear time; the result is never below the exact one.

    Args:
        alone: latency of each application's frame alone, a row per application and a column per configuration.
    """
    processes = _Processes.of(works)
    parts = [
        (_exact if len(works) <= EXACT else _bounded)(processes, alone[:, start : start + _COLUMNS])
        for start in range(0, alone.shape[1], _COLUMNS)
    ]
    return np.concatenate(parts, axis=1)


@dataclass(frozen=True, eq=False)
class _Processes:
    """The processes of some applications.

    Attributes:
        own: the process of each application, by its place among them.
        members: one row per process: 1 for each application that belongs to it.
        paced: True for a process whose applications all have a rate.
        per_ms: frames per millisecond of each application, 0 without a rate.
    """

    own: NDArray[np.intp]
    members: NDArray[np.float64]
    paced: NDArray[np.bool_]
    per_ms: NDArray[np.float64]

    @classmethod
    def of(cls, works: Sequence[Work]) -> _Processes:
        places = {process: place for place, process in enumerate(dict.fromkeys(work.process for work in works))}
        own = np.array([places[work.process] for work in works])
        members = (own == np.arange(len(places))[:, None]).astype(np.float64)
        without_rate = np.array([work.fps is None for work in works])
        paced = members @ without_rate == 0
        return cls(own, members, paced, np.array([(work.fps or 0.0) / 1e3 for work in works]))


def _first(processes: _Processes, alone: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """GPU time of each application's own process, and the response time for any load of the others."""
    blocks = (processes.members @ alone)[processes.own]
    return blocks, blocks + (len(processes.paced) - 1) * (blocks + SLICE_MS)


def _exact(processes: _Processes, alone: NDArray[np.float64]) -> NDArray[np.float64]:
    """Response times, with the number of frames of each other application rounded up."""
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
    """Response times, with the number of frames of each other application bounded by one more than its rate gives.

    Each other process is counted either by its turns or by its frames, the lower of the two at the middle configuration. Either
    is an upper bound at every configuration.
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


@dataclass(frozen=True, eq=False)
class Together:
    """What a board does with several applications, over the grid.

    Attributes:
        power_mw: the mean of the energy rails.
        energy_mj: of what all do while those without a rate make one frame each; of a second where all have a rate.
    """

    power_mw: NDArray[np.float64]
    energy_mj: NDArray[np.float64]


def together(works: Sequence[Work]) -> Together:
    """Power and energy with all of them running: idle power, and what each frame adds to it, as often as it comes."""
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
        return Together(power_mw, power_mw)
    rounds_per_s = np.maximum(1.0 - busy, _LEAST_LEFT) / (np.sum([one.latency_ms for one in others], axis=0) / 1e3)
    power_mw = idle_mw + added_mw + rounds_per_s * np.sum([_added_mj(one) for one in others], axis=0)
    return Together(power_mw, power_mw / rounds_per_s)


def _added_mj(surface: Surface) -> NDArray[np.float64]:
    """What a frame takes above idle power."""
    added_mj: NDArray[np.float64] = np.maximum(surface.energy_mj - surface.idle_mw * surface.latency_ms / 1e3, 0.0)
    return added_mj
