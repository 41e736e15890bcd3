# SPDX-License-Identifier: Apache-2.0
"""The one way to the board's files."""

from __future__ import annotations

import errno
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jetdvfs.daemon.errors import HardwareBusy, HardwareRefused
from jetdvfs.daemon.hardware.files import Files
from jetdvfs.tests.support.boards.hardware_kernel import CPU, Kernel


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").write_text("outside")
    inside = tmp_path / "root"
    (inside / "sys/devices").mkdir(parents=True)
    (inside / "sys/devices/rate").write_text("42\n")
    return inside


def test_an_absolute_link_stays_below_the_root(root: Path) -> None:
    (root / "sys/class").symlink_to("/sys/devices")
    assert Files(root).read_int("/sys/class/rate") == 42


def test_no_link_and_no_dots_lead_out_of_the_root(root: Path) -> None:
    (root / "sys/up").symlink_to("../../../outside")
    (root / "sys/absolute").symlink_to(root.parent / "outside")
    for path in ("/sys/up", "/sys/absolute", "/../outside", "/sys/../../outside"):
        assert not Files(root).exists(path)
        with pytest.raises(HardwareBusy, match="ENOENT"):
            Files(root).read_text(path)
    with pytest.raises(HardwareBusy, match="ENOENT"):
        Files(root).write_text("/sys/up", "overwritten")
    assert (root.parent / "outside").read_text() == "outside"


def test_links_that_go_round_in_circles_are_refused(root: Path) -> None:
    (root / "sys/a").symlink_to("b")
    (root / "sys/b").symlink_to("/sys/a")
    with pytest.raises(HardwareRefused, match="ELOOP"):
        Files(root).read_text("/sys/a")


def test_a_file_that_is_not_there_is_not_created(root: Path) -> None:
    with pytest.raises(HardwareBusy, match=r"/sys/devices/typo: writing '1' failed with ENOENT"):
        Files(root).write_text("/sys/devices/typo", "1")
    assert not (root / "sys/devices/typo").exists()


def test_the_observer_sees_the_writes_that_were_taken_in_order() -> None:
    kernel = Kernel()
    kernel.write_text(f"{CPU}/scaling_governor", "userspace")
    with pytest.raises(HardwareRefused):
        kernel.write_text(f"{CPU}/scaling_setspeed", "fast")
    kernel.write_text(f"{CPU}/scaling_setspeed", "115200")
    assert kernel.written == [(f"{CPU}/scaling_governor", "userspace"), (f"{CPU}/scaling_setspeed", "115200")]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_refusal_names_the_path_the_value_the_error_and_what_would_be_valid(number: int) -> None:
    kernel = Kernel()
    kernel.refuse = lambda path, value: number
    with pytest.raises(HardwareRefused) as caught:
        kernel.write_text("/sys/rate", "7", valid=(1, 2))
    assert str(caught.value).startswith(f"/sys/rate: writing '7' failed with {errno.errorcode[number]} (")
    assert str(caught.value).endswith("; valid: 1, 2")


@pytest.mark.parametrize("number", [errno.EBUSY, errno.EAGAIN, errno.ENODEV, errno.ETIMEDOUT])
def test_what_may_go_away_by_itself_is_busy_not_refused(number: int) -> None:
    kernel = Kernel()
    kernel.refuse = lambda path, value: number
    with pytest.raises(HardwareBusy, match=errno.errorcode[number]):
        kernel.write_text("/sys/rate", "7")


def test_a_word_is_no_number(root: Path) -> None:
    (root / "sys/devices/rate").write_text("<unknown>\n")
    assert Files(root).find_int("/sys/devices/rate") is None
    with pytest.raises(HardwareRefused, match=r"/sys/devices/rate: holds '<unknown>', expected a whole number"):
        Files(root).read_int("/sys/devices/rate")


def test_a_pattern_finds_policies_in_the_order_of_their_numbers(root: Path) -> None:
    for number in (10, 4, 0):
        (root / f"sys/cpu/policy{number}").mkdir(parents=True)
        (root / f"sys/cpu/policy{number}/governor").write_text("schedutil")
    (root / "sys/cpu/policy5").mkdir()
    found = Files(root).glob("/sys/cpu/policy*/governor")
    assert found == tuple(f"/sys/cpu/policy{number}/governor" for number in (0, 4, 10))


@pytest.fixture
def files(root: Path) -> Files:
    """Bounded reads, with a block that read two files."""
    (root / "sys/other").mkdir()
    (root / "sys/other/rate").write_text("7\n")
    files = Files(root, longest_s=0.2)
    both(files)
    return files


def both(files: Files) -> tuple[int | None, int | None]:
    with files.together("both"):
        return files.find_int("/sys/devices/rate"), files.find_int("/sys/other/rate")


def test_a_block_reads_at_its_start_and_each_text_serves_once(files: Files, root: Path) -> None:
    with files.together("both"):
        (root / "sys/devices/rate").write_text("43\n")
        assert [files.read_int("/sys/devices/rate") for _ in range(2)] == [42, 43]
    assert both(files) == (43, 7)


def test_no_text_read_ahead_outlives_a_write_or_its_block(files: Files, root: Path) -> None:
    with files.together("both"):
        files.write_text("/sys/devices/rate", "44")
        assert files.read_int("/sys/devices/rate") == 44
    with files.together("both"):
        pass
    (root / "sys/other/rate").write_text("8\n")
    assert files.read_int("/sys/other/rate") == 8


def test_a_file_that_went_away_is_missed_when_it_is_read(files: Files, root: Path) -> None:
    (root / "sys/devices/rate").unlink()
    with files.together("both"):
        assert files.read_int("/sys/other/rate") == 7
        with pytest.raises(HardwareBusy, match="/sys/devices/rate: reading it failed with ENOENT"):
            files.read_int("/sys/devices/rate")


def test_a_file_that_hangs_in_a_block_keeps_no_other_from_being_read(files: Files, root: Path) -> None:
    hung = root / "sys/devices/rate"
    hung.unlink()
    os.mkfifo(hung)
    assert both(files) == (None, 7)
    assert files.hanging == ("/sys/devices/rate: reading it hangs",)
    assert both(files) == (None, 7)
    with hung.open("w") as answer:  # it answers at last
        answer.write("45\n")
    hung.unlink()
    hung.write_text("46\n")
    while (found := both(files)) == (None, 7):
        time.sleep(0.001)
    assert found == (46, 7)


def test_another_thread_is_served_nothing_that_a_block_read_ahead(files: Files, root: Path) -> None:
    with files.together("both"), ThreadPoolExecutor(1) as other:
        (root / "sys/devices/rate").write_text("43\n")
        assert other.submit(files.read_int, "/sys/devices/rate").result() == 43
        assert files.read_int("/sys/devices/rate") == 42
