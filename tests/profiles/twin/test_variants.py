# SPDX-License-Identifier: Apache-2.0
"""What differs between the simulated boards: kernels, sensors, power switches, heat, over-current, co-runners."""

from __future__ import annotations

import errno
import math
from dataclasses import dataclass, field
from typing import Any

import pytest

from jetdvfs.kernels.network import KernelInvocation, Network
from jetdvfs.profiles.board import load_board, parse_board
from jetdvfs.profiles.errors import TwinError
from jetdvfs.profiles.twin.simulated_board import simulated_board
from jetdvfs.profiles.twin.variant import laid_over
from jetdvfs.profiles.twin.work.load import BoardClocks, Load
from jetdvfs.tests.support.twin_fakes import Shell, VirtualClock, fake_board, refused, small_network

CPUFREQ = "/sys/devices/system/cpu/cpufreq"
POLICY = f"{CPUFREQ}/policy0"
ORIN_GPU = "/sys/devices/platform/bus@0/17000000.gpu"
ORIN_DEVFREQ = f"{ORIN_GPU}/devfreq/17000000.gpu"
EMC = "/sys/kernel/debug/bpmp/debug/clk/emc"
HALT = "/sys/kernel/debug/bpmp/debug/bwmgr/bwmgr_halt"
CAP = "/sys/kernel/nvpmodel_clk_cap/emc"
BWMGR = "/sys/class/devfreq/bwmgr"
OVERRIDE = "/sys/kernel/debug/clk/override.emc"
THOR = "/sys/class/devfreq/gpu-gpc-0"


def shell(name: str, **how: Any) -> Shell:
    return Shell(fake_board(VirtualClock(), name, **how))


def sleep(board: Shell, seconds: float) -> None:
    board.board.clock.sleep(seconds)


def zone(board: Shell, name: str) -> str:
    """The directory of a thermal zone."""
    root = "/sys/class/thermal"
    return next(f"{root}/{one}" for one in board.board.tree.names(root) if board.cat(f"{root}/{one}/type") == name)


# Kernel 4.9


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


# The memory clock of Orin and Thor


def test_the_memory_rate_of_an_orin_is_rounded_up_to_those_it_is_trained_for() -> None:
    one = shell("orin-nano-8gb")
    one.echo(1, f"{EMC}/mrq_rate_locked")
    probed = {408: 665.6, 665.6: 665.6, 1062.4: 2133, 2133: 2133, 2400: 3199, 3199: 3199, 204: 204}
    for asked, got in probed.items():
        one.echo(round(asked * 1e6), f"{EMC}/rate")
        assert one.cat(f"{EMC}/rate") == str(round(got * 1e6))


def test_a_cap_of_the_memory_clock_rounds_and_rises_only_where_the_power_hinting_service_runs() -> None:
    one = shell("agx-orin-64gb")
    assert one.cat(CAP) == "3199000000"
    one.echo(1_600_000_000, CAP)
    assert one.cat(CAP) == "2133000000"
    one.echo(1, f"{EMC}/mrq_rate_locked")
    one.echo(3_199_000_000, f"{EMC}/rate")
    assert one.cat(f"{EMC}/rate") == "2133000000"
    one.echo(3_199_000_000, CAP)
    assert one.cat(CAP) == "3199000000"

    described = load_board("agx-orin-64gb")
    alone = Shell(fake_board(VirtualClock(), parse_board(laid_over(described.raw, {"twin": {"power_hints": False}}))))
    assert alone.cat(CAP) == "2133000000"  # the firmware's own at boot
    alone.echo(3_199_000_000, CAP)
    assert alone.cat(CAP) == "2133000000"
    alone.echo(1, f"{EMC}/mrq_rate_locked")
    alone.echo(3_199_000_000, f"{EMC}/rate")
    assert alone.cat(f"{EMC}/rate") == "2133000000"


def test_a_halted_bandwidth_manager_leaves_the_memory_clock_where_it_is() -> None:
    one = shell("agx-orin-64gb")
    one.echo(1, HALT)
    one.echo("performance", f"{POLICY}/scaling_governor")
    assert one.cat(f"{EMC}/rate") == "204000000"
    one.echo(0, HALT)
    assert one.cat(f"{EMC}/rate") == "2133000000"  # the floor that comes with the highest CPU clock, rounded up


def test_the_bandwidth_manager_of_jetpack_7_takes_limits_in_any_order() -> None:
    one = shell("agx-orin-64gb", jetpack="7")
    one.echo(2_133_000_000, f"{BWMGR}/min_freq")
    sleep(one, 0.1)
    assert one.cat(f"{BWMGR}/cur_freq") == "2133000000"
    one.echo(665_600_000, f"{BWMGR}/max_freq")
    assert (one.cat(f"{BWMGR}/min_freq"), one.cat(f"{BWMGR}/max_freq")) == ("665600000", "665600000")
    one.echo(0, f"{BWMGR}/max_freq")
    assert one.cat(f"{BWMGR}/max_freq") == "3199000000"
    assert not shell("agx-orin-64gb").board.tree.exists(BWMGR)


# The GPU's power


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


# Clusters


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


# Heat


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


# Over-current


def test_over_current_slows_frames_shows_in_no_clock_file_and_is_counted_in_batches() -> None:
    one = shell("orin-nano-8gb")
    node = "/sys/class/hwmon/hwmon3"
    assert one.cat(f"{node}/name") == "soctherm_oc"
    one.echo("performance", f"{ORIN_DEVFREQ}/governor")
    sleep(one, 0.1)
    seen, counts = set(), []
    for _ in range(100):
        one.board.infer(small_network(), frames=None, seconds=0.1)
        seen.add(one.cat(f"{ORIN_DEVFREQ}/cur_freq"))
        counts.append(int(one.cat(f"{node}/oc3_event_cnt")))
    assert seen == {"1020000000"}
    # About 30 a second for ten seconds, told about every two seconds.
    assert counts[-1] == pytest.approx(300 * 0.8, rel=0.35)
    assert 4 <= len(set(counts)) <= 7
    assert one.cat(f"{node}/oc1_event_cnt") == "0"
    ticks = int(one.cat("/sys/kernel/debug/bpmp/debug/soctherm/oc2/event_time"))
    assert ticks == pytest.approx(33569 * counts[-1], rel=0.01)


def test_during_an_over_current_event_both_clocks_run_at_half() -> None:
    one = shell("orin-nano-8gb")
    one.echo("performance", f"{ORIN_DEVFREQ}/governor")
    one.echo("performance", f"{POLICY}/scaling_governor")
    sleep(one, 0.1)
    measured = set()
    for _ in range(4000):
        sleep(one, 0.0005)
        measured.add(one.cat(f"{POLICY}/cpuinfo_cur_freq"))
    assert measured == {"1728000", "864000"}
    assert one.cat(f"{POLICY}/scaling_cur_freq") == "1728000"


def test_an_over_current_event_that_hangs_leaves_a_quarter_of_the_clocks() -> None:
    """As on a Thor whose carrier had one at boot: 649 MHz where 2601 were set, until it was switched off and on."""
    one = shell("agx-thor")
    one.board.faults.script({"kind": "throttle", "share": 0.25})
    one.echo("performance", f"{POLICY}/scaling_governor")
    sleep(one, 0.1)
    assert one.cat(f"{POLICY}/scaling_cur_freq") == "2601000"
    assert int(one.cat(f"{POLICY}/cpuinfo_cur_freq")) == pytest.approx(649000, rel=0.01)
    one.board.faults.clear()
    sleep(one, 0.1)
    assert one.cat(f"{POLICY}/cpuinfo_cur_freq") == "2601000"


def test_below_the_clocks_at_which_it_was_seen_there_is_no_over_current() -> None:
    one = shell("orin-nano-8gb")
    one.echo(918_000_000, f"{ORIN_DEVFREQ}/max_freq")
    one.board.infer(small_network(), frames=None, seconds=5.0)
    sleep(one, 3.0)
    assert one.cat("/sys/class/hwmon/hwmon3/oc3_event_cnt") == "0"


# Co-runners


@dataclass
class Busy:
    """Something that keeps cores and memory busy all the time."""

    cpu: dict[str, float]
    memory_bytes_s: float = 0.0
    emc_hz: float = 0.0
    passed_s: list[float] = field(default_factory=list)

    def load(self, now: float, clocks: BoardClocks) -> Load:
        return Load(self.cpu, self.memory_bytes_s, self.emc_hz)

    def due(self, now: float, clocks: BoardClocks) -> float:
        return math.inf

    def elapse(self, start: float, seconds: float, clocks: BoardClocks) -> None:
        self.passed_s.append(seconds)


def test_a_co_runner_raises_the_clock_of_its_own_cluster_only() -> None:
    one = shell("agx-orin-64gb")
    runner = Busy({"policy4": 1.0})
    one.board.attach(runner)
    sleep(one, 0.5)
    assert one.cat(f"{CPUFREQ}/policy4/scaling_cur_freq") == "2201600"
    assert one.cat(f"{CPUFREQ}/policy8/scaling_cur_freq") == "729600"
    with one.board.present():
        busy = one.board.watts
    one.board.detach(runner)
    assert sum(runner.passed_s) == pytest.approx(0.5, abs=0.02)
    sleep(one, 0.5)
    assert one.cat(f"{CPUFREQ}/policy4/scaling_cur_freq") == "729600"
    with one.board.present():
        assert sum(one.board.watts) < sum(busy)


def test_what_a_co_runner_needs_of_the_memory_is_served_unless_it_is_locked() -> None:
    one = shell("agx-orin-64gb")
    one.board.attach(Busy({}, memory_bytes_s=60e9))
    sleep(one, 0.1)
    assert one.cat(f"{EMC}/rate") == "2133000000"
    assert int(one.cat("/sys/kernel/debug/cactmon/mc_all")) == pytest.approx(60e9 / 64 / 1e3)
    one.echo(1, f"{EMC}/mrq_rate_locked")
    one.echo(204_000_000, f"{EMC}/rate")
    assert one.cat(f"{EMC}/rate") == "204000000"
    asking = shell("agx-orin-64gb")
    asking.board.attach(Busy({}, emc_hz=3e9))
    sleep(asking, 0.1)
    assert asking.cat(f"{EMC}/rate") == "3199000000"


@pytest.mark.parametrize(
    ("board", "jetpack", "monitor"),
    [
        ("agx-orin-64gb", "6", "/sys/kernel/debug/cactmon/mc_all"),
        ("agx-orin-64gb", "5", "/sys/kernel/actmon_avg_activity/mc_all"),
        ("tx2", "4", "/sys/kernel/actmon_avg_activity/mc_all"),
        ("agx-thor", "7", "/sys/kernel/debug/bpmp/debug/actmon/mc_all_avg_activity"),
    ],
)
def test_the_activity_monitor_counts_what_frames_move(board: str, jetpack: str, monitor: str) -> None:
    one = shell(board, jetpack=jetpack)
    assert one.cat(monitor) == "0"
    one.board.infer(small_network(), frames=None, seconds=1.0)
    assert int(one.cat(monitor)) == pytest.approx(20e9 / one.board.description.chip.bytes_per_emc_cycle / 1e3, rel=0.01)
    sleep(one, 1.0)
    assert one.cat(monitor) == "0"


def test_busy_cores_and_waiting_tasks_show_in_proc() -> None:
    one = shell("agx-orin-64gb")
    one.board.attach(Busy({"policy4": 5.5}))
    sleep(one, 10.0)
    lines = {line.split()[0]: [int(word) for word in line.split()[1:]] for line in one.cat("/proc/stat").splitlines()}
    assert lines["cpu4"][0] == pytest.approx(1000, abs=2) and lines["cpu4"][3] == pytest.approx(0, abs=2)
    assert lines["cpu8"][0] == 0 and lines["cpu8"][3] == pytest.approx(1000, abs=2)
    assert lines["cpu"][0] == pytest.approx(4000 + 10, abs=20)
    some = one.cat("/proc/pressure/cpu").splitlines()[0]
    assert some.startswith("some avg10=63.") and some.endswith(f"total={10**7}")
    assert not shell("tx2").board.tree.exists("/proc/pressure")
