# SPDX-License-Identifier: Apache-2.0
"""What a confined process may not do: programs that confine themselves as a worker does, and then try."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetdvfs.daemon.worker import user_pool
from jetdvfs.tests.support.daemons.confined import START, needs_filter, needs_landlock, needs_root, outcomes
from jetdvfs.tests.support.paths import ROOT

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


@pytest.fixture
def threads() -> Iterator[list[str]]:
    program = """
import threading
from concurrent.futures import ThreadPoolExecutor
crew = ThreadPoolExecutor(1)
readable, seen = [], []
walls = sandbox.confine(
    user_pool.RANGE[:8], sandbox.ResourceLimits(memory_bytes=1 << 29, cpu_s=5), keep=(),
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
    assert int(fields["CapEff"], 16) == 0 and int(fields["Uid"].split()[0]) in user_pool.RANGE


def test_the_unit_lets_workers_confine_themselves() -> None:
    filters = re.findall(r"^SystemCallFilter=(.*)$", (ROOT / "systemd" / "jetdvfsd.service").read_text(), re.MULTILINE)
    allowed = " ".join(filters).split()
    assert {"seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"} <= set(allowed)
