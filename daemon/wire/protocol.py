# SPDX-License-Identifier: Apache-2.0
"""Protocol of both ends of the socket: framing, limits, names of errors. Loads the standard library only.

Varlink framing: one JSON object and a NUL byte per message. :mod:`.calls` declares calls and replies.
"""

from __future__ import annotations

import grp
import json
import os
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...kernels.text import printable
from ..errors import (
    DaemonError,
    HardwareBusy,
    HardwareRefused,
    InputError,
    LeaseEnded,
    LimitReached,
    NotPermitted,
    TargetNotAttainable,
    UsageError,
)
from ..system.folders import RUNTIME_DIR, is_trusted, runtime_base

INTERFACE = "io.jetdvfs"
ADMIN_INTERFACE = "io.jetdvfs.admin"
SERVICE = "org.varlink.service"

SOCKET_NAME = "jetdvfs.sock"
ADMIN_SOCKET_NAME = "admin.sock"
MESSAGE_BYTES = 1 << 20
TEXT_CHARACTERS = 256
LONGEST_FRAME_MS = 1e7

_ERROR_CHARACTERS = 2000

_ERRORS: Mapping[str, type[DaemonError]] = {
    "LeaseEnded": LeaseEnded,
    "InvalidRequest": UsageError,
    "InputRefused": InputError,
    "TargetNotAttainable": TargetNotAttainable,
    "HardwareRefused": HardwareRefused,
    "HardwareBusy": HardwareBusy,
    "LimitReached": LimitReached,
    "NotPermitted": NotPermitted,
}


def default_socket() -> Path:
    """A client's socket: ``$JETDVFS_SOCKET``, that of the user's own daemon if one answers, or the system's."""
    if given := os.environ.get("JETDVFS_SOCKET"):
        return Path(given)
    own, systems = runtime_base() / SOCKET_NAME, RUNTIME_DIR / SOCKET_NAME
    return own if own != systems and is_trusted(own.parent) and answers(own) else systems


def daemon_socket() -> Path:
    """A daemon's socket: ``$JETDVFS_SOCKET``, the system's for root, else the user's own."""
    return Path(os.environ.get("JETDVFS_SOCKET") or runtime_base() / SOCKET_NAME)


def admin_socket(path: Path) -> Path:
    """Root's socket next to a daemon's: ``admin.sock`` for the default name, ``NAME.admin.sock`` for ``NAME.sock``."""
    return path.with_name(ADMIN_SOCKET_NAME if path.name == SOCKET_NAME else f"{path.stem}.{ADMIN_SOCKET_NAME}")


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
    return True


def who_may(path: Path) -> str:
    """Users of a socket closed to this one, and the way to become one."""
    try:
        status = path.stat()
    except OSError:
        return "its folder is closed to you"
    if status.st_gid == 0 or not status.st_mode & stat.S_IWGRP:
        return "only root may use it"
    try:
        group = grp.getgrgid(status.st_gid).gr_name
    except KeyError:  # in a container that has no name for it
        return f"only root and the group with the number {status.st_gid} may use it"
    return f"join the group {group} with 'sudo usermod -aG {group} $USER', then log in again"


def encode(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\0"


def decode(data: bytes) -> dict[str, Any]:
    try:
        message = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"message: expected one JSON object ({one_line(error)})") from error
    if not isinstance(message, dict):
        raise UsageError(f"message: expected a JSON object, got {type(message).__name__}")
    return message


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def error_reply(error: BaseException, *, interface: str = INTERFACE) -> dict[str, Any]:
    exit_code = int(getattr(error, "exit_code", InputError.exit_code))
    names = [name for name, kind in _ERRORS.items() if isinstance(error, kind)]
    if not names:
        names = ["InputRefused"] if hasattr(error, "exit_code") else ["Internal"]
    return {"error": f"{interface}.{names[0]}", "parameters": {"message": one_line(error), "exit_code": exit_code}}


def raise_error(reply: Mapping[str, Any]) -> None:
    name = reply.get("error")
    if not name:
        return
    parameters = reply.get("parameters") or {}
    if name == f"{SERVICE}.InvalidParameter":
        raise UsageError(printable(str(parameters.get("message") or f"parameter {parameters.get('parameter')!r} is not valid")))
    if str(name).startswith(f"{SERVICE}."):
        text = f"the daemon answers {str(name).rpartition('.')[2]} ({', '.join(map(str, parameters.values()))})"
        raise UsageError(printable(text))
    kind = _ERRORS.get(str(name).rpartition(".")[2], DaemonError)
    raise kind(printable(str(parameters.get("message", name))))


def one_line(error: BaseException) -> str:
    return printable(" ".join(str(error)[:_ERROR_CHARACTERS].split())) or type(error).__name__
