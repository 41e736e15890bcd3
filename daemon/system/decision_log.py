# SPDX-License-Identifier: Apache-2.0
"""The last decisions and their causes, as in the journal: kept in memory, and followed by clients."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable

from msgspec import Struct

from ...kernels.text import printable
from .journal import KINDS, user_of

ENTRIES_KEPT = 512
_CHARACTERS = 1000
_SYSTEM = 0  # root, and the daemon itself


class DecisionEntry(Struct, frozen=True):
    """A decision or its cause, numbered since the daemon began; ``time_s`` is in seconds since 1970."""

    number: int
    time_s: float
    kind: str
    message: str
    lease: str | None
    app: str | None
    configuration: str | None
    reason: str | None


class DecisionLog(logging.Handler):
    """Keeps log records with a ``MESSAGE_ID``. Readable from any thread.

    The user with the most entries loses its oldest. The daemon and root share that of two users.
    """

    def __init__(self) -> None:
        super().__init__()
        self._entries: dict[int, deque[DecisionEntry]] = {}
        self._number = 0
        self._followers: set[Callable[[], object]] = set()

    def emit(self, record: logging.LogRecord) -> None:
        said = vars(record)
        kind = KINDS.get(said.get("MESSAGE_ID", ""))
        if kind is None:
            return
        lease, app, configuration, reason = (
            said.get(f"JETDVFS_{name}") for name in ("LEASE", "APP", "CONFIGURATION", "REASON")
        )
        message = printable(record.getMessage()[:_CHARACTERS])
        self._number += 1
        entry = DecisionEntry(self._number, record.created, kind, message, lease, app, configuration, reason)
        self._keep(user_of(record) or _SYSTEM, entry)
        for wake in tuple(self._followers):
            wake()

    def entries(self, after: int = 0, lease: str | None = None) -> list[DecisionEntry]:
        self.acquire()
        try:
            kept = [entry for entries in self._entries.values() for entry in entries]
        finally:
            self.release()
        found = (entry for entry in kept if entry.number > after and lease in (None, entry.lease))
        return sorted(found, key=lambda entry: entry.number)

    def _keep(self, user: int, entry: DecisionEntry) -> None:
        self._entries.setdefault(user, deque()).append(entry)
        if sum(map(len, self._entries.values())) <= ENTRIES_KEPT:
            return
        most = max(self._entries, key=lambda one: len(self._entries[one]) / (2 if one == _SYSTEM else 1))
        self._entries[most].popleft()
        if not self._entries[most]:
            del self._entries[most]

    async def follow(self, lease: str | None = None, after: int | None = None) -> AsyncIterator[DecisionEntry]:
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
