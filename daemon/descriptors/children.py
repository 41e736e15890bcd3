# SPDX-License-Identifier: Apache-2.0
"""Starting children without standing still until they run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence


async def start_child(command: Sequence[str], keep: Sequence[int], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, with nothing to read from and nobody to write to.

    It is started by a thread that lasts as long as the loop does: a child may ask to die with the thread that started it. One
    whose caller is cancelled meanwhile is ended.

    Args:
        keep: the descriptors it inherits.
        env: its environment.

    Raises:
        OSError: it cannot be started.
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
    # A group is named, the one we have, because subprocess would call vfork otherwise: the kernel then stops the caller until
    # the child runs, and Python all its threads with it, for tens of milliseconds on a busy machine.
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
