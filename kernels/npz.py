# SPDX-License-Identifier: Apache-2.0
"""Bounds on ``.npz`` files before inflation."""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np

MOST_ARRAYS = 256
_MOST_NAMES_BYTES = 1 << 20  # a zip's directory of that size is read at once
_HEADER_CHARACTERS = 10_000
_SUFFIX = ".npy"


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
