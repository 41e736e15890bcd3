# SPDX-License-Identifier: Apache-2.0
"""Stored files: bounds on ``.npz`` files before inflation, atomic replacement, and stamps."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO, TypeAlias, cast

MOST_ARRAYS = 256
_MOST_NAMES_BYTES = 1 << 20  # a zip's directory of that size is read at once
_HEADER_CHARACTERS = 10_000
_SUFFIX = ".npy"

Stamp: TypeAlias = tuple[int, ...]
"""Identity and state of a file: device, inode, size, and the times of the last change of content and of status."""


def stamp_of(status: os.stat_result) -> Stamp:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def check_npz(file: IO[bytes] | str | os.PathLike[str], most_bytes: int) -> None:
    """Refuse an ``.npz`` file, a path or an open file (left at its start), by ValueError: malformed, too many arrays, of Python
    objects, or more than ``most_bytes`` together.
    """
    if isinstance(file, (str, os.PathLike)):
        with Path(file).open("rb") as stream:
            check_npz(stream, most_bytes)
        return
    try:
        _check_directory(file)
        with zipfile.ZipFile(file) as archive:
            _check_arrays(archive, most_bytes)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError) as error:
        raise ValueError(f"not an .npz file ({error})") from error
    finally:
        file.seek(0)


def _check_directory(file: IO[bytes]) -> None:
    end = file.seek(0, 2)
    file.seek(max(0, end - 22))
    record = file.read(22)
    if record[:4] != b"PK\x05\x06":  # with a trailing comment, which NumPy never writes
        raise zipfile.BadZipFile("no end record")
    entries, size = int.from_bytes(record[10:12], "little"), int.from_bytes(record[12:16], "little")
    if entries > MOST_ARRAYS or size > _MOST_NAMES_BYTES:
        raise ValueError(f"{entries} arrays; expected at most {MOST_ARRAYS}")


def _check_arrays(archive: zipfile.ZipFile, most_bytes: int) -> None:
    import numpy as np  # programs that only replace files start without

    total = 0
    for entry in archive.infolist():
        name = entry.filename.removesuffix(_SUFFIX)
        with archive.open(entry) as stream:
            version = np.lib.format.read_magic(stream)
            if version != (1, 0):  # later ones have headers of up to 4 GiB, which NumPy reads before it checks their length
                raise ValueError(f"{name}: version {version[0]}.{version[1]} of the format is not read, only 1.0")
            shape, _, dtype = np.lib.format.read_array_header_1_0(stream, max_header_size=_HEADER_CHARACTERS)
        if dtype.hasobject:
            raise ValueError(f"{name}: holds Python objects")
        size = math.prod(shape) * dtype.itemsize
        total += size
        if min(shape, default=0) < 0 or total > most_bytes:
            raise ValueError(f"{name}: of shape {shape}, {size} bytes; expected at most {most_bytes} bytes for all arrays")


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
