# SPDX-License-Identifier: Apache-2.0
"""What heat takes away, and what a fan does about it."""

from __future__ import annotations

import errno

import pytest

from jetdvfs.profiles.errors import TwinError
from jetdvfs.tests.support.boards.twin_fakes import POLICY, refused, shell, sleep, small_network

ORIN_GPU = "/sys/devices/platform/bus@0/17000000.gpu"
ORIN_DEVFREQ = f"{ORIN_GPU}/devfreq/17000000.gpu"


def test_a_hot_board_lowers_its_limits_step_by_step_and_raises_them_again() -> None:
    one = shell("agx-orin-64gb")
    one.echo("performance", f"{POLICY}/scaling_governor")
    one.board.faults.fever_c = 100.0 - one.board.thermal.hottest_c
    sleep(one, 3.5)
    assert int(one.cat(f"{POLICY}/scaling_max_freq")) < 2201600
    assert int(one.cat(f"{ORIN_DEVFREQ}/max_freq")) < 1300500000
    assert int(one.cat(f"{POLICY}/cpuinfo_cur_freq")) < 2201600
    one.board.faults.fever_c = 0.0
    sleep(one, 10.0)
    assert one.cat(f"{POLICY}/scaling_max_freq") == "2201600"
    assert one.cat(f"{ORIN_DEVFREQ}/max_freq") == "1300500000"


def test_hotter_still_the_firmware_takes_pulses_away_which_no_request_shows() -> None:
    one = shell("agx-orin-64gb")
    one.board.faults.fever_c = 102.0 - one.board.thermal.hottest_c
    sleep(one, 1.5)
    requested = int(one.cat(f"{POLICY}/scaling_cur_freq"))
    assert int(one.cat(f"{POLICY}/cpuinfo_cur_freq")) == pytest.approx(requested / 2)
    assert int(one.cat(f"{ORIN_DEVFREQ}/cur_freq")) == one.board.gpu.clock.settled == 2 * one.board.configuration.gpu_hz


def test_past_its_critical_trip_a_board_switches_itself_off() -> None:
    one = shell("agx-orin-64gb")
    one.board.faults.fever_c = 106.0 - one.board.thermal.hottest_c
    sleep(one, 2.0)
    with pytest.raises(TwinError, match="switched itself off"):
        one.board.infer(small_network())
    with refused(errno.ENOENT):
        one.cat(f"{POLICY}/scaling_cur_freq")
    assert set(one.board.watts) == {0.0}


def test_a_fan_turns_faster_the_hotter_it_is() -> None:
    one = shell("agx-orin-64gb")
    fan, tachometer = "/sys/class/hwmon/hwmon0/pwm1", "/sys/class/hwmon/hwmon1/rpm"
    before = (int(one.cat(fan)), int(one.cat(tachometer)))
    one.board.faults.fever_c = 40.0
    sleep(one, 3.0)
    assert int(one.cat(fan)) > before[0] and int(one.cat(tachometer)) > before[1]
