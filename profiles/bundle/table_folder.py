# SPDX-License-Identifier: Apache-2.0
"""Owner's cache of node tables: other processes write them, and they are checked before use."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ...kernels.errors import EnsembleError
from ...kernels.stored_files import Stamp, stamp_of
from ..errors import BundleError


class TableFiles:
    """Node tables by their models' checksums, in a subfolder of the cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tables"

    def stamps(self, digests: Iterable[str]) -> dict[str, Stamp]:
        found = {}
        for digest in digests:
            with contextlib.suppress(OSError):
                found[digest] = stamp_of(self.file(digest).stat())
        return found

    def file(self, digest: str) -> Path:
        return self.folder / f"{digest}.nodes"


_OTHERS_WRITE = 0o022
_PARTIAL = ".partial"


class TableFolder(TableFiles):
    """Cache folder that only this process's user may write and every user may read. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = folder
        for each in (folder, self.folder):
            each.mkdir(mode=0o755, exist_ok=True)
            if not _is_ours(each):
                os.chown(each, os.geteuid(), os.getegid())
                each.chmod(0o755)
        for path in self.folder.iterdir():
            # Files writable by other users, and remains of killed processes.
            if path.suffix == _PARTIAL or not _is_ours(path):
                _remove(path)

    def missing(self, digests: Iterable[str]) -> list[str]:
        wanted = dict.fromkeys(digests)
        there = self.stamps(wanted)
        return [digest for digest in wanted if digest not in there]

    @contextmanager
    def fresh(self, digests: Iterable[str]) -> Iterator[Mapping[str, int]]:
        """Open a file for each model's table, for another process; :meth:`take_in` keeps it. Raises OSError."""
        paths = {digest: self._partial(digest) for digest in digests}
        try:
            with ExitStack() as stack:
                opened = {digest: stack.enter_context(path.open("xb", buffering=0)) for digest, path in paths.items()}
                yield {digest: file.fileno() for digest, file in opened.items()}
        finally:
            for path in paths.values():
                with suppress(OSError):  # the disk may have become read-only; the next start removes the remains
                    path.unlink()

    def take_in(self, digest: str) -> None:
        """Check a written table by size, header and checksum, and keep it. No process may still have it open for writing.

        Raises:
            BundleError: it is not a node table.
            OSError: it cannot be kept.
        """
        from ...kernels.trees.node_table import map_table  # only for a new table

        partial = self._partial(digest)
        try:
            map_table(partial)
        except EnsembleError as error:
            raise BundleError(f"a converted model is no valid node table ({error})") from error
        partial.chmod(0o644)
        partial.replace(self.file(digest))

    def discard(self, digest: str) -> None:
        self.file(digest).unlink(missing_ok=True)

    def _partial(self, digest: str) -> Path:
        return self.file(digest).with_suffix(_PARTIAL)


def _is_ours(path: Path) -> bool:
    status = path.lstat()
    return status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_WRITE


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        os.chown(path, os.geteuid(), os.getegid())
        for inside in path.iterdir():
            _remove(inside)
        path.rmdir()
    else:
        path.unlink()
