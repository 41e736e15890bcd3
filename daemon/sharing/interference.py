# SPDX-License-Identifier: Apache-2.0
"""What applications cost each other whose frames share one GPU.

Frames of one process queue: they run one at a time, in the order in which they were handed in. Processes take turns: the GPU
gives each a slice of its time, about a millisecond, and goes on to the next. No application hands in a frame before its last is
done. So a frame waits at most for one of each other application of its process, and each other process delays it at most by as
much as all of that takes, and a slice; or by less, where what that process hands in meanwhile is less. Rates say how much that
is. They also say how much of the time is left over, which applications without a rate share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...kernels.surface import Surface

SLICE_MS = 1.024
"""How long a process has the GPU until it is another one's turn: nvgpu's ``NVGPU_TSG_TIMESLICE_DEFAULT_US``."""
_ROUNDS = 3
_LEAST_LEFT = 0.01  # the part of the GPU's time that applications without a rate get in any case


@dataclass(frozen=True, eq=False)
class Work:
    """What the frames of one application ask of the GPU.

    Attributes:
        surface: of one inference, alone on the board.
        fps: frames per second; None for one after the other.
        confidence: with which it was planned, and its limit is to be kept; None for by median.
        limit_ms: how long a frame may take; None for any time.
        frugal: whether the least energy is preferred among the configurations that keep the limit.
        process: which hands them in.
    """

    surface: Surface
    fps: float | None = None
    confidence: float | None = None
    limit_ms: float | None = None
    frugal: bool = True
    process: int = 0

    @cached_property
    def _quantiles(self) -> dict[float, NDArray[np.float64]]:
        return {}

    def latency_ms(self, confidence: float | None) -> NDArray[np.float64]:
        """Of a frame alone, over the grid: by median, or what is not exceeded with a confidence."""
        if confidence is None:
            return self.surface.latency_ms
        if confidence not in self._quantiles:
            self._quantiles[confidence] = self.surface.quantile(confidence).latency_ms
        return self._quantiles[confidence]


def responses_ms(works: Sequence[Work], confidence: float | None) -> list[NDArray[np.float64]]:
    """How long a frame of each takes at most from being handed in, over the grid.

    A bound on response times as real-time analysis finds it: it begins with what holds whatever the others do, from which
    follows how many frames of each come meanwhile, and so a lower bound, a few times.

    Args:
        confidence: with which each frame takes no longer than it is counted; None for by median.
    """
    alone = [work.latency_ms(confidence) for work in works]
    processes = {work.process for work in works}
    blocks = {one: _sum(ms for work, ms in zip(works, alone, strict=True) if work.process == one) for one in processes}
    found = [blocks[work.process] + (len(processes) - 1) * (blocks[work.process] + SLICE_MS) for work in works]
    for _ in range(_ROUNDS if len(processes) > 1 else 0):
        found = [_response(works, alone, blocks, found, place) for place in range(len(works))]
    return found


def _response(
    works: Sequence[Work],
    alone: Sequence[NDArray[np.float64]],
    blocks: Mapping[int, NDArray[np.float64]],
    before: Sequence[NDArray[np.float64]],
    place: int,
) -> NDArray[np.float64]:
    own = works[place].process
    total = blocks[own]
    for other in blocks:
        if other == own:
            continue
        handed_in = _sum(
            alone[one] * (np.inf if work.fps is None else np.ceil((before[place] + before[one]) * work.fps / 1e3))
            for one, work in enumerate(works)
            if work.process == other
        )
        total = total + np.minimum(blocks[own] + SLICE_MS, handed_in)
    return total


def _sum(parts: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
    total: NDArray[np.float64] = np.sum(list(parts), axis=0)
    return total


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
