# SPDX-License-Identifier: Apache-2.0
"""How the memory clock of each family is set, held and capped."""

from __future__ import annotations

from jetdvfs.profiles.board import load_board, parse_board
from jetdvfs.profiles.documents import laid_over
from jetdvfs.tests.support.boards.twin_fakes import EMC, POLICY, Shell, VirtualClock, fake_board, shell, sleep

HALT = "/sys/kernel/debug/bpmp/debug/bwmgr/bwmgr_halt"
CAP = "/sys/kernel/nvpmodel_clk_cap/emc"
BWMGR = "/sys/class/devfreq/bwmgr"


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
