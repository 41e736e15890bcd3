# SPDX-License-Identifier: Apache-2.0
"""System call filter for a process with all loaded, which only reads, computes and answers.

A classic BPF program (seccomp(2)) over ``struct seccomp_data``. Unlisted calls get EPERM; calls of another architecture, such
as 32-bit ones on a 64-bit kernel, end the process.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import struct
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from msgspec import Struct


class NoneOfBits(Struct, frozen=True):
    """Allowed if an argument has none of these bits."""

    argument: int
    unset: int


class OneOfValues(Struct, frozen=True):
    """Allowed if an argument is one of these values."""

    argument: int
    values: tuple[int, ...]


Condition: TypeAlias = NoneOfBits | OneOfValues | None


class CallNumbers(NamedTuple):
    """System call number by architecture, from the kernel's ``unistd_64.h`` and ``unistd.h``."""

    x86_64: int | None
    aarch64: int | None


NUMBERS = {
    # most frequent calls first
    "futex": CallNumbers(202, 98),
    "read": CallNumbers(0, 63),
    "pread64": CallNumbers(17, 67),
    "mmap": CallNumbers(9, 222),
    "munmap": CallNumbers(11, 215),
    "mremap": CallNumbers(25, 216),
    "mprotect": CallNumbers(10, 226),
    "madvise": CallNumbers(28, 233),
    "brk": CallNumbers(12, 214),
    "openat": CallNumbers(257, 56),
    "close": CallNumbers(3, 57),
    "fstat": CallNumbers(5, 80),
    "newfstatat": CallNumbers(262, 79),
    "statx": CallNumbers(332, 291),
    "lseek": CallNumbers(8, 62),
    "getdents64": CallNumbers(217, 61),
    "readlink": CallNumbers(89, None),
    "readlinkat": CallNumbers(267, 78),
    "fcntl": CallNumbers(72, 25),
    "write": CallNumbers(1, 64),
    "recvfrom": CallNumbers(45, 207),
    "recvmsg": CallNumbers(47, 212),
    "getsockname": CallNumbers(51, 204),
    "getsockopt": CallNumbers(55, 209),
    "sendto": CallNumbers(44, 206),
    "poll": CallNumbers(7, None),
    "ppoll": CallNumbers(271, 73),
    "clock_gettime": CallNumbers(228, 113),
    "clock_getres": CallNumbers(229, 114),
    "clock_nanosleep": CallNumbers(230, 115),
    "gettimeofday": CallNumbers(96, 169),
    "getrandom": CallNumbers(318, 278),
    "getpid": CallNumbers(39, 172),
    "gettid": CallNumbers(186, 178),
    "getuid": CallNumbers(102, 174),
    "geteuid": CallNumbers(107, 175),
    "getgid": CallNumbers(104, 176),
    "getegid": CallNumbers(108, 177),
    "sched_yield": CallNumbers(24, 124),
    "sched_getaffinity": CallNumbers(204, 123),
    "getcpu": CallNumbers(309, 168),
    "sysinfo": CallNumbers(99, 179),
    "uname": CallNumbers(63, 160),
    "rt_sigaction": CallNumbers(13, 134),
    "rt_sigprocmask": CallNumbers(14, 135),
    "rt_sigreturn": CallNumbers(15, 139),
    "sigaltstack": CallNumbers(131, 132),
    "restart_syscall": CallNumbers(219, 128),
    "tgkill": CallNumbers(234, 131),
    "exit": CallNumbers(60, 93),
    "exit_group": CallNumbers(231, 94),
}

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SECCOMP = CallNumbers(317, 277)
_SET_MODE_FILTER, _ALL_THREADS = 1, 1
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
_LOAD, _JUMP_EQUAL, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_INSTRUCTION = struct.Struct("=HBBI")


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def conditions(process_id: int) -> dict[str, Condition]:
    """Conditions of calls by their arguments: nothing opened for writing, run or duplicated freely."""
    return {
        "openat": NoneOfBits(2, os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND),
        "mmap": NoneOfBits(2, mmap.PROT_EXEC),
        "mprotect": NoneOfBits(2, mmap.PROT_EXEC),
        "fcntl": OneOfValues(1, (fcntl.F_GETFD, fcntl.F_SETFD, fcntl.F_GETFL, fcntl.F_SETFL, fcntl.F_DUPFD_CLOEXEC)),
        "tgkill": OneOfValues(0, (process_id,)),
    }


def program(machine: str, process_id: int) -> bytes:
    return b"".join(_INSTRUCTION.pack(*each) for each in _instructions(machine, conditions(process_id)))


def is_offered() -> bool:
    """True if the kernel filters system calls: without a program it answers EFAULT (seccomp(2)), since Linux 3.17."""
    number = getattr(_SECCOMP, platform.machine(), None)
    libc = ctypes.CDLL(None, use_errno=True)
    return number is not None and libc.syscall(number, _SET_MODE_FILTER, 0, None) < 0 and ctypes.get_errno() == errno.EFAULT


def restrict() -> bool:
    """Filter this process's system calls, in all threads; it must have given up new privileges.

    Returns False without kernel support or permission, or on an unknown machine.
    """
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        return False
    instructions = program(machine, os.getpid())
    filtering = _FilterProgram(len(instructions) // _INSTRUCTION.size, instructions)
    number = getattr(_SECCOMP, machine)
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.syscall(number, _SET_MODE_FILTER, _ALL_THREADS, ctypes.byref(filtering)) == 0)


def _instructions(machine: str, only_if: dict[str, Condition]) -> Iterator[tuple[int, int, int, int]]:
    yield _LOAD, 0, 0, _ARCHITECTURE_AT
    yield _JUMP_EQUAL, 1, 0, _ARCHITECTURES[machine]
    yield _RETURN, 0, 0, _KILL
    yield _LOAD, 0, 0, _NUMBER_AT
    for name, numbers in NUMBERS.items():
        number = getattr(numbers, machine)
        if number is not None:
            then = list(_verdict(only_if.get(name)))
            yield _JUMP_EQUAL, 0, len(then), number
            yield from then
    yield _RETURN, 0, 0, _REFUSE


def _verdict(condition: Condition) -> Iterator[tuple[int, int, int, int]]:
    if condition is not None:
        # The kernel reads the lower half of these arguments; both machines have it first.
        yield _LOAD, 0, 0, _ARGUMENTS_AT + 8 * condition.argument
    if isinstance(condition, NoneOfBits):
        yield _JUMP_ANY_BIT, 0, 1, condition.unset
        yield _RETURN, 0, 0, _REFUSE
    elif isinstance(condition, OneOfValues):
        for left, value in zip(reversed(range(len(condition.values))), condition.values, strict=True):
            yield _JUMP_EQUAL, left + 1, 0, value
        yield _RETURN, 0, 0, _REFUSE
    yield _RETURN, 0, 0, _ALLOW
