# SPDX-License-Identifier: Apache-2.0
"""Messages between daemon and children: two lengths, a JSON object, bytes; and the transfer of a client's descriptor."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from ...profiles.documents import convert
from ..errors import InputError


class Task(Struct, frozen=True):
    """Start parameters of a child; ``accounts`` are candidates for its user and group, if root."""

    socket: int
    accounts: tuple[int, ...] = ()
    threads: int = 0
    connection: int | None = None
    outputs: tuple[int, ...] = ()
    folders: tuple[str, ...] = ()

    @property
    def keep(self) -> tuple[int, ...]:
        return (self.socket, *self.outputs, *(() if self.connection is None else (self.connection,)))

    def to_argument(self) -> str:
        return json.dumps(to_builtins(self))

    @classmethod
    def from_argument(cls, text: str) -> Task:
        return convert(json.loads(text), cls)


PREFIX = struct.Struct(">II")
HEADER_BYTES = 64 << 10
MESSAGE_CHARACTERS = 2000
_MOST_DESCRIPTORS = 8


def encoded(header: Mapping[str, Any], payload: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return PREFIX.pack(len(text), len(payload)) + text + payload


def answer(about: Any, payload: bytes, confinement: Sequence[str]) -> bytes:
    header = {"confinement": confinement, "about": to_builtins(about)}
    if (size := len(json.dumps(header).encode())) > HEADER_BYTES:
        raise InputError(
            f"network: its description takes {size} bytes, at most {HEADER_BYTES}: too many kinds of kernels, or long names"
        )
    return encoded(header, payload)


def refusal(error: Exception, text: str, confinement: Sequence[str]) -> bytes:
    kind = "input" if hasattr(error, "exit_code") else "crash"
    return encoded(
        {"error": kind, "message": text[:MESSAGE_CHARACTERS], "type": type(error).__name__[:100], "confinement": confinement}
    )


def receive(sock: socket.socket) -> tuple[dict[str, Any], bytes]:
    with sock.makefile("rb") as stream:
        header_bytes, payload_bytes = PREFIX.unpack(stream.read(PREFIX.size))
        return json.loads(stream.read(header_bytes)), stream.read(payload_bytes)


def take(number: int, size: int) -> int:
    """Child's side: receive the descriptor with a client's message of this size, and close the connection."""
    with socket.socket(fileno=number) as connection:
        data, descriptors, flags, _ = socket.recv_fds(connection, size, _MOST_DESCRIPTORS, socket.MSG_DONTWAIT)
    if len(data) != size or len(descriptors) != 1 or flags & socket.MSG_CTRUNC:
        found = f"more than {len(descriptors)}" if flags & socket.MSG_CTRUNC else len(descriptors)
        raise InputError(f"model: exactly one descriptor must come with the call, {found} did")
    return descriptors[0]
