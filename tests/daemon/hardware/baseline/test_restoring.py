# SPDX-License-Identifier: Apache-2.0
"""What is given back is read again, and again written where it did not take; what cannot be read is nobody's."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetdvfs.daemon.errors import DaemonError, HardwareBusy
from jetdvfs.daemon.hardware.baseline.store import COPIES
from jetdvfs.tests.support.boards.hardware_kernel import CPU, EMC, GPU, Kernel
from jetdvfs.tests.support.boards.kept_baseline import HIGH, LOW, start
from jetdvfs.tests.support.boards.shaky_kernel import GARBAGE, ShakyKernel

SETTINGS = (
    f"{CPU}/scaling_governor",
    f"{CPU}/scaling_min_freq",
    f"{GPU}/governor",
    f"{EMC}/mrq_rate_locked",
)


def ascii_id(value: object) -> str:
    return ascii(value)[:20]


@pytest.fixture
def kernel() -> ShakyKernel:
    kernel = ShakyKernel()
    kernel.take(f"{CPU}/scaling_min_freq", "729600")
    return kernel


def settings(kernel: Kernel) -> dict[str, str]:
    return {path: kernel.store[path] for path in (*SETTINGS, f"{CPU}/scaling_max_freq", f"{GPU}/min_freq", f"{GPU}/max_freq")}


@pytest.mark.parametrize("path", SETTINGS)
@pytest.mark.parametrize("wrong", [*GARBAGE, errno.EIO, errno.EINVAL, errno.EACCES], ids=ascii_id)
def test_a_file_that_reads_wrongly_is_not_left_to_others_but_given_back_later(
    kernel: ShakyKernel, place: Path, path: str, wrong: str | int
) -> None:
    found = settings(kernel)
    hardware = start(kernel, place)
    hardware.apply(LOW, "test")
    kernel.misread[path] = [wrong] * 100
    report = hardware.restore()
    assert report.left == () and [text.split(":")[0] for text in report.failed] == [path]
    assert hardware.touched
    assert {one for one, value in settings(kernel).items() if value != found[one]} == {path}
    kernel.behave()
    assert hardware.restore().failed == ()
    assert settings(kernel) == found and not place.exists()


def test_a_cpu_limit_that_reads_as_0_is_taken_for_nobody_s_choice(kernel: ShakyKernel, place: Path) -> None:
    found = settings(kernel)
    start(kernel, place).apply(LOW, "test")
    path = f"{CPU}/scaling_min_freq"
    kernel.misread[path] = ["0"] * 100
    report = start(kernel, place).restore()  # the daemon of before was killed
    assert report.left == () and [text.split(":")[0] for text in report.failed] == [path]
    kernel.behave()
    assert start(kernel, place).restore().failed == ()
    assert settings(kernel) == found and not place.exists()


@pytest.mark.parametrize("path", SETTINGS)
@pytest.mark.parametrize("wrong", ["ondemand", "0", "1", "499200", "", errno.EIO], ids=ascii_id)
def test_a_file_that_reads_wrongly_once_changes_nothing(kernel: ShakyKernel, place: Path, path: str, wrong: str | int) -> None:
    found = settings(kernel)
    hardware = start(kernel, place)
    hardware.apply(LOW, "test")
    kernel.misread[path] = [wrong]
    report = hardware.restore()
    assert (report.left, report.failed, settings(kernel)) == ((), (), found)


@pytest.mark.parametrize("path", SETTINGS)
@pytest.mark.parametrize("times", [1, 2, 50])
@pytest.mark.parametrize("how", ["ignored", "refused"])
def test_what_does_not_take_is_written_again_and_named_while_it_does_not(
    kernel: ShakyKernel, place: Path, path: str, times: int, how: str
) -> None:
    found = settings(kernel)
    hardware = start(kernel, place)
    hardware.apply(LOW, "test")
    getattr(kernel, how)[path] = times
    report = hardware.restore()
    if times < 3:
        assert (report.failed, settings(kernel)) == ((), found)
        return
    assert [text.split(":")[0] for text in report.failed] == [path] and report.left == ()
    assert {one for one, value in settings(kernel).items() if value != found[one]} == {path}
    if how == "ignored":
        held = kernel.store[path]
        assert report.failed == (f"{path}: stays at {held}, though {found[path]} was written",)
    kernel.behave()
    assert (hardware.restore().failed, settings(kernel)) == ((), found)


def test_at_the_end_it_is_tried_for_longer(kernel: ShakyKernel, place: Path) -> None:
    found = settings(kernel)
    hardware = start(kernel, place)
    hardware.apply(LOW, "test")
    kernel.ignored[f"{EMC}/mrq_rate_locked"] = 6
    assert (hardware.restore(longest_s=1.0).failed, settings(kernel)) == ((), found)


def test_what_others_set_is_left_also_where_it_first_reads_wrongly(kernel: ShakyKernel, place: Path) -> None:
    hardware = start(kernel, place)
    hardware.apply(LOW, "test")
    kernel.take(f"{CPU}/scaling_governor", "powersave")
    kernel.misread[f"{CPU}/scaling_governor"] = ["", "conservative"]
    report = hardware.restore()
    assert report.failed == () and kernel.store[f"{CPU}/scaling_governor"] == "powersave"
    assert report.left == (f"{CPU}/scaling_governor: left at powersave, which another program set",)


@pytest.mark.parametrize("wrong", [*GARBAGE, errno.EIO], ids=ascii_id)
@pytest.mark.parametrize("path", [f"{CPU}/scaling_governor", f"{GPU}/governor", f"{EMC}/mrq_rate_locked", f"{EMC}/state"])
def test_what_cannot_be_told_is_never_noted_as_how_the_board_was_found(
    kernel: ShakyKernel, place: Path, path: str, wrong: str | int
) -> None:
    """Neither by the first hold, nor by a later one that would take it for what others have set since."""
    found = settings(kernel)
    hardware = start(kernel, place)
    for configuration in (LOW, HIGH, LOW):
        kernel.misread[path] = [wrong] * 30
        try:
            hardware.apply(configuration, "test")
        except DaemonError:
            kernel.behave()
            hardware.apply(configuration, "test")
        kernel.behave()
    report = hardware.restore()
    assert (report.failed, report.left, settings(kernel)) == ((), (), found)


def test_where_it_cannot_be_told_how_a_file_stands_nothing_is_set(kernel: ShakyKernel, place: Path) -> None:
    hardware = start(kernel, place)
    kernel.written.clear()
    kernel.misread[f"{GPU}/governor"] = ["soon"] * 100
    with pytest.raises(HardwareBusy, match="governor: its value is unknown; no clock was changed"):
        hardware.apply(LOW, "test")
    assert kernel.written == [] and not hardware.touched and not place.exists()


def test_a_refused_hold_is_undone_for_good_before_it_is_forgotten(kernel: ShakyKernel, place: Path) -> None:
    """A file that takes what undoes a write and does nothing keeps the baseline alive."""
    found = settings(kernel)
    hardware = start(kernel, place)
    kernel.refused[f"{GPU}/userspace/set_freq"] = 10_000

    def ignore_the_way_back(path: str) -> None:
        if path == f"{EMC}/mrq_rate_locked=" and kernel.store[f"{EMC}/mrq_rate_locked"] == "1":
            kernel.ignored[f"{EMC}/mrq_rate_locked"] = 50

    kernel.hold_up = ignore_the_way_back
    with pytest.raises(HardwareBusy):
        hardware.apply(HIGH, "test")
    kernel.hold_up = lambda path: None
    kernel.behave()
    assert hardware.touched == (settings(kernel) != found)
    assert (hardware.restore().failed, settings(kernel)) == ((), found)


# Files that hang


@pytest.fixture
def hanging() -> Iterator[ShakyKernel]:
    """A kernel of which some files do not answer until the test ends."""
    answered = threading.Event()
    kernel = ShakyKernel(longest_s=0.3)
    stuck: set[str] = set()
    kernel.hold_up = lambda path: None if path not in stuck else (answered.wait(20), None)[1]
    kernel.stuck = stuck  # type: ignore[attr-defined]
    yield kernel
    answered.set()


@pytest.mark.parametrize(
    "stuck",
    [
        {f"{EMC}/mrq_rate_locked"},
        {f"{EMC}/mrq_rate_locked="},
        {f"{GPU}/governor=", f"{GPU}/governor"},
        {f"{CPU}/scaling_governor", f"{EMC}/rate", f"{GPU}/min_freq"},
    ],
    ids=lambda stuck: ", ".join(sorted(path.rpartition("/")[2] for path in stuck)),
)
def test_a_file_that_hangs_at_the_end_is_waited_for_a_little_and_the_others_are_given_back(
    hanging: ShakyKernel, place: Path, stuck: set[str]
) -> None:
    found = settings(hanging)
    hardware = start(hanging, place)
    hardware.apply(LOW, "test")
    hanging.stuck |= stuck  # type: ignore[attr-defined]
    began = time.monotonic()
    report = hardware.restore(longest_s=1.0)
    assert time.monotonic() - began < 4.0
    assert report.failed and all("hangs" in text for text in report.failed)
    folders = {path.rpartition("/")[0] for path in stuck}
    apart = {path for path in settings(hanging) if path.rpartition("/")[0] not in folders}
    assert {path: hanging.store[path] for path in apart} == {path: found[path] for path in apart}
    assert hardware.touched and all((place / name).exists() for name in COPIES)
