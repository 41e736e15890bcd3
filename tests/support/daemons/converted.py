# SPDX-License-Identifier: Apache-2.0
"""Node tables of shipped profiles, converted once for all daemons of the tests."""

from __future__ import annotations

import shutil
from functools import lru_cache
from pathlib import Path

from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.bundle.finding import SHIPPED, default_cache_dir
from jetdvfs.profiles.bundle.identity import read_identity
from jetdvfs.profiles.bundle.table_folder import TableFiles


def provide(profile: str, state: Path) -> None:
    """Copy the tables of a shipped profile to where a daemon with this state folder looks for them; of others, none."""
    tables = _tables(profile)
    if tables and not state.exists():
        folder = TableFiles(state / "cache").folder
        folder.mkdir(mode=0o755, parents=True)
        for table in tables:
            shutil.copyfile(table, folder / table.name)


@lru_cache
def _tables(profile: str) -> tuple[Path, ...]:
    if profile not in {path.name for path in SHIPPED.iterdir()}:
        return ()
    files = TableFiles(default_cache_dir())
    load_bundle(profile)
    return tuple(files.file(digest) for digest in read_identity(SHIPPED / profile).models)
