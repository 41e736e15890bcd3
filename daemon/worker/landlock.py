# SPDX-License-Identifier: Apache-2.0
"""Landlock (landlock(7)): an unprivileged process gives up access to files, and to foreign sockets and signals."""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Collection

# The same on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3

# By first ABI: rights to files (linux/landlock.h), to the network, and scopes.
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_NETWORK_RIGHTS = {4: 0b11}
_KEPT_WITHIN = {6: 0b11}


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("within", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("beneath", ctypes.c_int32))


def version() -> int:
    """The kernel's Landlock ABI; 0 if absent or off."""
    return max(0, int(ctypes.CDLL(None).syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)))


def restrict(readable: Collection[int]) -> int:
    """Keep this thread, and those it starts, from all files but ``readable``: open files, and content of open folders.

    It must have given up new privileges before. Returns the :func:`version`; 0 restricts nothing.

    Raises:
        OSError: Landlock refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    abi = version()
    if abi < 1:
        return 0
    ruleset = _Ruleset(*(_known(rights, abi) for rights in (_FILE_RIGHTS, _NETWORK_RIGHTS, _KEPT_WITHIN)))
    size = ctypes.sizeof(_Ruleset) if abi >= min(_KEPT_WITHIN) else _Ruleset.within.offset
    if abi < min(_NETWORK_RIGHTS):
        size = _Ruleset.network.offset
    handle = _checked(libc.syscall(_CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(size), 0))
    for descriptor in readable:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        rule = _PathBeneath(_READ_FILE | _READ_DIR if is_folder else _READ_FILE, descriptor)
        _checked(libc.syscall(_ADD_RULE, handle, _PATH_BENEATH, ctypes.byref(rule), 0))
    _checked(libc.syscall(_RESTRICT_SELF, handle, 0))
    libc.close(handle)
    return abi


def _known(rights: dict[int, int], abi: int) -> int:
    return sum(bits for since, bits in rights.items() if since <= abi)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return int(result)
