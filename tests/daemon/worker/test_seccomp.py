# SPDX-License-Identifier: Apache-2.0
"""System calls that a confined process does not have, and the numbers by which they are told."""

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
import platform
import re
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from jetdvfs.daemon.worker import seccomp
from jetdvfs.tests.support.daemons.confined import START, confined, needs_filter, outcomes


@needs_filter
@pytest.mark.parametrize(
    "attempt",
    [
        "socket.socket(socket.AF_UNIX)",
        "socket.socket(socket.AF_INET)",
        "socket.socketpair()",
        "os.execv('/bin/true', ['true'])",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "os.memfd_create('file')",
        "os.kill(os.getpid(), 0)",
        "os.pipe()",
        "os.open('/proc/self/mem', os.O_RDWR)",
        "os.chmod('/dev/null', 0o666)",
        "os.rename('/tmp', '/tmp2')",
        "os.symlink('/', '/tmp/link')",
        "os.link('/etc/passwd', '/tmp/link')",
        "os.truncate('/etc/passwd', 0)",
        "os.nice(1)",
        "os.setpriority(os.PRIO_PROCESS, 0, 10)",
        "os.sched_setaffinity(0, {0})",
        "os.setsid()",
        "os.chroot('/')",
        "os.eventfd(0)",
        "select.epoll()",
        "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)",
    ],
)
def test_a_confined_process_has_no_system_call_to(attempt: str) -> None:
    assert outcomes([attempt])[attempt] == "PermissionError"


@needs_filter
def test_a_filter_is_offered_where_the_kernel_knows_the_call() -> None:
    assert seccomp.is_offered()
    assert confined("from jetdvfs.daemon.worker import seccomp; print(seccomp.is_offered())") == "False"


# Of those no Python function makes: their numbers on x86-64 and on 64-bit ARM.
RAW = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "clone": (56, 220),
    "clone3": (435, 435),
    "connect": (42, 203),
    "delete_module": (176, 106),
    "execve": (59, 221),
    "execveat": (322, 281),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "init_module": (175, 105),
    "inotify_init1": (294, 26),
    "io_setup": (206, 0),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "kcmp": (312, 272),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "landlock_create_ruleset": (444, 444),
    "memfd_secret": (447, 447),
    "mount": (165, 40),
    "move_mount": (429, 429),
    "mq_open": (240, 180),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "pkey_mprotect": (329, 288),
    "prctl": (157, 167),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "seccomp": (317, 277),
    "setns": (308, 268),
    "settimeofday": (170, 170),
    "shmget": (29, 194),
    "splice": (275, 76),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "tkill": (200, 130),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vmsplice": (278, 75),
}


@pytest.fixture(scope="module")
def raw() -> dict[str, int]:
    numbers = {name: pair[platform.machine() == "aarch64"] for name, pair in RAW.items()}
    program = f"""
libc = ctypes.CDLL(None, use_errno=True)
found = {{}}
for name, number in {numbers!r}.items():
    ctypes.set_errno(0)
    arguments = [ctypes.c_long(0)] * 6
    found[name] = ctypes.get_errno() if libc.syscall(ctypes.c_long(number), *arguments) < 0 else 0
print(json.dumps(found))
"""
    found: dict[str, int] = json.loads(confined(program))
    return found


@needs_filter
@pytest.mark.parametrize("name", RAW)
def test_a_confined_process_may_not_call(raw: dict[str, int], name: str) -> None:
    assert raw[name] == errno.EPERM


@needs_filter
def test_system_calls_by_another_architecture_s_numbers_end_the_process(tmp_path: Path) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("32-bit calls can be made everywhere only on x86")
    source = tmp_path / "old.c"
    source.write_text('long old(void) { long r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20)); return r; }\n')
    if subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "old.so", source], check=False).returncode:
        pytest.skip("needs a C compiler")
    program = START.replace("readable = ", "old = ctypes.CDLL(sys.argv.pop()).old\nreadable = ")
    command = [sys.executable, "-c", program + "print(old() > 0)", str(tmp_path / "old.so")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGSYS, ""), done.stderr


@needs_filter
def test_the_filter_s_numbers_are_the_kernel_s() -> None:
    """Those of this machine; the other's come from the same list."""
    headers = [Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm-generic/unistd.h")]
    if not all(header.exists() for header in headers):
        pytest.skip("needs the kernel's headers, of an x86-64 machine")
    for header, machine in zip(headers, ("x86_64", "aarch64"), strict=True):
        found = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)\n", header.read_text())}
        found.setdefault("newfstatat", found.get("fstatat", -1))
        numbers = {name: getattr(pair, machine) for name, pair in seccomp.NUMBERS.items()}
        assert {name: number for name, number in numbers.items() if number != found.get(name)} == {}


ALLOWED, REFUSED, ENDED = 0x7FFF0000, 0x50000 | errno.EPERM, 0x80000000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def verdict(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """What the kernel would make of a filter: the few instructions it is made of, as bpf(2)'s classic form has them."""
    data = struct.pack("<IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    instructions = list(struct.iter_unpack("<HBBI", program))
    assert len(instructions) < 4096
    value = place = 0
    while True:
        code, if_true, if_false, constant = instructions[place]
        place += 1
        if code == 0x20:
            (value,) = struct.unpack_from("<I", data, constant)
        elif code in (0x15, 0x45):
            place += if_true if (value == constant if code == 0x15 else value & constant) else if_false
        else:
            assert code == 0x06
            return int(constant)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_either_machine_s_filter_allows_what_it_lists_on_its_conditions_and_nothing_else(machine: str) -> None:
    filtering, here = seccomp.program(machine, 77), ARCHITECTURES[machine]
    numbers = {name: getattr(pair, machine) for name, pair in seccomp.NUMBERS.items()}
    conditional = {
        "openat": (
            (0, 0, os.O_RDONLY | os.O_CLOEXEC),
            (0, 0, os.O_WRONLY),
            (0, 0, os.O_RDWR),
            (0, 0, os.O_CREAT),
            (0, 0, os.O_TRUNC),
        ),
        "mmap": ((0, 0, mmap.PROT_READ | mmap.PROT_WRITE), (0, 0, mmap.PROT_EXEC), (0, 0, mmap.PROT_READ | mmap.PROT_EXEC)),
        "mprotect": ((0, 0, mmap.PROT_READ), (0, 0, mmap.PROT_EXEC)),
        "fcntl": ((0, fcntl.F_GETFL), (0, fcntl.F_SETLK), (0, fcntl.F_SETOWN), (0, fcntl.F_NOTIFY)),
        "tgkill": ((77,), (78,), (1,), (0,)),
    }
    assert set(conditional) == set(seccomp.conditions(77))
    for name, number in numbers.items():
        if number is not None:
            good, *bad = conditional.get(name, ((),))
            assert verdict(filtering, here, number, *good) == ALLOWED, name
            assert {verdict(filtering, here, number, *arguments) for arguments in bad} <= {REFUSED}, name
            assert verdict(filtering, 0x40000003, number, *good) == ENDED
    others = set(range(600)) - set(numbers.values())
    assert {verdict(filtering, here, number) for number in (*others, 0x40000000 | 1)} == {REFUSED}
