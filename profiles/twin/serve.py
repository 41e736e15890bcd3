# SPDX-License-Identifier: Apache-2.0
"""Files of a simulated board, by FUSE or as a plain folder."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from msgspec import Struct

from ..errors import TwinError
from .simulated_board import SimulatedBoard
from .tree import fuse
from .tree.folder import FolderMirror
from .tree.fuse import FuseMount

BACKENDS = ("auto", "fuse", "folder")


class _Mount(Protocol):
    def close(self) -> None: ...


class BoardServer(Struct, frozen=True):
    """Served board; a context manager that ends it.

    Attributes:
        mount: directory of the board's ``/``.
        notice: limits of this backend in one line, or empty.
    """

    mount: Path
    backend: str
    notice: str
    _mount: _Mount

    def close(self) -> None:
        self._mount.close()

    def __enter__(self) -> BoardServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(board: SimulatedBoard, mount: Path, backend: str = "auto") -> BoardServer:
    """Serve a board's files on a directory until :meth:`BoardServer.close`; they answer on return.

    The serving process must not run the board's own programs: while it starts one, none of its threads may serve the file.

    Args:
        mount: an empty or new directory.
        backend: ``fuse``, ``folder``, or ``auto`` for the first available.

    Raises:
        TwinError: no such backend, or the directory is in use.
    """
    if backend not in BACKENDS:
        raise TwinError(f"twin backend {backend!r}; valid: {', '.join(BACKENDS)}")
    mount = mount.absolute()
    obstacle = fuse.missing() if backend != "folder" else ""
    if backend == "fuse" or (backend == "auto" and not obstacle):
        if obstacle:
            raise TwinError(f"{mount}: cannot be served by FUSE: {obstacle}; --backend folder does without")
        return BoardServer(mount, "fuse", "", FuseMount(board.tree, mount))
    notice = "a plain folder: a value the kernel would refuse is put back and reported, but the writer sees no error"
    if obstacle:
        notice = f"{obstacle}; served as {notice}"
    return BoardServer(mount, "folder", notice, FolderMirror(board.tree, mount))
