# SPDX-License-Identifier: Apache-2.0
"""What over-current does to clocks, frames and counters."""

from __future__ import annotations

import pytest

from jetdvfs.tests.support.boards.twin_fakes import POLICY, shell, sleep, small_network

ORIN_GPU = "/sys/devices/platform/bus@0/17000000.gpu"
ORIN_DEVFREQ = f"{ORIN_GPU}/devfreq/17000000.gpu"


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
