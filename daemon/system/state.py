# SPDX-License-Identifier: Apache-2.0
"""Folders of the daemon, and locks for setting clocks from them.

The baseline, valid for one boot, is in the runtime directory; reusable surfaces and tables are in the state directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ...kernels.stored_files import replacing
from ..errors import HardwareBusy, UsageError
from .folders import RUNTIME_DIR, is_trusted, make_trusted, runtime_base, state_base

BASELINE_FOLDER = "baseline"
"""Root's own folder in the runtime directory, whose sockets other users may reach."""
LOCK_NAME = "lock"


def default_state_dir(root: Path) -> Path:
    """systemd's state directory, or :func:`state_base`; a folder in it for a board elsewhere."""
    return _of_root(root, "STATE_DIRECTORY", state_base())


def default_runtime_dir(root: Path) -> Path:
    """systemd's runtime directory, or :func:`runtime_base`; a folder in it for a board elsewhere."""
    return _of_root(root, "RUNTIME_DIRECTORY", runtime_base())


def _of_root(root: Path, variable: str, otherwise: Path) -> Path:
    """A board in another file tree has its own folders, as its baseline differs."""
    folder = Path(os.environ.get(variable, "").split(":")[0] or otherwise)
    place = root.resolve()
    return folder if place == Path("/") else folder / "roots" / quote(os.fspath(place), safe="")


class NoAccess(UsageError):
    """A directory of the daemon belongs to another user."""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the only process that sets clocks from this runtime or state directory.

    Raises:
        HardwareBusy: another process is.
        UsageError: an unusable directory; :class:`NoAccess` without the rights.
    """
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        handle = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        kind = NoAccess if isinstance(error, PermissionError) else UsageError
        raise kind(f"directory {folder}: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise HardwareBusy(f"another jetdvfsd holds {folder / LOCK_NAME}") from None
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked_in_passing(root: Path, runtime_dir: Path, state_dir: Path) -> Iterator[None]:
    """Ensure that no daemon runs on the board or from these directories, without making them; errors as for :func:`locked`.

    An unwritable state directory is no obstacle: no daemon could run from it.
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


_FOLDER = "boards"
_PATIENCE_S = 0.5  # for an inspecting command, or an ending daemon
_MOST_BYTES = 4096


@contextlib.contextmanager
def board_locked(root: Path) -> Iterator[None]:
    """As :func:`locked`, for the board at ``root``."""
    try:
        handle = _opened(root)
    except OSError as error:
        raise UsageError(f"board at {root}: cannot be locked: {error.strerror}") from error
    if handle is None:
        yield
        return
    try:
        deadline_s = time.monotonic() + _PATIENCE_S
        while not _flocked(handle):
            if time.monotonic() >= deadline_s or _serves(root):
                raise HardwareBusy(f"another jetdvfsd runs on the board at {root}{_where(root)}")
            time.sleep(0.02)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def board_held(root: Path, address: Path) -> Iterator[None]:
    """As :func:`board_locked`, for a daemon; notes its socket for programs of the same user and root."""
    with board_locked(root):
        note = runtime_base() / _FOLDER / f"{_name(root)}.json"
        with contextlib.suppress(OSError):
            make_trusted(note.parent)
            with replacing(note, 0o644, durable=False) as file:
                file.write(json.dumps({"pid": os.getpid(), "socket": os.fspath(address.absolute())}).encode())
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                note.unlink(missing_ok=True)


def is_held(root: Path) -> bool:
    """True if a daemon runs on the board, as far as this user can know."""
    try:
        handle = _opened(root)
    except OSError:
        return False
    if handle is None:
        return False
    try:
        return not _flocked(handle, fcntl.LOCK_SH)  # two inspecting commands do not conflict
    finally:
        os.close(handle)


def socket_of(root: Path) -> Path | None:
    if not is_held(root):
        return None
    found = _noted(root).get("socket")
    return Path(found) if isinstance(found, str) else None


def _serves(root: Path) -> bool:
    """True if the board's daemon accepts clients, so that it is not ending."""
    found = _noted(root).get("socket")
    if not isinstance(found, str):
        return False
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(found)
        except OSError:
            return False
    return True


def _where(root: Path) -> str:
    noted = _noted(root)
    return f" (pid {noted['pid']}, socket {noted['socket']})" if {"pid", "socket"} <= set(noted) else ""


def _noted(root: Path) -> dict[str, Any]:
    for base in dict.fromkeys((RUNTIME_DIR, runtime_base())):
        folder = base / _FOLDER
        if not (is_trusted(base) and is_trusted(folder)):
            continue
        with contextlib.suppress(OSError, ValueError), (folder / f"{_name(root)}.json").open("rb") as file:
            found = json.loads(file.read(_MOST_BYTES))
            if isinstance(found, dict) and _lives(found.get("pid")):
                return found
    return {}


def _lives(pid: object) -> bool:
    if not isinstance(pid, int) or pid < 1:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True  # of another user
    except (OSError, OverflowError):
        return False
    return True


def _opened(root: Path) -> int | None:
    """A descriptor to lock; None for an ordinary user on the running system, who can set no clock."""
    if not is_running_system(root):
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if os.geteuid() != 0:
        return None
    make_trusted(RUNTIME_DIR / _FOLDER)
    return os.open(RUNTIME_DIR / _FOLDER / "lock", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def is_running_system(root: Path) -> bool:
    return root.samefile("/")


def _name(root: Path) -> str:
    status = root.stat()
    return f"{status.st_dev:x}-{status.st_ino:x}"


def _flocked(handle: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
