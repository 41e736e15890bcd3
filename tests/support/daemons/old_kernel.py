# SPDX-License-Identifier: Apache-2.0
"""Runs a program with the system calls of Linux 4.9 alone, as JetPack 4 has it; later ones do not exist.

python -m jetdvfs.tests.support.daemons.old_kernel COMMAND...
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

# The first numbers that Linux 4.9 lacks: statx, of Linux 4.11 (``unistd_64.h`` and ``unistd.h``).
_FIRST_LATER = {"x86_64": 332, "aarch64": 291}
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _FILTER = 22, 38, 2
_LOAD, _JUMP_FROM, _RETURN = 0x20, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.ENOSYS


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def restrict() -> None:
    """Refuse later calls, in this process and those it starts."""
    lines = (
        (_LOAD, 0, 0, 0),
        (_JUMP_FROM, 0, 1, _FIRST_LATER[platform.machine()]),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    )
    program = b"".join(struct.pack("=HBBI", *line) for line in lines)
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0:
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(_Program(len(lines), program)), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel filters no system calls")


if __name__ == "__main__":
    restrict()
    os.execvp(sys.argv[1], sys.argv[1:])
