# SPDX-License-Identifier: Apache-2.0
"""Messages that nobody honest sends, and descriptors that nobody wants."""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

from jetdvfs.daemon.wire import protocol
from jetdvfs.tests.soak.stage import Stage
from jetdvfs.tests.soak.wire import OTHER_UID, Gone, Unanswered, Wire, judged

_LISTENS_S = 0.3
_METHOD = protocol.INTERFACE


def _call(method: str, **parameters: object) -> bytes:
    return json.dumps({"method": f"{_METHOD}.{method}", "parameters": parameters}).encode() + b"\0"


#: Messages by what they are; each is sent as it stands.
MESSAGES: dict[str, Callable[[], bytes]] = {
    "nonsense": lambda: bytes(range(1, 256)) * 4 + b"\0",
    "NULs": lambda: b"\0" * 5000,
    "half a message": lambda: b'{"method": "io.jetdv',
    "a message without end": lambda: b"[" * (protocol.MESSAGE_BYTES + 4096),
    "deep JSON": lambda: b"[" * 200_000 + b"]" * 200_000 + b"\0",
    "a deep parameter": lambda: (
        b'{"method":"io.jetdvfs.LoadNetwork","parameters":{"network":' + b'{"a":' * 900 + b"1" + b"}" * 902 + b"\0"
    ),
    "a list instead of an object": lambda: b"[1,2,3]\0",
    "NaN": lambda: b'{"method":"io.jetdvfs.Report","parameters":{"lease":"1","latency_ms":[NaN]}}\0',
    "numbers beyond all bounds": lambda: b'{"method":"io.jetdvfs.Report","parameters":{"lease":"1","latency_ms":[1e999]}}\0',
    "a number of 100,000 digits": lambda: b'{"method":"io.jetdvfs.Hold","parameters":{"fps":' + b"9" * 100_000 + b"}}\0",
    "text that is no UTF-8": lambda: b'{"method":"io.jetdvfs.\xff\xfe"}\0',
    "a lone surrogate": lambda: (
        b'{"method":"io.jetdvfs.Hold","parameters":{"app":"\\ud800","configuration":{"cpu_khz":1,"gpu_hz":1,"emc_hz":1}}}\0'
    ),
    "an unknown method": lambda: _call("Reboot"),
    "an unknown interface": lambda: b'{"method":"com.example.Status"}\0',
    "a method of root's": lambda: b'{"method":"io.jetdvfs.admin.Restore","parameters":{}}\0',
    "an unknown member": lambda: _call("Status", verbose=True),
    "a lease that is a list": lambda: _call("Release", lease=[1]),
    "a rate next to nothing": lambda: _call("Hold", configuration={"cpu_khz": 1, "gpu_hz": 2, "emc_hz": 3}, fps=1e-320),
    "control characters": lambda: _call("Release", lease="\x1b[2J\n\r\t\0"),
    "names of a million characters": lambda: _call("Release", lease="x" * 1_000_000),
    "empty lists of launches": lambda: _call("LoadNetwork", network={"name": "n", "launches": []}),
    "a launch without anything": lambda: _call("LoadNetwork", network={"name": "n", "launches": [{}]}),
    "huge shapes": lambda: _call(
        "LoadNetwork",
        network={
            "name": "n",
            "launches": [
                {
                    "kind": "relu",
                    "inputs": [[2**62, 2**62]],
                    "output": [2**62, 2**62],
                    "dtype": "float32",
                    "scope": "",
                    "params": {},
                    "flops": 2**62,
                    "bytes": 2**62,
                }
            ],
        },
    ),
    "a call that wants no answer": lambda: b'{"method":"io.jetdvfs.Hold","parameters":{},"oneway":true}\0',
    "a call for more": lambda: b'{"method":"io.jetdvfs.Status","more":true}\0',
    "an upgrade": lambda: b'{"method":"io.jetdvfs.Status","upgrade":true}\0',
    "model without a file": lambda: _call("LoadModel", inputs=[{"shape": [1]}]),
}


@dataclass(frozen=True)
class Message:
    """Another user sends one of these, in one piece or byte by byte."""

    what: str
    pieces: int

    def words(self) -> str:
        return f"another user sends {self.what}" + (f" in {self.pieces} pieces" if self.pieces > 1 else "")

    def play(self, stage: Stage) -> None:
        if not stage.pid and not stage.up():
            return
        data = MESSAGES[self.what]()
        with contextlib.suppress(Gone, Unanswered, OSError):
            wire = Wire(stage.places.socket, OTHER_UID, timeout_s=2.0)
            with contextlib.closing(wire):
                size = max(1, -(-len(data) // self.pieces))
                for start in range(0, len(data), size):
                    wire.send_bytes(data[start : start + size])
                wire.timeout_s = _LISTENS_S
                stage.judge(judged("anything", wire.message()))


def _pipe() -> int:
    reading, writing = os.pipe()
    os.close(writing)
    return reading


def _deleted() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


#: Descriptors by what they are.
DESCRIPTORS: dict[str, Callable[[], int]] = {
    "/dev/null": lambda: os.open("/dev/null", os.O_RDWR),
    "/dev/zero": lambda: os.open("/dev/zero", os.O_RDONLY),
    "a pipe": _pipe,
    "a folder": lambda: os.open("/", os.O_RDONLY),
    "a deleted file": _deleted,
    "a file in memory": lambda: os.memfd_create("soak"),
    "a path only": lambda: os.open("/etc/passwd", os.O_PATH),
    "a socket": lambda: socket.socket(socket.AF_UNIX).detach(),
    "an epoll": lambda: os.eventfd(0),
}


@dataclass(frozen=True)
class Descriptors:
    """Another user sends descriptors, with a call or with a message that never ends."""

    what: str
    number: int
    whole: bool

    def words(self) -> str:
        return f"another user sends {self.number} times {self.what} with " + ("LoadModel" if self.whole else "half a message")

    def play(self, stage: Stage) -> None:
        if not stage.pid and not stage.up():
            return
        data = _call("LoadModel", inputs=[{"shape": [1, 3, 8, 8]}])
        handle = DESCRIPTORS[self.what]()
        try:
            with contextlib.suppress(Gone, Unanswered, OSError):
                wire = Wire(stage.places.socket, OTHER_UID, timeout_s=2.0)
                with contextlib.closing(wire):
                    rights = array.array("i", [handle] * min(self.number, 253))
                    message = data if self.whole else b"{"
                    for _ in range(1 if self.whole else 1 + self.number // 253):
                        wire.sock.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
                        time.sleep(0.005)
                    wire.timeout_s = 2.0 if self.whole else _LISTENS_S
                    stage.judge(judged("LoadModel", wire.message()))
        finally:
            os.close(handle)
