# SPDX-License-Identifier: Apache-2.0
"""Child processes: started without blocking the loop, and ended even if the kernel blocks them on a client's file."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence


async def start_child(command: Sequence[str], keep: Sequence[int], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a program in its own session, with input and output on /dev/null; inherit the descriptors ``keep``.

    A thread as long-lived as the loop starts it, as a child may ask to die with that thread. Raises OSError.
    """
    starting = asyncio.ensure_future(asyncio.to_thread(_start, command, keep, env))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with contextlib.suppress(OSError):  # the descriptors are needed until it has them
            child = await starting
            child.kill()
            await asyncio.to_thread(child.wait)
        raise


def _start(command: Sequence[str], keep: Sequence[int], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # Without a process group, subprocess calls vfork: the kernel then stops all threads of the caller until the child runs, for
    # tens of milliseconds on a busy machine.
    return subprocess.Popen(
        command,
        pass_fds=keep,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=env,
        start_new_session=True,
        group=os.getegid(),
    )


log = logging.getLogger(__name__)

_PATIENCE_S = 1.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 1.0
_PER_USER = 2


class ChildReaper:
    """Kills children, waits for each a moment, and counts those that remain, by user."""

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._count: Counter[int] = Counter()
        self._waits: set[asyncio.Task[None]] = set()

    def of(self, uid: int) -> int:
        return self._count[uid]

    def too_many(self, uid: int) -> bool:
        return self._count[uid] >= _PER_USER

    async def end(self, child: subprocess.Popen[bytes], uid: int) -> None:
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


async def ended(child: subprocess.Popen[bytes], within_s: float = math.inf) -> bool:
    """Wait for a child's end without blocking the loop; False on a timeout.

    It asks again and again, as Linux 4.9 of JetPack 4 has no descriptors of processes (pidfd_open(2), 5.3).
    """
    until, pause_s = time.monotonic() + within_s, _FIRST_PAUSE_S
    while child.poll() is None:
        if (left_s := until - time.monotonic()) <= 0:
            return False
        await asyncio.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return True
