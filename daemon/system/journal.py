# SPDX-License-Identifier: Apache-2.0
"""Where the daemon's log goes: into the journal's fields, or onto stderr.

With systemd-python, and stderr connected to the journal, every record becomes one entry with fields that ``journalctl`` selects
by, as in ``journalctl JETDVFS_LEASE=l3``. Without either, records are lines on stderr, with the priorities of sd-daemon(3) in
front where a service manager reads them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from ...kernels.text import printable

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

_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}


def fields(kind: str, **values: object) -> dict[str, str]:
    """The journal's fields of one record, for the ``extra`` of a logger's methods.

    Args:
        kind: one of this module's.
        values: by their names in lower case; ``lease`` becomes ``JETDVFS_LEASE``. None and empty texts are left out.
    """
    named = {f"JETDVFS_{name.upper()}": printable(str(value)) for name, value in values.items() if value not in (None, "")}
    return {"MESSAGE_ID": kind, **named}


def log_handler(stderr: TextIO, environment: Mapping[str, str] = os.environ) -> logging.Handler:
    """The handler for all that is logged, by what is there."""
    open_journal = _journal_handler() if _is_journal(stderr, environment.get("JOURNAL_STREAM", "")) else None
    if open_journal is not None:
        handler: logging.Handler = open_journal(SYSLOG_IDENTIFIER=IDENTIFIER)
        handler.setFormatter(_Printable("%(message)s"))
        return handler
    handler = logging.StreamHandler(stderr)
    managed = environment.get("JOURNAL_STREAM") or environment.get("NOTIFY_SOCKET")
    handler.setFormatter(_WithPriority("%(message)s") if managed else _Printable("%(message)s"))
    return handler


class _Printable(logging.Formatter):
    """A message is one line, whatever names are in it; only what Python says of an error that nobody expected has several."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return "\n".join(map(printable, super().formatException(ei).splitlines()))


class _WithPriority(_Printable):
    """Every line begins with its priority; one without would count as less urgent than it is."""

    def format(self, record: logging.LogRecord) -> str:
        prefix = f"<{_PRIORITIES.get(record.levelno, 6)}>"
        return "\n".join(prefix + line for line in super().format(record).splitlines())


def _is_journal(stderr: TextIO, stream: str) -> bool:
    """Whether stderr is the stream that the service manager named, as systemd.exec(5) says to find out."""
    if not stream:
        return False
    there = os.fstat(stderr.fileno())
    return stream == f"{there.st_dev}:{there.st_ino}"


def _journal_handler() -> Callable[..., Any] | None:
    try:
        from systemd.journal import JournalHandler
    except ImportError:
        return None
    handler: Callable[..., Any] = JournalHandler
    return handler
