# SPDX-License-Identifier: Apache-2.0
"""Users take turns: however much one of them asks, each of the others is answered after at most one call of everybody's."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque


class Turns:
    """Lets one call go ahead in each round of the event loop, of the next user who waits."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[int, deque[asyncio.Future[None]]] = OrderedDict()
        self._under_way = False

    async def take(self, uid: int) -> None:
        """Wait for a turn of this user; calls of one user keep their order."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.setdefault(uid, deque()).append(turn)
        if not self._under_way:
            self._under_way = True
            loop.call_soon(self._next, loop)
        await turn

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            uid, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[uid] = turns
            if not turn.done():  # its connection may have closed
                turn.set_result(None)
                loop.call_soon(self._next, loop)
                return
        self._under_way = False
