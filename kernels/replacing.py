# SPDX-License-Identifier: Apache-2.0
"""Writing a file as a whole: readers see the old content or the new one, and a full disk leaves the old one."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """An open file that takes the place of ``path`` once all of it is written. A device or pipe is written as it is.

    Raises:
        OSError: it cannot be written; ``path`` is as it was.
    """
    place = Path(path)
    if place.exists() and not stat.S_ISREG(place.stat().st_mode):
        with place.open("wb") as file:
            yield file
        return
    place = place.resolve()  # a link stays one
    mode = stat.S_IMODE(place.stat().st_mode) if place.exists() else 0o666 & ~_umask()
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    try:
        with open(handle, "wb") as file:
            yield cast(BinaryIO, file)
            os.fchmod(handle, mode)
        Path(name).replace(place)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _umask() -> int:
    """The process's mask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
