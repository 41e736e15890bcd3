# SPDX-License-Identifier: Apache-2.0
"""Stored files: atomic replacement, and stamps."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypeAlias, cast

Stamp: TypeAlias = tuple[int, ...]
"""Identity and state of a file: device, inode, size, and the times of the last change of content and of status."""


def stamp_of(status: os.stat_result) -> Stamp:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], mode: int | None = None, *, durable: bool = True) -> Iterator[BinaryIO]:
    """An open file that replaces ``path`` once fully written: a full disk or a power cut leaves the old content.

    A device or pipe is written directly. Permissions are ``mode``, else the old file's, or a new file's usual ones. Unless
    ``durable``, a power cut may leave any part of the new content: for content with a checksum.
    """
    place = Path(path)
    if place.exists() and not stat.S_ISREG(place.stat().st_mode):
        with place.open("wb") as file:
            yield file
        return
    place = place.resolve()  # a link stays one
    if mode is None and place.exists():
        mode = stat.S_IMODE(place.stat().st_mode)
    name = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 if mode is None else mode)
    try:
        with open(handle, "wb") as file:
            yield cast(BinaryIO, file)
            if mode is not None:
                os.fchmod(handle, mode)
        if durable:
            sync(name)
        name.replace(place)
        if durable:
            sync(place.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            name.unlink()
        raise


def sync(path: Path) -> None:
    """Put a file's content, or a folder's names, on the disk; raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
