# SPDX-License-Identifier: Apache-2.0
"""Giving up, for good, what a process does not need before it looks at a stranger's bytes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from . import landlock, seccomp
from .accounts import first_free

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_CLONE_NEWNET, _CLONE_NEWIPC = 0x40000000, 0x08000000


@dataclass(frozen=True)
class Allowance:
    """What a confined process may still use."""

    memory_bytes: int
    cpu_s: int
    file_bytes: int = 0
    open_files: int = 256  # each mapped node table keeps its descriptor


def confine(
    candidates: Collection[int],
    allowance: Allowance,
    *,
    keep: Collection[int],
    readable: Collection[int] = (),
    start_threads: Callable[[], None] | None = None,
) -> tuple[str, ...]:
    """Leave this process no privileges, no other descriptors than ``keep`` and 0 to 2, and bounded resources.

    Where it runs as root it becomes the first of ``candidates`` that is free, user and group, without other groups and without
    a network. As far as the kernel has Landlock and filters of system calls, it may open files to be read that are open in
    ``readable``, or are in folders open there, none to be written or run, and makes no system calls but those in
    :data:`.seccomp.NUMBERS`. Nothing of this can be undone, by the process itself or by a program it starts; whatever it is
    going to use has to be loaded before.

    ``start_threads`` starts the threads the process is going to need, without privileges as it is by then; afterwards it can
    start no more, nor other processes.

    Returns:
        The walls around the process that not every system has, each in a few words.

    Raises:
        OSError: the kernel refused, or no candidate is free; the caller must not go on.
    """
    walls = []
    os.chdir("/")
    os.umask(0o077)
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0:
        account = first_free(candidates)
        # The process has no use for either way.
        if libc.unshare(_CLONE_NEWNET | _CLONE_NEWIPC) == 0:
            walls.append("no network")
        os.setgroups([])
        os.setresgid(account, account, account)
        os.setresuid(account, account, account)
        walls.append("a user of its own")
    _close_all_but({0, 1, 2, *keep, *readable})
    for option, value in ((_PR_SET_NO_NEW_PRIVS, 1), (_PR_SET_DUMPABLE, 0), (_PR_SET_PDEATHSIG, signal.SIGKILL)):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"prctl {option}")
    if abi := landlock.restrict(readable):
        walls.append(f"Landlock (ABI {abi})")
    if start_threads is not None:
        start_threads()
    for what, limit in (
        (resource.RLIMIT_AS, allowance.memory_bytes),
        (resource.RLIMIT_CPU, allowance.cpu_s),
        (resource.RLIMIT_FSIZE, allowance.file_bytes),
        (resource.RLIMIT_NOFILE, allowance.open_files),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(what, (limit, limit))
    if seccomp.restrict():
        walls.append("a filter of system calls")
    return tuple(walls)


def _close_all_but(keep: set[int]) -> None:
    for descriptor in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if descriptor not in keep:
            # One of them was the listing's own and is closed already.
            with contextlib.suppress(OSError):
                os.close(descriptor)
