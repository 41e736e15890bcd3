# SPDX-License-Identifier: Apache-2.0
"""The last decisions and what led to them, as the journal has them: kept in memory, for whoever asks, and told as they come."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass
from typing import Any

from ...kernels.text import printable
from .journal import (
    AT_SPEED,
    BUDGET,
    CLOCKS_SET,
    FRAMES_DOUBTED,
    FRAMES_MISSING,
    GIVEN_BACK,
    LEASE_BEGUN,
    LEASE_ENDED,
    PLANNED_AGAIN,
    SLOWED,
    TARGET_KEPT,
    TARGET_MISSED,
    TROUBLE,
    WOKEN,
    user_of,
)

KINDS = {
    LEASE_BEGUN: "lease_begun",
    LEASE_ENDED: "lease_ended",
    CLOCKS_SET: "clocks_set",
    GIVEN_BACK: "given_back",
    TARGET_MISSED: "target_missed",
    TARGET_KEPT: "target_kept",
    PLANNED_AGAIN: "planned_again",
    SLOWED: "slowed",
    AT_SPEED: "at_speed",
    BUDGET: "budget",
    FRAMES_DOUBTED: "frames_doubted",
    FRAMES_MISSING: "frames_missing",
    WOKEN: "woken",
    TROUBLE: "trouble",
}
"""What each ``MESSAGE_ID`` is called on the socket."""
ENTRIES_KEPT = 512
_CHARACTERS = 1000
_SYSTEM = 0  # root, and what the daemon does by itself


@dataclass(frozen=True)
class Entry:
    """One decision, or what led to one.

    Attributes:
        number: counts them all since the daemon began.
        time_s: when, in seconds since 1970.
        kind: one of :data:`KINDS`.
        message: what, in one line.
        lease, app, configuration, reason: as the journal has them; None where they do not belong to it.
    """

    number: int
    time_s: float
    kind: str
    message: str
    lease: str | None
    app: str | None
    configuration: str | None
    reason: str | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Record(logging.Handler):
    """Keeps what is logged with a ``MESSAGE_ID``. May be asked on any thread.

    Each user has a share: the oldest entry of the user with the most goes first. The daemon's own and root's entries have a
    share of two users.
    """

    def __init__(self) -> None:
        super().__init__()
        self._entries: dict[int, deque[Entry]] = {}
        self._kept = 0
        self._number = 0
        self._followers: set[Callable[[], object]] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record of one of the kinds; the handler's lock is held."""
        said = vars(record)
        kind = KINDS.get(said.get("MESSAGE_ID", ""))
        if kind is None:
            return
        lease, app, configuration, reason = (
            said.get(f"JETDVFS_{name}") for name in ("LEASE", "APP", "CONFIGURATION", "REASON")
        )
        message = printable(record.getMessage()[:_CHARACTERS])
        self._number += 1
        entry = Entry(self._number, record.created, kind, message, lease, app, configuration, reason)
        self._keep(user_of(record) or _SYSTEM, entry)
        for wake in tuple(self._followers):
            wake()

    def entries(self, after: int = 0, lease: str | None = None) -> list[Entry]:
        """Those kept, oldest first, that came after the one of this number, and of this lease where one is named."""
        self.acquire()
        try:
            kept = [entry for entries in self._entries.values() for entry in entries]
        finally:
            self.release()
        found = (entry for entry in kept if entry.number > after and lease in (None, entry.lease))
        return sorted(found, key=lambda entry: entry.number)

    def _keep(self, user: int, entry: Entry) -> None:
        self._entries.setdefault(user, deque()).append(entry)
        if self._kept < ENTRIES_KEPT:
            self._kept += 1
            return
        most = max(self._entries, key=lambda one: len(self._entries[one]) / (2 if one == _SYSTEM else 1))
        self._entries[most].popleft()
        if not self._entries[most]:
            del self._entries[most]

    async def follow(self, lease: str | None = None, after: int | None = None) -> AsyncIterator[Entry]:
        """Every entry after the one of this number, or from now on; who is slow misses those that are kept no longer."""
        loop = asyncio.get_running_loop()
        news = asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(news.set)

        seen = self._number if after is None else after
        self._followers.add(wake)
        try:
            while True:
                for entry in self.entries(seen):
                    seen = entry.number
                    if lease in (None, entry.lease):
                        yield entry
                await news.wait()
                news.clear()
        finally:
            self._followers.discard(wake)
