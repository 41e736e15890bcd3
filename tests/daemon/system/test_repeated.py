# SPDX-License-Identifier: Apache-2.0
"""What goes on is said when it is new, and then once a minute."""

from __future__ import annotations

import logging

import pytest

from jetdvfs.daemon.system.journal import AGAIN_S, RepeatedLog
from jetdvfs.tests.support.boards.hardware_kernel import FakeClock


def test_what_comes_twice_a_second_is_logged_once_a_minute_with_its_count(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    said = RepeatedLog(logging.getLogger("jetdvfs.test"), clock.monotonic)
    for _ in range(int(2 * AGAIN_S) + 1):
        said.say(logging.ERROR, "not given back: /sys/x")
        clock.sleep(0.5)
    said.say(logging.ERROR, "not given back: /sys/y")
    assert [record.getMessage() for record in caplog.records] == [
        "not given back: /sys/x",
        "not given back: /sys/x (119 more times since this was said last)",
        "not given back: /sys/y",
    ]
