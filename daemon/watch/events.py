# SPDX-License-Identifier: Apache-2.0
"""Over-current events while the daemon runs: how many, and how many of late. They slow the board without showing in a clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_LOOK_S = 2.0  # the counters are published about that often
_WINDOW_S = 60.0


@dataclass(frozen=True)
class Event:
    """One kind of event.

    Attributes:
        event: its name (``oc3``).
        count: since boot.
        per_minute: of late; over a shorter time scaled to a minute where the daemon has not run for one.
    """

    event: str
    count: int
    per_minute: float


class Events:
    """Follows counters; :meth:`look` is to be called from time to time.

    Args:
        read: the counts since boot, by name.
    """

    def __init__(self, read: Callable[[], Mapping[str, int]], monotonic: Callable[[], float]) -> None:
        self._read = read
        self._monotonic = monotonic
        self._seen: deque[tuple[float, Mapping[str, int]]] = deque()

    def look(self) -> None:
        now = self._monotonic()
        if self._seen and now - self._seen[-1][0] < _LOOK_S:
            return
        # Before the sensors were read first there is nothing to count from.
        if counts := self._read():
            self._seen.append((now, counts))
        while self._seen and now - self._seen[0][0] > _WINDOW_S:
            self._seen.popleft()

    @property
    def events(self) -> tuple[Event, ...]:
        """Every event that is counted; empty where nothing counts any."""
        if not self._seen:
            return ()
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        minutes = max(ended - began, _LOOK_S) / 60
        return tuple(Event(name, count, max(count - first.get(name, count), 0) / minutes) for name, count in last.items())

    @property
    def notes(self) -> tuple[str, ...]:
        """Why the board is slower than its clocks say."""
        return tuple(self.slowing.values())

    @property
    def slowing(self) -> Mapping[str, str]:
        """The same by event."""
        what = "each cuts CPU and GPU clocks for a moment, which no clock shows"
        return {
            e.event: f"over-current event {e.event}: {e.per_minute:.3g} a minute; {what}" for e in self.events if e.per_minute
        }
