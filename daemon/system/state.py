# SPDX-License-Identifier: Apache-2.0
"""The folder in which the daemon keeps how it found the board, and who may set clocks from it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from ..errors import HardwareBusy, UsageError

STATE_DIR = Path("/var/lib/jetdvfs")
BASELINE_NAME = "baseline.json"


def default_state_dir(root: Path) -> Path:
    """Where the baseline is kept: in systemd's state directory, or ``/var/lib/jetdvfs``.

    A board that is a file tree elsewhere has a folder of its own there, so that the running system's baseline is never taken
    for one of another boot.
    """
    folder = Path(os.environ.get("STATE_DIRECTORY", "").split(":")[0] or STATE_DIR)
    place = root.resolve()
    return folder if place == Path("/") else folder / "roots" / quote(os.fspath(place), safe="")


@contextlib.contextmanager
def locked_state(state_dir: Path) -> Iterator[None]:
    """Be the one process that sets clocks from this state directory.

    Raises:
        HardwareBusy: another one is.
        UsageError: the directory cannot be made or written.
    """
    try:
        state_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        handle = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"state directory {state_dir}: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise HardwareBusy(f"another jetdvfsd holds {state_dir / 'lock'}") from None
    finally:
        os.close(handle)
