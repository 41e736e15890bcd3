# SPDX-License-Identifier: Apache-2.0
"""Users take turns: however much one of them asks, each of the others is served after a little of everybody's."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque

_READ_BYTES = 1 << 16


class Turns:
    """Lets one call go ahead in each round of the event loop, and so much be read of what each user sent."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[int, deque[asyncio.Future[None]]] = OrderedDict()
        self._read: Counter[int] = Counter()
        self._given = False
        self._loop = asyncio.get_running_loop()

    async def take(self, uid: int) -> None:
        """Wait for a turn of this user; calls of one user keep their order."""
        if not self._given:
            self._begin_round()
            self._given = True
            return
        turn = self._loop.create_future()
        self._waiting.setdefault(uid, deque()).append(turn)
        await turn

    def may_read(self, uid: int) -> bool:
        """Whether more of what this user sent may be read in this round."""
        return self._read[uid] < _READ_BYTES

    def has_read(self, uid: int, size: int) -> None:
        """Note that so many bytes of it were read."""
        self._begin_round()
        self._read[uid] += size

    def _begin_round(self) -> None:
        if not (self._given or self._read):
            self._loop.call_soon(self._next_round)

    def _next_round(self) -> None:
        self._read.clear()
        self._given = False
        while self._waiting and not self._given:
            uid, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[uid] = turns
            if not turn.done():  # its connection may have closed
                self._begin_round()
                self._given = True
                turn.set_result(None)
