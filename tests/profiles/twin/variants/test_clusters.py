# SPDX-License-Identifier: Apache-2.0
"""Clusters with clocks of their own, and monitors that average."""

from __future__ import annotations

import errno

from jetdvfs.profiles.twin.simulated_board import simulated_board
from jetdvfs.tests.support.boards.twin_fakes import Shell, VirtualClock, refused, shell, sleep, small_network

CPUFREQ = "/sys/devices/system/cpu/cpufreq"


def test_each_cluster_has_a_clock_of_its_own() -> None:
    one = shell("agx-orin-64gb")
    one.echo("userspace", f"{CPUFREQ}/policy4/scaling_governor")
    one.echo(1_500_000, f"{CPUFREQ}/policy4/scaling_setspeed")
    sleep(one, 0.1)
    clocks = {policy: one.cat(f"{CPUFREQ}/{policy}/cpuinfo_cur_freq") for policy in ("policy0", "policy4", "policy8")}
    assert clocks == {"policy0": "729600", "policy4": "1574400", "policy8": "729600"}


def test_a_cluster_whose_cores_are_all_offline_has_no_policy() -> None:
    one = shell("tx2")
    for cpu in (1, 2):
        assert one.cat(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/affected_cpus") == "1 2" if cpu == 1 else "2"
        one.echo(0, f"/sys/devices/system/cpu/cpu{cpu}/online")
    with refused(errno.ENOENT):
        one.cat(f"{CPUFREQ}/policy1/scaling_cur_freq")
    assert one.cat("/sys/devices/system/cpu/online") == "0,3-5"


def test_clusters_at_different_clocks_draw_less_than_all_at_the_highest() -> None:
    board = simulated_board("agx-orin-64gb", clock=VirtualClock())
    one = Shell(board)

    def drawn(*policies: str) -> float:
        for policy in ("policy0", "policy4", "policy8"):
            one.echo("performance" if policy in policies else "powersave", f"{CPUFREQ}/{policy}/scaling_governor")
        board.clock.sleep(0.1)
        with board.present():
            return board.watts[board.rails.rails.index("VDD_CPU_CV")]

    none, some, every = drawn(), drawn("policy0"), drawn("policy0", "policy4", "policy8")
    assert none < some < every


# Sensors


def test_a_monitor_that_averages_512_samples_lags_by_seconds() -> None:
    one = shell("orin-nano-8gb")
    node = "/sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon1"
    assert (one.cat(f"{node}/samples"), one.cat(f"{node}/curr1_crit")) == ("512", "4984")
    sleep(one, 10.0)
    one.board.infer(small_network(), frames=None, seconds=0.5)
    shortly = int(one.cat(f"{node}/curr1_input"))
    one.board.infer(small_network(), frames=None, seconds=5.0)
    later = int(one.cat(f"{node}/curr1_input"))
    assert shortly < 0.6 * later
