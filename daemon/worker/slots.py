# SPDX-License-Identifier: Apache-2.0
"""Places for children: a few at a time, users in turns, and never all for one user."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..errors import LimitReached

_WAITING_PER_USER = 16
_LONGEST_WAIT_S = 120.0


class ChildSlots:
    """Places for children, given to users in turns.

    The last free place is kept from users that have one, except the owner (the daemon's user), who also goes first.
    """

    def __init__(
        self, places: int, owner: int, *, waiting_per_user: int = _WAITING_PER_USER, longest_wait_s: float = _LONGEST_WAIT_S
    ) -> None:
        self._places = places
        self._owner = owner
        self._waiting_per_user = waiting_per_user
        self._longest_wait_s = longest_wait_s
        self._held: Counter[int] = Counter()
        self._waiting: dict[int, deque[asyncio.Future[None]]] = {}  # the user whose turn it is first

    @asynccontextmanager
    async def place(self, uid: int) -> AsyncIterator[None]:
        """A place for a job of this user, in its turn.

        Raises:
            LimitReached: too many of the user's requests wait, or this one waited too long.
        """
        await self._turn(uid)
        try:
            yield
        finally:
            self._held[uid] -= 1
            self._give()

    async def _turn(self, uid: int) -> None:
        turn = asyncio.get_running_loop().create_future()
        queue = self._waiting.setdefault(uid, deque())
        if len(queue) >= self._waiting_per_user:
            raise LimitReached(
                f"{len(queue)} models and networks of uid {uid} wait to be read or predicted, as many as may; try later"
            )
        queue.append(turn)
        self._give()
        try:
            await asyncio.wait([turn], timeout=self._longest_wait_s)
        except asyncio.CancelledError:
            if turn.done():
                self._held[uid] -= 1
                self._give()
            raise
        finally:
            if not turn.done():
                turn.cancel()
                queue.remove(turn)
            if not queue and self._waiting.get(uid) is queue:
                del self._waiting[uid]
        if turn.cancelled():
            raise LimitReached(f"no reader of models became free within {self._longest_wait_s:g} s; try later")

    def _give(self) -> None:
        while (uid := next(filter(self._may_have, (self._owner, *self._waiting)), None)) is not None:
            queue = self._waiting.pop(uid)
            queue.popleft().set_result(None)
            self._held[uid] += 1
            if queue:
                self._waiting[uid] = queue  # behind all other users

    def _may_have(self, uid: int) -> bool:
        left = self._places - self._held.total()
        return uid in self._waiting and left > 0 and (left > 1 or uid == self._owner or not self._held[uid])
