# SPDX-License-Identifier: Apache-2.0
"""The only thread that accesses the board, in order.

Files may take half a second and clocks several. Users take turns, endings before beginnings, so that one waits for at most one
hold of each other user. Root goes first, with one ending of another user between two of its holds.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec import Struct

from ...errors import HardwareBusy
from ...system.journal import ACTING, RepeatedLog, failure

log = logging.getLogger(__name__)
T = TypeVar("T")

ANSWER_S = 10.0
"""Longest wait of a client for the board."""
STUCK_S = 30.0
"""Longest call without its own bound, such as a disk's, before the thread counts as stuck."""
_REST_S = 0.02
_WAITS_S = 0.2
_OWN_TURN = -1  # no user's id: the daemon's own jobs
_ROOT = 0


class _Job(Generic[T]):
    def __init__(self, function: Callable[[], T], user: int, owner: Hashable, undo: Callable[[T], object] | None) -> None:
        self.function = function
        self.user = user
        self.owner = owner
        self.undo = undo
        self.future: Future[T] = Future()
        self.given_up = False
        self.settled = False


class _IdleJob(Struct, frozen=True):
    function: Callable[[], None]
    latest_s: float


class _Queue:
    def __init__(self) -> None:
        self._users: OrderedDict[int, deque[_Job[Any]]] = OrderedDict()

    def put(self, user: int, job: _Job[Any]) -> None:
        self._users.setdefault(user, deque()).append(job)

    def take(self, of: int | None = None) -> _Job[Any] | None:
        while self._users if of is None else of in self._users:
            user, jobs = self._users.popitem(last=False) if of is None else (of, self._users.pop(of))
            job = jobs.popleft()
            if jobs:
                self._users[user] = jobs
            if job.future.set_running_or_notify_cancel():
                return job
        return None

    def cancel(self, owner: Hashable) -> None:
        for jobs in self._users.values():
            for job in jobs:
                if job.owner is owner:
                    job.future.cancel()


class BoardThread:
    """Runs jobs in order, with ``upkeep`` in between, and ``publish`` before each result is delivered."""

    def __init__(
        self,
        upkeep: Callable[[], None],
        every_s: Callable[[], float],
        publish: Callable[[], None],
        ended: Callable[[], int] = lambda: 0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._upkeep = upkeep
        self._every_s = every_s
        self._publish = publish
        self._ended = ended
        self._monotonic = monotonic
        self._said = RepeatedLog(log, monotonic)
        self._lock = threading.Condition()
        self._endings, self._beginnings = _Queue(), _Queue()
        self._at_rest: _IdleJob | None = None
        self._worked_s = 0.0
        self._busy = False
        self._root_began = False
        self._done = 0
        self._over = False
        self._seen: tuple[float, tuple[int, int]] | None = None
        self._thread = threading.Thread(target=self._run, name="board", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(
        self,
        function: Callable[[], T],
        *,
        user: int = _OWN_TURN,
        owner: Hashable = None,
        ends: bool = False,
        undo: Callable[[T], object] | None = None,
    ) -> _Job[T]:
        """Call a function on the thread, in the turn of ``user``.

        Args:
            owner: key for :meth:`forget`.
            ends: True to go before jobs that begin something.
            undo: called with the result if the client no longer waits.
        """
        job = _Job(function, user, owner, undo)
        with self._lock:
            (self._endings if ends else self._beginnings).put(user, job)
            self._lock.notify()
        return job

    def when_at_rest(self, function: Callable[[], None]) -> None:
        """Call a function once the thread is idle, or after a bounded wait; replaces none that waits."""
        with self._lock:
            if self._at_rest is None:
                self._at_rest = _IdleJob(function, self._monotonic() + _WAITS_S)
                self._lock.notify()

    async def run(
        self,
        function: Callable[[], T],
        *,
        user: int = _OWN_TURN,
        owner: Hashable = None,
        ends: bool = False,
        undo: Callable[[T], object] | None = None,
        longest_s: float = ANSWER_S,
    ) -> T:
        """Call a function as :meth:`submit`, and wait.

        Raises:
            HardwareBusy: no result in time; the job is cancelled unless it ends something.
        """
        job = self.submit(function, user=user, owner=owner, ends=ends, undo=undo)
        followed = _followed(job.future)
        done, _ = await asyncio.wait({followed}, timeout=longest_s)
        if not done:
            with self._lock:
                job.given_up = not job.settled
                undone = job.given_up and not ends and job.future.cancel()
            if job.given_up:
                became = "nothing was changed" if undone else "it is still waited for"
                raise HardwareBusy(f"the board has not answered for {longest_s:g} s; {became}")
            await asyncio.wait({followed})
        return job.future.result()

    def forget(self, owner: Hashable) -> None:
        with self._lock:
            self._endings.cancel(owner)
            self._beginnings.cancel(owner)

    def moves(self) -> bool:
        """True if the thread makes progress; call it every few seconds."""
        now, mark = self._monotonic(), (self._done, self._ended())
        if not self._busy or self._seen is None or self._seen[1] != mark:
            self._seen = (now, mark)
        return self._thread.is_alive() and now - self._seen[0] < STUCK_S

    @property
    def ending(self) -> bool:
        return self._over

    def stop(self) -> None:
        with self._lock:
            self._over = True
            self._lock.notify()

    def _run(self) -> None:
        due_s = self._monotonic()
        while True:
            with self._lock:
                # Late upkeep goes first, so that a stream of requests cannot starve it.
                late = self._monotonic() - due_s > 1.0
                rested = self._monotonic() >= self._worked_s + _REST_S
                job = None if late else self._overdue() or self._take() or (self._waited() if rested else None)
                if job is None and self._monotonic() < due_s:
                    if self._over:
                        return
                    self._busy = False
                    rest_s = due_s if self._at_rest is None else min(due_s, self._worked_s + _REST_S)
                    self._lock.wait(max(rest_s - self._monotonic(), 0.0))
                    self._busy = True
                    continue
                self._busy = True
            if job is not None:
                self._do(job)
                self._worked_s = self._monotonic()
                due_s = min(due_s, self._monotonic() + self._every_s())
                continue
            self._guarded(self._upkeep)
            self._guarded(self._publish)
            self._done += 1
            due_s = self._monotonic() + self._every_s()

    def _take(self) -> _Job[Any] | None:
        root_first = not self._root_began
        job = self._endings.take(_ROOT) or (self._beginnings.take(_ROOT) if root_first else None)
        self._root_began = job is not None and root_first
        return job or self._endings.take() or self._beginnings.take(_ROOT) or self._beginnings.take()

    def _overdue(self) -> _Job[None] | None:
        return self._waited() if self._at_rest is not None and self._monotonic() >= self._at_rest.latest_s else None

    def _waited(self) -> _Job[None] | None:
        waits, self._at_rest = self._at_rest, None
        return None if waits is None else _Job(partial(self._guarded, waits.function), _OWN_TURN, None, None)

    def _do(self, job: _Job[T]) -> None:
        result: list[T] = []
        error: Exception | None = None
        acting = ACTING.set(None if job.user == _OWN_TURN else job.user)
        try:
            result.append(job.function())
        except Exception as caught:
            error = caught
        finally:
            ACTING.reset(acting)
        with self._lock:
            job.settled = not job.given_up
        undo = job.undo
        if undo is not None and result and not job.settled:
            self._guarded(lambda: undo(result[0]))
        self._guarded(self._publish)
        self._done += 1
        if error is not None:
            job.future.set_exception(error)
        else:
            job.future.set_result(result[0])

    def _guarded(self, function: Callable[[], object]) -> None:
        """Call a function; its exception must not end the thread, and all clients' clocks."""
        try:
            function()
        except Exception as error:
            text, kind = failure(error)
            self._said.say(logging.ERROR, f"the board's thread: {text}", kind=kind)


def _followed(future: Future[T]) -> asyncio.Future[T]:
    followed = asyncio.wrap_future(future)
    followed.add_done_callback(lambda done: done.cancelled() or done.exception())
    return followed
