# SPDX-License-Identifier: Apache-2.0
"""Whether the machine has slept: what a board forgets meanwhile is nobody's choice, and is set again at once."""

from __future__ import annotations

import time
from collections.abc import Callable

# The two clocks are read one after the other, and a slow machine may do something else in between.
_LEAST_S = 0.5


def since_boot() -> float:
    """Seconds since the boot, those included in which the machine slept (``CLOCK_BOOTTIME`` of clock_gettime(2))."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Sleep:
    """Tells whether the machine has slept since it was asked last: time since the boot is then ahead of that awake.

    Args:
        monotonic: seconds in which the machine was awake, from whenever.
        since_boot: seconds, those asleep included.
    """

    def __init__(self, monotonic: Callable[[], float], since_boot: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._since_boot = since_boot
        self._asleep_s = since_boot() - monotonic()

    def over(self) -> bool:
        """Whether it has slept since this was asked last."""
        asleep_s = self._since_boot() - self._monotonic()
        slept, self._asleep_s = asleep_s - self._asleep_s > _LEAST_S, asleep_s
        return slept
