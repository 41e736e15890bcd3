# SPDX-License-Identifier: Apache-2.0
"""Saying what goes on: at once when it is new, then at most once a minute with how often it came."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping

AGAIN_S = 60.0
_KEPT = 256


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
