# SPDX-License-Identifier: Apache-2.0
"""Places for children are shared fairly, and never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from jetdvfs.daemon.errors import LimitReached
from jetdvfs.daemon.worker.slots import ChildSlots

ROOT, ANN, BOB, EVE = 0, 1000, 1001, 1002


class Jobs:
    """Jobs that hold a place until they are told to end, and when each got its place."""

    def __init__(self, slots: ChildSlots) -> None:
        self.running: list[str] = []
        self._slots = slots
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Event] = {}

    async def begin(self, name: str, uid: int) -> None:
        self._ends[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._job(name, uid))
        await settled()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self._tasks[name]
        await settled()

    async def cancel(self, name: str) -> None:
        self._tasks[name].cancel()
        await settled()

    async def outcome(self, name: str) -> None:
        await self._tasks[name]

    async def _job(self, name: str, uid: int) -> None:
        async with self._slots.place(uid):
            self.running.append(name)
            try:
                await self._ends[name].wait()
            finally:
                self.running.remove(name)


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def run(job: Callable[[Jobs], Awaitable[None]], slots: Callable[[], ChildSlots] = lambda: ChildSlots(2, ROOT)) -> None:
    async def main() -> None:
        await job(Jobs(slots()))

    asyncio.run(main())


def test_one_user_never_has_every_place_and_root_may() -> None:
    async def job(jobs: Jobs) -> None:
        for number in range(3):
            await jobs.begin(f"eve {number}", EVE)
        assert jobs.running == ["eve 0"]
        await jobs.begin("ann", ANN)
        assert jobs.running == ["eve 0", "ann"]
        await jobs.end("eve 0")
        await jobs.end("ann")
        await jobs.end("eve 1")
        await jobs.end("eve 2")
        await jobs.begin("root 0", ROOT)
        await jobs.begin("root 1", ROOT)
        assert jobs.running == ["root 0", "root 1"]
        await jobs.end("root 0")
        await jobs.end("root 1")

    run(job)


def test_users_take_turns_and_root_is_first() -> None:
    async def job(jobs: Jobs) -> None:
        order = []
        await jobs.begin("first", EVE)
        for name, uid in (("eve 1", EVE), ("eve 2", EVE), ("ann 1", ANN), ("bob 1", BOB), ("ann 2", ANN), ("root", ROOT)):
            await jobs.begin(name, uid)
        await jobs.end("first")
        while jobs.running:
            (name,) = jobs.running
            order.append(name)
            await jobs.end(name)
        assert order == ["root", "eve 1", "ann 1", "bob 1", "eve 2", "ann 2"]

    run(job, lambda: ChildSlots(1, ROOT))


def test_more_than_a_user_s_share_of_waiting_requests_is_refused_and_others_still_wait() -> None:
    async def job(jobs: Jobs) -> None:
        await jobs.begin("first", EVE)
        for number in range(2):
            await jobs.begin(f"eve {number}", EVE)
        await jobs.begin("one too many", EVE)
        with pytest.raises(LimitReached, match="2 models and networks of uid 1002 wait"):
            await jobs.outcome("one too many")
        await jobs.begin("ann", ANN)
        for name in ("first", "eve 0", "ann", "eve 1"):
            await jobs.end(name)

    run(job, lambda: ChildSlots(1, ROOT, waiting_per_user=2))


def test_no_request_waits_for_ever() -> None:
    async def job(jobs: Jobs) -> None:
        await jobs.begin("first", EVE)
        await jobs.begin("late", ANN)
        with pytest.raises(LimitReached, match=r"within 0\.02 s"):
            await jobs.outcome("late")
        await jobs.end("first")
        await jobs.begin("next", ANN)
        assert jobs.running == ["next"]
        await jobs.end("next")

    run(job, lambda: ChildSlots(1, ROOT, longest_wait_s=0.02))


def test_a_request_that_is_given_up_gives_its_place_or_its_turn_to_the_next() -> None:
    async def job(jobs: Jobs) -> None:
        await jobs.begin("first", EVE)
        await jobs.begin("waits", ANN)
        await jobs.begin("after", BOB)
        await jobs.cancel("waits")
        await jobs.cancel("first")
        assert jobs.running == ["after"]
        await jobs.end("after")

    run(job, lambda: ChildSlots(1, ROOT))
