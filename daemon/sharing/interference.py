# SPDX-License-Identifier: Apache-2.0
"""What applications cost each other whose frames queue on one GPU.

The GPU runs one frame at a time, in the order in which they were handed in, and no application hands one in before its last
is done. So a frame waits for at most one of each other application: the bound on response times of first come, first served,
with one job of each in the queue. It holds whatever rates and phases are; rates say how much of the time is left over, which
applications without a rate share, one frame of each by turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...kernels.surface import Surface

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
    """

    surface: Surface
    fps: float | None = None
    confidence: float | None = None
    limit_ms: float | None = None
    frugal: bool = True

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


def response_ms(works: Sequence[Work], confidence: float | None) -> NDArray[np.float64]:
    """How long a frame of any of them takes at most from being handed in, over the grid: one of each runs.

    Args:
        confidence: with which each frame takes no longer than it is counted; None for by median.
    """
    return np.sum([work.latency_ms(confidence) for work in works], axis=0)


@dataclass(frozen=True, eq=False)
class Together:
    """What a board does with several applications, over the grid.

    Attributes:
        power_mw: the mean of the energy rails.
        energy_mj: of what all do while each of those without a rate makes one frame; of a second where all have a rate.
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
