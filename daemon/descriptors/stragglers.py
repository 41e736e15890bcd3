# SPDX-License-Identifier: Apache-2.0
"""Ending children, some of which cannot be ended: the kernel waits on their behalf for a file system that does not answer."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
from collections import Counter

log = logging.getLogger(__name__)

_PATIENCE_S = 1.0
_PER_USER = 2


class Stragglers:
    """Kills children, waits for each a moment, and counts by user those that stay, until they end after all."""

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._count: Counter[int] = Counter()
        self._waits: set[asyncio.Task[None]] = set()

    def of(self, uid: int) -> int:
        """How many children that worked for this user do not end."""
        return self._count[uid]

    def too_many(self, uid: int) -> bool:
        """Whether this user has as many of them as one may have."""
        return self._count[uid] >= _PER_USER

    async def end(self, child: subprocess.Popen[bytes], uid: int) -> None:
        """Kill a child; when this returns it is gone, or counted as one that stays."""
        child.kill()
        if await ended(child, self._patience_s):
            return
        self._count[uid] += 1
        log.warning(
            "process %d, which worked for uid %d, is killed and does not end: a file it was sent does not answer",
            child.pid,
            uid,
        )
        wait = asyncio.get_running_loop().create_task(self._outwait(child, uid))
        self._waits.add(wait)
        wait.add_done_callback(self._waits.discard)

    async def _outwait(self, child: subprocess.Popen[bytes], uid: int) -> None:
        await ended(child)
        self._count[uid] -= 1


async def ended(child: subprocess.Popen[bytes], within_s: float | None = None) -> bool:
    """Wait for a child's end without holding up the loop; False when it did not come in this time."""
    if child.poll() is not None:
        return True
    loop = asyncio.get_running_loop()
    handle = os.pidfd_open(child.pid)
    gone = asyncio.Event()
    loop.add_reader(handle, gone.set)
    try:
        await asyncio.wait_for(gone.wait(), within_s)
    except asyncio.TimeoutError:
        return False
    finally:
        loop.remove_reader(handle)
        os.close(handle)
    child.wait()
    return True
