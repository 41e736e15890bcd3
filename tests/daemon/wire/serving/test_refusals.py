# SPDX-License-Identifier: Apache-2.0
"""However much a user is refused, it is a line a minute in the log."""

from __future__ import annotations

import asyncio

import pytest

from jetdvfs.daemon.errors import UsageError
from jetdvfs.daemon.wire.serving.connection import RefusalLog
from jetdvfs.daemon.wire.serving.session import Peer


def test_refusals_are_summed_up_by_user(caplog: pytest.LogCaptureFixture) -> None:
    async def job() -> None:
        refusals = RefusalLog(every_s=0.2)
        for number in range(1000):
            refusals.note(Peer(1, 1000, 1000), UsageError(f"bad {number}"))
        refusals.note(Peer(2, 1001, 1001), UsageError("other"))
        await asyncio.sleep(0.3)
        assert [record.getMessage() for record in caplog.records] == [
            "pid 1, uid 1000: bad 0",
            "pid 2, uid 1001: other",
            "uid 1000: refused 999 times more within 0.2 s, last: bad 999",
        ]
        await asyncio.sleep(0.3)
        refusals.note(Peer(1, 1000, 1000), UsageError("again"))
        assert caplog.records[-1].getMessage() == "pid 1, uid 1000: again"

    asyncio.run(job())


def test_a_failure_that_nobody_foresaw_is_logged_with_where_it_came_from(caplog: pytest.LogCaptureFixture) -> None:
    async def job() -> None:
        refusals = RefusalLog()
        for _ in range(3):
            try:
                raise ZeroDivisionError("oops")
            except ZeroDivisionError as error:
                refusals.note(Peer(1, 1000, 1000), error, unforeseen_in="Echo")
        (record,) = caplog.records
        assert record.getMessage() == "pid 1, uid 1000: Echo failed" and record.exc_info is not None

    asyncio.run(job())
