# SPDX-License-Identifier: Apache-2.0
"""The log of what clients were refused for how they speak: at most a line a minute for each user, however much they try."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from ..protocol import one_line
from .session import Peer

log = logging.getLogger(__name__)

_EVERY_S = 60.0


class Refusals:
    """Logs a user's first refusal, and after each minute with more of them how many there were."""

    def __init__(self, every_s: float = _EVERY_S) -> None:
        self._every_s = every_s
        self._since: Counter[int] = Counter()
        self._last: dict[int, BaseException] = {}

    def note(self, peer: Peer, error: BaseException, *, unforeseen_in: str = "") -> None:
        """Log this one, or count it; with its traceback where a call failed in a way that nobody foresaw."""
        if peer.uid in self._last:
            self._since[peer.uid] += 1
        else:
            if unforeseen_in:
                log.error("pid %d, uid %d: %s failed", peer.pid, peer.uid, unforeseen_in, exc_info=error)
            else:
                log.warning("pid %d, uid %d: %s", peer.pid, peer.uid, one_line(error))
            asyncio.get_running_loop().call_later(self._every_s, self._sum_up, peer.uid)
        self._last[peer.uid] = error

    def _sum_up(self, uid: int) -> None:
        count, last = self._since.pop(uid, 0), self._last[uid]
        if not count:
            del self._last[uid]
            return
        log.warning("uid %d: refused %d times more within %g s, last: %s", uid, count, self._every_s, one_line(last))
        asyncio.get_running_loop().call_later(self._every_s, self._sum_up, uid)
