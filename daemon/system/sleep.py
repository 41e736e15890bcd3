# SPDX-License-Identifier: Apache-2.0
"""Detection of sleep, in which a board loses its settings."""

from __future__ import annotations

import time
from collections.abc import Callable

# The clocks are read in turn, with a possible delay on a slow machine.
_LEAST_S = 0.5


def since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SleepDetector:
    """Detects sleep, when seconds since the boot gain on monotonic seconds awake."""

    def __init__(self, monotonic: Callable[[], float], since_boot: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._since_boot = since_boot
        self._asleep_s = since_boot() - monotonic()

    def over(self) -> bool:
        asleep_s = self._since_boot() - self._monotonic()
        slept, self._asleep_s = asleep_s - self._asleep_s > _LEAST_S, asleep_s
        return slept
