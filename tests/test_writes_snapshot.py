# SPDX-License-Identifier: Apache-2.0
"""The ordered list of writes of every kind of transition."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hardware_kernel import CPU, EMC, GPU, XAVIER, FakeClock, Kernel

from jetdvfs.daemon.errors import HardwareBusy, HardwareRefused
from jetdvfs.daemon.hardware.board import Hardware
from jetdvfs.kernels.grid import FrequencyConfiguration

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
