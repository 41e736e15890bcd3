# SPDX-License-Identifier: Apache-2.0
"""Bounded reading of a bundle's files, without links, each by its checksum."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import BundleError

MANIFEST = "manifest.json"
_MAX_FILE_BYTES = 64 << 20


def read_file(path: Path) -> bytes:
    """Content of a file. Raises BundleError."""
    return _read(path.name, path)


@contextlib.contextmanager
def opened_folder(path: Path) -> Iterator[Callable[[str], bytes]]:
    """Reader of files in a folder that another user may change, each opened once. Raises BundleError."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror or error}") from error
    try:
        yield lambda name: _read(name, name, dir_fd=handle)
    finally:
        os.close(handle)


def _read(name: str, path: Path | str, *, dir_fd: int | None = None) -> bytes:
    """Content of a regular file, opened once without following links."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
        with open(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise BundleError(f"{name} is missing or not a regular file")
            data = file.read(_MAX_FILE_BYTES + 1) if status.st_size <= _MAX_FILE_BYTES else None
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise BundleError(f"{name} is missing or not a regular file") from error
        raise BundleError(f"{name}: {error.strerror or error}") from error
    if data is None or len(data) > _MAX_FILE_BYTES:
        raise BundleError(f"{name} is larger than {_MAX_FILE_BYTES >> 20} MiB")
    return data


def read_checked(path: Path, digest: str) -> bytes:
    """File with a known SHA-256. Raises BundleError."""
    return checked(path.name, read_file(path), digest)


def checked(name: str, data: bytes, digest: str) -> bytes:
    """``data`` if it has this SHA-256, else BundleError."""
    if hashlib.sha256(data).hexdigest() != digest:
        raise BundleError(f"{name} is damaged: its checksum is not the manifest's")
    return data
