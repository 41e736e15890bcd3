# SPDX-License-Identifier: Apache-2.0
"""The files of converted models: node tables in a cache folder, named by their models' checksums."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from ...kernels.trees.node_table import Stamp, stamp_of


class TableFiles:
    """Node tables by their models' checksums.

    Args:
        folder: the cache; tables are kept in a folder in it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tables"

    def stamps(self, digests: Iterable[str]) -> dict[str, Stamp]:
        """The stamps of those of these models' tables that are there."""
        found = {}
        for digest in digests:
            with contextlib.suppress(OSError):
                found[digest] = stamp_of(self.file(digest).stat())
        return found

    def file(self, digest: str) -> Path:
        """Where the table of a model of this checksum is, if it is there."""
        return self.folder / f"{digest}.nodes"
