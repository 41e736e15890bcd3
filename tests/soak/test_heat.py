# SPDX-License-Identifier: Apache-2.0
"""A board that is past its trips while clocks are held: its kernel shows lower limits than stand."""

from __future__ import annotations

from pathlib import Path

from jetdvfs.daemon.leases.lease import Holder
from jetdvfs.daemon.planning.lease_plan import LeasePlan
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.tests.soak.endurance import Day

MIDDLE = FrequencyConfiguration(652800, 1198500000, 1600000000)
LOW = FrequencyConfiguration(345600, 114750000, 1600000000)
HIGHEST = "/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq"


def wait(day: Day, seconds: float) -> None:
    day.daemon.run(day.daemon.until(day.clock.now + seconds))


def test_what_heat_hides_is_given_back_all_the_same(tmp_path: Path) -> None:
    day = Day(tmp_path)
    found = day._settings()
    day.board.faults.fever_c = 50.0
    while day._settings()[HIGHEST] == found[HIGHEST]:
        wait(day, 0.5)
    wait(day, 15)
    assert day._settings() != found, "the kernel throttles"
    lease, _ = day.daemon.controller.hold(Holder(1, 1, 1, "x"), LeasePlan(LOW), "while it is hot")
    wait(day, 10)
    day.daemon.controller.release(lease)
    wait(day, 10)
    day.board.faults.fever_c = 0.0
    wait(day, 120)
    assert day._settings() == found


def test_limits_that_still_climb_after_the_heat_are_nobodys_choice(tmp_path: Path) -> None:
    day = Day(tmp_path)
    found = day._settings()
    lowered = LOW._replace(cpu_khz=192000)
    first, _ = day.daemon.controller.hold(Holder(1, 1, 1, "x"), LeasePlan(MIDDLE), "before the heat")
    day.board.faults.fever_c = 50.0
    wait(day, 60)
    assert int(day._settings()[HIGHEST]) < MIDDLE.cpu_khz, "the kernel throttles"
    day.board.faults.fever_c = 0.0
    day.clock.sleep(2.5)
    day.daemon.sensors.sample()
    assert int(day._settings()[HIGHEST]) < MIDDLE.cpu_khz and not day.daemon.hardware.throttled(), (
        "it is cool, and limits still climb"
    )
    second, _ = day.daemon.controller.hold(Holder(2, 2, 2, "y"), LeasePlan(lowered), "after the heat")
    day.daemon.controller.release(first)
    wait(day, 60)
    day.daemon.controller.release(second)
    wait(day, 60)
    assert day._settings() == found
