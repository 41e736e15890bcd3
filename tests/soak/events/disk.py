# SPDX-License-Identifier: Apache-2.0
"""What becomes of the daemon's own files: a disk that is full or read-only, files that are damaged, foreign or gone.

Needs root and a mount namespace of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jetdvfs.tests.soak.stage import Stage

_FILLER = ".filler"


def make_small(folder: Path, kilobytes: int = 512) -> None:
    """Let a folder be a file system of its own, and a small one."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k,mode=755", "tmpfs", folder], check=True)


def unmount(folder: Path) -> None:
    while subprocess.run(["umount", "-l", folder], capture_output=True, check=False).returncode == 0:
        pass


def fill(folder: Path) -> None:
    """Leave no room in a file system."""
    with contextlib.suppress(OSError), (folder / _FILLER).open("ab", buffering=0) as file:
        for size in (65536, 4096, 64):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)


def free(folder: Path) -> None:
    with contextlib.suppress(OSError):
        (folder / _FILLER).unlink(missing_ok=True)


@dataclass(frozen=True)
class Disk:
    """The disk below the state folder, the runtime folder or both becomes full or read-only, or works again."""

    state: str
    folders: tuple[str, ...]

    def words(self) -> str:
        return f"the disk of {' and '.join(self.folders)} is {self.state}"

    def play(self, stage: Stage) -> None:
        if not stage.small_disks:
            return
        if self.state != "well":
            stage.unusable.update(self.folders)
        for name in self.folders:
            folder = stage.places.folder / name
            if self.state == "full":
                fill(folder)
            elif self.state == "read-only" and folder not in stage.read_only:
                # Laid over: what is open for writing there would keep the file system itself from becoming read-only.
                subprocess.run(["mount", "--bind", folder, folder], check=True)
                subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
                stage.read_only.add(folder)
            elif self.state == "well":
                well(stage, folder)
                stage.unusable.discard(name)


def well(stage: Stage, folder: Path) -> None:
    """Let a file system work again."""
    if folder in stage.read_only:
        subprocess.run(["umount", "-l", folder], check=True)
        stage.read_only.discard(folder)
    free(folder)


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[len(data) // 3] ^= 0x15
    path.write_bytes(data)


def _other_boot(path: Path) -> None:
    data = json.loads(path.read_text())
    data["boot_id"] = "00000000-0000-0000-0000-000000000000"
    path.write_text(json.dumps(data))


def _in_place(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def replace(path: Path) -> None:
        path.unlink()
        make(path)

    return replace


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))


#: Ways to spoil a file.
SPOIL: dict[str, Callable[[Path], object]] = {
    "truncated": _truncate,
    "empty": lambda path: os.truncate(path, 0),
    "with a bit flipped": _flip,
    "garbage": lambda path: path.write_bytes(os.urandom(300)),
    "deep JSON": lambda path: path.write_bytes(b"[" * 100_000),
    "foreign JSON": lambda path: path.write_text('{"version": 1, "boot_id": 7, "domains": {}, "values": [], "journal": null}'),
    "a newer version": lambda path: path.write_text('{"version": 99}'),
    "of another boot": _other_boot,
    "huge": lambda path: os.truncate(path, 1 << 40),
    "a folder": _in_place(lambda path: path.mkdir()),
    "a pipe": _in_place(lambda path: os.mkfifo(path)),
    "a link to nowhere": _in_place(lambda path: path.symlink_to("/nonexistent/soak")),
    "a link to /etc/passwd": _in_place(lambda path: path.symlink_to("/etc/passwd")),
    "a link to itself": _in_place(lambda path: path.symlink_to(path.name)),
    "/dev/zero": _in_place(lambda path: os.mknod(path, 0o20600, os.makedev(1, 5))),
    "a socket": _in_place(_socket),
    "gone": lambda path: path.unlink(),
}


@dataclass(frozen=True)
class Spoil:
    """The daemon is killed, and its baseline's copies (all or the first of them) are spoilt before it starts again."""

    how: str
    every: bool

    def words(self) -> str:
        return f"the daemon is killed, and {'every copy' if self.every else 'one copy'} of its baseline is {self.how}"

    def play(self, stage: Stage) -> None:
        stage.kill()
        copies = baselines(stage)
        spoilt = copies if self.every else copies[:1]
        for path in spoilt:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                SPOIL[self.how](path)
        stage.tell(f"spoilt {len(spoilt)} of {len(copies)} copies: {', '.join(path.name for path in spoilt)}")
        if copies and len(spoilt) == len(copies):
            stage.lost = True


@dataclass(frozen=True)
class Remove:
    """A folder of the daemon's is removed while it runs; it is killed then, or restarted where its sockets are gone."""

    name: str
    kills: bool

    def words(self) -> str:
        how = "killed" if self.kills else "restarted where its sockets are gone"
        return f"the folder {self.name} is removed with all that is in it, and the daemon is {how}"

    def play(self, stage: Stage) -> None:
        if baselines(stage) and self.kills:
            stage.lost = True
        folder = stage.places.folder / self.name
        for entry in folder.iterdir() if folder.is_dir() else ():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    entry.unlink()
        if not stage.small_disks:
            shutil.rmtree(folder, ignore_errors=True)
        if self.kills:
            stage.kill()
        elif self.name == "run":
            stage.stop()


def baselines(stage: Stage) -> list[Path]:
    """The copies that keep how the board was found; the mark beside them, that there are some, is none."""
    found = [path for folder in (stage.places.run, stage.places.state) for path in sorted(folder.rglob("*baseline*"))]
    return [path for path in found if path.is_file() and path.suffix not in (".damaged", ".held")]
