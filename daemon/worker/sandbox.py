# SPDX-License-Identifier: Apache-2.0
"""Confinement of a process before it reads foreign bytes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Callable, Collection
from pathlib import Path

from msgspec import Struct

from . import landlock, seccomp
from .user_pool import first_free

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_CLONE_NEWNET, _CLONE_NEWIPC = 0x40000000, 0x08000000


class ResourceLimits(Struct, frozen=True):
    memory_bytes: int
    cpu_s: int
    file_bytes: int = 0
    open_files: int = 256  # each mapped node table keeps its descriptor


def confine(
    candidates: Collection[int],
    allowance: ResourceLimits,
    *,
    keep: Collection[int],
    readable: Collection[int] = (),
    start_threads: Callable[[], None] | None = None,
) -> tuple[str, ...]:
    """Leave this process no privileges, no descriptors but ``keep`` and 0 to 2, and bounded resources.

    As root, it becomes the first free one of ``candidates``, user and group, without other groups or network. With Landlock and
    system call filters, it may only read ``readable`` files and files in ``readable`` folders, and only make the calls in
    :data:`.seccomp.NUMBERS`. Nothing can be undone, so load everything before. ``start_threads`` starts all its threads,
    already without privileges; later threads and processes are refused.

    Returns:
        Optional confinement in place.

    Raises:
        OSError: the kernel refused, or no candidate is free; the caller must not go on.
    """
    confinement = []
    os.chdir("/")
    os.umask(0o077)
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0:
        account = first_free(candidates)
        # It needs neither; a failure is no obstacle.
        if libc.unshare(_CLONE_NEWNET | _CLONE_NEWIPC) == 0:
            confinement.append("no network")
        os.setgroups([])
        os.setresgid(account, account, account)
        os.setresuid(account, account, account)
        confinement.append("a user of its own")
    _close_all_but({0, 1, 2, *keep, *readable})
    for option, value in ((_PR_SET_NO_NEW_PRIVS, 1), (_PR_SET_DUMPABLE, 0), (_PR_SET_PDEATHSIG, signal.SIGKILL)):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"prctl {option}")
    if abi := landlock.restrict(readable):
        confinement.append(f"Landlock (ABI {abi})")
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
        confinement.append("a filter of system calls")
    return tuple(confinement)


def _close_all_but(keep: set[int]) -> None:
    for descriptor in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if descriptor not in keep:
            # The listing's own is already closed.
            with contextlib.suppress(OSError):
                os.close(descriptor)
