# SPDX-License-Identifier: Apache-2.0
"""When a board has settled elsewhere than was planned for: surroundings change, fans slow down, other work heats.

A plan is made for the temperature at which the die will settle. Until it does, it is colder or warmer than planned, and nothing
is wrong. So plans are made again only where the die no longer comes nearer to what was planned, and is off by more than
readings scatter.
"""

from __future__ import annotations

from collections import deque

OFF_C = 4.0
"""By how much the die must be off: a tenth of what leaks, on most boards."""
SETTLED_S = 60.0
"""For so long it must not have come nearer; plans that were made less than that ago stand."""
_MOVING_C = 1.0  # of a reading's scatter over that time, above which it moves
_EVERY_S = 5.0


class Settling:
    """Follows the die's temperature. For one thread; ``see`` it now and then, at least a few times in :data:`SETTLED_S`."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque()

    def see(self, now_s: float, die_c: float) -> None:
        """Note a reading, in degrees Celsius; ``now_s`` is on the caller's monotonic clock."""
        if self._seen and now_s - self._seen[-1][0] < _EVERY_S:
            return
        self._seen.append((now_s, die_c))
        while len(self._seen) > 2 and now_s - self._seen[1][0] >= SETTLED_S:
            self._seen.popleft()

    def reason(self, planned_s: float, planned_c: float) -> str | None:
        """Why a plan is to be made again; None where it is not.

        Args:
            planned_s: when it was made.
            planned_c: where the die was to settle, at the clocks that are in force.

        Once it was made anew, for the temperature that the die has now, there is no reason until it is off again.
        """
        if len(self._seen) < 2:
            return None
        (before_s, before_c), (now_s, now_c) = self._seen[0], self._seen[-1]
        if now_s - before_s < SETTLED_S or before_s < planned_s or abs(now_c - planned_c) < OFF_C:
            return None
        if abs(before_c - planned_c) - abs(now_c - planned_c) > _MOVING_C:
            return None  # on its way
        way = "warmer" if now_c > planned_c else "colder"
        return f"the die has settled at {now_c:.0f} C, {abs(now_c - planned_c):.0f} C {way} than planned for"
