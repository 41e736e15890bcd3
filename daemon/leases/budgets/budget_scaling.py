# SPDX-License-Identifier: Apache-2.0
"""Configurations lowered while the board exceeds its power budget, for programs without predicted power."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....kernels.grid import FrequencyConfiguration
from ....kernels.units import AXES

_EVERY_S, _CALM_S = 2.0, 20.0
_LOWER_TO, _LOWER_LEAST, _RAISE_BY = 0.7, 0.95, 1.1
_ROOM = 0.9
_LEAST_SHARE = 0.05


class BudgetScaling:
    """Share of each clock of a configuration within the budget, above 0 and at most 1. For one thread."""

    def __init__(self) -> None:
        self.share = 1.0
        self._changed_s = float("-inf")

    def update(self, now_s: float, drawn_mw: float | None, budget_mw: float | None) -> bool:
        before = self.share
        if budget_mw is None:
            self.share, self._changed_s = 1.0, float("-inf")
        elif drawn_mw is not None and drawn_mw > budget_mw and now_s - self._changed_s >= _EVERY_S:
            factor = min(max(budget_mw / drawn_mw, _LOWER_TO), _LOWER_LEAST)
            self.share, self._changed_s = max(self.share * factor, _LEAST_SHARE), now_s
        elif drawn_mw is not None and drawn_mw < _ROOM * budget_mw and now_s - self._changed_s >= _CALM_S:
            self.share, self._changed_s = min(self.share * _RAISE_BY, 1.0), now_s
        return self.share != before

    def cap(self, configuration: FrequencyConfiguration, levels: Mapping[str, Sequence[int]]) -> FrequencyConfiguration:
        if self.share == 1.0:
            return configuration
        capped = []
        for axis in AXES:
            level = getattr(configuration, axis)
            below = [one for one in levels[axis] if one <= self.share * level]
            capped.append(below[-1] if below else min(levels[axis][0], level))
        return FrequencyConfiguration(*capped)
