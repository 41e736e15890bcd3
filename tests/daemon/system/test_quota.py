# SPDX-License-Identifier: Apache-2.0
"""A user's part of the log is bounded, whatever it is about, and displaces nobody else's."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Iterator

import pytest

from jetdvfs.daemon.system.decision_log import ENTRIES_KEPT, DecisionLog
from jetdvfs.daemon.system.journal import ACTING, LEASE_BEGUN, TARGET_MISSED, LogQuota, RepeatedLog, fields, task_failures
from jetdvfs.tests.support.boards.hardware_kernel import FakeClock

HOSTILE, CAMERA = 54101, 54100


class Lines(logging.Handler):
    """Everything that is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def handlers(clock: FakeClock) -> Iterator[tuple[Lines, DecisionLog]]:
    lines, record, quota = Lines(), DecisionLog(), LogQuota(clock.monotonic, per_minute=3)
    root = logging.getLogger()
    for handler in (lines, record):
        handler.addFilter(quota)
        root.addHandler(handler)
    yield lines, record
    for handler in (lines, record):
        root.removeHandler(handler)


def say(text: str, uid: int | None, kind: str = TARGET_MISSED) -> None:
    logging.getLogger("jetdvfs.test").warning("%s", text, extra=fields(kind, uid=uid, lease="1"))


def test_a_users_lines_of_a_minute_are_bounded_and_the_rest_is_counted_once(
    clock: FakeClock, handlers: tuple[Lines, DecisionLog]
) -> None:
    lines, record = handlers
    for number in range(10):
        say(f"missed {number}", HOSTILE)
        say(f"kept {number}", CAMERA if number == 5 else HOSTILE)
    say("root's", 0)
    clock.sleep(61)
    say("later", HOSTILE)
    clock.sleep(61)
    say("again", HOSTILE)
    told = f"uid {HOSTILE}: 16 log lines of a minute left out; at most 3 are logged"
    assert lines.lines == ["missed 0", "kept 0", "missed 1", "kept 5", "root's", told, "later", "again"]
    assert [entry.message for entry in record.entries()] == lines.lines


def test_lines_without_a_user_count_as_those_of_the_call_that_they_come_from(handlers: tuple[Lines, DecisionLog]) -> None:
    lines, _ = handlers

    def call(uid: int | None) -> None:
        ACTING.set(uid)
        for number in range(5):
            logging.getLogger("jetdvfs.test").warning("%s of %s", number, uid)

    for uid in (HOSTILE, 0, None):
        contextvars.copy_context().run(call, uid)
    assert lines.lines == [f"{number} of {uid}" for uid, most in ((HOSTILE, 3), (0, 5), (None, 5)) for number in range(most)]


def test_one_users_entries_displace_neither_roots_nor_another_users() -> None:
    record, log = DecisionLog(), logging.getLogger("jetdvfs.kept")
    log.addHandler(record)
    try:
        for uid in (0, CAMERA):
            for number in range(20):
                log.warning("%s", f"{uid} {number}", extra=fields(LEASE_BEGUN, uid=uid))
        for number in range(3 * ENTRIES_KEPT):
            log.warning("%s", f"{HOSTILE} {number}", extra=fields(LEASE_BEGUN, uid=HOSTILE))
    finally:
        log.removeHandler(record)
    kept = [entry.message for entry in record.entries()]
    assert len(kept) == ENTRIES_KEPT
    assert [text for text in kept if not text.startswith(str(HOSTILE))] == [
        f"{uid} {number}" for uid in (0, CAMERA) for number in range(20)
    ]
    assert kept[-1] == f"{HOSTILE} {3 * ENTRIES_KEPT - 1}"
    assert [entry.number for entry in record.entries()] == sorted(entry.number for entry in record.entries())


def test_a_task_that_fails_again_and_again_is_one_line_a_minute_without_a_traceback(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    said = RepeatedLog(logging.getLogger("jetdvfs.test"), clock.monotonic)

    async def fail(number: int) -> None:
        raise ZeroDivisionError(f"by a member's figure {number}")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(
            task_failures(lambda text, kind: said.say(logging.ERROR, text, kind=kind))
        )
        for number in range(50):
            task = asyncio.create_task(fail(number))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            del task

    asyncio.run(main())
    (line,) = caplog.records
    assert line.getMessage().startswith("a task failed: ZeroDivisionError: by a member's figure 0 (test_quota.py:")
    assert line.exc_info is None
