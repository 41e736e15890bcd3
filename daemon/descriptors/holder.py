# SPDX-License-Identifier: Apache-2.0
"""A child that takes over connections with clients' descriptors, closes none, and may hang when it ends.

Run as a file, with the standard library alone, to start in a few milliseconds. Its argument is a socket's number. Each record
is a connection and a number of bytes to receive, 0 to keep the connection; the answer is one byte: 0 for missing bytes or too
many descriptors, 1 for no descriptors, 2 for some.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct
import sys

SIZE = struct.Struct(">I")
_DESCRIPTORS_OF_A_MESSAGE = 253  # the kernel's bound
_KEPT = 10_000


def main(number: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.chdir("/")
    orders = socket.socket(fileno=number)
    kept = 0
    while True:
        record, descriptors, _, _ = socket.recv_fds(orders, SIZE.size, 1)
        if not record:
            return
        (size,) = SIZE.unpack(record)
        if size and descriptors:
            answer, more = _receive(descriptors[0], size) if kept < _KEPT else (b"\0", 0)
            kept += more
            with contextlib.suppress(OSError):
                orders.send(answer)


def _receive(number: int, size: int) -> tuple[bytes, int]:
    """Take a message off a connection, leaving its descriptors open."""
    with socket.socket(fileno=number) as connection:
        try:
            data, descriptors, _, _ = socket.recv_fds(connection, size, _DESCRIPTORS_OF_A_MESSAGE, socket.MSG_DONTWAIT)
        except OSError:
            return b"\0", 0
        return bytes([0 if len(data) != size else 2 if descriptors else 1]), len(descriptors)


if __name__ == "__main__":
    main(int(sys.argv[1]))
