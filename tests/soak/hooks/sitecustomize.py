# SPDX-License-Identifier: Apache-2.0
"""Python loads this first in a scenario's daemon, which is killed as it touches its own files for the n-th time."""

from __future__ import annotations

import os
import signal
import sys

_TOUCHES = frozenset({"open", "os.rename", "os.remove", "os.mkdir", "os.truncate", "os.chmod", "os.chown", "os.link"})


def _watch(left: int, below: str) -> None:
    board = f"{below}/root/"
    seen = 0

    def hook(event: str, args: tuple[object, ...]) -> None:
        nonlocal seen
        if event not in _TOUCHES or not args or not isinstance(args[0], (str, bytes, os.PathLike)):
            return
        path = os.fsdecode(args[0])
        if path.startswith(below) and not path.startswith(board):
            seen += 1
            if seen > left:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


if "JETDVFS_SOAK_KILL_AT" in os.environ:
    _watch(int(os.environ.pop("JETDVFS_SOAK_KILL_AT")), os.environ.pop("JETDVFS_SOAK_BELOW"))
