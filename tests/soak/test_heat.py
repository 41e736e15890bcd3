# SPDX-License-Identifier: Apache-2.0
"""A board that is past its trips while clocks are held: its kernel shows lower limits than stand."""

from __future__ import annotations

from pathlib import Path

from jetdvfs.daemon.leases import Holder, Need
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.tests.soak.endurance import Day

LOW = FrequencyConfiguration(345600, 114750000, 1600000000)
HIGHEST = "/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq"


def wait(day: Day, seconds: float) -> None:
    for _ in range(int(2 * seconds)):
        day.controller.tend()
        day.clock.sleep(0.5)


def test_what_heat_hides_is_given_back_all_the_same(tmp_path: Path) -> None:
    day = Day(tmp_path)
    found = day._settings()
    day.board.faults.fever_c = 50.0
    while day._settings()[HIGHEST] == found[HIGHEST]:
        wait(day, 0.5)
    wait(day, 15)
    assert day._settings() != found, "the kernel throttles"
    lease, _ = day.controller.hold(Holder(1, 1, 1, "x"), Need(LOW), "while it is hot")
    wait(day, 10)
    day.controller.release(lease)
    wait(day, 10)
    day.board.faults.fever_c = 0.0
    wait(day, 120)
    assert day._settings() == found
