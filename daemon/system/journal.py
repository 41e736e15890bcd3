# SPDX-License-Identifier: Apache-2.0
"""The daemon's log: fields of the journal, or lines on stderr.

With systemd-python, and stderr connected to the journal, each record is an entry with fields for ``journalctl``, such as
``JETDVFS_LEASE=3``. Otherwise records are lines, with priorities of sd-daemon(3) if a service manager reads them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TextIO

from ...kernels.text import printable

AGAIN_S = 60.0
_KEPT = 256
_FRAMES = 3
_CHARACTERS = 200


class RepeatedLog:
    def __init__(self, log: logging.Logger, monotonic: Callable[[], float]) -> None:
        self._log = log
        self._monotonic = monotonic
        self._said: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def say(self, level: int, text: str, extra: Mapping[str, object] | None = None, kind: str = "") -> None:
        """Log a text, unless it, or its kind if given, was logged within a minute."""
        now, key = self._monotonic(), kind or text
        said_s, count = self._said.pop(key, (None, 0))
        if said_s is not None and now - said_s < AGAIN_S:
            self._said[key] = (said_s, count + 1)
            return
        self._said[key] = (now, 0)
        while len(self._said) > _KEPT:
            self._said.popitem(last=False)
        times = f" ({count} more time{'s' if count > 1 else ''} since this was said last)" if count else ""
        self._log.log(level, "%s%s", text, times, extra=extra)


def failure(error: BaseException) -> tuple[str, str]:
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    kind = f"{type(error).__name__} at {places or 'no place'}"
    return f"{type(error).__name__}: {str(error)[:_CHARACTERS]} ({places or 'no place'})", kind


def task_failures(say: Callable[[str, str], object]) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    def handle(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException):
            text, kind = failure(error)
            say(f"a task failed: {text}", kind)
        else:
            say(f"event loop: {context.get('message', 'unknown')}"[:_CHARACTERS], "event loop")

    return handle


ACTING: ContextVar[int | None] = ContextVar("acting", default=None)
"""User id of the present work, inherited by tasks; None for the daemon itself."""

log = logging.getLogger(__name__)

LINES_PER_MINUTE = 60
_MINUTE_S = 60.0
_ADMITTED = "jetdvfs_admitted"


class LogQuota(logging.Filter):
    """Admits ``per_minute`` lines of each user but unbounded ones, and counts the rest; for every handler.

    A record's user is its ``JETDVFS_UID``, else the one for whom the task or thread works.
    """

    def __init__(
        self, monotonic: Callable[[], float], unbounded: Collection[int] = (0,), per_minute: int = LINES_PER_MINUTE
    ) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._unbounded = frozenset(unbounded)
        self._most = per_minute
        self._lock = threading.Lock()
        self._logged: dict[int, tuple[float, int]] = {}  # since when, and how many lines

    def filter(self, record: logging.LogRecord) -> bool:
        admitted: bool | None = getattr(record, _ADMITTED, None)
        if admitted is None:
            self.sum_up()
            admitted = self._admits(user_of(record))
            setattr(record, _ADMITTED, admitted)
        return admitted

    def sum_up(self) -> None:
        now = self._monotonic()
        with self._lock:
            over = [uid for uid, (began_s, _) in self._logged.items() if now - began_s >= _MINUTE_S]
            left_out = {uid: self._logged.pop(uid)[1] - self._most for uid in over}
        for uid, count in left_out.items():
            if count > 0:
                text = f"uid {uid}: {count} log lines of a minute left out; at most {self._most} are logged"
                log.warning("%s", text, extra={**fields(TROUBLE, uid=uid), _ADMITTED: True})

    def _admits(self, uid: int | None) -> bool:
        if uid is None or uid in self._unbounded:
            return True
        with self._lock:
            began_s, count = self._logged.get(uid, (self._monotonic(), 0))
            self._logged[uid] = began_s, count + 1
            return count < self._most


def user_of(record: logging.LogRecord) -> int | None:
    said = getattr(record, "JETDVFS_UID", "")
    return int(said) if str(said).isdecimal() else ACTING.get()


IDENTIFIER = "jetdvfsd"

# Kinds of entries, as MESSAGE_ID (systemd.journal-fields(7)).
LEASE_BEGUN = "a8bb45fb33e8474c854f72692371a933"
LEASE_ENDED = "49ed933ef8ab42fa9e8bba5f84d42651"
CLOCKS_SET = "e7765d45eb6c40c994649adfeec7df51"
GIVEN_BACK = "05c31ce6f4ca41bf8fadfb957a697ad8"
TARGET_MISSED = "66f631dcd351439398d8b647d0379c35"
TARGET_KEPT = "2e8323e19a4e4afd90d6026f22be0d3f"
PLANNED_AGAIN = "2eeb72045bd0456083cbe7314480c761"
SLOWED = "5b0f3c7a2d9e4b61a8f4c1d07e93625b"
AT_SPEED = "c4d81e96f02b47a3b5e6790d1a2f83ce"
WOKEN = "eb62600e7002459abfd5abc2ec1c507f"
BUDGET = "33b26187902642fc9a3b81b5a325121c"
FRAMES_DOUBTED = "d1b8c40e7f3a4c6f9a52e8660b7d9c13"
FRAMES_MISSING = "5e90a7c2d84b4f3b8c1e6fa02793d4b8"
TROUBLE = "be84a92fc4594510b8a67271dd9c973e"

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

_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}


def fields(kind: str, **values: object) -> dict[str, str]:
    named = {f"JETDVFS_{name.upper()}": printable(str(value)) for name, value in values.items() if value not in (None, "")}
    return {"MESSAGE_ID": kind, **named}


def log_handler(stderr: TextIO, environment: Mapping[str, str] = os.environ) -> logging.Handler:
    if _is_journal(stderr, environment.get("JOURNAL_STREAM", "")):
        with contextlib.suppress(ImportError):
            from systemd.journal import JournalHandler

            journal: logging.Handler = JournalHandler(SYSLOG_IDENTIFIER=IDENTIFIER)
            journal.setFormatter(_Printable("%(message)s"))
            return journal
    handler = logging.StreamHandler(stderr)
    managed = environment.get("JOURNAL_STREAM") or environment.get("NOTIFY_SOCKET")
    handler.setFormatter(_WithPriority("%(message)s") if managed else _Printable("%(message)s"))
    return handler


class _Printable(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return "\n".join(map(printable, super().formatException(ei).splitlines()))


class _WithPriority(_Printable):
    """Lines with priorities; without one, they would count as less urgent."""

    def format(self, record: logging.LogRecord) -> str:
        prefix = f"<{_PRIORITIES.get(record.levelno, 6)}>"
        return "\n".join(prefix + line for line in super().format(record).splitlines())


def _is_journal(stderr: TextIO, stream: str) -> bool:
    """True if stderr is the stream named by the service manager, as in systemd.exec(5)."""
    if not stream:
        return False
    there = os.fstat(stderr.fileno())
    return stream == f"{there.st_dev}:{there.st_ino}"
