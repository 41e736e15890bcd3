# SPDX-License-Identifier: Apache-2.0
"""Power parts of a surface, and their observation: idle and dynamic, or growing with three clocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..surface import Surface, Terms
from ..units import AXES
from .models import NOTHING, PowerModel
from .observation import Observation

Array = NDArray[np.float64]

# Without a prediction, power is a constant and, for each clock, a permanent part and one while its unit is busy; each about
# this part of the whole at the top clocks, within a factor of e.
_PART, _PART_SIGMA = 0.15, 1.3
# A part grows with its clock and the voltage squared; the voltage rises with the clock beyond some point.
_GROWTH, _GROWTH_SIGMA = 2.0, 0.7


class CorrectedPower:
    """Power model of a surface with a corrected latency.

    Args:
        busy: share of the latency in which host, GPU and memory are busy, ``(3, cells)``.
        latency_ms: corrected, ``(cells,)``.
    """

    def __init__(self, surface: Surface, terms: Terms, busy: Array, latency_ms: Array) -> None:
        self._surface, self._latency_ms = surface, latency_ms
        self.names: tuple[str, ...] = ()
        if terms.unpredicted:
            self._from_clocks(terms, busy)
        else:
            self._from_predicted(terms, busy)

    def _from_predicted(self, terms: Terms, busy: Array) -> None:
        surface = self._surface
        idle_mw, before_ms = surface.idle_mw.ravel(), surface.latency_ms.ravel()
        dynamic_mj = np.maximum(surface.energy_mj.ravel() - idle_mw * before_ms / 1e3, 1e-6 * surface.energy_mj.ravel())
        # A slower kernel draws the same power for longer.
        gpu_ms = (terms.compute_ms + terms.memory_ms).astype(np.float64).ravel()
        longer = np.where(gpu_ms > 0, busy[1] * self._latency_ms / np.maximum(gpu_ms, 1e-12), 1.0)
        dynamic_mw = dynamic_mj * np.clip(longer, 0.1, 10.0) / self._latency_ms * 1e3
        self._parts = np.log(np.stack([np.maximum(idle_mw, 1e-3), dynamic_mw]))
        self._clock_of, self._clocks = (-1, -1), np.zeros((0, len(idle_mw)))
        self.idle, self._working = [0], np.array([False, True])
        self.names = ("idle", "dynamic")
        self.sigma = np.array([terms.idle_sigma, terms.dynamic_sigma, 0.0])

    def _from_clocks(self, terms: Terms, busy: Array) -> None:
        grid = self._surface.grid
        free = [number for number, axis in enumerate(AXES) if len(grid.levels(axis)) > 1]
        clocks = []
        for number in free:
            levels = np.array(grid.levels(AXES[number]), np.float64)
            shape = [-1 if axis == number else 1 for axis in range(3)]
            clocks.append(np.broadcast_to(np.log(levels / levels[-1]).reshape(shape), grid.shape).ravel())
        self._clocks = np.array(clocks).reshape(len(free), grid.size)
        top = np.log(_PART * self._surface.power_mw.ravel())
        growing = top + _GROWTH * self._clocks
        at_work = growing + np.log(np.maximum(busy[free], np.exp(NOTHING)))
        self._parts = np.vstack([top[None], growing, at_work])
        self._clock_of = (-1, *range(len(free)), *range(len(free)))
        self.idle = list(range(1 + len(free)))
        self._working = np.array([False] * len(self.idle) + [True] * len(free))
        parts, slopes = [_PART_SIGMA] * len(self._parts), [_GROWTH_SIGMA] * len(free)
        self.sigma = np.array([*parts, *slopes, terms.dynamic_sigma])

    def model(self, cells: slice | NDArray[np.intp]) -> PowerModel:
        return PowerModel(self._parts[:, cells], self._clocks[:, cells], self._clock_of)

    def observed(self, cells: NDArray[np.intp], observations: Sequence[Observation]) -> PowerModel:
        """Power as observed: with a period, busy parts count for their share; idle power is at the die's temperature."""
        model = self.model(cells)
        parts = model.parts.copy()
        for row, (cell, one) in enumerate(zip(cells, observations, strict=True)):
            if one.period_ms is not None:
                latency_ms = one.latency_ms or self._latency_ms[cell]
                parts[self._working, row] += np.log(min(latency_ms / one.period_ms, 1.0))
            heat = self._surface.heat
            if one.temperature_c is not None and heat is not None:
                share = self._surface.leakage_mw.ravel()[cell] / max(self._surface.idle_mw.ravel()[cell], 1e-3)
                parts[self.idle, row] += np.log(max(1.0 + share * float(heat.growth(one.temperature_c)), 0.1))
        return PowerModel(parts, model.clocks, model.clock_of)
