# SPDX-License-Identifier: Apache-2.0
"""A service that says what it was told, and a client of it that writes and reads the bytes itself."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import sys
import termios
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from jetdvfs.daemon.descriptors.disposal import DescriptorGrant
from jetdvfs.daemon.errors import TargetNotAttainable, UsageError
from jetdvfs.daemon.wire import protocol
from jetdvfs.daemon.wire.interface import Int, Interface, array, method, structure, table
from jetdvfs.daemon.wire.serving.session import Session

Pair = structure("Pair", left=Int, right=float | None)
ECHO = Interface("test.echo", "", (
    method("Echo", "", {"text": str, "wait_s": float | None}, {"text": str, "descriptors": Int}),
    method("Sum", "", {"pairs": array(Pair), "names": table(bool), "sort": Literal["up", "down"] | None}, {"sum": float}),
    method("Fail", "", {"how": str}, {}),
), {"Failed": {"message": str}})  # fmt: skip


class Echo:
    """A service that says what it was told."""

    def __init__(self) -> None:
        self.interface = ECHO
        self.ended = 0

    async def call(
        self, session: Session, method: str, parameters: dict[str, Any], attached: DescriptorGrant | None
    ) -> dict[str, Any]:
        if attached is not None and method != "Echo":
            raise UsageError(f"{method}: takes no descriptor")
        if method == "Fail":
            if parameters["how"] == "unspeakable":
                return {"sum": float("nan")}
            raise TargetNotAttainable("two\nlines") if parameters["how"] == "named" else ZeroDivisionError("oops")
        if method == "Sum":
            return {"sum": sum(pair["left"] for pair in parameters["pairs"])}
        await asyncio.sleep(parameters.get("wait_s") or 0)
        descriptors: list[int] = []
        if attached is not None and parameters["text"] != "not taken":
            _, descriptors, _, _ = socket.recv_fds(attached.sock, attached.size, 16)
            for descriptor in descriptors:
                os.close(descriptor)
        return {"text": parameters["text"], "descriptors": len(descriptors)}

    def closed(self, session: Session) -> None:
        self.ended += 1


def message(method: str, **parameters: Any) -> bytes:
    return protocol.encode({"method": f"test.echo.{method}", "parameters": parameters})


def answer(sock: socket.socket) -> dict[str, Any]:
    data = bytearray()
    while not data.endswith(b"\0"):
        chunk = sock.recv(1)
        if not chunk:
            raise EOFError
        data += chunk
    found: dict[str, Any] = json.loads(data[:-1])
    return found


def ask(sock: socket.socket, method: str, **parameters: Any) -> dict[str, Any]:
    with suppress(BrokenPipeError):  # the answer may be there already: that this connection is refused
        sock.sendall(message(method, **parameters))
    return answer(sock)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def unread(sock: socket.socket) -> int:
    """How much of what was sent has not been received."""
    return int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def hangs_up(sock: socket.socket) -> bool:
    while True:
        try:
            if not sock.recv(1 << 16):
                return True
        except ConnectionResetError:
            return True
