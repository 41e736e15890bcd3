# SPDX-License-Identifier: Apache-2.0
"""Programs that confine themselves as a worker does, and then try what they may not."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jetdvfs.daemon.worker import seccomp

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
needs_landlock = pytest.mark.skipif(
    ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1) < 1, reason="this kernel has no Landlock"
)
needs_filter = pytest.mark.skipif(not seccomp.is_offered(), reason="no filter of system calls here")
START = """
import ctypes, json, mmap, os, resource, select, signal, socket, sys, threading
from jetdvfs.daemon.worker import sandbox, user_pool
readable = [os.open(sys.argv[1], os.O_RDONLY)] if len(sys.argv) > 1 else []
walls = sandbox.confine(
    user_pool.RANGE[:8], sandbox.ResourceLimits(memory_bytes=1 << 29, cpu_s=5), keep=(), readable=readable, start_threads=None
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
