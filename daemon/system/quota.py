# SPDX-License-Identifier: Apache-2.0
"""A bound on the log lines of each user, whatever they are about."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from contextvars import ContextVar

from .journal import TROUBLE, fields

ACTING: ContextVar[int | None] = ContextVar("acting", default=None)
"""The user's id; None for what the daemon does by itself. Tasks inherit it from the call that created them."""

log = logging.getLogger(__name__)

LINES_PER_MINUTE = 60
_MINUTE_S = 60.0
_ADMITTED = "jetdvfs_admitted"


class LogQuota(logging.Filter):
    """Admits a user's first lines of each minute, and counts the others. To be put on every handler.

    A record belongs to the user of its ``JETDVFS_UID``, else to the one for whom the task or thread works.

    Args:
        unbounded: users without a bound.
        per_minute: lines of each other user.
    """

    def __init__(
        self, monotonic: Callable[[], float], unbounded: Collection[int] = (0,), per_minute: int = LINES_PER_MINUTE
    ) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._unbounded = frozenset(unbounded)
        self._most = per_minute
        self._lock = threading.Lock()
        self._began: dict[int, float] = {}
        self._counts: dict[int, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """True if the record is logged; the same for every handler."""
        admitted: bool | None = getattr(record, _ADMITTED, None)
        if admitted is None:
            self.sum_up()
            admitted = self._admits(user_of(record))
            setattr(record, _ADMITTED, admitted)
        return admitted

    def sum_up(self) -> None:
        """Log once for each user how many lines of a minute that is over were left out."""
        now = self._monotonic()
        with self._lock:
            over = [uid for uid, began_s in self._began.items() if now - began_s >= _MINUTE_S]
            left_out = {uid: self._counts.pop(uid) - self._most for uid in over}
            for uid in over:
                del self._began[uid]
        for uid, count in left_out.items():
            if count > 0:
                text = f"uid {uid}: {count} log lines of a minute left out; at most {self._most} are logged"
                log.warning("%s", text, extra={**fields(TROUBLE, uid=uid), _ADMITTED: True})

    def _admits(self, uid: int | None) -> bool:
        if uid is None or uid in self._unbounded:
            return True
        with self._lock:
            self._began.setdefault(uid, self._monotonic())
            self._counts[uid] = self._counts.get(uid, 0) + 1
            return self._counts[uid] <= self._most


def user_of(record: logging.LogRecord) -> int | None:
    """The user that a record belongs to; None for one of the daemon's own."""
    said = getattr(record, "JETDVFS_UID", "")
    return int(said) if str(said).isdecimal() else ACTING.get()
