# SPDX-License-Identifier: Apache-2.0
"""The ordered list of writes of every kind of transition."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from jetdvfs.daemon.errors import HardwareBusy, HardwareRefused
from jetdvfs.daemon.hardware.clocks.driver import Clusters
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.profiles.board import load_board
from jetdvfs.tests.support.boards.hardware_kernel import CPU, CPUFREQ, EMC, GPU, XAVIER, FakeClock, Kernel

TOP = XAVIER.grid.top
BOTTOM = FrequencyConfiguration(115200, 114750000, 204000000)
MIDDLE = FrequencyConfiguration(1190400, 675750000, 1331200000)


def short(path: str) -> str:
    for name, folder in (("cpu", CPU), ("gpu", GPU), ("emc", EMC)):
        path = path.replace(folder, name)
    return path


class Board:
    """The hardware on a kernel in memory; ``writes`` empties the list of what was written."""

    def __init__(self, kernel: Kernel, folder: Path) -> None:
        self.kernel = kernel
        self.hardware = Hardware.probe(kernel, FakeClock(), baseline=folder / "baseline.json")

    def apply(self, configuration: FrequencyConfiguration) -> list[str]:
        assert self.hardware.apply(configuration, "test").verified
        return self.writes()

    def writes(self) -> list[str]:
        made = [f"{short(path)}={value}" for path, value in self.kernel.written]
        self.kernel.written.clear()
        return made


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(Kernel(), tmp_path)


@pytest.fixture(params=["5.10", "4.9"])
def pinned(request: pytest.FixtureRequest, tmp_path: Path) -> Board:
    """A board whose GPU has no userspace governor, under either kernel's rules."""
    return Board(Kernel(rules=request.param, gpu_userspace=False), tmp_path)


def test_from_the_boards_own_governors(board: Board) -> None:
    assert board.apply(MIDDLE) == [
        "emc/mrq_rate_locked=1",
        "emc/rate=1331200000",
        "cpu/scaling_governor=userspace",
        "cpu/scaling_setspeed=1190400",
        "gpu/governor=userspace",
        "gpu/userspace/set_freq=675750000",
    ]


def test_a_memory_clock_that_the_kernel_should_keep_up_but_does_not_is_locked(board: Board) -> None:
    assert board.apply(TOP) == [
        "gpu/governor=userspace",
        "gpu/userspace/set_freq=1377000000",
        "cpu/scaling_governor=userspace",
        "cpu/scaling_setspeed=2265600",
        "emc/mrq_rate_locked=1",
        "emc/rate=2133000000",
    ]


def test_raising_everything_starts_with_the_memory(board: Board) -> None:
    board.apply(BOTTOM)
    assert board.apply(TOP) == ["emc/rate=2133000000", "gpu/userspace/set_freq=1377000000", "cpu/scaling_setspeed=2265600"]


def test_lowering_everything_ends_with_the_memory(board: Board) -> None:
    board.apply(TOP)
    assert board.apply(BOTTOM) == ["gpu/userspace/set_freq=114750000", "cpu/scaling_setspeed=115200", "emc/rate=204000000"]


def test_what_falls_goes_before_what_rises(board: Board) -> None:
    board.apply(MIDDLE)
    assert board.apply(FrequencyConfiguration(115200, 1377000000, 2133000000)) == [
        "emc/rate=2133000000",
        "cpu/scaling_setspeed=115200",
        "gpu/userspace/set_freq=1377000000",
    ]
    assert board.apply(FrequencyConfiguration(2265600, 114750000, 204000000)) == [
        "gpu/userspace/set_freq=114750000",
        "cpu/scaling_setspeed=2265600",
        "emc/rate=204000000",
    ]


def test_a_lower_limit_above_the_request_is_lowered_first_and_given_back_last(board: Board) -> None:
    board.kernel.take(f"{CPU}/scaling_min_freq", "729600")
    board.kernel.take(f"{GPU}/min_freq", "318750000")
    assert board.apply(BOTTOM) == [
        "gpu/min_freq=114750000",
        "gpu/governor=userspace",
        "gpu/userspace/set_freq=114750000",
        "cpu/scaling_min_freq=115200",
        "cpu/scaling_governor=userspace",
        "cpu/scaling_setspeed=115200",
        "emc/mrq_rate_locked=1",
        "emc/rate=204000000",
    ]
    board.hardware.restore()
    assert board.writes() == [
        "emc/rate=1065600000",
        "emc/mrq_rate_locked=0",
        "gpu/min_freq=318750000",
        "gpu/governor=nvhost_podgov",
        "cpu/scaling_min_freq=729600",
        "cpu/scaling_governor=schedutil",
    ]


def test_from_clocks_that_somebody_had_already_fixed(board: Board) -> None:
    for path, value in ((f"{CPU}/scaling_governor", "userspace"), (f"{CPU}/scaling_setspeed", "1958400")):
        board.kernel.take(path, value)
    for path, value in ((f"{EMC}/state", "0"), (f"{EMC}/mrq_rate_locked", "1"), (f"{EMC}/rate", "800000000")):
        board.kernel.take(path, value)
    assert board.apply(MIDDLE) == [
        "emc/state=1",
        "emc/rate=1331200000",
        "cpu/scaling_setspeed=1190400",
        "gpu/governor=userspace",
        "gpu/userspace/set_freq=675750000",
    ]
    board.hardware.restore()
    assert board.writes() == [
        "emc/rate=800000000",
        "emc/state=0",
        "gpu/governor=nvhost_podgov",
        "cpu/scaling_setspeed=1958400",
    ]


def test_pinning_a_gpu_raises_the_upper_limit_first_and_lowers_the_lower_limit_first(pinned: Board) -> None:
    pinned.apply(MIDDLE)
    assert pinned.apply(MIDDLE._replace(gpu_hz=1377000000)) == [
        "cpu/scaling_setspeed=1190400",
        "gpu/max_freq=1377000000",
        "gpu/min_freq=1377000000",
        "emc/rate=1331200000",
    ]
    assert pinned.apply(MIDDLE._replace(gpu_hz=114750000)) == [
        "gpu/min_freq=114750000",
        "gpu/max_freq=114750000",
        "cpu/scaling_setspeed=1190400",
        "emc/rate=1331200000",
    ]
    pinned.hardware.restore()
    assert pinned.writes() == [
        "emc/rate=1065600000",
        "emc/mrq_rate_locked=0",
        "gpu/max_freq=1377000000",
        "cpu/scaling_governor=schedutil",
    ]


def test_pinned_limits_are_given_back_in_order(pinned: Board) -> None:
    pinned.kernel.take(f"{GPU}/min_freq", "318750000")
    pinned.kernel.take(f"{GPU}/max_freq", "905250000")
    pinned.apply(MIDDLE._replace(gpu_hz=114750000))
    pinned.hardware.restore()
    assert [write for write in pinned.writes() if "gpu" in write] == ["gpu/max_freq=905250000", "gpu/min_freq=318750000"]


# A board with three CPU clusters

ORIN = load_board("agx-orin-64gb")
HALF = FrequencyConfiguration(1190400, 612000000, 2133000000)


def orin(folder: Path, clusters: Clusters | None = None) -> tuple[Hardware, Kernel]:
    kernel = Kernel(ORIN, emc=("bpmp",))
    return Hardware.probe(kernel, FakeClock(), baseline=folder / "baseline.json", clusters=clusters), kernel


def cpu_writes(kernel: Kernel) -> list[str]:
    """The writes to cpufreq files since the last call."""
    made = [f"{path.removeprefix(f'{CPUFREQ}/')}={value}" for path, value in kernel.written if path.startswith(CPUFREQ)]
    kernel.written.clear()
    return made


def test_clusters_are_set_together_unless_told_otherwise(tmp_path: Path) -> None:
    hardware, kernel = orin(tmp_path)
    applied = hardware.apply(HALF, "test")
    assert applied.verified and applied.clusters == {} and hardware.leader is None
    policies = ("policy0", "policy4", "policy8")
    assert cpu_writes(kernel) == [
        f"{policy}/{write}" for policy in policies for write in ("scaling_governor=userspace", "scaling_setspeed=1190400")
    ]


def test_clusters_set_apart_fall_before_the_leading_one_rises(tmp_path: Path) -> None:
    hardware, kernel = orin(tmp_path, Clusters(apart=True))
    assert hardware.leader == "policy0"
    applied = hardware.apply(HALF, "test", {"policy8": 499200})
    assert applied.verified
    assert applied.clusters == {"policy4": (115200, 115200, 115200), "policy8": (499200, 499200, 499200)}
    assert cpu_writes(kernel) == [
        "policy0/scaling_governor=userspace",
        "policy0/scaling_setspeed=1190400",
        "policy4/scaling_governor=userspace",
        "policy4/scaling_setspeed=115200",
        "policy8/scaling_governor=userspace",
        "policy8/scaling_setspeed=499200",
    ]
    hardware.apply(HALF._replace(cpu_khz=2201600), "test", {"policy4": 729600, "policy8": 268800})
    assert cpu_writes(kernel) == [
        "policy8/scaling_setspeed=268800",
        "policy0/scaling_setspeed=2201600",
        "policy4/scaling_setspeed=729600",
    ]
    assert not hardware.restore().failed
    assert cpu_writes(kernel) == [f"{policy}/scaling_governor=schedutil" for policy in ("policy0", "policy4", "policy8")]


def test_the_operator_names_the_cluster_that_leads(tmp_path: Path) -> None:
    hardware, kernel = orin(tmp_path, Clusters(apart=True, leader="policy4"))
    applied = hardware.apply(HALF, "test")
    assert (hardware.leader, sorted(applied.clusters)) == ("policy4", ["policy0", "policy8"])
    assert "policy4/scaling_setspeed=1190400" in cpu_writes(kernel)


def test_clusters_without_a_core_online_are_left_out_and_another_one_leads(tmp_path: Path) -> None:
    hardware, kernel = orin(tmp_path, Clusters(apart=True, leader="policy8"))
    for policy in ("policy4", "policy8"):
        kernel.store[f"{CPUFREQ}/{policy}/affected_cpus"] = ""
    applied = hardware.apply(HALF, "test")
    assert (hardware.leader, applied.clusters, next(iter(hardware.read()["cpu_khz"])).domain) == ("policy0", {}, "policy0")
    kernel.store[f"{CPUFREQ}/policy8/affected_cpus"] = "8 9 10 11"
    applied = hardware.apply(HALF, "test")
    assert (hardware.leader, list(applied.clusters)) == ("policy8", ["policy0"])


def test_a_cluster_is_only_set_to_what_it_offers(tmp_path: Path) -> None:
    hardware, kernel = orin(tmp_path, Clusters(apart=True))
    with pytest.raises(HardwareRefused, match=r"CPU clock of policy4 policy4=5 is not offered now; valid: 115200"):
        hardware.apply(HALF, "test", {"policy4": 5})
    assert cpu_writes(kernel) == []


def test_a_refusal_in_the_middle_puts_everything_back_in_reverse(board: Board) -> None:
    board.kernel.refuse = lambda path, value: errno.EINVAL if path.endswith("set_freq") else 0
    with pytest.raises(HardwareRefused, match=r"set_freq: writing '675750000' failed with EINVAL .*clocks were put back"):
        board.hardware.apply(MIDDLE, "test")
    assert board.writes() == [
        "emc/mrq_rate_locked=1",
        "emc/rate=1331200000",
        "cpu/scaling_governor=userspace",
        "cpu/scaling_setspeed=1190400",
        "gpu/governor=userspace",
        "gpu/governor=nvhost_podgov",
        "cpu/scaling_governor=schedutil",
        "emc/rate=1065600000",
        "emc/mrq_rate_locked=0",
    ]
    assert not board.hardware.touched


def test_a_file_that_is_busy_for_a_moment_is_written_when_it_is_not(board: Board) -> None:
    tries = []

    def busy(path: str, value: str) -> int:
        tries.append(path)
        return errno.EBUSY if path.endswith("set_freq") and tries.count(path) < 4 else 0

    board.kernel.refuse = busy
    assert board.apply(MIDDLE)[-2:] == ["gpu/governor=userspace", "gpu/userspace/set_freq=675750000"]
    assert tries.count(f"{GPU}/userspace/set_freq") == 4


def test_a_value_that_is_refused_for_good_is_not_tried_again(board: Board) -> None:
    tries = []

    def refuse(path: str, value: str) -> int:
        tries.append(path)
        return errno.EINVAL if path.endswith("set_freq") else 0

    board.kernel.refuse = refuse
    with pytest.raises(HardwareRefused, match="EINVAL"):
        board.hardware.apply(MIDDLE, "test")
    assert tries.count(f"{GPU}/userspace/set_freq") == 1


def test_a_refusal_after_earlier_settings_goes_back_to_the_last_one(board: Board) -> None:
    board.apply(MIDDLE)
    board.kernel.refuse = lambda path, value: errno.EBUSY if (path, value) == (f"{CPU}/scaling_setspeed", "2265600") else 0
    with pytest.raises(HardwareBusy, match="EBUSY"):
        board.hardware.apply(TOP, "test")
    assert board.writes() == [
        "emc/rate=2133000000",
        "gpu/userspace/set_freq=1377000000",
        "gpu/userspace/set_freq=675750000",
        "emc/rate=1331200000",
    ]
    assert board.hardware.current() == MIDDLE
    board.hardware.restore()
    assert board.writes() == [
        "emc/rate=1065600000",
        "emc/mrq_rate_locked=0",
        "gpu/governor=nvhost_podgov",
        "cpu/scaling_governor=schedutil",
    ]


def test_what_cannot_be_put_back_is_named_and_the_baseline_kept(board: Board, tmp_path: Path) -> None:
    board.kernel.refuse = lambda path, value: errno.EIO if path.startswith(GPU) or value == "0" else 0
    with pytest.raises(HardwareBusy, match=r"not everything could be put back: .*mrq_rate_locked: writing '0' failed"):
        board.hardware.apply(MIDDLE, "test")
    assert (tmp_path / "baseline.json").exists()
    board.kernel.refuse = lambda path, value: 0
    board.writes()
    assert not board.hardware.restore().failed
    assert board.writes() == ["emc/mrq_rate_locked=0"]
