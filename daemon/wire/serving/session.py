# SPDX-License-Identifier: Apache-2.0
"""What the server and the services behind it know of each other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ...descriptors.disposal import Attached
from ..interface import Interface


class Peer(NamedTuple):
    """Who is at the other end, as the kernel says."""

    pid: int
    uid: int
    gid: int


@dataclass(eq=False)
class Session:
    """One connection as services see it; what they keep for it ends when they are told that it closed."""

    peer: Peer


class Service(Protocol):
    """What answers calls. ``call`` raises the package's errors; ``closed`` is told of every connection's end.

    Parameters are as the interface declares them; those of type ``object`` come as JSON text, in bytes. What is ``attached`` is
    received by a child or not at all; when ``call`` has ended, none is at it any more. What replies as often as there is
    something to say, until the connection ends, answers with an iterator.
    """

    interface: Interface

    async def call(
        self, session: Session, method: str, parameters: dict[str, Any], attached: Attached | None
    ) -> dict[str, Any] | AsyncIterator[dict[str, Any]]: ...

    def closed(self, session: Session) -> None: ...


def process_name(peer: Peer) -> str:
    """What a client calls itself that gave no name. It is a process of this machine, whatever root the board's files have."""
    import psutil  # takes memory, and most clients give a name

    try:
        return str(psutil.Process(peer.pid).name())
    except psutil.Error:
        return f"pid {peer.pid}"
