# SPDX-License-Identifier: Apache-2.0
"""What differs on kernel 4.9: limits, governors, clocks, monitors and the fan."""

from __future__ import annotations

import errno

import pytest

from jetdvfs.tests.support.boards.twin_fakes import POLICY, Busy, refused, shell, sleep

OVERRIDE = "/sys/kernel/debug/clk/override.emc"


@pytest.mark.parametrize(("board", "jetpack"), [("tx2", "4"), ("nano", "4"), ("agx-xavier", "4"), ("xavier-nx", "4")])
def test_kernel_49_refuses_cpu_limits_in_the_wrong_order(board: str, jetpack: str) -> None:
    one = shell(board, jetpack=jetpack)
    low, high = f"{POLICY}/scaling_min_freq", f"{POLICY}/scaling_max_freq"
    rates, top = one.board.policies[0].clock.rates, one.cat(high)
    one.echo(rates[2], low)
    with refused(errno.EINVAL):
        one.echo(rates[1], high)
    with refused(errno.EINVAL):
        one.echo(rates[-1] + 1, low)
    assert (one.cat(low), one.cat(high)) == (str(rates[2]), top)
    one.echo(rates[1], low)
    one.echo(rates[1], high)
    assert (one.cat(low), one.cat(high)) == (str(rates[1]), str(rates[1]))
    # Cut to the clock's range when it is written, unlike later kernels, which cut when it is used.
    one.echo(10**7, high)
    assert one.cat(high) == str(rates[-1])
    assert "interactive" in one.cat(f"{POLICY}/scaling_available_governors")


def test_kernel_49_keeps_gpu_limits_as_they_were_written() -> None:
    one = shell("tx2")
    device = "/sys/devices/17000000.gp10b/devfreq/17000000.gp10b"
    one.echo(500_000_999, f"{device}/max_freq")
    assert one.cat(f"{device}/max_freq") == "500000999"
    with refused(errno.EINVAL):
        one.echo(600_000_000, f"{device}/min_freq")
    with refused(errno.EINVAL):
        one.echo("fast", f"{device}/min_freq")
    one.echo("performance", f"{device}/governor")
    sleep(one, 0.1)
    assert one.cat(f"{device}/cur_freq") == "420750000"  # the highest rate below an upper limit, not the lowest above
    one.echo(0, f"{device}/max_freq")
    sleep(one, 0.1)
    assert (one.cat(f"{device}/max_freq"), one.cat(f"{device}/cur_freq")) == ("0", "1300500000")


def test_the_interactive_governor_follows_the_load() -> None:
    one = shell("nano")
    one.echo("interactive", f"{POLICY}/scaling_governor")
    one.board.attach(Busy({"policy0": 1.0}))
    sleep(one, 0.2)
    assert one.cat(f"{POLICY}/scaling_cur_freq") == "1479000"


def test_the_override_clock_of_a_nano_holds_the_memory_while_it_is_on() -> None:
    one = shell("nano")
    with refused(errno.EACCES):
        one.cat(f"{OVERRIDE}/clk_update_rate")
    one.echo(700_000_000, f"{OVERRIDE}/clk_update_rate")
    assert one.cat(f"{OVERRIDE}/clk_rate") == "40800000"
    one.echo(1, f"{OVERRIDE}/clk_state")
    assert one.cat(f"{OVERRIDE}/clk_rate") == "800000000"
    one.echo(0, f"{OVERRIDE}/clk_state")
    assert one.cat(f"{OVERRIDE}/clk_rate") == "40800000"
    limits = "/sys/kernel/debug/tegra_bwmgr"
    assert (one.cat(f"{limits}/emc_min_rate"), one.cat(f"{limits}/emc_max_rate")) == ("40800000", "1600000000")


def test_the_monitors_of_jetpack_4_are_industrial_io_devices() -> None:
    one = shell("tx2")
    sleep(one, 1.0)
    device = "/sys/bus/i2c/drivers/ina3221x/0-0041/iio:device1"
    assert one.cat(f"{device}/rail_name_0") == "VDD_IN"
    milliwatts = int(one.cat(f"{device}/in_power0_input"))
    milliamperes, millivolts = (int(one.cat(f"{device}/in_{what}0_input")) for what in ("current", "voltage"))
    assert milliwatts == milliamperes * millivolts // 1000
    assert not one.board.tree.exists("/sys/class/hwmon")


def test_the_fan_of_jetpack_4_is_driven_by_the_kernel_until_told_otherwise() -> None:
    one = shell("tx2")
    fan = "/sys/devices/pwm-fan"
    one.board.faults.fever_c = 40.0
    sleep(one, 3.0)
    assert int(one.cat(f"{fan}/cur_pwm")) > 100
    one.echo(0, f"{fan}/temp_control")
    one.echo(30, f"{fan}/target_pwm")
    sleep(one, 3.0)
    assert one.cat(f"{fan}/cur_pwm") == "30"
    with refused(errno.EINVAL):
        one.echo(256, f"{fan}/target_pwm")
