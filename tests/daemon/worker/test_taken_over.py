# SPDX-License-Identifier: Apache-2.0
"""Children that were taken over: what they answer is checked, and gets no place."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from jetdvfs.daemon.errors import InputError, WorkerFailed
from jetdvfs.daemon.worker.answers import surface_bytes
from jetdvfs.daemon.worker.framing import PREFIX
from jetdvfs.daemon.worker.workers import Workers, WorkerSettings
from jetdvfs.profiles.bundle.finding import resolve_bundle
from jetdvfs.tests.support.daemons.attached import attached
from jetdvfs.tests.support.daemons.reading_workers import IMAGE, MODEL
from jetdvfs.tests.support.profiles.small_bundle import BOARD


def taken_over(folder: Path, says: str) -> Path:
    """A program in the place of a child's: it answers something of its own. ``sock`` is its socket, ``answer`` sends one."""
    program = folder / "taken-over"
    program.write_text(
        f"#!{sys.executable} -I\n"
        "import json, socket, struct, sys, time\n"
        "sock = socket.socket(fileno=json.loads(sys.argv[-1])['socket'])\n"
        "def answer(header, payload=b''):\n"
        "    sock.recv(1 << 16)  # what is closed with something unread in it loses what was sent\n"
        "    sock.sendall(struct.pack('>II', len(header), len(payload)) + header + payload)\n" + says
    )
    program.chmod(0o755)
    return program


NONSENSE = [
    "sock.sendall(struct.pack('>II', 1 << 31, 0)); sock.sendall(b'x' * (1 << 24))",
    "sock.sendall(struct.pack('>II', 2, 1 << 31) + b'{}'); sock.sendall(b'x' * (1 << 24))",
    f"sock.sendall(b'x' * {PREFIX.size - 1})",
    "sock.sendall(b'')",
    "answer(b'nonsense')",
    "answer(b'[' * 60000)",
    "answer(b'null')",
    "answer(b'{}')",
    "answer(b'{}', b'x' * (1 << 20))",
    'answer(b\'{"error": "fatal"}\')',
    'answer(b\'{"confinement": ["\\\\u001b[2J"]}\')',
    'answer(b\'{"about": {"name": "x", "digest": "y"}}\')',
    "import os; os.kill(os.getpid(), 40)",
    "import os; os._exit(0)",
    "import time; time.sleep(60)",
]


def test_a_child_that_was_taken_over_gets_a_line_said_of_it_and_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readers: Callable[[], list[psutil.Process]]
) -> None:
    async def jobs() -> None:
        workers = Workers(WorkerSettings(parallel=1, model_timeout_s=4.0))
        with MODEL.open("rb") as file:
            for says in NONSENSE:
                with monkeypatch.context() as patched, attached(file.fileno()) as sent:
                    patched.setattr(sys, "executable", str(taken_over(tmp_path, says)))
                    started = time.monotonic()
                    with pytest.raises(InputError, match=r"^model: reading it ") as caught:
                        await workers.decompose(sent, IMAGE, "x")
                    assert time.monotonic() - started < 6 and str(caught.value).isprintable(), says
            with attached(file.fileno()) as sent:
                info, _ = await workers.decompose(sent, IMAGE, "x")
                assert info.launches

    asyncio.run(jobs())
    assert not readers()


def test_a_surface_that_a_child_made_up_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says = """answer(b'{"about": {"method": "sum", "unmodelled": []}}', struct.pack('d', float('nan')) * %d)"""
    size = surface_bytes(BOARD.grid) // 8
    monkeypatch.setattr(sys, "executable", str(taken_over(tmp_path, says % size)))
    bundle = resolve_bundle("agx-xavier-sim")
    with pytest.raises(WorkerFailed, match=r"answered something else than a surface .*latency_ms"):
        asyncio.run(Workers().sweep(b"", bundle, tmp_path, BOARD.grid, "sum"))
