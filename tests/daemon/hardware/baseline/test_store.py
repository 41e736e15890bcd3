# SPDX-License-Identifier: Apache-2.0
"""How a board was found is kept twice, and nothing is believed that root did not write whole."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from jetdvfs.daemon.errors import HardwareBusy
from jetdvfs.daemon.hardware.baseline import store
from jetdvfs.daemon.hardware.baseline.record import BaselineRecord, decoded, encoded
from jetdvfs.tests.support.boards.hardware_kernel import CPU, EMC, GPU, Kernel
from jetdvfs.tests.support.boards.kept_baseline import HIGH, LOW, set_by_people, start

BOOT_ID = "/proc/sys/kernel/random/boot_id"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def rewritten(path: Path, change: Callable[[BaselineRecord], object]) -> None:
    """Put something else into a copy, as whole as ours."""
    changed = change(decoded(path.read_bytes(), BaselineRecord))
    path.write_bytes(changed if isinstance(changed, bytes) else encoded(changed))  # type: ignore[arg-type]


# What becomes of a copy, by name


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def noise(path: Path) -> None:
    path.write_bytes(os.urandom(4096))


def summed(text: bytes) -> bytes:
    """What a file would hold that was written whole with this text."""
    return b"%s\n%s\n" % (hashlib.sha256(text).hexdigest().encode(), text)


def deep(path: Path) -> None:
    path.write_bytes(summed(b'{"boot_id":' + b"[" * 200_000 + b"]" * 200_000 + b"}"))


def deep_in_an_unknown_member(path: Path) -> None:
    path.write_bytes(summed(b'{"new":' + b'{"a":' * 200_000 + b"1" + b"}" * 200_001))


def a_list(path: Path) -> None:
    path.write_bytes(summed(b"[]"))


def wrong_kinds(path: Path) -> None:
    text = msgspec.json.encode(decoded(path.read_bytes(), BaselineRecord))
    path.write_bytes(summed(text.replace(b'"confirmed":true', b'"confirmed":"yes"')))


def of_another_version(path: Path) -> None:
    rewritten(path, lambda record: replace(record, version=99))


def outside_of_sys(path: Path) -> None:
    rewritten(path, lambda record: summed(msgspec.json.encode(record).replace(f"{EMC}/rate".encode(), b"/etc/passwd")))


def huge(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(1 << 40)


def removed(path: Path) -> None:
    path.unlink()


def a_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    path.unlink()
    here = Path.cwd()
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path.name)
    os.chdir(here)


def a_folder(path: Path) -> None:
    path.unlink()
    (path / "with" / "something").mkdir(parents=True)


def a_link(path: Path) -> None:
    """Even to what is whole: a link may be turned at any time."""
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def a_link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def writable_by_others(path: Path) -> None:
    path.chmod(0o666)


def a_device(path: Path) -> None:
    path.unlink()
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero: has no end


def somebody_elses(path: Path) -> None:
    os.chown(path, 65534, 65534)


ANYWHERE = (
    *(truncated, emptied, flipped, noise, deep, deep_in_an_unknown_member, a_list, wrong_kinds, of_another_version),
    *(outside_of_sys, huge, removed, a_fifo, a_socket, a_folder, a_link, a_link_to_itself, writable_by_others),
)
DAMAGES = [*ANYWHERE, *(pytest.param(one, marks=as_root) for one in (a_device, somebody_elses))]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("number", [0, 1])
def test_one_damaged_copy_changes_nothing(
    kernel: Kernel, place: Path, found: dict[str, str], number: int, damage: Callable[[Path], None]
) -> None:
    start(kernel, place).apply(LOW, "test")
    damage(place / f"baseline.{number}")
    hardware = start(kernel, place)
    if damage is not removed:
        assert [note for note in hardware.notes if f"baseline.{number}: " in note and "the other copy is used" in note]
    # Both are whole again, should the other one be damaged next.
    truncated(place / f"baseline.{1 - number}")
    report = start(kernel, place).restore()
    assert (report.failed, report.left, report.notes) == ((), (), ())
    assert set_by_people(kernel) == found
    assert not [
        path for path in place.parent.rglob("*") if ".damaged" not in str(path) and path != place and path.name != "elsewhere"
    ]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("marked", [True, False])
def test_with_both_copies_damaged_nothing_stays_held_and_the_daemon_goes_on(
    kernel: Kernel, place: Path, damage: Callable[[Path], None], marked: bool
) -> None:
    start(kernel, place).apply(LOW, "test")
    for number in range(2):
        damage(place / f"baseline.{number}")
    if not marked and damage is not removed:
        place.with_name("baseline.held").unlink()
    hardware = start(kernel, place)
    assert hardware.restore().failed == ()
    assert kernel.store[f"{EMC}/mrq_rate_locked"] == "0"
    assert kernel.store[f"{GPU}/governor"] == "nvhost_podgov" and kernel.store[f"{CPU}/scaling_governor"] == "schedutil"
    assert hardware.apply(HIGH, "again").verified
    assert hardware.restore().failed == ()
    assert not start(kernel, place).touched


@pytest.mark.parametrize("damage", [truncated, removed, a_fifo, a_folder, a_link, deep, huge])
def test_a_damaged_marker_changes_nothing(
    kernel: Kernel, place: Path, found: dict[str, str], damage: Callable[[Path], None]
) -> None:
    start(kernel, place).apply(LOW, "test")
    damage(place.with_name("baseline.held"))
    assert start(kernel, place).restore().failed == ()
    assert set_by_people(kernel) == found
    assert not start(kernel, place).touched


@pytest.mark.parametrize("instead", ["nothing", "a file", "a link", "a fifo", "somebody else's"])
def test_the_folder_itself_may_be_gone_or_something_else(kernel: Kernel, place: Path, instead: str) -> None:
    start(kernel, place).apply(LOW, "test")
    place.rename(place.with_name("away"))
    if instead == "a file":
        place.write_text("")
    elif instead == "a link":
        place.symlink_to("away")
    elif instead == "a fifo":
        os.mkfifo(place)
    elif instead == "somebody else's":
        if os.geteuid() != 0:
            pytest.skip("needs root")
        place.with_name("away").rename(place)
        os.chown(place, 65534, 65534)
    hardware = start(kernel, place)
    assert hardware.restore().failed == ()
    assert kernel.store[f"{EMC}/mrq_rate_locked"] == "0" and kernel.store[f"{CPU}/scaling_governor"] == "schedutil"
    assert hardware.apply(LOW, "again").verified and place.stat().st_mode & 0o777 == 0o700 and not place.is_symlink()
    assert hardware.restore().failed == ()


def test_of_two_whole_copies_the_newer_counts(kernel: Kernel, place: Path, found: dict[str, str]) -> None:
    hardware = start(kernel, place)
    hardware.apply(LOW, "test")
    outdated = (place / "baseline.0").read_bytes()
    hardware.apply(HIGH, "test")
    (place / "baseline.0").write_bytes(outdated)
    report = start(kernel, place).restore()
    assert (set_by_people(kernel), report.left) == (found, ())


def test_a_baseline_of_a_machine_that_this_is_not_is_not_followed(kernel: Kernel, place: Path) -> None:
    start(kernel, place).apply(LOW, "test")
    for number in range(2):
        rewritten(
            place / f"baseline.{number}",
            lambda record: summed(msgspec.json.encode(replace(record, machine="Toaster")).replace(b"/sys/", b"/sys/toaster/")),
        )
    report = start(kernel, place).restore()
    assert report.failed == () and "is of another machine, Toaster" in report.notes[0]
    assert kernel.store[f"{EMC}/mrq_rate_locked"] == "0" and kernel.store[f"{CPU}/scaling_governor"] == "schedutil"


def test_what_cannot_be_set_aside_is_said_and_hinders_nobody(
    kernel: Kernel, place: Path, found: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start(kernel, place).apply(LOW, "test")
    noise(place / "baseline.0")

    def refuse(path: Path) -> Path:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(store, "_set_aside", refuse)
    hardware = start(kernel, place)
    assert [note for note in hardware.notes if "cannot be set aside (Operation not permitted)" in note]
    assert hardware.restore().failed == () and set_by_people(kernel) == found


# Which boot it is


@pytest.mark.parametrize("wrong", ["", "garbage", "11111111-2222-4333-8444", None])
def test_while_the_boot_is_not_known_the_board_is_shown_and_nothing_is_set_or_forgotten(
    kernel: Kernel, place: Path, found: dict[str, str], wrong: str | None
) -> None:
    start(kernel, place).apply(LOW, "test")
    boot_id = kernel.store.pop(BOOT_ID)
    if wrong is not None:
        kernel.store[BOOT_ID] = wrong
    hardware = start(kernel, place)
    assert hardware.grid() and hardware.touched
    assert [note for note in hardware.notes if note.startswith("no clock can be set: /proc/sys/kernel/random/boot_id: ")]
    with pytest.raises(HardwareBusy, match=r"boot_id: .*; no clock was changed"):
        hardware.apply(LOW, "test")
    assert [text.split(":")[0] for text in hardware.restore().failed] == [BOOT_ID]
    kernel.store[BOOT_ID] = boot_id
    assert hardware.restore().failed == () and set_by_people(kernel) == found
    assert not [note for note in hardware.notes if "boot_id" in note]


def test_where_nothing_was_held_an_unknown_boot_is_nothing_to_give_back(kernel: Kernel, place: Path) -> None:
    del kernel.store[BOOT_ID]
    hardware = start(kernel, place)
    assert not hardware.touched and hardware.restore().failed == ()
