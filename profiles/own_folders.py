# SPDX-License-Identifier: Apache-2.0
"""Folders of the user in whose name a program runs. Root believes and writes none that another user could change.

``sudo -E`` leaves ``HOME`` and the XDG variables of the user who called it.
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

VARIABLES = ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")


def named_folder(variable: str, *otherwise: str) -> Path:
    """The folder that a variable names by an absolute path, or one in the home directory; not for root to believe."""
    given = Path(os.environ.get(variable, ""))
    return given if given.is_absolute() else Path.home().joinpath(*otherwise)  # a relative one is to be ignored


def own_folder(variable: str, *otherwise: str) -> Path | None:
    """The folder that a variable names, or one in the home directory.

    Returns:
        None for root, if the folder that the environment names belongs to another user, or another user may replace it.
    """
    folder = named_folder(variable, *otherwise)
    return folder if os.geteuid() != 0 or is_roots(folder) else None


def is_roots(folder: Path) -> bool:
    """True if root alone can write a folder, or make it: of it and every folder above that exist, links followed or not."""
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
    """For root: drop the environment's folders of another user, so that no library writes there either."""
    if os.geteuid() != 0:
        return
    for variable in VARIABLES:
        if os.environ.get(variable) and not is_roots(Path(os.environ[variable])):
            del os.environ[variable]
    if not is_roots(Path(os.environ.get("HOME") or "/")):
        os.environ["HOME"] = pwd.getpwuid(0).pw_dir
