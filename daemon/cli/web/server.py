# SPDX-License-Identifier: Apache-2.0
"""A web server of one page and one stream. It reads nothing that it is sent but a path, and changes nothing.

A page of somebody else's may not read it: a browser that was led here under another name (DNS rebinding) is refused by its Host
header, and nothing is offered to other origins.
"""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.resources import files
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from .admission import CONNECTIONS, Admission
from .following import Follower

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
    """Serves the page and what a follower tells.

    Args:
        host: the address to listen on, IPv4 or IPv6.
        port: 0 for any that is free.
        follower: what is told; the caller starts and stops it.

    Raises:
        OSError: the address cannot be listened on.
    """

    daemon_threads = True
    request_queue_size = CONNECTIONS
    block_on_close = False

    def __init__(self, host: str, port: int, follower: Follower) -> None:
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
        """Called by :meth:`serve_forever` twice a second."""
        self.admission.hang_up_on_late()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle is nobody's fault."""

    def known_as(self, host: str) -> bool:
        """Whether a Host header names this server: by an address, as localhost, or as it was told to listen."""
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
    timeout = _WAITS_S  # for a request to come, and for what is sent to be taken

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
        """What the library refuses, such as other methods: in one line, without a page that repeats what was sent."""
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
        """Server-sent events, until either side goes away."""
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
        """Who looks is nobody's business."""
