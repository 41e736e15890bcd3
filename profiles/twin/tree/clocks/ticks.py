# SPDX-License-Identifier: Apache-2.0
"""When governors look."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Tick:
    """A governor's timer, and how busy its unit has been since it last went off."""

    period_s: float
    act: Callable[[float], bool]
    next_at: float
    since: float = 0.0
    busy_s: float = 0.0

    def fire(self, now: float) -> bool:
        elapsed = max(now - self.since, 1e-9)
        load, self.busy_s, self.since = min(self.busy_s / elapsed, 1.0), 0.0, now
        return self.act(load)
