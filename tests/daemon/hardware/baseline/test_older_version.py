# SPDX-License-Identifier: Apache-2.0
"""What an earlier version of the daemon kept is honoured once."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from jetdvfs.daemon.hardware.baseline.record import BaselineRecord, decoded
from jetdvfs.tests.support.boards.hardware_kernel import BOOT_TWO, CPU, EMC, Kernel
from jetdvfs.tests.support.boards.kept_baseline import LOW, set_by_people, start

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def as_older(place: Path, older: Path) -> None:
    """Turn what was kept into what an earlier version would have kept."""
    record = msgspec.to_builtins(decoded((place / "baseline.0").read_bytes(), BaselineRecord))
    for domain in record["domains"]:
        del domain["choices"]
    record = {name: record[name] for name in ("boot_id", "domains", "values", "journal")}
    older.write_text(json.dumps({"version": 1, **record}))
    for path in (*place.iterdir(), place.with_name("baseline.held")):
        path.unlink()


def test_what_an_earlier_version_left_is_honoured_once(
    kernel: Kernel, place: Path, found: dict[str, str], tmp_path: Path
) -> None:
    start(kernel, place).apply(LOW, "test")
    as_older(place, older := tmp_path / "baseline.json")
    hardware = start(kernel, place, older)
    assert hardware.touched and not older.exists() and (place / "baseline.1").exists()
    # Also where this process dies before it has given anything back.
    report = start(kernel, place, older).restore()
    assert (report.failed, report.left, set_by_people(kernel)) == ((), (), found)
    assert not start(kernel, place, older).touched


def test_a_governor_that_somebody_else_set_since_an_earlier_version_held_is_left(
    kernel: Kernel, place: Path, tmp_path: Path
) -> None:
    start(kernel, place).apply(LOW, "test")
    as_older(place, older := tmp_path / "baseline.json")
    kernel.take(f"{CPU}/scaling_governor", "powersave")
    report = start(kernel, place, older).restore()
    assert report.failed == () and [text.split(":")[0] for text in report.left] == [f"{CPU}/scaling_governor"]
    assert kernel.store[f"{CPU}/scaling_governor"] == "powersave" and kernel.store[f"{EMC}/mrq_rate_locked"] == "0"


def test_what_an_earlier_version_left_of_another_boot_is_removed(kernel: Kernel, place: Path, tmp_path: Path) -> None:
    start(kernel, place).apply(LOW, "test")
    as_older(place, older := tmp_path / "baseline.json")
    kernel.store[BOOT_ID] = BOOT_TWO
    kernel.written.clear()
    hardware = start(kernel, place, older)
    hardware.restore()
    assert kernel.written == [] and not older.exists() and not hardware.touched


@pytest.mark.parametrize("of_this_boot", [True, False])
def test_what_an_earlier_version_left_damaged_counts_where_it_names_this_boot(
    kernel: Kernel, place: Path, tmp_path: Path, of_this_boot: bool
) -> None:
    start(kernel, place).apply(LOW, "test")
    as_older(place, older := tmp_path / "baseline.json")
    older.write_text(older.read_text()[: 400 if of_this_boot else 20])
    hardware = start(kernel, place, older)
    hardware.restore()
    assert (kernel.store[f"{EMC}/mrq_rate_locked"] == "0") is of_this_boot
    assert (tmp_path / "baseline.json.damaged").exists() and not older.exists()
    assert [note for note in hardware.notes if "baseline.json: " in note]
