# SPDX-License-Identifier: Apache-2.0
"""Listening sockets at paths."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from ...errors import UsageError
from ..protocol import answers

UNCHANGED = -1
"""The group of a socket that keeps the process's own."""


@contextlib.contextmanager
def listening(path: Path, mode: int, group_id: int) -> Iterator[socket.socket]:
    """A listening socket at this path, which is gone again afterwards.

    Raises:
        UsageError: it cannot be made, or somebody answers there already.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with sock:
        try:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            if not _is_socket(path):
                raise UsageError(f"socket {path}: something else than a socket is there; remove it, or name another path")
            if answers(path):
                raise UsageError(f"socket {path}: another daemon answers on it")
            path.unlink(missing_ok=True)
            before = os.umask(0o777 & ~mode)
            try:
                sock.bind(os.fspath(path))
            finally:
                os.umask(before)
            if group_id != UNCHANGED:
                os.chown(path, UNCHANGED, group_id)
            sock.listen()
        except OSError as error:
            raise UsageError(f"socket {path}: {error.strerror or error}") from error
        try:
            yield sock
        finally:
            # The folder may have gone, or become read-only, meanwhile.
            with contextlib.suppress(OSError):
                if _is_socket(path):
                    path.unlink(missing_ok=True)


def _is_socket(path: Path) -> bool:
    """Whether there is a socket at this path itself, or nothing."""
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return True
