# SPDX-License-Identifier: Apache-2.0
"""Show the board and its leases in a browser: live plots of clocks, rails, temperatures and latencies, and every decision.

Serves one read-only page on this machine until interrupted, also while the daemon restarts. It has no encryption and no
password. From another machine: ssh -L 8570:localhost:8570 BOARD jetdvfs web

example: jetdvfs web --port 8080
"""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import json
import signal

from ... import arguments
from ...errors import NoDaemon, UsageError
from ...wire.client import Client
from ..output import tell
from .server import PageServer
from .status_follower import StatusFollower

_PORT = 8570


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=_PORT, help="0 takes any that is free (default: %(default)s)")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="listen on this address, as in ::1; all who reach it see the status (default: %(default)s)",
    )
    arguments.add_socket(parser)
    parser.add_argument("--json", action="store_true", help="print the page's address as JSON")


def run(args: argparse.Namespace) -> int:
    if not 0 <= args.port <= 65535:
        raise UsageError("expected --port from 0 to 65535")
    try:
        address = ipaddress.ip_address("127.0.0.1" if args.host == "localhost" else args.host)
    except ValueError:
        raise UsageError(f"--host {args.host!r:.60}: expected an address of this machine, such as 127.0.0.1 or ::1") from None
    try:
        Client(args.socket).close()
    except NoDaemon as error:
        tell("web", f"{error}; waiting for it")
    follower = StatusFollower(args.socket)
    try:
        server = PageServer(str(address), args.port, follower)
    except OSError as error:
        raise UsageError(f"{address} port {args.port}: {error.strerror}; --port 0 takes one that is free") from error
    if not address.is_loopback:
        tell("web", f"{address} can be reached from other machines, which then see the status")
    with server:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            follower.start()
            print(json.dumps({"url": server.url}) if args.json else server.url, flush=True)
            server.serve_forever()
        follower.stop()
    return 0
