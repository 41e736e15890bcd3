# SPDX-License-Identifier: Apache-2.0
"""What a confined process may not do: programs that confine themselves as a worker does, and then try."""

from __future__ import annotations

import ctypes
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
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetdvfs.daemon.worker import accounts, seccomp
from jetdvfs.tests.support.paths import ROOT

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
needs_landlock = pytest.mark.skipif(
    ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1) < 1, reason="this kernel has no Landlock"
)
needs_filter = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "aarch64") or not Path("/proc/sys/kernel/seccomp").exists(),
    reason="no filter of system calls for this machine",
)
START = """
import ctypes, json, mmap, os, resource, select, signal, socket, sys, threading
from jetdvfs.daemon.worker import accounts, sandbox
readable = [os.open(sys.argv[1], os.O_RDONLY)] if len(sys.argv) > 1 else []
walls = sandbox.confine(
    accounts.RANGE[:8], sandbox.Allowance(memory_bytes=1 << 29, cpu_s=5), keep=(), readable=readable, start_threads=None
)
"""


def confined(program: str, *arguments: str | Path) -> str:
    """What a program prints after it confined itself as a worker does."""
    command = [sys.executable, "-c", START + program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def outcomes(attempts: list[str], *arguments: str | Path) -> dict[str, str]:
    """What became of attempts, statements each: the error's name, or ``done``."""
    program = f"""
libc = ctypes.CDLL(None, use_errno=True)
found = {{}}
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for attempt in {attempts!r}:
    try:
        exec(attempt)
        found[attempt] = "done"
    except (OSError, MemoryError, RuntimeError, ValueError) as error:
        found[attempt] = type(error).__name__
print(json.dumps(found))
"""
    found: dict[str, str] = json.loads(confined(program, *arguments))
    return found


FORBIDDEN_TO_NOBODY = [
    "os.setuid(0)",
    "os.fork()",
    "threading.Thread(target=int).start()",
    "os.write(os.open('/dev/shm/file', os.O_CREAT | os.O_WRONLY), b'x')",
    "bytearray(1 << 30)",
    "open('/proc/1/environ').read()",
    "[os.dup(0) for _ in range(1000)]",
    "os.kill(os.getppid(), 0)",
    "resource.setrlimit(resource.RLIMIT_NPROC, (10, 10))",
]


@needs_root
@pytest.mark.parametrize("attempt", FORBIDDEN_TO_NOBODY)
def test_a_worker_may_not(attempt: str) -> None:
    refusals = ("PermissionError", "BlockingIOError", "OSError", "MemoryError", "RuntimeError", "ValueError")
    assert outcomes([attempt])[attempt] in refusals


FORBIDDEN_BY_LANDLOCK = [
    "open('/etc/passwd')",
    "open('/proc/self/status')",
    "os.listdir('/')",
    "os.listdir('/proc/self/fd')",
    "open('/proc/self/exe', 'rb')",
]


@needs_landlock
def test_a_worker_reads_only_what_it_was_given(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "file").write_text("x")
    (tmp_path / "below" / "link").symlink_to("/etc/passwd")
    inside = "f'/proc/self/fd/{readable[0]}/below"
    allowed = [f"open({inside}/file').read()", f"os.listdir({inside}')"]
    refused = [
        *FORBIDDEN_BY_LANDLOCK,
        f"open({inside}/link')",
        f"open({inside}/file', 'a')",
        f"open({inside}/new', 'x')",
        f"os.unlink({inside}/file')",
        f"os.mkdir({inside}/new')",
        f"os.execv({inside}/file', ['file'])",
        f"os.open({inside}', os.O_RDWR | os.O_TMPFILE)",
    ]
    found = outcomes([*allowed, *refused], tmp_path)
    assert {attempt: found[attempt] for attempt in allowed} == dict.fromkeys(allowed, "done")
    assert {attempt: found[attempt] for attempt in refused} == dict.fromkeys(refused, "PermissionError")
    assert (tmp_path / "below" / "file").read_text() == "x"


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


def test_where_the_kernel_has_neither_landlock_nor_filters_the_other_walls_stand() -> None:
    program = START.replace(
        "readable = ",
        "import platform; platform.machine = lambda: 'another'\n"
        "from jetdvfs.daemon.worker import landlock; landlock._CREATE_RULESET = 9999\nreadable = ",
    )
    attempts = "os.fork", "lambda: os.kill(os.getppid(), 0)", "lambda: open('/proc/1/environ')"
    for attempt in attempts if os.geteuid() == 0 else attempts[:1]:
        trying = f"""
try:
    ({attempt})()
except OSError as error:
    print(*walls, type(error).__name__, sep=", ")
"""
        done = subprocess.run([sys.executable, "-c", program + trying], capture_output=True, text=True, check=True)
        assert re.fullmatch(r"(no network, a user of its own, )?(PermissionError|BlockingIOError)\n", done.stdout)


@needs_root
def test_a_worker_is_somebody_that_nobody_else_is_and_keeps_no_descriptor_it_was_not_given() -> None:
    program = "print(os.getuid(), os.getgid(), walls, flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", "import os; extra = os.dup(0)" + START + program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        said = process.stdout.readline()
        status = Path(f"/proc/{process.pid}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        kept = sorted(int(path.name) for path in Path(f"/proc/{process.pid}/fd").iterdir())
        process.stdin.close()
    uid = int(said.split()[0])
    assert uid in accounts.RANGE and said.startswith(f"{uid} {uid} ('no network', 'a user of its own'")
    assert fields["Uid"].split() == fields["Gid"].split() == [str(uid)] * 4
    assert not fields.get("Groups", "").split()
    assert fields["NoNewPrivs"].strip() == "1"
    assert int(fields["CapPrm"], 16) == int(fields["CapEff"], 16) == 0
    assert kept == [0, 1, 2]


@needs_root
def test_an_account_that_a_process_or_somebody_has_is_not_taken() -> None:
    taken, other = accounts.RANGE[40], accounts.RANGE[41]
    command = [sys.executable, "-c", f"import os; os.setuid({taken}); print('is', flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "is\n"
        assert accounts.first_free([0, taken, other]) == other
        with pytest.raises(PermissionError, match=f"accounts 0, {taken} are all in use"):
            accounts.first_free([0, taken])
        process.stdin.close()
    assert accounts.first_free([0, taken]) == taken


def test_no_two_children_are_dealt_the_same_account() -> None:
    dealer = accounts.Accounts()
    with dealer.dealt() as one, dealer.dealt() as other:
        assert not set(one) & set(other) and set(one) | set(other) <= set(accounts.RANGE)


@pytest.fixture
def threads() -> Iterator[list[str]]:
    program = """
import threading
from concurrent.futures import ThreadPoolExecutor
crew = ThreadPoolExecutor(1)
readable, seen = [], []
walls = sandbox.confine(
    accounts.RANGE[:8], sandbox.Allowance(memory_bytes=1 << 29, cpu_s=5), keep=(),
    start_threads=lambda: crew.submit(lambda: seen.append(threading.get_native_id())).result(),
)
def attempt(what):
    try:
        what()
        return "done"
    except (OSError, RuntimeError) as error:
        return type(error).__name__
print(os.getpid(), seen[0], flush=True)
print(*[crew.submit(attempt, what).result() for what in (
    lambda: open("/etc/passwd"), lambda: os.execv("/bin/true", ["true"]), lambda: threading.Thread(target=int).start()
)], flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", START.partition("readable")[0] + program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        process_id, thread_id = process.stdout.readline().split()
        attempts = process.stdout.readline().split()
        status = Path(f"/proc/{process_id}/task/{thread_id}/status").read_text()
        yield [*attempts, status]
        process.stdin.close()


@needs_root
@needs_landlock
@needs_filter
def test_threads_of_a_worker_are_as_confined_as_it_is_and_no_others_can_be_started(threads: list[str]) -> None:
    *attempts, status = threads
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert attempts == ["PermissionError", "PermissionError", "RuntimeError"]
    assert fields["Seccomp"].strip() == "2" and fields["NoNewPrivs"].strip() == "1"
    assert int(fields["CapEff"], 16) == 0 and int(fields["Uid"].split()[0]) in accounts.RANGE


def test_the_unit_lets_workers_build_their_walls() -> None:
    filters = re.findall(r"^SystemCallFilter=(.*)$", (ROOT / "systemd" / "jetdvfsd.service").read_text(), re.MULTILINE)
    allowed = " ".join(filters).split()
    assert {"seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"} <= set(allowed)
