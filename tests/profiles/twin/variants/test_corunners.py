# SPDX-License-Identifier: Apache-2.0
"""What a co-runner does to clocks, memory and counters."""

from __future__ import annotations

import pytest

from jetdvfs.tests.support.boards.twin_fakes import EMC, Busy, shell, sleep, small_network

CPUFREQ = "/sys/devices/system/cpu/cpufreq"


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
