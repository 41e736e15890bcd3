# SPDX-License-Identifier: Apache-2.0
"""Many leases of several users, each from a process of its own and with a confidence of its own; some keep changing targets."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jetdvfs
from jetdvfs.daemon.errors import DaemonError
from jetdvfs.daemon.wire.client import Client
from jetdvfs.tests.support.daemons.paced import IMAGE, MODEL

USERS = (54100, 54101)


@contextmanager
def crowd(path: Path, leases: int, changing: int) -> Iterator[None]:
    """``leases`` leases of :data:`USERS`, of which ``changing`` change their targets without a pause."""
    command = [sys.executable, "-m", "jetdvfs.tests.support.daemons.crowd", str(path), str(leases), str(changing)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    try:
        assert process.stdout is not None
        for _ in range(leases):
            assert process.stdout.readline() == b"held\n"
        yield
        assert process.poll() is None
    finally:
        process.communicate(b"")  # the end of its input ends it, and every process of the crowd


def main(path: str, leases: int, changing: int) -> None:
    network = jetdvfs.decompose(str(MODEL), IMAGE[0]).to_json()
    reading, writing = os.pipe()
    children = []
    for number in range(leases):
        if (child := os.fork()) == 0:
            os.close(writing)
            os.setgroups([])
            os.setresgid(*[USERS[number % len(USERS)]] * 3)
            os.setresuid(*[USERS[number % len(USERS)]] * 3)
            _member(path, network, number, number < changing, reading)
        children.append(child)
    sys.stdin.read()
    os.close(writing)
    for child in children:
        os.waitpid(child, 0)


def _member(path: str, network: dict[str, object], number: int, changes: bool, reading: int) -> None:
    os.set_blocking(reading, False)
    confidence = 0.6 + 0.01 * number
    with Client(Path(path)) as client:
        lease = client.hold(client.load_network(network), "latency_ms=50", fps=0.5, confidence=confidence)
        print("held", flush=True)
        turn = 0
        while not _over(reading):
            if not changes:
                time.sleep(0.1)
                continue
            turn += 1
            try:
                lease.change(f"latency_ms={50 + turn % 7}", confidence=confidence + 1e-5 * (turn % 100))
            except DaemonError:
                time.sleep(0.2)
    os._exit(0)


def _over(reading: int) -> bool:
    try:
        return os.read(reading, 1) == b""
    except BlockingIOError:
        return False


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
