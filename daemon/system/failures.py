# SPDX-License-Identifier: Apache-2.0
"""Failures that no code foresaw, each kind in one log line a minute."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

_FRAMES = 3
_CHARACTERS = 200


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
