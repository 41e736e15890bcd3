# SPDX-License-Identifier: Apache-2.0
"""Base folders of the daemon: the system's for root, else the user's own."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from ...profiles.own_folders import named_folder

STATE_DIR = Path("/var/lib/jetdvfs")
RUNTIME_DIR = Path("/run/jetdvfs")


def runtime_base() -> Path:
    if os.geteuid() == 0:
        return RUNTIME_DIR
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    return Path(given) / "jetdvfs" if Path(given).is_absolute() else Path(f"/tmp/jetdvfs-{os.geteuid()}")


def state_base() -> Path:
    """``/var/lib/jetdvfs`` for root; for another user ``$XDG_STATE_HOME/jetdvfs``, or ``~/.local/state/jetdvfs``."""
    if os.geteuid() == 0:
        return STATE_DIR
    return named_folder("XDG_STATE_HOME", ".local", "state") / "jetdvfs"


def is_trusted(folder: Path) -> bool:
    """True for a directory, no link, of this user or root, that no other user may write."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022


def make_trusted(folder: Path) -> None:
    """Make a folder and its parent, writable by this user only; raises OSError. Root's are readable by all."""
    for one in (folder.parent, folder):
        one.mkdir(mode=0o755 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
        if one != Path("/tmp") and not is_trusted(one):
            raise PermissionError(errno.EACCES, f"{one} belongs to another user, or another user may write it")
