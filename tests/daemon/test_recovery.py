# SPDX-License-Identifier: Apache-2.0
"""What the real daemon leaves behind when it is killed, and what the next one makes of it, whatever has become of it since."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jetdvfs.daemon.errors import DaemonError, HardwareBusy, HardwareRefused
from jetdvfs.daemon.hardware.baseline.store import COPIES
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.tests.support.daemons.board_daemon import CPU, EMC, GPU, LOW, Board, Daemon, eventually
from jetdvfs.tests.support.verbs import answered

OTHER = FrequencyConfiguration(2265600, 216750000, 2133000000)
SEED = 20
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def jetdvfs_restore(board: Board, daemon: Daemon) -> list[str]:
    command = [sys.executable, "-m", "jetdvfs.daemon.cli", "restore", "--root", str(board.root)]
    return [*command, "--state-dir", str(daemon.state), "--runtime-dir", str(daemon.runtime)]


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def a_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.unlink()
    (path / "deep").mkdir(parents=True)


def gone(path: Path) -> None:
    path.unlink()


DAMAGES: tuple[Callable[[Path], None], ...] = (cut_short, a_fifo, a_folder, gone)


@pytest.mark.slow
def test_killed_at_any_moment_and_damaged_in_any_way_every_clock_comes_back(
    board: Board, found: dict[str, str], tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    with Daemon(board, tmp_path) as daemon:
        for number in range(6):
            with daemon.client() as client:
                client.hold(configuration=chance.choice([LOW, OTHER]))
                delay_s = chance.uniform(0.0, 0.12)
                killer = subprocess.Popen(["/bin/sh", "-c", f"sleep {delay_s:.3f}; kill -9 {daemon.process.pid}"])
                try:
                    while daemon.process.poll() is None:
                        client.hold(configuration=chance.choice([LOW, OTHER])).release()
                except (DaemonError, OSError):
                    pass
                killer.wait()
                daemon.process.wait()
            for copy in chance.choice([(), COPIES[:1], COPIES[1:], COPIES]):
                if (path := daemon.baseline / copy).is_file():
                    chance.choice(DAMAGES)(path)
            if number % 3 == 1:  # the restore is killed too
                restoring = subprocess.Popen(jetdvfs_restore(board, daemon), stdout=subprocess.DEVNULL)
                time.sleep(chance.uniform(0.0, 0.6))
                restoring.kill()
                restoring.wait()
            if number % 3 == 2:
                assert answered(*jetdvfs_restore(board, daemon)[3:]).returncode == 0
                assert board.settings() == found, f"seed {SEED}, kill {number}"
            daemon.start()
            with daemon.client() as client:
                assert client.status()["baseline"] == "none"
            assert board.settings() == found, f"seed {SEED}, kill {number}"


def test_how_the_board_was_found_is_lost_is_said_in_status_and_log(board: Board, found: dict[str, str], tmp_path: Path) -> None:
    with Daemon(board, tmp_path) as daemon:
        daemon.client().hold(configuration=LOW)
        daemon.kill()
        for copy in COPIES:
            a_fifo(daemon.baseline / copy)
        daemon.start()
        with daemon.client() as client:
            (said,) = [reason for reason in client.status()["degraded"] if reason.startswith("how the board was found is lost")]
            assert "is no regular file" in said and said in daemon.log.read_text()
            assert board.settings() == found
            with client.hold(configuration=LOW) as lease:
                assert lease.applied is not None and lease.applied["verified"]
        assert eventually(lambda: board.settings() == found)


def test_clocks_of_an_operator_stay_where_nothing_says_that_they_are_ours(
    board: Board, found: dict[str, str], tmp_path: Path
) -> None:
    board.write(f"{CPU}/scaling_governor", "userspace")
    board.write(f"{EMC}/mrq_rate_locked", 1)
    pinned = board.settings()
    with Daemon(board, tmp_path) as daemon:
        with daemon.client() as client:
            client.hold(configuration=LOW).release()
        assert board.settings() == pinned
    board.write(f"{CPU}/scaling_governor", found[f"{CPU}/scaling_governor"])
    board.write(f"{EMC}/mrq_rate_locked", 0)
    assert board.settings() == found


def test_a_file_that_reads_wrongly_when_the_daemon_ends_is_given_back_by_the_restore_after_it(
    board: Board, found: dict[str, str], tmp_path: Path
) -> None:
    with Daemon(board, tmp_path) as daemon:
        daemon.client().hold(configuration=LOW)
        board.twin.faults.vanish(f"/{GPU}/governor")
        began = time.monotonic()
        daemon.stop()
        assert time.monotonic() - began < 8.0
        board.twin.faults.clear()
        assert board.read(f"{EMC}/mrq_rate_locked") == "0"
        assert board.read(f"{GPU}/governor") == "userspace"
        assert answered(*jetdvfs_restore(board, daemon)[3:]).returncode == 0
        assert board.settings() == found


def test_without_the_boots_id_the_daemon_shows_the_board_and_sets_nothing(
    board: Board, found: dict[str, str], tmp_path: Path
) -> None:
    board.twin.faults.vanish(BOOT_ID)
    with Daemon(board, tmp_path) as daemon, daemon.client() as client:
        assert any(reason.startswith(f"no clock can be set: {BOOT_ID}") for reason in client.status()["degraded"])
        with pytest.raises(HardwareBusy, match=r"boot_id.*; no clock was changed"):
            client.hold(configuration=LOW)
        assert board.settings() == found
        board.twin.faults.clear()
        with client.hold(configuration=LOW):
            assert board.clocks == LOW


# A disk that is full, or read-only


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of its own, of 64 KiB."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return filler


@pytest.mark.parametrize("how", ["full", "read-only", "gone"])
def test_a_disk_that_takes_nothing_costs_no_hold_that_is_in_force_and_leaves_no_clock(
    board: Board, found: dict[str, str], tmp_path: Path, how: str
) -> None:
    with small_disk(tmp_path / "runtime") as disk, Daemon(board, tmp_path) as daemon:
        with daemon.client() as client:
            with client.hold(configuration=LOW):
                if how == "full":
                    fill(disk)
                elif how == "read-only":
                    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
                else:
                    shutil.rmtree(daemon.baseline)
                    assert eventually((daemon.baseline / COPIES[1]).exists)
                if how != "gone":
                    with pytest.raises(HardwareRefused, match=r"baseline .*: cannot be written \(.*\); no clock was changed$"):
                        client.hold(configuration=OTHER)
                assert client.status()["configuration"]["gpu_hz"] == LOW.gpu_hz
            if how == "read-only":
                assert eventually(lambda: any("cannot be removed" in reason for reason in client.status()["degraded"]))
                subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
            assert eventually(lambda: client.status()["baseline"] == "none")
            assert board.settings() == found
        (disk / "filler").unlink(missing_ok=True)


def test_a_disk_that_is_full_from_the_start_is_said_in_one_line_and_nothing_is_set(
    board: Board, found: dict[str, str], tmp_path: Path
) -> None:
    with small_disk(tmp_path / "runtime") as disk:
        (disk / "lock").touch()
        filler = fill(disk)
        with Daemon(board, tmp_path) as daemon, daemon.client() as client:
            with pytest.raises(HardwareRefused, match=r"No space left on device\); no clock was changed$"):
                client.hold(configuration=LOW)
            assert board.settings() == found
            assert {path.name for path in disk.rglob("*")} <= {"lock", "filler", "baseline"}
            assert client.status()["baseline"] == "none"
            filler.unlink()
            with client.hold(configuration=LOW):
                assert board.clocks == LOW


def test_a_runtime_directory_that_was_taken_away_is_missed(board: Board, found: dict[str, str], tmp_path: Path) -> None:
    with Daemon(board, tmp_path) as daemon:
        daemon.client().hold(configuration=LOW)
        daemon.kill()
        shutil.rmtree(daemon.runtime)
        assert board.settings() != found
        daemon.start()
        with daemon.client() as client:
            assert any("was taken away" in reason for reason in client.status()["degraded"])
        assert board.settings() == found


def test_a_clock_that_is_not_there_while_its_baseline_is_missed_is_given_back_when_it_returns(
    board: Board, found: dict[str, str], tmp_path: Path
) -> None:
    with Daemon(board, tmp_path) as daemon:
        daemon.client().hold(configuration=LOW)
        daemon.kill()
        shutil.rmtree(daemon.runtime)
        board.twin.faults.vanish(f"/{CPU}")
        daemon.start()
        with daemon.client() as client:
            assert eventually(lambda: client.status()["baseline"] != "none")
            board.twin.faults.clear()
            assert eventually(lambda: board.settings() == found)


def test_what_keeps_a_daemon_from_starting_keeps_no_clock_held(board: Board, found: dict[str, str], tmp_path: Path) -> None:
    config = tmp_path / "jetdvfsd.yaml"
    config.write_text("")
    with Daemon(board, tmp_path, "--config", str(config)) as daemon:
        daemon.client().hold(configuration=LOW)
        daemon.kill()
        assert board.settings() != found
        config.write_text("limits: all of them")
        daemon.start()
        assert daemon.process.wait(15) == 2
        assert board.settings() == found
        config.write_text("")
        daemon.start()
        daemon.client().close()
