# SPDX-License-Identifier: Apache-2.0
"""Where nothing can be kept nothing is set, and what is held is given back all the same."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from jetdvfs.daemon.errors import HardwareRefused
from jetdvfs.daemon.hardware.baseline import store
from jetdvfs.daemon.hardware.baseline.record import BaselineRecord, decoded
from jetdvfs.tests.support.boards.hardware_kernel import EMC, Kernel
from jetdvfs.tests.support.boards.kept_baseline import HIGH, LOW, set_by_people, start


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many of the next files are still written; then none is, with the error that is named."""
    state = {"left": 1 << 30, "error": errno.ENOSPC}
    write_new = store._write_new

    def write(path: Path, data: bytes) -> None:
        if state["left"] <= 0:
            raise OSError(state["error"], os.strerror(state["error"]))
        write_new(path, data)
        state["left"] -= 1

    monkeypatch.setattr(store, "_write_new", write)
    return state


FULL = [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO]


@pytest.mark.parametrize("error", FULL, ids=errno.errorcode.get)
def test_where_nothing_can_be_kept_nothing_is_set_and_nothing_is_left(
    kernel: Kernel, place: Path, full: dict[str, int], error: int
) -> None:
    hardware = start(kernel, place)
    kernel.written.clear()
    full.update(left=0, error=error)
    with pytest.raises(HardwareRefused) as told:
        hardware.apply(LOW, "test")
    assert str(told.value).endswith(f"cannot be written ({os.strerror(error)}); no clock was changed")
    assert "\n" not in str(told.value)
    assert kernel.written == [] and not hardware.touched and not start(kernel, place).touched


@pytest.mark.parametrize("error", FULL, ids=errno.errorcode.get)
def test_a_disk_that_fills_up_between_write_and_confirmation_costs_no_hold(
    kernel: Kernel, place: Path, found: dict[str, str], full: dict[str, int], error: int
) -> None:
    hardware = start(kernel, place)
    full.update(left=3, error=error)  # both copies of what is intended, and the marker
    assert hardware.apply(LOW, "test").verified
    assert hardware.keep_baseline().startswith(f"baseline {place}/baseline.0: cannot be written ({os.strerror(error)})")
    # The next process, should this one die, knows all the same.
    assert decoded((place / "baseline.1").read_bytes(), BaselineRecord).journal[f"{EMC}/mrq_rate_locked"].values == ("1",)
    before = [value for _, value in kernel.written]
    with pytest.raises(HardwareRefused, match="no clock was changed"):
        hardware.apply(HIGH, "test")
    assert [value for _, value in kernel.written] == before
    full["left"] = 1 << 30
    assert hardware.keep_baseline() == ""
    assert decoded((place / "baseline.1").read_bytes(), BaselineRecord).journal[f"{EMC}/mrq_rate_locked"].confirmed
    assert hardware.restore().failed == () and set_by_people(kernel) == found


def test_a_disk_that_is_full_keeps_nothing_from_being_given_back(
    kernel: Kernel, place: Path, found: dict[str, str], full: dict[str, int]
) -> None:
    start(kernel, place).apply(LOW, "test")
    full["left"] = 0
    assert start(kernel, place).restore().failed == () and set_by_people(kernel) == found
    start(kernel, place)
    full["left"] = 1 << 30
    start(kernel, place).apply(LOW, "test")
    for number in range(2):
        (place / f"baseline.{number}").write_bytes(os.urandom(512))
    full["left"] = 0
    assert start(kernel, place).restore().failed == () and kernel.store[f"{EMC}/mrq_rate_locked"] == "0"


def test_one_copy_that_can_be_written_is_enough(
    kernel: Kernel, place: Path, found: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_new = store._write_new

    def write(path: Path, data: bytes) -> None:
        if path.name.startswith("baseline.1"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        write_new(path, data)

    monkeypatch.setattr(store, "_write_new", write)
    hardware = start(kernel, place)
    assert hardware.apply(LOW, "test").verified
    assert "baseline.1: cannot be written" in hardware.keep_baseline()
    assert start(kernel, place).restore().failed == () and set_by_people(kernel) == found


def test_what_cannot_be_removed_is_said_until_it_can(
    kernel: Kernel, place: Path, found: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hardware = start(kernel, place)
    hardware.apply(LOW, "test")

    def refuse(path: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(store, "_out_of_the_way", refuse)
        (text,) = hardware.restore().failed
        assert text.endswith("cannot be removed (Read-only file system); the clocks are as they were found")
        assert set_by_people(kernel) == found and hardware.touched
        kernel.take(f"{EMC}/mrq_rate_locked", "1")
        kernel.written.clear()
        assert hardware.restore().failed and kernel.written == []
    assert hardware.restore().failed == () and not place.exists()


def test_a_folder_that_is_removed_while_something_is_held_is_made_anew(
    kernel: Kernel, place: Path, found: dict[str, str]
) -> None:
    hardware = start(kernel, place)
    hardware.apply(LOW, "test")
    for path in sorted(place.parent.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    place.parent.rmdir()
    assert hardware.keep_baseline() == ""
    assert start(kernel, place).restore().failed == () and set_by_people(kernel) == found


def test_leftovers_of_a_write_that_was_cut_short_are_in_nobodys_way(kernel: Kernel, place: Path, found: dict[str, str]) -> None:
    place.mkdir(parents=True)
    (place / "baseline.0.new").mkdir()
    (place / "baseline.1.new").symlink_to("/etc/passwd")
    hardware = start(kernel, place)
    assert hardware.apply(LOW, "test").verified and hardware.keep_baseline() == ""
    assert hardware.restore().failed == () and set_by_people(kernel) == found
