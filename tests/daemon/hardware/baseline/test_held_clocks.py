# SPDX-License-Identifier: Apache-2.0
"""Where it is lost how a board was found, what looks held goes back to how the board is by itself; nothing else is touched."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from jetdvfs.daemon.cli import main
from jetdvfs.daemon.hardware.clocks.driver import Clusters
from jetdvfs.daemon.hardware.files import Files
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.kernels.grid import FrequencyConfiguration, FrequencyGrid
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.timing import SystemClock
from jetdvfs.profiles.twin.serve import serve
from jetdvfs.profiles.twin.simulated_board import simulated_board
from jetdvfs.tests.support.boards.hardware_kernel import BOOT_TWO, CPU, EMC, GPU, FakeClock, Kernel
from jetdvfs.tests.support.boards.kept_baseline import LOW, start
from jetdvfs.tests.support.boards.shaky_kernel import ShakyKernel
from jetdvfs.tests.support.boards.twin_fakes import VirtualClock, fake_board
from jetdvfs.tests.support.boards.twin_family import FAMILY, Found, System


def lose(place: Path) -> None:
    for number in range(2):
        (place / f"baseline.{number}").write_text("garbage")


def corners(grid: FrequencyGrid) -> tuple[FrequencyConfiguration, ...]:
    axes = (grid.cpu_khz, grid.gpu_hz, grid.emc_hz)
    return tuple(FrequencyConfiguration(*(axis[share * (len(axis) - 1) // 2] for axis in axes)) for share in range(3))


@pytest.mark.parametrize("system", FAMILY, ids=str)
def test_every_board_goes_back_to_how_it_starts(system: System, tmp_path: Path) -> None:
    one = Found(fake_board(VirtualClock(), system.board, jetpack=system.jetpack), tmp_path)
    before = one.settings()
    for configuration in corners(one.hardware.grid()):
        one.hardware.apply(configuration, "test")
        lose(one.baseline)
        one.hardware = one.probe()
        assert one.hardware.touched
        assert one.hardware.restore().failed == ()
        assert one.settings() == before
        assert any("how the board was found is lost" in note for note in one.hardware.notes)


def hold_and_lose(kernel: Kernel, place: Path) -> Hardware:
    """Another process held clocks and is dead, and nobody knows any more how it found them."""
    start(kernel, place).apply(LOW, "test")
    lose(place)
    return start(kernel, place)


def test_a_clock_that_was_pinned_by_its_limits_is_let_go_also_when_it_has_its_governors_again(tmp_path: Path) -> None:
    kernel, place = Kernel(), tmp_path / "baseline"
    governors, limits = f"{CPU}/scaling_available_governors", (f"{CPU}/scaling_min_freq", f"{CPU}/scaling_max_freq")
    listed = kernel.store[governors]
    kernel.store[governors] = ""
    start(kernel, place).apply(LOW, "test")
    assert {kernel.store[path] for path in limits} == {str(LOW.cpu_khz)}
    lose(place)
    kernel.store[governors] = listed
    hardware = start(kernel, place)
    assert hardware.restore().failed == ()
    low, high = (int(kernel.store[path]) for path in limits)
    assert low < LOW.cpu_khz < high


def test_copies_that_are_gone_are_missed_where_the_marker_says_that_something_is_held(tmp_path: Path) -> None:
    kernel, place = Kernel(), tmp_path / "baseline"
    start(kernel, place).apply(LOW, "test")
    shutil.rmtree(place)
    hardware = start(kernel, place)
    assert hardware.touched and not hardware.restore().failed
    assert kernel.store[f"{CPU}/scaling_governor"] == "schedutil" and kernel.store[f"{EMC}/mrq_rate_locked"] == "0"
    assert [path.name for path in tmp_path.iterdir()] == []


def test_without_a_sign_that_anything_was_held_nothing_is_touched(tmp_path: Path) -> None:
    kernel = Kernel(gpu_userspace=False)
    kernel.take(f"{GPU}/max_freq", "318750000")
    kernel.take(f"{GPU}/min_freq", "318750000")
    kernel.take(f"{EMC}/mrq_rate_locked", "1")
    kernel.take(f"{CPU}/scaling_governor", "userspace")
    kernel.written.clear()
    hardware = start(kernel, tmp_path / "baseline")
    assert not hardware.touched
    hardware.restore()
    assert kernel.written == []


def test_what_is_of_another_boot_is_no_sign_that_anything_is_held(tmp_path: Path) -> None:
    kernel, place = Kernel(), tmp_path / "baseline"
    start(kernel, place).apply(LOW, "test")
    (place / "baseline.1").write_text("garbage")
    kernel.store["/proc/sys/kernel/random/boot_id"] = BOOT_TWO
    kernel.written.clear()
    hardware = start(kernel, place)
    assert not hardware.touched
    hardware.restore()
    assert kernel.written == []


def test_a_clock_that_does_not_look_held_stays_as_somebody_set_it(tmp_path: Path) -> None:
    kernel = Kernel()
    start(kernel, tmp_path / "baseline").apply(LOW, "test")
    kernel.take(f"{CPU}/scaling_governor", "performance")
    kernel.take(f"{CPU}/scaling_max_freq", "1190400")
    lose(tmp_path / "baseline")
    assert not start(kernel, tmp_path / "baseline").restore().failed
    assert kernel.store[f"{CPU}/scaling_governor"] == "performance"
    assert kernel.store[f"{CPU}/scaling_max_freq"] == "1190400"
    assert kernel.store[f"{GPU}/governor"] == "nvhost_podgov"


def test_a_gpu_pinned_by_its_limits_gets_those_of_the_power_mode(tmp_path: Path) -> None:
    board = simulated_board("agx-orin-64gb", clock=VirtualClock(), mode="MODE_30W", jetpack="7")
    one = Found(board, tmp_path)
    before = one.settings()
    one.hardware.apply(corners(one.hardware.grid())[0], "test")
    lose(one.baseline)
    one.hardware = one.probe()
    assert one.hardware.restore().failed == ()
    assert one.settings() == before


def test_a_capped_memory_clock_gets_the_cap_of_the_power_mode(tmp_path: Path) -> None:
    board = fake_board(VirtualClock(), "agx-orin-64gb", jetpack="6")
    board.faults.vanish("/sys/kernel/debug")
    one = Found(board, tmp_path)
    before = one.settings()
    one.hardware.apply(one.hardware.grid().top._replace(emc_hz=665600000), "test")
    lose(one.baseline)
    one.hardware = one.probe()
    assert one.hardware.restore().failed == ()
    assert one.settings() == before


def test_clusters_set_apart_go_back_together(tmp_path: Path) -> None:
    kernel, place, apart = Kernel(load_board("agx-orin-64gb"), emc=("bpmp",)), tmp_path / "baseline", Clusters(apart=True)
    before = dict(kernel.store)
    hardware = Hardware.probe(kernel, FakeClock(), baseline=place, clusters=apart)
    hardware.apply(hardware.grid().top, "test", {"policy4": 729600})
    lose(place)
    hardware = Hardware.probe(kernel, FakeClock(), baseline=place, clusters=apart)
    assert hardware.restore().failed == ()
    governors = [
        path for path in before if path.endswith(("scaling_governor", "scaling_min_freq", "mrq_rate_locked", "/governor"))
    ]
    assert {path: kernel.store[path] for path in governors} == {path: before[path] for path in governors}


def test_a_file_that_cannot_be_read_is_looked_at_again_and_keeps_no_other_from_being_given_back(tmp_path: Path) -> None:
    kernel, governor = ShakyKernel(), f"{GPU}/governor"
    start(kernel, tmp_path / "baseline").apply(LOW, "test")
    lose(tmp_path / "baseline")
    hardware = start(kernel, tmp_path / "baseline")
    kernel.misread[governor] = [errno.EIO] * 20
    report = hardware.restore()
    assert [text.split(":")[0] for text in report.failed] == [governor]
    assert kernel.store[f"{CPU}/scaling_governor"] == "schedutil" and kernel.store[f"{EMC}/mrq_rate_locked"] == "0"
    kernel.behave()
    # Also by the next process, should this one die.
    again = start(kernel, tmp_path / "baseline")
    assert again.restore().failed == () and kernel.store[governor] == "nvhost_podgov"
    assert again.restore().restored == ()


def test_the_reason_stays_in_the_notes_and_the_next_hold_is_given_back_as_ever(tmp_path: Path) -> None:
    kernel = Kernel()
    kernel.take(f"{CPU}/scaling_min_freq", "729600")
    hardware = hold_and_lose(kernel, tmp_path / "baseline")
    report = hardware.restore()
    assert len(report.notes) == 1 and report.notes[0].startswith("how the board was found is lost: ")
    assert "checksum" in report.notes[0] and "cpu" not in report.notes[0] and "policy0" in report.notes[0]
    assert report.notes[0] in hardware.notes
    kernel.take(f"{CPU}/scaling_min_freq", "729600")
    hardware.apply(LOW, "test")
    assert hardware.restore().notes == ()
    assert kernel.store[f"{CPU}/scaling_min_freq"] == "729600"
    assert {path.name for path in (tmp_path / "baseline").iterdir()} == {"baseline.0.damaged", "baseline.1.damaged"}


def test_a_hold_before_the_board_was_given_back_begins_from_how_it_is_by_itself(tmp_path: Path) -> None:
    hardware = hold_and_lose(kernel := Kernel(), tmp_path / "baseline")
    assert hardware.apply(LOW._replace(gpu_hz=1377000000), "test").verified
    assert hardware.restore().failed == ()
    assert kernel.store[f"{CPU}/scaling_governor"] == "schedutil" and kernel.store[f"{GPU}/governor"] == "nvhost_podgov"


def test_the_command_line_gives_back_what_looks_held_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, place = tmp_path / "root", tmp_path / "run" / "baseline"
    twin = simulated_board("agx-xavier")
    command = ["restore", "--root", str(root), "--runtime-dir", str(place.parent), "--state-dir", str(tmp_path)]
    with serve(twin, root, "folder"):
        files = Files(root)
        Hardware.probe(files, SystemClock(), baseline=place).apply(LOW, "test")
        lose(place)
        assert main([*command, "--dry-run"]) == 0
        tried = capsys.readouterr().out
        assert files.read_text(f"{EMC}/mrq_rate_locked") == "1" and (place / "baseline.0").read_text() == "garbage"
        assert main(command) == 0
        done = capsys.readouterr().out
        assert files.read_text(f"{EMC}/mrq_rate_locked") == "0"
        assert files.read_text(f"{CPU}/scaling_governor") == "schedutil"
    for said in (tried, done):
        assert "how the board was found is lost" in said and f"{EMC}/mrq_rate_locked = 0" in said
