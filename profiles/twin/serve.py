# SPDX-License-Identifier: Apache-2.0
"""Serving a simulated board's files: by FUSE where it can be had, else as a plain folder kept up to date."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..errors import TwinError
from .simulated_board import SimulatedBoard
from .tree import fuse
from .tree.folder import FolderMirror
from .tree.fuse import FuseMount

BACKENDS = ("auto", "fuse", "folder")


class _Mount(Protocol):
    def close(self) -> None: ...


@dataclass(frozen=True)
class Serving:
    """A board that is being served; a context manager that ends it.

    Attributes:
        mount: the directory that stands for the board's ``/``.
        backend: ``fuse`` or ``folder``.
        notice: what this backend cannot do, in one line, or an empty string.
    """

    mount: Path
    backend: str
    notice: str
    _mount: _Mount

    def close(self) -> None:
        self._mount.close()

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(board: SimulatedBoard, mount: Path, backend: str = "auto") -> Serving:
    """Serve a board's files on a directory until :meth:`Serving.close`; when this returns, they answer.

    The process that serves must not run the board's own programs: while it starts one, no thread of it may be running that
    could serve the program's file.

    Args:
        mount: an empty directory, or one to be made.
        backend: ``fuse``, ``folder``, or ``auto`` for the first that can be had.

    Raises:
        TwinError: the backend cannot be had, or the directory is in use.
    """
    if backend not in BACKENDS:
        raise TwinError(f"twin backend {backend!r}; valid: {', '.join(BACKENDS)}")
    mount = mount.absolute()
    obstacle = fuse.missing() if backend != "folder" else ""
    if backend == "fuse" or (backend == "auto" and not obstacle):
        if obstacle:
            raise TwinError(f"{mount}: cannot be served by FUSE: {obstacle}; --backend folder does without")
        return Serving(mount, "fuse", "", FuseMount(board.tree, mount))
    notice = "a plain folder: a value the kernel would refuse is put back and reported, but the writer sees no error"
    if obstacle:
        notice = f"{obstacle}; served as {notice}"
    return Serving(mount, "folder", notice, FolderMirror(board.tree, mount))
