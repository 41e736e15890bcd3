# SPDX-License-Identifier: Apache-2.0
"""What the simulated board's files take, refuse and answer, after the kernel sources and dumps of real boards."""

from __future__ import annotations

import errno

import pytest

from jetdvfs.tests.support.boards.twin_fakes import CAP, CPU, DEVFREQ, EMC, GPU, POLICY, Shell, fake_board, refused


@pytest.fixture
def shell() -> Shell:
    return Shell(fake_board())


def test_a_board_that_has_just_booted_stands_in_maxn_with_its_governors(shell: Shell) -> None:
    assert shell.cat(f"{POLICY}/scaling_governor") == "schedutil"
    assert (shell.cat(f"{POLICY}/scaling_min_freq"), shell.cat(f"{POLICY}/scaling_max_freq")) == ("1190400", "2265600")
    assert shell.cat(f"{DEVFREQ}/governor") == "nvhost_podgov"
    assert shell.cat(f"{EMC}/mrq_rate_locked") == "0"
    assert shell.cat("/var/lib/nvpmodel/status") == "pmode:0000"
    assert shell.cat("/etc/nv_tegra_release").startswith("# R35 (release), REVISION: 3.1")
    assert shell.cat("/proc/device-tree/model") == "NVIDIA Jetson AGX Xavier Developer Kit\0"
    assert shell.cat("/sys/firmware/devicetree/base/compatible") == "nvidia,p2972-0000\0nvidia,tegra194\0"


def test_each_boot_has_an_id_of_its_own() -> None:
    boot_id = "/proc/sys/kernel/random/boot_id"
    first, second = Shell(fake_board()).cat(boot_id), Shell(fake_board()).cat(boot_id)
    assert len(first) == 36 and first != second


def test_setspeed_is_unsupported_except_under_the_userspace_governor(shell: Shell) -> None:
    assert shell.cat(f"{POLICY}/scaling_setspeed") == "<unsupported>"
    with refused(errno.EINVAL):
        shell.echo(1267200, f"{POLICY}/scaling_setspeed")
    shell.echo("userspace", f"{POLICY}/scaling_governor")
    shell.echo(1267200, f"{POLICY}/scaling_setspeed")
    assert shell.cat(f"{POLICY}/scaling_setspeed") == "1267200"


@pytest.mark.parametrize(
    ("asked", "got"), [(1200000, 1267200), (1, 1190400), (99999999, 2265600), (1267200, 1267200), (2**32 + 1300000, 1344000)]
)
def test_setspeed_takes_the_lowest_entry_not_below_it_within_the_limits(shell: Shell, asked: int, got: int) -> None:
    shell.echo("userspace", f"{POLICY}/scaling_governor")
    shell.echo(asked, f"{POLICY}/scaling_setspeed")
    assert shell.cat(f"{POLICY}/scaling_cur_freq") == str(got)


def test_cpu_limits_take_any_number_in_any_order_and_the_upper_one_wins(shell: Shell) -> None:
    shell.echo(500000, f"{POLICY}/scaling_max_freq")
    assert (shell.cat(f"{POLICY}/scaling_min_freq"), shell.cat(f"{POLICY}/scaling_max_freq")) == ("500000", "576000")
    shell.echo(300000, f"{POLICY}/scaling_min_freq")
    assert shell.cat(f"{POLICY}/scaling_min_freq") == "300000"
    shell.echo(10**7, f"{POLICY}/scaling_max_freq")
    assert shell.cat(f"{POLICY}/scaling_max_freq") == "2265600"
    for path in (f"{POLICY}/scaling_min_freq", f"{POLICY}/scaling_max_freq"):
        with refused(errno.EINVAL):
            shell.echo("fast", path)


def test_a_userspace_speed_comes_back_when_a_limit_that_cut_it_is_lifted(shell: Shell) -> None:
    shell.echo("userspace", f"{POLICY}/scaling_governor")
    shell.echo(2265600, f"{POLICY}/scaling_setspeed")
    shell.echo(1344000, f"{POLICY}/scaling_max_freq")
    assert shell.cat(f"{POLICY}/scaling_cur_freq") == "1344000"
    shell.echo(2265600, f"{POLICY}/scaling_max_freq")
    assert shell.cat(f"{POLICY}/scaling_cur_freq") == "2265600"


@pytest.mark.parametrize(("governor", "rate"), [("performance", "2265600"), ("powersave", "1190400")])
def test_simple_cpu_governors_go_to_their_limit(shell: Shell, governor: str, rate: str) -> None:
    shell.echo(governor, f"{POLICY}/scaling_governor")
    assert shell.cat(f"{POLICY}/scaling_cur_freq") == rate


@pytest.mark.parametrize("path", [f"{POLICY}/scaling_governor", f"{DEVFREQ}/governor"])
def test_an_unknown_governor_is_refused(shell: Shell, path: str) -> None:
    before = shell.cat(path)
    with refused(errno.EINVAL):
        shell.echo("turbo", path)
    assert shell.cat(path) == before


def test_every_core_leads_to_its_policy_until_it_goes_offline(shell: Shell) -> None:
    assert shell.cat(f"{CPU}/cpu5/cpufreq/related_cpus") == "0 1 2 3 4 5 6 7"
    shell.echo(0, f"{CPU}/cpu5/online")
    with refused(errno.ENOENT):
        shell.cat(f"{CPU}/cpu5/cpufreq/scaling_cur_freq")
    assert shell.cat(f"{CPU}/online") == "0-4,6-7"
    assert shell.cat(f"{POLICY}/affected_cpus") == "0 1 2 3 4 6 7"
    with refused(errno.EPERM):
        shell.echo(0, f"{CPU}/cpu0/online")
    with refused(errno.EINVAL):
        shell.echo("maybe", f"{CPU}/cpu1/online")


def test_set_freq_exists_under_the_userspace_governor_only(shell: Shell) -> None:
    with refused(errno.ENOENT):
        shell.cat(f"{DEVFREQ}/userspace/set_freq")
    shell.echo("userspace", f"{DEVFREQ}/governor")
    assert shell.cat(f"{DEVFREQ}/userspace/set_freq") == "undefined"
    shell.echo(600_000_000, f"{DEVFREQ}/userspace/set_freq")
    assert shell.cat(f"{DEVFREQ}/userspace/set_freq") == "600000000"
    assert shell.cat(f"{DEVFREQ}/cur_freq") == "624750000"
    shell.echo("performance", f"{DEVFREQ}/governor")
    assert shell.cat(f"{DEVFREQ}/cur_freq") == "1377000000"
    shell.echo("userspace", f"{DEVFREQ}/governor")
    assert shell.cat(f"{DEVFREQ}/userspace/set_freq") == "undefined"


def test_gpu_limits_are_rounded_to_kilohertz_zero_lifts_them_and_the_upper_one_wins(shell: Shell) -> None:
    shell.echo(500_000_999, f"{DEVFREQ}/min_freq")
    assert shell.cat(f"{DEVFREQ}/min_freq") == "500000000"
    shell.echo(318_750_001, f"{DEVFREQ}/max_freq")
    assert (shell.cat(f"{DEVFREQ}/min_freq"), shell.cat(f"{DEVFREQ}/max_freq")) == ("318751000", "318751000")
    assert shell.cat(f"{DEVFREQ}/cur_freq") == "420750000"  # the lowest rate not below
    shell.echo(0, f"{DEVFREQ}/max_freq")
    assert shell.cat(f"{DEVFREQ}/max_freq") == "1377000000"
    with refused(errno.EINVAL):
        shell.echo("-1", f"{DEVFREQ}/min_freq")


def test_masks_are_fixed_once_the_gpu_has_been_used(shell: Shell) -> None:
    shell.echo(0, f"{GPU}/tpc_pg_mask")
    with refused(errno.EBUSY):
        shell.echo(3, f"{GPU}/tpc_pg_mask")
    shell.echo("on", f"{GPU}/power/control")
    with refused(errno.EINVAL):
        shell.echo("off", f"{GPU}/power/control")


def test_the_emc_rate_counts_only_while_locked_and_is_rounded_up(shell: Shell) -> None:
    shell.echo(1_600_000_000, f"{EMC}/rate")
    assert shell.cat(f"{EMC}/rate") == "204000000"
    shell.echo(1, f"{EMC}/mrq_rate_locked")
    assert shell.cat(f"{EMC}/rate") == "204000000"
    shell.echo(1_062_400_000, f"{EMC}/rate")
    assert shell.cat(f"{EMC}/rate") == "1065600000"
    shell.echo(9_000_000_000, f"{EMC}/rate")
    assert shell.cat(f"{EMC}/rate") == "2133000000"
    assert int(shell.cat(f"{EMC}/pto_counter")) == pytest.approx(2_133_000_000, rel=0.004)
    shell.echo(0, f"{EMC}/mrq_rate_locked")
    assert shell.cat(f"{EMC}/rate") == "204000000"


def test_the_emc_cap_bounds_what_may_be_asked_for(shell: Shell) -> None:
    shell.echo(1_400_000_000, CAP)
    shell.echo(1, f"{EMC}/mrq_rate_locked")
    shell.echo(2_133_000_000, f"{EMC}/rate")
    assert shell.cat(f"{EMC}/rate") == "1331200000"
    shell.echo(0, CAP)
    shell.echo(2_133_000_000, f"{EMC}/rate")
    assert shell.cat(f"{EMC}/rate") == "2133000000"


def test_the_cpu_clock_sets_a_floor_for_the_memory_clock_unless_locked(shell: Shell) -> None:
    shell.echo("performance", f"{POLICY}/scaling_governor")
    assert shell.cat(f"{EMC}/rate") == "2133000000"
    shell.echo(1, f"{EMC}/mrq_rate_locked")
    shell.echo(204_000_000, f"{EMC}/rate")
    assert shell.cat(f"{EMC}/rate") == "204000000"


def test_the_emc_tables_are_named_in_kilohertz(shell: Shell) -> None:
    names = shell.board.tree.names("/sys/kernel/debug/bpmp/debug/emc/tables/regular")
    assert [1000 * int(name) for name in names] == list(shell.board.description.grid.emc_hz)


def test_read_only_files_refuse_even_root(shell: Shell) -> None:
    for path in (f"{DEVFREQ}/cur_freq", f"{POLICY}/cpuinfo_max_freq", f"{EMC}/max_rate"):
        with refused(errno.EACCES):
            shell.echo(1, path)


def test_permission_bits_are_the_kernels(shell: Shell) -> None:
    modes = {path: node.permissions for path, node in shell.board.tree.files()}
    assert modes[f"{POLICY}/cpuinfo_cur_freq"] == 0o400
    assert modes[f"{POLICY}/scaling_max_freq"] == 0o644
    assert modes[f"{DEVFREQ}/cur_freq"] == 0o444
    assert modes[f"{EMC}/rate"] == 0o600
    assert modes[CAP] == 0o660
    assert shell.board.tree.directory_mode("/sys/kernel/debug") == 0o700
