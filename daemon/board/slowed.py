# SPDX-License-Identifier: Apache-2.0
"""Says once in the log when heat or over-current begins to slow the board down, and when that has ended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from ..system.journal import AT_SPEED, SLOWED, fields

log = logging.getLogger(__name__)

_ENDED_S = 5.0  # around a trip, the temperature goes up and down


class Slowed:
    """Follows the reasons; :meth:`look` is to be called from time to time.

    Args:
        read: each reason in one line, by what stays the same of it while it lasts.
    """

    def __init__(self, read: Callable[[], Mapping[str, str]], monotonic: Callable[[], float]) -> None:
        self._read = read
        self._monotonic = monotonic
        self._lasting: dict[str, tuple[float, float]] = {}

    def look(self) -> None:
        now = self._monotonic()
        for name, text in self._read().items():
            if name not in self._lasting:
                log.warning("the board is slowed down: %s", text, extra=fields(SLOWED, reason=text))
            began, _ = self._lasting.get(name, (now, now))
            self._lasting[name] = began, now
        for name, (began, last) in tuple(self._lasting.items()):
            if now - last >= _ENDED_S:
                del self._lasting[name]
                seconds = f"{last - began:.0f}"
                told = fields(AT_SPEED, reason=name, seconds=seconds)
                log.info("no longer slowed down by %s, after %s s", name, seconds, extra=told)
