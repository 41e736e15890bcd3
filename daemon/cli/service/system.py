# SPDX-License-Identifier: Apache-2.0
"""What this system gives the product: versions, its compiled part, the kernel's walls around readers of models, the group."""

from __future__ import annotations

import grp
import os
import platform
import pwd
from collections.abc import Iterator
from pathlib import Path

from .... import __version__
from ...worker import landlock
from .findings import Finding, note, ok, wrong


def is_root() -> bool:
    return os.geteuid() == 0


def examine() -> Iterator[Finding]:
    yield ok("versions", f"jetdvfs {__version__}, Python {platform.python_version()}, kernel {platform.release()}")
    try:
        from ....kernels.trees import _sweep  # noqa: F401
    except ImportError:
        yield note("compiled part", "missing: the sweep runs on NumPy, many times slower", "install with a C compiler present")
    else:
        yield ok("compiled part", "the sweep runs compiled")
    yield from _walls()


def _walls() -> Iterator[Finding]:
    if Path("/proc/sys/kernel/seccomp/actions_avail").exists():
        yield ok("seccomp", "the kernel filters the system calls of readers of models")
    else:
        yield note("seccomp", "this kernel has none: readers of models have one wall less")
    version = landlock.version()
    if version > 0:
        yield ok("Landlock", f"version {version}: readers of models see no files but theirs")
    else:
        yield note("Landlock", "off in this kernel (lsm=), or not in it: readers of models have one wall less")


def membership(name: str) -> Finding:
    """Whether whoever asks is in the group that reaches the daemon."""
    try:
        group = grp.getgrnam(name)
    except KeyError:
        return wrong("group", f"there is no group {name}: only root reaches the daemon", "sudo systemd-sysusers", 3)
    if is_root() or group.gr_gid in os.getgroups() or group.gr_gid == os.getegid():
        return ok("group", f"you may ask the daemon{' as root' if is_root() else f': you are in the group {name}'}")
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container that has no name for it
        return wrong("group", f"your user, number {os.getuid()}, has no name here and is not in the group {name}", exit_code=3)
    if user in group.gr_mem:
        return wrong("group", f"you have joined the group {name} since you logged in", "log in again", 3)
    return wrong("group", f"you are not in the group {name}", f"sudo usermod -aG {name} {user}, then log in again", 3)
