# SPDX-License-Identifier: Apache-2.0
"""Log lines that may repeat: at once when new, then at most once a minute with their count; and unforeseen failures."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

AGAIN_S = 60.0
_KEPT = 256
_FRAMES = 3
_CHARACTERS = 200


class Repeated:
    """Logs texts that may come again and again.

    Args:
        log: where to.
    """

    def __init__(self, log: logging.Logger, monotonic: Callable[[], float]) -> None:
        self._log = log
        self._monotonic = monotonic
        self._said: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def say(self, level: int, text: str, extra: Mapping[str, object] | None = None, kind: str = "") -> None:
        """Log a text, unless it, or one of the same kind if that is given, was logged less than a minute ago."""
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
    """A failure in one line, with the last places that it passed, and the kind by which it is known again."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    kind = f"{type(error).__name__} at {places or 'no place'}"
    return f"{type(error).__name__}: {str(error)[:_CHARACTERS]} ({places or 'no place'})", kind


def task_failures(say: Callable[[str, str], object]) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """A handler for the event loop, which hands over each failure's text and kind."""

    def handle(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException):
            text, kind = failure(error)
            say(f"a task failed: {text}", kind)
        else:
            say(f"event loop: {context.get('message', 'unknown')}"[:_CHARACTERS], "event loop")

    return handle
