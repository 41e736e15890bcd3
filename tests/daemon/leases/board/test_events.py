# SPDX-License-Identifier: Apache-2.0
"""Over-current events: counted since boot, rated of late, and told as a reason for which the board is slow."""

from __future__ import annotations

import pytest

from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.daemon.leases.board.slowdown import CounterEvent, EventCounters
from jetdvfs.profiles.board import load_board
from jetdvfs.tests.support.boards.hardware_kernel import FakeClock, Kernel

NODE = "/sys/class/hwmon/hwmon7"


class Counted:
    def __init__(self) -> None:
        self.kernel, self.clock = Kernel(load_board("orin-nano-8gb")), FakeClock()
        self.kernel.store |= {f"{NODE}/name": "soctherm_oc", f"{NODE}/oc1_event_cnt": "0", f"{NODE}/oc3_event_cnt": "100"}
        hardware = Hardware.probe(self.kernel, self.clock)
        self.events = EventCounters(hardware.sensors.over_current, self.clock.monotonic)

    def run(self, seconds: float, per_s: float) -> None:
        for _ in range(round(2 * seconds)):
            self.clock.sleep(0.5)
            count = float(self.kernel.store[f"{NODE}/oc3_event_cnt"]) + per_s / 2
            self.kernel.store[f"{NODE}/oc3_event_cnt"] = f"{count:.0f}"
            self.events.sample()


@pytest.fixture
def counted() -> Counted:
    return Counted()


def test_events_since_boot_are_no_reason_while_none_is_added(counted: Counted) -> None:
    counted.run(20, 0)
    assert counted.events.events == (CounterEvent("oc1", 0, 0.0), CounterEvent("oc3", 100, 0.0))
    assert counted.events.notes == ()


def test_events_of_late_are_rated_and_told_until_a_minute_after_the_last(counted: Counted) -> None:
    counted.run(30, 4)
    rated = {event.event: event for event in counted.events.events}
    assert rated["oc3"].count > 200
    assert rated["oc3"].per_minute == pytest.approx(240, rel=0.1)
    (note,) = counted.events.notes
    assert note.startswith("over-current event oc3: 2") and "which no clock shows" in note
    counted.run(64, 0)
    assert counted.events.notes == ()


def test_what_is_added_after_the_first_reading_is_rated_even_where_that_came_late() -> None:
    clock, counts = FakeClock(), dict[str, int]()
    events = EventCounters(lambda: dict(counts), clock.monotonic)
    events.sample()
    for count in (100, 150, 200):
        clock.sleep(3)
        counts["oc3"] = count
        events.sample()
    assert events.events == (CounterEvent("oc3", 200, 1000.0),)


def test_a_board_without_the_counters_has_no_events() -> None:
    clock = FakeClock()
    events = EventCounters(Hardware.probe(Kernel(), clock).sensors.over_current, clock.monotonic)
    events.sample()
    assert events.events == () and events.notes == ()
