# SPDX-License-Identifier: Apache-2.0
"""A client that asks as much as it can, as a process of its own and as another user where that can be had."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jetdvfs.daemon.wire import protocol
from jetdvfs.tests.support.daemons.other_users import NOBODY

CONNECTIONS = 16
_LONG = protocol.MESSAGE_BYTES - (1 << 10)


def _call(method: str, parameters: str = "{}") -> bytes:
    return f'{{"method":"{protocol.INTERFACE}.{method}","parameters":{parameters}}}'.encode() + b"\0"


_STATUS = _call("Status")
_NETWORK = _call("LoadNetwork", '{"network":{"launches":[' + "0," * (_LONG // 2) + "0]}}")
_REPORT = _call("Report", '{"lease":"1","latency_ms":[' + "1," * (_LONG // 2) + "1]}")
_DEEP = _call("LoadNetwork", '{"network":{"a":' + "[" * _LONG + "]}}")
_KEYS = _call("Hold", "{" + '"app":"x",' * (_LONG // 10) + '"app":"y"}')

#: What each connection sends, over and over.
FLOODS: dict[str, Callable[[], bytes]] = {
    "status": lambda: _STATUS * 500,
    "networks": lambda: _NETWORK,
    "reports": lambda: _REPORT,
    "deep": lambda: _DEEP,
    "keys": lambda: _KEYS,
    "halves": lambda: _NETWORK[: random.randrange(_LONG)],
    "bytes": lambda: random.randbytes(1 << 16),
    "nuls": lambda: bytes(1 << 16),
}


@contextmanager
def flood(path: Path, kind: str) -> Iterator[None]:
    """Someone floods the daemon on this socket from 16 connections; ``connections`` opens as many as it can instead."""
    process = subprocess.Popen(
        [sys.executable, "-m", "jetdvfs.tests.support.daemons.flood", str(path), kind], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        yield
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def main(path: str, kind: str) -> None:
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    print("begun", flush=True)
    if kind == "connections":
        while True:
            _connected(path).close()
    socks: list[socket.socket] = []
    while True:
        while len(socks) < CONNECTIONS:
            socks.append(_connected(path))
        for sock in list(socks):
            try:
                sock.send(FLOODS[kind](), socket.MSG_DONTWAIT)
                sock.recv(1 << 20, socket.MSG_DONTWAIT)
            except BlockingIOError:
                pass
            except OSError:
                sock.close()
                socks.remove(sock)


def _connected(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    with suppress(OSError):
        sock.connect(path)
    return sock


if __name__ == "__main__":
    main(*sys.argv[1:])
