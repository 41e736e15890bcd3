# SPDX-License-Identifier: Apache-2.0
"""What a board may draw so that its hottest zone stays below a ceiling.

A board heats like a heat sink of first order: its temperature stands above that of its surroundings by its thermal resistance
times what it drew of late, averaged with the sink's time constant. So the power at which it settles just below the ceiling
follows from what is read now, while it warms up as well as when it has settled. What the resistance or the constant is wrong by
(a fan that turns faster, a board in a box) is made good as the zones come nearer.
"""

from __future__ import annotations

import math

MARGIN_C = 2.0
"""The board is to settle so far below its ceiling: sensors scatter, and zones differ."""
ASSUMED_K_PER_W = 1.0
_TAU_S = 60.0  # of small heat sinks with a fan; assumed
_EVERY_S = 10.0
_LOWER_BY, _RAISE_BY = 0.03, 0.10
_CALM_S = 60.0
_TOO_HOT_SHARE = 0.9
_STEP_MW = 100.0


class Ceiling:
    """Follows one board. For one thread.

    Args:
        k_per_w: its thermal resistance; 0 where nobody knows, and :data:`ASSUMED_K_PER_W` is taken.
    """

    def __init__(self, k_per_w: float) -> None:
        self._k_per_w = k_per_w or ASSUMED_K_PER_W
        self._mean_mw: float | None = None
        self._seen_s = 0.0
        self._limit: tuple[float, float] | None = None  # mW, and when it was found

    def see(self, now_s: float, drawn_mw: float) -> None:
        """Note what the board draws; to be called every few seconds, whether there is a ceiling or not."""
        if self._mean_mw is None:
            self._mean_mw = drawn_mw
        else:
            near = 1.0 - math.exp(-(now_s - self._seen_s) / _TAU_S)
            self._mean_mw += near * (drawn_mw - self._mean_mw)
        self._seen_s = now_s

    def forget(self) -> None:
        """There is no ceiling any more."""
        self._limit = None

    def limit_mw(self, now_s: float, hottest_c: float, ceiling_c: float) -> float | None:
        """What may be drawn; None while nothing was seen.

        It is lowered at once and raised after a minute of calm, so that clocks do not follow every reading.
        """
        if self._mean_mw is None:
            return None
        left_c = ceiling_c - MARGIN_C - hottest_c
        found_mw = max(self._mean_mw + 1e3 * left_c / self._k_per_w, 0.0)
        if self._limit is None:
            self._limit = (_rounded(found_mw), now_s)
            return self._limit[0]
        before_mw, since_s = self._limit
        if now_s - since_s < _EVERY_S:
            return before_mw
        if hottest_c > ceiling_c:
            found_mw = min(found_mw, _TOO_HOT_SHARE * before_mw)
        lower = found_mw < before_mw * (1 - _LOWER_BY)
        if lower or (found_mw > before_mw * (1 + _RAISE_BY) and now_s - since_s >= _CALM_S):
            self._limit = (_rounded(found_mw), now_s)
        return self._limit[0]


def _rounded(power_mw: float) -> float:
    return _STEP_MW * math.floor(power_mw / _STEP_MW)
