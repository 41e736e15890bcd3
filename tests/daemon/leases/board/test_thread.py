# SPDX-License-Identifier: Apache-2.0
"""The board's thread: in order, user by user, and never given up for what somebody asks of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from jetdvfs.daemon.errors import HardwareBusy, UsageError
from jetdvfs.daemon.leases.board.thread import STUCK_S, BoardThread
from jetdvfs.tests.support.daemons.board_daemon import eventually

CAMERA, HOSTILE = 1000, 1001


class Board:
    """What the thread looks after: it counts, and a test can hold it up."""

    def __init__(self) -> None:
        self.kept_up = self.published = self.ended = 0
        self.now = 0.0
        self.every_s = 60.0
        self.fails = False
        self.free = threading.Event()
        self.free.set()
        self.thread = BoardThread(self.upkeep, lambda: self.every_s, self.publish, lambda: self.ended, lambda: self.now)

    def upkeep(self) -> None:
        self.kept_up += 1
        if self.fails:
            raise ZeroDivisionError

    def publish(self) -> None:
        self.published += 1

    def occupy(self) -> None:
        """Let the thread be busy until it is set free."""
        self.free.clear()
        begun = threading.Event()

        def wait() -> None:
            begun.set()
            self.free.wait(10)

        self.thread.submit(wait)
        assert begun.wait(5)


@pytest.fixture
def board() -> Iterator[Board]:
    board = Board()
    board.thread.start()
    yield board
    board.free.set()
    board.thread.stop()


def test_what_is_asked_is_done_in_order_and_published_before_anybody_is_told(board: Board) -> None:
    async def ask() -> list[int]:
        return [await board.thread.run(lambda: board.published) for _ in range(3)]

    first, second, third = asyncio.run(ask())
    assert first < second < third < board.published


def test_what_goes_wrong_is_told_to_who_asked_and_ends_nothing(board: Board) -> None:
    def refuse() -> None:
        raise UsageError("no")

    with pytest.raises(UsageError, match="no"):
        asyncio.run(board.thread.run(refuse))
    board.fails, board.every_s = True, 0.0
    board.thread.submit(lambda: None)
    assert eventually(lambda: board.kept_up > 3)
    board.every_s = 60.0
    assert asyncio.run(board.thread.run(lambda: 7)) == 7


def test_one_users_queue_delays_another_by_one_and_what_ends_by_none(board: Board) -> None:
    done: list[str] = []
    board.occupy()
    for number in range(5):
        board.thread.submit(lambda number=number: done.append(f"hold {number}"), user=HOSTILE)  # type: ignore[misc]
    board.thread.submit(lambda: done.append("camera"), user=CAMERA)
    board.thread.submit(lambda: done.append("release"), user=CAMERA, ends=True)
    board.free.set()
    assert eventually(lambda: len(done) == 7)
    assert done == ["release", "hold 0", "camera", "hold 1", "hold 2", "hold 3", "hold 4"]


def test_roots_hold_waits_for_no_queue_of_others_and_their_ends_for_one_of_roots_holds(board: Board) -> None:
    done: list[str] = []
    board.occupy()
    for number in range(3):
        board.thread.submit(lambda number=number: done.append(f"end {number}"), user=HOSTILE, ends=True)  # type: ignore[misc]
        board.thread.submit(lambda number=number: done.append(f"hold {number}"), user=HOSTILE)  # type: ignore[misc]
    for number in range(2):
        board.thread.submit(lambda number=number: done.append(f"root {number}"), user=0)  # type: ignore[misc]
    board.free.set()
    assert eventually(lambda: len(done) == 8)
    assert done == ["root 0", "end 0", "root 1", "end 1", "end 2", "hold 0", "hold 1", "hold 2"]


def test_what_a_connection_asked_for_that_is_gone_is_not_begun(board: Board) -> None:
    done: list[str] = []
    connection = object()
    board.occupy()
    board.thread.submit(lambda: done.append("hold"), owner=connection)
    board.thread.forget(connection)
    board.thread.submit(lambda: done.append("drop"), ends=True)
    board.free.set()
    asyncio.run(board.thread.run(lambda: None))
    assert done == ["drop"]


def test_who_waited_long_enough_is_told_and_holds_nothing(board: Board) -> None:
    done: list[str] = []
    board.occupy()
    with pytest.raises(HardwareBusy, match=r"has not answered for 0\.05 s; nothing was changed"):
        asyncio.run(board.thread.run(lambda: done.append("hold"), longest_s=0.05))
    with pytest.raises(HardwareBusy, match="it is still waited for"):
        asyncio.run(board.thread.run(lambda: done.append("release"), ends=True, longest_s=0.05))
    board.free.set()
    assert eventually(lambda: done == ["release"])


def test_what_was_begun_and_is_waited_for_by_nobody_any_more_is_undone(board: Board) -> None:
    undone: list[str] = []
    begun = threading.Event()

    def hold() -> str:
        begun.set()
        board.free.wait(10)
        return "lease"

    board.free.clear()
    with pytest.raises(HardwareBusy):
        asyncio.run(board.thread.run(hold, undo=undone.append, longest_s=0.05))
    assert begun.is_set()
    board.free.set()
    assert eventually(lambda: undone == ["lease"])


def test_upkeep_comes_to_its_turn_under_a_stream_of_requests() -> None:
    board = Board()
    board.thread = BoardThread(board.upkeep, lambda: 0.05, board.publish)
    board.thread.start()
    over = time.monotonic() + 2.5

    def again() -> None:
        time.sleep(0.01)
        if time.monotonic() < over:
            board.thread.submit(again)
            board.thread.submit(lambda: None, user=HOSTILE)

    board.thread.submit(again)
    try:
        assert eventually(lambda: time.monotonic() > over)
        assert board.kept_up >= 2
    finally:
        board.thread.stop()


def test_what_may_wait_is_done_once_nothing_is_asked_any_more(board: Board) -> None:
    done: list[str] = []
    board.occupy()
    board.thread.when_at_rest(lambda: done.append("look"))
    board.thread.when_at_rest(lambda: done.append("another look"))
    jobs = [board.thread.submit(lambda: done.append("hold")) for _ in range(3)]
    board.free.set()
    for job in jobs:
        job.future.result(5)
    assert done == ["hold"] * 3
    board.now = 0.1
    assert eventually(lambda: done == ["hold"] * 3 + ["look"])


def test_what_may_wait_is_not_kept_off_by_a_stream_of_requests(board: Board) -> None:
    done: list[str] = []
    board.occupy()
    board.thread.when_at_rest(lambda: done.append("look"))
    jobs = [board.thread.submit(lambda: done.append("hold")) for _ in range(3)]
    board.now = 0.3
    board.free.set()
    for job in jobs:
        job.future.result(5)
    assert done == ["look"] + ["hold"] * 3


def test_the_thread_gets_on_while_its_calls_come_back_however_long_it_takes(board: Board) -> None:
    assert board.thread.moves()
    board.occupy()
    for _ in range(5):
        assert board.thread.moves()
        board.now += STUCK_S - 1
        board.ended += 1
    assert board.thread.moves()
    board.now += STUCK_S - 1
    assert board.thread.moves()
    board.now += 2
    assert not board.thread.moves()
    board.free.set()
    assert eventually(board.thread.moves)
    board.now += 10 * STUCK_S
    assert board.thread.moves()  # it has nothing to do
