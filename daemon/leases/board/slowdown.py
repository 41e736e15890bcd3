# SPDX-License-Identifier: Apache-2.0
"""Slowdowns by heat and over-current, and their log lines."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping

from msgspec import Struct

from ...system.journal import AT_SPEED, SLOWED, fields

log = logging.getLogger(__name__)

_ENDED_S = 5.0  # the temperature oscillates around a trip
_LOOK_S = 2.0  # interval at which counters are published
_WINDOW_S = 60.0


class CounterEvent(Struct, frozen=True):
    """Events of one kind (``oc3``): count since boot, and recent rate, scaled up in the daemon's first minute."""

    event: str
    count: int
    per_minute: float


class EventCounters:
    def __init__(self, read: Callable[[], Mapping[str, int]], monotonic: Callable[[], float]) -> None:
        self._read = read
        self._monotonic = monotonic
        self._seen: deque[tuple[float, Mapping[str, int]]] = deque()

    def sample(self) -> None:
        now = self._monotonic()
        if self._seen and now - self._seen[-1][0] < _LOOK_S:
            return
        # No counts before the first reading of the sensors.
        if counts := self._read():
            self._seen.append((now, counts))
        while self._seen and now - self._seen[0][0] > _WINDOW_S:
            self._seen.popleft()

    @property
    def events(self) -> tuple[CounterEvent, ...]:
        if not self._seen:
            return ()
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        minutes = max(ended - began, _LOOK_S) / 60
        return tuple(
            CounterEvent(name, count, max(count - first.get(name, count), 0) / minutes) for name, count in last.items()
        )

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self.slowing.values())

    @property
    def slowing(self) -> Mapping[str, str]:
        what = "each cuts CPU and GPU clocks for a moment, which no clock shows"
        return {
            e.event: f"over-current event {e.event}: {e.per_minute:.3g} a minute; {what}" for e in self.events if e.per_minute
        }


class SlowdownTracker:
    def __init__(self, read: Callable[[], Mapping[str, str]], monotonic: Callable[[], float]) -> None:
        self._read = read
        self._monotonic = monotonic
        self._lasting: dict[str, tuple[float, float]] = {}

    def sample(self) -> None:
        now = self._monotonic()
        for name, text in self._read().items():
            if name not in self._lasting:
                log.warning("the board is slowed down: %s", text, extra=fields(SLOWED, reason=text))
            began, _ = self._lasting.get(name, (now, now))
            self._lasting[name] = began, now
        for name, (began, last) in tuple(self._lasting.items()):
            if now - last >= _ENDED_S:
                del self._lasting[name]
                seconds = f"{last - began:.0f}"
                extra = fields(AT_SPEED, reason=name, seconds=seconds)
                log.info("no longer slowed down by %s, after %s s", name, seconds, extra=extra)
