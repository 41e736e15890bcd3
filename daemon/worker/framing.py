# SPDX-License-Identifier: Apache-2.0
"""How the daemon and its children speak: two lengths, a JSON object, bytes; and how a child gets a client's descriptor."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

from ..errors import InputError

PREFIX = struct.Struct(">II")
_MOST_DESCRIPTORS = 8


def encoded(header: Mapping[str, Any], payload: bytes = b"") -> bytes:
    """One message, in either direction."""
    text = json.dumps(header).encode()
    return PREFIX.pack(len(text), len(payload)) + text + payload


def receive(sock: socket.socket) -> tuple[dict[str, Any], bytes]:
    """The child's side: wait for the request; returns header and payload."""
    with sock.makefile("rb") as stream:
        header_bytes, payload_bytes = PREFIX.unpack(stream.read(PREFIX.size))
        return json.loads(stream.read(header_bytes)), stream.read(payload_bytes)


def take(number: int, size: int) -> int:
    """The child's side: receive the descriptor that came with a client's message of this size, and give the connection up.

    Raises:
        InputError: it was not exactly one.
    """
    with socket.socket(fileno=number) as connection:
        data, descriptors, flags, _ = socket.recv_fds(connection, size, _MOST_DESCRIPTORS, socket.MSG_DONTWAIT)
    if len(data) != size or len(descriptors) != 1 or flags & socket.MSG_CTRUNC:
        found = f"more than {len(descriptors)}" if flags & socket.MSG_CTRUNC else len(descriptors)
        raise InputError(f"model: exactly one descriptor must come with the call, {found} did")
    return descriptors[0]
