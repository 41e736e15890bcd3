# SPDX-License-Identifier: Apache-2.0
"""How the daemon and its children speak: two lengths, a JSON object, bytes; a descriptor comes with the lengths."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

PREFIX = struct.Struct(">II")


def encoded(header: Mapping[str, Any], payload: bytes = b"") -> bytes:
    """One message, in either direction."""
    text = json.dumps(header).encode()
    return PREFIX.pack(len(text), len(payload)) + text + payload


def receive(sock: socket.socket) -> tuple[dict[str, Any], bytes, int | None]:
    """The child's side: wait for the request; returns header, payload and the descriptor that came along, if any."""
    prefix, descriptors, _, _ = socket.recv_fds(sock, PREFIX.size, 1)
    header_bytes, payload_bytes = PREFIX.unpack(prefix)
    with sock.makefile("rb") as stream:
        header = json.loads(stream.read(header_bytes))
        return header, stream.read(payload_bytes), descriptors[0] if descriptors else None
