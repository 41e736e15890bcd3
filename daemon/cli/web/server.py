# SPDX-License-Identifier: Apache-2.0
"""Read-only web server of one page and one stream.

Against DNS rebinding, a browser with another Host header is refused; other origins get nothing.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.resources import files
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from .status_follower import StatusFollower

CONNECTIONS = 64
PER_CLIENT = 8
STREAMS = 24
STREAMS_PER_CLIENT = 4
REQUEST_S = 10.0
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


class Admission:
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
        with self._lock:
            if connection in self._clients:
                self._due_s[connection] = self._monotonic() + REQUEST_S

    def stream(self, connection: socket.socket) -> bool:
        """Let a connection become a stream without a time limit; False without a place."""
        with self._lock:
            client = self._clients.get(connection)
            own = sum(self._clients.get(one) == client for one in self._streams)
            if len(self._streams) >= STREAMS or own >= STREAMS_PER_CLIENT:
                return False
            self._streams.add(connection)
            self._due_s.pop(connection, None)
            return True

    def hang_up_on_late(self) -> None:
        now = self._monotonic()
        with self._lock:
            late = [connection for connection, due_s in self._due_s.items() if now >= due_s]
            for connection in late:
                del self._due_s[connection]
                with suppress(OSError):  # it has gone by itself
                    connection.shutdown(socket.SHUT_RDWR)


def client_of_connection(connection: socket.socket) -> Hashable:
    """Client of a connection: its user on this machine, else its address (of IPv6 the network)."""
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
    """User of a connection within this machine, by the kernel's list (proc_net_tcp.rst)."""
    ends = _ends(*peer), _ends(*own)
    for table in _TABLES:
        with suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                row = line.split()
                if row[1] in ends[0] and row[2] in ends[1] and row[9] != "0":  # without an inode it has no owner any more
                    return "user", row[7]
    return "this machine"


def _ends(address: str, port: int) -> set[str]:
    """One end of a connection in the kernel's form: four-byte words in this machine's order; also IPv4 in IPv6."""
    host = ipaddress.ip_address(address.partition("%")[0])
    known = {host, getattr(host, "ipv4_mapped", None) or host}
    known |= {ipaddress.IPv6Address(f"::ffff:{each}") for each in known if each.version == 4}
    words = (struct.unpack(f"={len(each.packed) // 4}I", each.packed) for each in known)
    return {f"{''.join(f'{word:08X}' for word in each)}:{port:04X}" for each in words}


_WAITS_S = 10.0
_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/plots.js": ("plots.js", "text/javascript; charset=utf-8"),
}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PageServer(ThreadingMixIn, HTTPServer):
    """Serves the page and a follower's messages; raises OSError if it cannot listen. Port 0 is any free one."""

    daemon_threads = True
    request_queue_size = CONNECTIONS
    block_on_close = False

    def __init__(self, host: str, port: int, follower: StatusFollower) -> None:
        self.follower = follower
        self.host = host
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.files: Mapping[str, tuple[bytes, str]] = {
            path: ((files(__package__) / name).read_bytes(), kind) for path, (name, kind) in _FILES.items()
        }
        self.admission = Admission()
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.server_address[1]}/"

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # the other one asks a name server for this machine's name

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self.admission.enter(request):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self.admission.leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.admission.leave(request)

    def service_actions(self) -> None:
        self.admission.hang_up_on_late()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that leaves in the middle."""

    def known_as(self, host: str) -> bool:
        try:
            name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
            if name.lower() in ("localhost", self.host.lower()):
                return True
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version = "jetdvfs"
    sys_version = ""
    timeout = _WAITS_S  # for a request, and for its answer to be taken

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if not self.server.known_as(self.headers.get("Host", "")):
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "this server is reached by its address or as localhost")
        elif path == "/events":
            self._stream()
        elif path in self.server.files:
            body, kind = self.server.files[path]
            self._answer(HTTPStatus.OK, body, kind)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here but the page at /")

    do_HEAD = do_GET

    def handle_one_request(self) -> None:
        super().handle_one_request()
        self.server.admission.next_request(self.connection)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refusals of the library, such as other methods, in one line without an echo."""
        self.close_connection = True
        wrong_method = code == HTTPStatus.NOT_IMPLEMENTED
        status = HTTPStatus.METHOD_NOT_ALLOWED if wrong_method else HTTPStatus(code)
        self._refuse(status, "only GET: nothing can be set here" if wrong_method else status.phrase)

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        self.close_connection = True
        self._answer(status, f"{text}\n".encode(), "text/plain; charset=utf-8")

    def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self._head(status, kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: HTTPStatus, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        if self.close_connection:
            self.send_header("Connection", "close")

    def _stream(self) -> None:
        if self.command != "HEAD" and not self.server.admission.stream(self.connection):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "as many pages are open as may be; close one")
            return
        self.close_connection = True
        self._head(HTTPStatus.OK, "text/event-stream; charset=utf-8")
        self.end_headers()
        if self.command == "HEAD":
            return
        with self.server.follower.reader() as told:
            for what in told:
                # A comment now and then finds out whether the browser is still there.
                text = ":\n\n" if what is None else f"event: {what[0]}\ndata: {json.dumps(what[1], separators=(',', ':'))}\n\n"
                self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""
