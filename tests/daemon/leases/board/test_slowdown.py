# SPDX-License-Identifier: Apache-2.0
"""Heat and over-current are said once when they begin to slow the board down, and once when that has ended."""

from __future__ import annotations

import pytest

from jetdvfs.daemon.leases.board.slowdown import SlowdownTracker
from jetdvfs.daemon.system.journal import AT_SPEED, SLOWED
from jetdvfs.tests.support.boards.hardware_kernel import FakeClock


def test_what_slows_the_board_is_said_when_it_begins_and_when_it_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock, reasons = FakeClock(), dict[str, str]()
    slowed = SlowdownTracker(lambda: dict(reasons), clock.monotonic)

    def sample(seconds: float) -> list[tuple[str, str]]:
        caplog.clear()
        for _ in range(round(seconds)):
            clock.sleep(1)
            slowed.sample()
        return [(vars(record)["MESSAGE_ID"], record.getMessage()) for record in caplog.records]

    assert sample(3) == []
    reasons["over-current oc3"] = "oc3: 60 a minute"
    assert sample(2) == [(SLOWED, "the board is slowed down: oc3: 60 a minute")]
    reasons["over-current oc3"] = "oc3: 90 a minute"
    assert sample(8) == []
    reasons.clear()
    assert sample(3) == []  # it may come back
    reasons["over-current oc3"] = "oc3: 30 a minute"
    assert sample(2) == []
    reasons.clear()
    assert sample(6) == [(AT_SPEED, "no longer slowed down by over-current oc3, after 14 s")]
    assert vars(caplog.records[-1])["JETDVFS_SECONDS"] == "14"
