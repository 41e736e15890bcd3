# SPDX-License-Identifier: Apache-2.0
"""How much of the memory's activity is other work's: the monitor counts everybody, and does not say whom.

Leased applications work on the GPU: while it idles, all that is counted is other work's. Where the GPU does not say how busy
it is, all of it is while nobody holds a lease. Where an application is known to idle for half of the time, the least of several
seconds is. Otherwise what was seen before stands, but never more than all that is counted. Where the GPU is never idle before
the first lease, the least that is counted has to be taken for other work's.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

_GAP_S = 5.0  # over so long, a paced application has certainly left the memory alone for a moment
_IDLE = 0.1  # a GPU less busy than that idles
_ALMOST = 0.9  # of hold_s, as samples do not come on the second


class _Sample(NamedTuple):
    time_s: float
    hz: float
    idle: bool | None


class MemoryDemand:
    """Learns from samples of the memory's activity what other work uses."""

    def __init__(self) -> None:
        self._counted: deque[_Sample] = deque()
        self._others: deque[tuple[float, float]] = deque()

    @property
    def others_hz(self) -> float | None:
        """The part of the memory clock that other work was last seen to use, at most; None while nothing was seen."""
        return max((hz for _, hz in self._others), default=None)

    def forget(self) -> None:
        """An application came or went: for a moment it is still in the monitor's average."""
        self._counted.clear()

    def see(self, now: float, hz: float, gpu_load: float | None, hold_s: float, *, leased: bool, paced: bool) -> None:
        """Learn from one sample.

        Args:
            hz: the part of the memory clock that is in use.
            gpu_load: how busy the GPU is, 0 to 1; None where it does not say.
            hold_s: for how long a sample counts.
            leased: whether a lease is held.
            paced: whether all that are held leave the memory alone for half of the time.
        """
        idle = None if gpu_load is None else gpu_load < _IDLE
        before = self._counted[-1] if self._counted else None
        self._counted.append(_Sample(now, hz, idle))
        # One that is older stands for the time until the next: samples may be seconds apart.
        while len(self._counted) > 1 and now - self._counted[1].time_s >= hold_s:
            self._counted.popleft()
        since = now - self._counted[0].time_s
        long = since >= _ALMOST * hold_s
        if idle and (not leased or (before is not None and before.idle)):
            found: float | None = hz
        elif not leased:
            waiting = long and not any(one.idle for one in self._counted)
            found = hz if idle is None else min(one.hz for one in self._counted) if waiting else None
        elif paced and since >= _GAP_S:
            found = min(one.hz for one in self._counted if now - one.time_s <= _GAP_S)
        else:
            most = max(one.hz for one in self._counted)
            found = most if long and most < (self.others_hz or 0.0) else None
        if found is not None:
            self._others.append((now, found))
            while now - self._others[0][0] > hold_s:
                self._others.popleft()
