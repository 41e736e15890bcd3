# SPDX-License-Identifier: Apache-2.0
"""Where bundles are found, by name, and where what is made of them is kept."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ...kernels.text import valid_instead
from ..errors import BundleError
from ..own_folders import own_folder
from .reading import MANIFEST

SYSTEM = Path("/var/lib/jetdvfs/bundles")
SYSTEM_CACHE = Path("/var/cache")
SHIPPED = Path(__file__).parents[1] / "bundles"


def default_cache_dir() -> Path:
    """Where converted node tables are kept: ``$XDG_CACHE_HOME/jetdvfs``, by default ``~/.cache/jetdvfs``; the system's for root
    if those are another user's."""
    own = own_folder("XDG_CACHE_HOME", ".cache")
    return (SYSTEM_CACHE if own is None else own) / "jetdvfs"


def bundle_folders() -> tuple[Path, ...]:
    """Where bundles are looked for: the user's data folder, the system's, and what is shipped with the package.

    Root does not look in a data folder that another user can change.
    """
    user = own_folder("XDG_DATA_HOME", ".local", "share")
    return (*(() if user is None else (user / "jetdvfs" / "bundles",)), SYSTEM, SHIPPED)


def install_folder() -> Path:
    """Where bundles are installed: the user's data folder, or the system's as root."""
    return SYSTEM if os.geteuid() == 0 else bundle_folders()[0]


def find_bundles(folders: Iterable[Path] | None = None) -> dict[str, Path]:
    """Every bundle by name; where two folders have one of the same name, the earlier folder's.

    A folder that may not be looked into, such as a home directory that the daemon is kept out of, has none.
    """
    found: dict[str, Path] = {}
    for folder in bundle_folders() if folders is None else folders:
        try:
            inside = sorted(folder.iterdir())
        except OSError:
            continue
        for directory in filter(_has_manifest, inside):
            if not directory.name.isprintable():
                continue
            found.setdefault(directory.name, directory)
    return found


def resolve_bundle(name_or_dir: str | os.PathLike[str]) -> Path:
    """The folder of a bundle given by name or by folder. A text without a ``/`` is a name, whatever the current directory
    holds.

    Raises:
        BundleError: there is none; the text lists the names there are.
    """
    path = Path(name_or_dir)
    is_folder = not isinstance(name_or_dir, str) or "/" in name_or_dir
    if is_folder and _has_manifest(path):
        return path
    found = find_bundles()
    if str(name_or_dir) in found:
        return found[str(name_or_dir)]
    here = "" if is_folder or not _has_manifest(path) else f"; the folder of that name is ./{name_or_dir}"
    raise BundleError(
        f"profile {str(name_or_dir)!r}: no such bundle, nor folder with a readable {MANIFEST}{here}"
        f"{valid_instead(str(name_or_dir), list(found))}"
    )


def _has_manifest(directory: Path) -> bool:
    try:
        return (directory / MANIFEST).is_file()
    except OSError:  # it may not be looked into
        return False
