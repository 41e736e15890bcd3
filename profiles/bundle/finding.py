# SPDX-License-Identifier: Apache-2.0
"""Folders of bundles, and of their caches."""

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
    """``$XDG_CACHE_HOME/jetdvfs``, or in ``~/.cache``; the system's for root if that is foreign."""
    own = own_folder("XDG_CACHE_HOME", ".cache")
    return (SYSTEM_CACHE if own is None else own) / "jetdvfs"


def bundle_folders() -> tuple[Path, ...]:
    """Folders searched for bundles: the user's, the system's, and the package's.

    Root ignores a data folder that another user can change.
    """
    user = own_folder("XDG_DATA_HOME", ".local", "share")
    return (*(() if user is None else (user / "jetdvfs" / "bundles",)), SYSTEM, SHIPPED)


def install_folder() -> Path:
    """Folder for installations: the user's, or the system's for root."""
    return SYSTEM if os.geteuid() == 0 else bundle_folders()[0]


def find_bundles(folders: Iterable[Path] | None = None) -> dict[str, Path]:
    """Bundles by name; earlier folders win, unreadable ones are skipped."""
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
    """Folder of a bundle by name or folder; without ``/`` it is a name. Raises BundleError."""
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
    except OSError:  # not readable
        return False
