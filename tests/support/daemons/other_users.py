# SPDX-License-Identifier: Apache-2.0
"""LeaseConstraints as another user, for tests that run as root."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


@contextmanager
def somebody_else(group_id: int, uid: int = NOBODY) -> Iterator[None]:
    """Be another user: the kernel notes who connects, by effective user."""
    os.setegid(group_id)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def open_to_everybody(path: Path) -> None:
    """Let every user reach a socket, wherever the test keeps it."""
    path.chmod(0o666)
    for folder in path.parents:
        if folder != Path(tempfile.gettempdir()) and folder.is_relative_to(tempfile.gettempdir()):
            folder.chmod(0o755)
