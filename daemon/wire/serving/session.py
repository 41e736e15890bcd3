# SPDX-License-Identifier: Apache-2.0
"""Interface between the server and its services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from ...descriptors.disposal import DescriptorGrant
from ..interface import Interface

_CUT = 15  # characters after which the kernel cuts a name (proc_pid_comm(5))


class Peer(NamedTuple):
    pid: int
    uid: int
    gid: int


class Session(Struct, eq=False):
    peer: Peer


class Service(Protocol):
    """Answers calls; ``call`` raises the package's errors, ``closed`` is called at every connection's end.

    Objects are JSON text. ``attached`` is received by a child or not at all, and unused once ``call`` ends. A call with replies
    until the connection ends returns an iterator.
    """

    interface: Interface

    async def call(
        self, session: Session, method: str, parameters: dict[str, Any], attached: DescriptorGrant | None
    ) -> dict[str, Any] | AsyncIterator[dict[str, Any]]: ...

    def closed(self, session: Session) -> None: ...


def process_name(peer: Peer) -> str:
    """Name of a client's program, on this machine whatever root the board's files have."""
    process = Path(f"/proc/{peer.pid}")
    try:
        name = (process / "comm").read_text(errors="replace").rstrip("\n")
        if len(name) < _CUT:
            return name
        whole = (process / "cmdline").read_text(errors="replace").partition("\0")[0].rpartition("/")[2]
    except OSError:
        return f"pid {peer.pid}"
    return whole if whole.startswith(name) else name
