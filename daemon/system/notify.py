# SPDX-License-Identifier: Apache-2.0
"""Messages to and from the service manager (sd_notify(3), sd_listen_fds(3))."""

from __future__ import annotations

import contextlib
import os
import socket

_KIND = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK


def has_manager() -> bool:
    return os.environ.get("NOTIFY_SOCKET", "").startswith(("/", "@"))


def notify(*states: str) -> bool:
    """Notify the service manager, as in ``notify("READY=1", "STATUS=idle")``; False without one."""
    if not has_manager():
        return False
    address = os.environ["NOTIFY_SOCKET"]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, _KIND) as sock:
        sock.connect("\0" + address[1:] if address.startswith("@") else address)
        sock.sendall("\n".join(states).encode())
        return True
    return False


def watchdog_s() -> float | None:
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        return int(os.environ["WATCHDOG_USEC"]) / 1e6
    except (KeyError, ValueError):
        return None


def listen_sockets() -> dict[str, socket.socket]:
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return {}
    count = int(os.environ.get("LISTEN_FDS", "0"))
    names = os.environ.get("LISTEN_FDNAMES", "").split(":")
    found = {}
    for position in range(count):
        name = names[position] if position < len(names) else ""
        os.set_inheritable(3 + position, False)
        found[name or str(position)] = socket.socket(fileno=3 + position)
    return found
