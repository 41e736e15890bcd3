# SPDX-License-Identifier: Apache-2.0
"""The folders in which the daemon keeps things, and who may set clocks from them.

What lasts for one boot, how the board was found, is in the runtime directory; what is made once and used again, surfaces and
tables, in the state directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from ..errors import HardwareBusy, UsageError
from .board_lock import board_locked
from .folders import runtime_base, state_base

BASELINE_FOLDER = "baseline"
"""In the runtime directory, whose sockets others may reach: a folder of root's own."""
OLDER_BASELINE_NAME = "baseline.json"
"""In the state directory: where versions before 0.2 kept the baseline."""
LOCK_NAME = "lock"


def default_state_dir(root: Path) -> Path:
    """systemd's state directory, or :func:`state_base`; for a board elsewhere a folder of its own in it."""
    return _of_root(root, "STATE_DIRECTORY", state_base())


def default_runtime_dir(root: Path) -> Path:
    """systemd's runtime directory, or :func:`runtime_base`; for a board elsewhere a folder of its own in it."""
    return _of_root(root, "RUNTIME_DIRECTORY", runtime_base())


def _of_root(root: Path, variable: str, otherwise: Path) -> Path:
    """A board that is a file tree elsewhere shares no folder with the running system: its baseline is not that one's."""
    folder = Path(os.environ.get(variable, "").split(":")[0] or otherwise)
    place = root.resolve()
    return folder if place == Path("/") else folder / "roots" / quote(os.fspath(place), safe="")


class NoAccess(UsageError):
    """A directory of the daemon's belongs to another user."""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the one process that sets clocks from this runtime or state directory.

    Raises:
        HardwareBusy: another one is.
        UsageError: the directory cannot be made or written; :class:`NoAccess` for want of rights.
    """
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        handle = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except PermissionError as error:
        raise NoAccess(f"directory {folder}: {error.strerror}") from error
    except OSError as error:
        raise UsageError(f"directory {folder}: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise HardwareBusy(f"another jetdvfsd holds {folder / LOCK_NAME}") from None
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked_in_passing(root: Path, runtime_dir: Path, state_dir: Path) -> Iterator[None]:
    """See that no daemon runs on the board or from these directories, and that none begins meanwhile; neither is made.

    A state directory that cannot be written, on a full or failed disk, is no obstacle: a daemon could not run from it either.

    Raises:
        HardwareBusy: one runs.
        UsageError: the runtime directory cannot be written.
    """
    runtime_dir, state_dir = runtime_dir.resolve(), state_dir.resolve()
    with contextlib.ExitStack() as stack:
        stack.enter_context(board_locked(root))
        if runtime_dir.is_dir():
            stack.enter_context(locked(runtime_dir))
        if state_dir.is_dir() and state_dir != runtime_dir:
            with contextlib.suppress(UsageError):
                stack.enter_context(locked(state_dir))
        yield
