# SPDX-License-Identifier: Apache-2.0
"""Places for connections: for each client a few, streams not all of them, and for each request a time by which it is over."""

from __future__ import annotations

import ipaddress
import socket
import struct
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path

CONNECTIONS = 64
PER_CLIENT = 8
STREAMS = 24
STREAMS_PER_CLIENT = 4
REQUEST_S = 10.0
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


class Admission:
    """Counts the connections of each client, and hangs up on those whose request is not over in time."""

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, client_of: Callable[[socket.socket], Hashable] | None = None
    ) -> None:
        self._monotonic = monotonic
        self._client_of = client_of or client_of_connection
        self._lock = threading.Lock()
        self._clients: dict[socket.socket, Hashable] = {}
        self._due_s: dict[socket.socket, float] = {}
        self._streams: set[socket.socket] = set()

    def enter(self, connection: socket.socket) -> bool:
        """Give a connection a place; False if there is none for this client."""
        client = self._client_of(connection)
        with self._lock:
            own = list(self._clients.values()).count(client)
            if len(self._clients) >= CONNECTIONS or own >= PER_CLIENT:
                return False
            self._clients[connection] = client
            self._due_s[connection] = self._monotonic() + REQUEST_S
            return True

    def leave(self, connection: socket.socket) -> None:
        with self._lock:
            self._clients.pop(connection, None)
            self._due_s.pop(connection, None)
            self._streams.discard(connection)

    def next_request(self, connection: socket.socket) -> None:
        """A request was answered; the next one has its own time."""
        with self._lock:
            if connection in self._clients:
                self._due_s[connection] = self._monotonic() + REQUEST_S

    def stream(self, connection: socket.socket) -> bool:
        """Let a connection be a stream, for as long as it likes; False if there are as many as there may be."""
        with self._lock:
            client = self._clients.get(connection)
            own = sum(self._clients.get(one) == client for one in self._streams)
            if len(self._streams) >= STREAMS or own >= STREAMS_PER_CLIENT:
                return False
            self._streams.add(connection)
            self._due_s.pop(connection, None)
            return True

    def hang_up_on_late(self) -> None:
        """End the connections whose request was not over in time; to be called now and then."""
        now = self._monotonic()
        with self._lock:
            late = [connection for connection, due_s in self._due_s.items() if now >= due_s]
            for connection in late:
                del self._due_s[connection]
                with suppress(OSError):  # it has gone by itself
                    connection.shutdown(socket.SHUT_RDWR)


def client_of_connection(connection: socket.socket) -> Hashable:
    """The client of a connection: on this machine its user, elsewhere its address, of IPv6 its network."""
    try:
        peer, own = connection.getpeername()[:2], connection.getsockname()[:2]
        address = ipaddress.ip_address(peer[0].partition("%")[0])
    except (OSError, ValueError):
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback or peer[0] == own[0]:
        return _user_of(peer, own)
    return address if address.version == 4 else ipaddress.ip_network((address, 64), strict=False)


def _user_of(peer: tuple[str, int], own: tuple[str, int]) -> Hashable:
    """The user at the other end of a connection within this machine, as the kernel lists it (proc_net_tcp.rst)."""
    ends = _ends(*peer), _ends(*own)
    for table in _TABLES:
        with suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                row = line.split()
                if row[1] in ends[0] and row[2] in ends[1] and row[9] != "0":  # without an inode nobody has it any more
                    return "user", row[7]
    return "this machine"


def _ends(address: str, port: int) -> set[str]:
    """One end of a connection as the kernel writes it: words of four bytes in this machine's order; of IPv4 in IPv6, too."""
    host = ipaddress.ip_address(address.partition("%")[0])
    known = {host, getattr(host, "ipv4_mapped", None) or host}
    known |= {ipaddress.IPv6Address(f"::ffff:{each}") for each in known if each.version == 4}
    words = (struct.unpack(f"={len(each.packed) // 4}I", each.packed) for each in known)
    return {f"{''.join(f'{word:08X}' for word in each)}:{port:04X}" for each in words}
