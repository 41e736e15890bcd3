# SPDX-License-Identifier: Apache-2.0
"""A GPU that is switched off, asleep or in parts powered down."""

from __future__ import annotations

import errno

import pytest

from jetdvfs.kernels.network import KernelInvocation, Network
from jetdvfs.profiles.twin.simulated_board import simulated_board
from jetdvfs.tests.support.boards.twin_fakes import EMC, Shell, VirtualClock, refused, shell, sleep, small_network, zone

ORIN_GPU = "/sys/devices/platform/bus@0/17000000.gpu"
ORIN_DEVFREQ = f"{ORIN_GPU}/devfreq/17000000.gpu"
THOR = "/sys/class/devfreq/gpu-gpc-0"


def test_a_gpu_that_nothing_has_used_has_no_clock_until_it_is_powered() -> None:
    for wake in (("0", "railgate_enable"), ("on", "power/control")):
        one = shell("agx-orin-64gb", desktop=False)
        with refused(errno.ENOENT):
            one.cat("/sys/class/devfreq/17000000.gpu/cur_freq")
        # Its masks can still be set.
        one.echo(248, f"{ORIN_GPU}/tpc_pg_mask")
        one.echo(wake[0], f"{ORIN_GPU}/{wake[1]}")
        assert one.cat("/sys/class/devfreq/17000000.gpu/cur_freq") == "306000000"
        one.board.infer(small_network())
        with refused(errno.EBUSY):
            one.echo(0, f"{ORIN_GPU}/tpc_pg_mask")


def test_an_idle_gpu_is_switched_off_unless_that_is_forbidden() -> None:
    one = shell("agx-orin-64gb")
    one.board.infer(small_network())
    assert one.cat(f"{ORIN_GPU}/is_railgated") == "no"
    sleep(one, 1.0)
    assert (one.cat(f"{ORIN_GPU}/is_railgated"), one.cat(f"{ORIN_GPU}/gpu_powered_on")) == ("yes", "0")
    gpu = zone(one, "gpu-thermal")
    with refused(errno.EAGAIN):
        one.cat(f"{gpu}/temp")
    one.echo(0, f"{ORIN_GPU}/railgate_enable")
    assert one.cat(f"{ORIN_GPU}/is_railgated") == "no"
    assert int(one.cat(f"{gpu}/temp")) > 20000


def test_a_zone_without_power_reads_a_number_that_cannot_be_on_jetpack_5() -> None:
    one = shell("agx-orin-64gb", jetpack="5")
    sleep(one, 1.0)
    assert one.cat(f"{zone(one, 'CV0-therm')}/temp") == "-256000"
    assert one.cat(f"{zone(one, 'GPU-therm')}/temp") == "-256000"
    with refused(errno.EAGAIN):
        other = shell("agx-orin-64gb")
        other.cat(f"{zone(other, 'cv0-thermal')}/temp")


def test_the_clock_of_an_idle_thor_reads_zero_and_its_limits_are_kept() -> None:
    one = shell("agx-thor")
    sleep(one, 1.0)
    assert one.cat(f"{THOR}/cur_freq") == "0"
    assert (one.cat(f"{THOR}/min_freq"), one.cat(f"{THOR}/max_freq")) == ("54000000", "1575000000")
    one.echo(1_260_000_000, f"{THOR}/max_freq")
    one.echo(1_260_000_000, f"{THOR}/min_freq")
    assert one.cat(f"{THOR}/cur_freq") == "0"
    one.echo("on", "/sys/bus/pci/devices/0000:01:00.0/power/control")
    sleep(one, 0.2)
    assert one.cat(f"{THOR}/cur_freq") == "1260000000"
    assert one.cat("/sys/class/devfreq/gpu-nvd-0/max_freq") == "1692000000"
    for name in ("load", "of_node"):
        assert not one.board.tree.exists(f"/sys/bus/pci/devices/0000:01:00.0/{name}")


def test_the_input_power_of_a_thor_is_worked_out_by_its_monitor() -> None:
    one = shell("agx-thor")
    sleep(one, 1.0)
    node = "/sys/bus/i2c/devices/2-0044/hwmon/hwmon2"
    microwatts = int(one.cat(f"{node}/power1_input"))
    assert microwatts == int(one.cat(f"{node}/in1_input")) * int(one.cat(f"{node}/curr1_input"))
    assert microwatts == pytest.approx(1e6, rel=0.25)


def test_a_mode_that_powers_units_down_makes_the_same_work_slower_at_the_same_clock() -> None:
    size = ((1, 512, 128, 128),)
    relu = KernelInvocation("gelu", "gelu", size, size[0], "float32", {}, 10 * 512 * 16384, 8 * 512 * 16384)
    seen = {}
    for mode in ("MAXN", "MODE_30W", "MODE_15W"):
        board = simulated_board("agx-orin-64gb", clock=VirtualClock(), mode=mode)
        one = Shell(board)
        one.echo("userspace", f"{ORIN_DEVFREQ}/governor")
        one.echo(306_000_000, f"{ORIN_DEVFREQ}/userspace/set_freq")
        one.echo(1, f"{EMC}/mrq_rate_locked")
        one.echo(2_133_000_000, f"{EMC}/rate")
        board.clock.sleep(0.1)
        seen[mode] = min(board.infer(Network("gelu", (), (relu,) * 8), frames=5).latencies_s)
    assert seen["MAXN"] < 0.8 * seen["MODE_30W"] < 0.9 * seen["MODE_15W"]
