# SPDX-License-Identifier: Apache-2.0
"""Folders of the calling user; root never trusts or writes a folder that another user could change.

``sudo -E`` keeps ``HOME`` and the XDG variables of the caller.
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

VARIABLES = ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")


def named_folder(variable: str, *otherwise: str) -> Path:
    """Absolute folder in a variable, or one in the home directory, untrusted by root."""
    given = Path(os.environ.get(variable, ""))
    return given if given.is_absolute() else Path.home().joinpath(*otherwise)  # relative paths are ignored


def own_folder(variable: str, *otherwise: str) -> Path | None:
    """The same folder; None for root if another user owns it or may replace it."""
    folder = named_folder(variable, *otherwise)
    return folder if os.geteuid() != 0 or is_roots(folder) else None


def is_roots(folder: Path) -> bool:
    """True if only root can change a folder: checks existing parents, with links resolved and not."""
    for path in {folder.absolute(), folder.resolve()}:
        for place in (path, *path.parents):
            try:
                status = place.lstat()
            except FileNotFoundError:
                continue
            except OSError:
                return False
            sticky = place != path and status.st_mode & stat.S_ISVTX
            if status.st_uid != 0 or (status.st_mode & 0o022 and not sticky and not stat.S_ISLNK(status.st_mode)):
                return False
    return True


def forget_foreign_folders() -> None:
    """For root: drop environment variables that name other users' folders, so that no library writes there."""
    if os.geteuid() != 0:
        return
    for variable in VARIABLES:
        if os.environ.get(variable) and not is_roots(Path(os.environ[variable])):
            del os.environ[variable]
    if not is_roots(Path(os.environ.get("HOME") or "/")):
        os.environ["HOME"] = pwd.getpwuid(0).pw_dir
