# SPDX-License-Identifier: Apache-2.0
"""Places for children: a few at a time, users in turns, and never all for one user; and children kept for another job."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import NamedTuple, TypeAlias

from ..errors import DaemonError, LimitReached

_WAITING_PER_USER = 16
_LONGEST_WAIT_S = 120.0
_IDLE_S = 5.0
# Its limit of processor time is for all its jobs.
_MOST_S = 1.5


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


class RunningChild(NamedTuple):
    """A child that works for ``uid``; ``resources`` are closed after its end, ``worked_s`` counts its jobs' time."""

    process: subprocess.Popen[bytes]
    socket: socket.socket
    uid: int
    resources: AsyncExitStack
    worked_s: float = 0.0


_Kept: TypeAlias = "tuple[Hashable, asyncio.Task[RunningChild]]"


class KeptChildren:
    """Keeps ``most`` children, each for jobs of its key; ``end`` waits for the end of one."""

    def __init__(self, most: int, end: Callable[[RunningChild], Awaitable[None]], idle_s: float = _IDLE_S) -> None:
        self._most, self._end, self._idle_s = most, end, idle_s
        self._kept: list[_Kept] = []
        self._ending: set[asyncio.Task[None]] = set()

    @contextmanager
    def expected(self, key: Hashable, start: Callable[[], Awaitable[RunningChild]]) -> Iterator[None]:
        """Start a child for a job to come, unless one waits; it is idle from the end of the context."""
        kept = self._keep(key, start()) if self._waiting(key) is None else None
        try:
            yield
        finally:
            if kept is not None:
                self._forget_later(kept)

    @asynccontextmanager
    async def lent(self, key: Hashable, start: Callable[[], Awaitable[RunningChild]]) -> AsyncIterator[RunningChild]:
        """The child that waits, or a new one. It is kept again, or ended after an error or much work."""
        child = None
        if (waiting := self._waiting(key)) is not None:
            self._kept.remove(waiting)
            with contextlib.suppress(DaemonError):
                child = await waiting[1]
        if child is not None and child.process.poll() is not None:
            await self._end(child)
            child = None
        child = child or await start()
        began = time.monotonic()
        try:
            yield child
            child = child._replace(worked_s=child.worked_s + time.monotonic() - began)
        except BaseException:
            child = child._replace(worked_s=_MOST_S)
            raise
        finally:
            if child.worked_s < _MOST_S:
                self._forget_later(self._keep(key, _done(child)))
            else:
                await asyncio.shield(self._end(child))

    def _waiting(self, key: Hashable) -> _Kept | None:
        return next((kept for kept in self._kept if kept[0] == key), None)

    def _keep(self, key: Hashable, child: Awaitable[RunningChild]) -> _Kept:
        kept = (key, asyncio.ensure_future(child))
        self._kept.append(kept)
        for oldest in self._kept[: -self._most]:
            self._forget(oldest)
        return kept

    def _forget_later(self, kept: _Kept) -> None:
        asyncio.get_running_loop().call_later(self._idle_s, self._forget, kept)

    def _forget(self, kept: _Kept) -> None:
        if kept in self._kept:
            self._kept.remove(kept)
            ending = asyncio.ensure_future(self._over(kept[1]))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def _over(self, task: asyncio.Task[RunningChild]) -> None:
        with contextlib.suppress(DaemonError):
            await self._end(await task)

    async def close(self) -> None:
        for kept in [*self._kept]:
            self._forget(kept)
        await asyncio.gather(*self._ending)


async def _done(child: RunningChild) -> RunningChild:
    return child
