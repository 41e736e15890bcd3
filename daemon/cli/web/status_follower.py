# SPDX-License-Identifier: Apache-2.0
"""The daemon's figures of the last ten minutes and new ones, for any number of readers.

The daemon is polled once a second with a reader, else every ten seconds.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from ....kernels.units import AXES, mhz
from ...errors import DaemonError
from ...hardware.sensors.energy import total_mw
from ...system.decision_log import ENTRIES_KEPT
from ...wire.client import Client
from ..output import is_old

KEPT_S = 600.0
_READ_EVERY_S, _UNREAD_EVERY_S = 1.0, 10.0
_ANSWERS_WITHIN_S = 10.0
_EVENTS_KEPT = 64

StatusMessage = tuple[str, Any]
"""Kind and content of a message: ``now``, ``entry``, ``gone``, or ``history``."""


def point(status: Mapping[str, Any], time_s: float) -> dict[str, Any]:
    """Point of a plot: MHz, mW, 1/1000 C, and latencies in ms by lease."""
    held = (status["applied"] or {}).get("requested")
    rails = status["rails_mw"]
    return {
        "time_s": time_s,
        "clocks_mhz": None if is_old(status) else _mhz(status["configuration"]),
        "held_mhz": _mhz(held),
        "power_mw": total_mw(rails, status["energy_rails"]),
        "rails_mw": rails,
        "temperatures_mc": status["temperatures_mc"],
        "leases": {lease["lease"]: _latencies(lease) for lease in status["leases"]},
    }


class StatusFollower:
    def __init__(self, socket: Path | None, now_s: Callable[[], float] = time.monotonic) -> None:
        self._socket = socket
        self._now_s = now_s
        self._news = threading.Condition()
        self._events: deque[StatusMessage] = deque(maxlen=_EVENTS_KEPT)
        self._number = 0
        self._points: deque[dict[str, Any]] = deque()
        self._entries: deque[dict[str, Any]] = deque(maxlen=ENTRIES_KEPT)
        self._last: StatusMessage | None = None
        self._readers = 0
        self._over = threading.Event()
        self._deciding: Client | None = None
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._ask, self._listen)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        with self._news:
            self._over.set()
            self._news.notify_all()
            if self._deciding is not None:
                self._deciding.hang_up()
        for thread in self._threads:
            thread.join(_ANSWERS_WITHIN_S)

    @contextmanager
    def reader(self) -> Iterator[Iterator[StatusMessage | None]]:
        """Messages of one reader, the history first; None after a quiet while."""
        with self._news:
            self._readers += 1
            self._news.notify_all()
        try:
            yield self._read()
        finally:
            with self._news:
                self._readers -= 1

    def _read(self) -> Iterator[StatusMessage | None]:
        seen: int | None = None
        while True:
            with self._news:
                if seen is not None and seen == self._number and not self._over.is_set():
                    self._news.wait(2 * _READ_EVERY_S)
                if self._over.is_set():
                    return
                if seen is None or self._number - seen > len(self._events):
                    # From the beginning; or the reader was too slow.
                    told: list[StatusMessage] = [("history", {"points": list(self._points), "entries": list(self._entries)})]
                    told += [self._last] if self._last is not None else []
                else:
                    told = list(self._events)[len(self._events) - self._number + seen :]
                seen = self._number
            yield from told or (None,)

    def _tell(self, message: StatusMessage) -> None:
        with self._news:
            self._number += 1
            self._events.append(message)
            if message[0] == "entry":
                self._entries.append(message[1])
            else:
                self._last = message
            if message[0] == "now":
                self._points.append(message[1]["point"])
                while self._points[0]["time_s"] < message[1]["point"]["time_s"] - KEPT_S:
                    self._points.popleft()
            self._news.notify_all()

    def _ask(self) -> None:
        client: Client | None = None
        while not self._over.is_set():
            try:
                client = client or Client(self._socket, timeout_s=_ANSWERS_WITHIN_S)
                status = client.status()
                self._tell(("now", {"status": status, "point": point(status, self._now_s())}))
            except DaemonError as error:
                if client is not None:
                    client.close()
                client = None
                if self._last != (gone := ("gone", {"reason": str(error)})):
                    self._tell(gone)
            self._pause()
        if client is not None:
            client.close()

    def _pause(self) -> None:
        started = time.monotonic()
        with self._news:
            while not self._over.is_set():
                every_s = _READ_EVERY_S if self._readers else _UNREAD_EVERY_S
                left_s = started + every_s - time.monotonic()
                if left_s <= 0:
                    break
                self._news.wait(left_s)

    def _listen(self) -> None:
        heard_s = 0.0
        while not self._over.is_set():
            try:
                with Client(self._socket, timeout_s=_ANSWERS_WITHIN_S) as client:
                    before = client.log()
                    with self._news:
                        self._deciding = client
                        if self._over.is_set():
                            return
                    # One daemon's numbers say nothing of the next one's.
                    missed = [entry for entry in before if entry["time_s"] > heard_s]
                    for entry in chain(missed, client.watch(after=before[-1]["number"] if before else 0)):
                        heard_s = entry["time_s"]
                        self._tell(("entry", entry))
            except DaemonError:
                pass  # told by who asks for the status
            with self._news:
                self._deciding = None
                self._news.wait_for(self._over.is_set, _READ_EVERY_S)


def _mhz(configuration: Mapping[str, int] | None) -> dict[str, float] | None:
    return None if configuration is None else {axis: mhz(axis, configuration[axis]) for axis in AXES}


def _latencies(lease: Mapping[str, Any]) -> dict[str, float | None]:
    observed, predicted = lease["observed"] or {}, lease["predicted"] or {}
    return {
        "last_ms": observed.get("last_ms"),
        "p95_ms": observed.get("p95_ms"),
        "predicted_ms": predicted.get("latency_ms"),
        "limit_ms": lease["limit_ms"],
    }
