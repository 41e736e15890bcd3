# SPDX-License-Identifier: Apache-2.0
"""The varlink server: listening sockets, and admission of clients.

One event loop serves all. Calls on a connection are answered in order; connections are independent, and users take turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from ...descriptors.children import ChildReaper
from ...descriptors.disposal import Disposal
from ...errors import DaemonError, LimitReached, NotPermitted, UsageError
from ..protocol import answers
from .answers import MessageAnswers
from .connection import Connection, FairTurns, RefusalLog
from .session import Peer, Service, Session

UNCHANGED = -1


@contextlib.contextmanager
def listening(path: Path, mode: int, group_id: int) -> Iterator[socket.socket]:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with sock:
        try:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            if not _is_socket(path):
                raise UsageError(f"socket {path}: something else than a socket is there; remove it, or name another path")
            if answers(path):
                raise UsageError(f"socket {path}: another daemon answers on it")
            path.unlink(missing_ok=True)
            before = os.umask(0o777 & ~mode)
            try:
                sock.bind(os.fspath(path))
            finally:
                os.umask(before)
            if group_id != UNCHANGED:
                os.chown(path, UNCHANGED, group_id)
            sock.listen()
        except OSError as error:
            raise UsageError(f"socket {path}: {error.strerror or error}") from error
        try:
            yield sock
        finally:
            # The folder may be gone or read-only.
            with contextlib.suppress(OSError):
                if _is_socket(path):
                    path.unlink(missing_ok=True)


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return True


log = logging.getLogger(__name__)

_ACCEPTED_AT_ONCE = 16
_BACKLOG = 256  # short enough for the last one to be admitted soon
_PAUSE_S = 0.1


class ServerLimits(Struct, frozen=True):
    """Limits on the clients of one listening socket; root has none of its own, and ``connections_for_root``."""

    connections: int = 64
    connections_per_user: int = 16
    connections_for_root: int = 8
    message_s: float = 10.0
    reply_s: float = 10.0


class Server:
    def __init__(self, version: str, stragglers: ChildReaper | None = None) -> None:
        self._version = version
        self.disposal = Disposal(stragglers or ChildReaper())
        self.turns = FairTurns()
        self.refusals = RefusalLog()
        self._doors: list[Listener] = []

    def listen(
        self,
        listener: socket.socket,
        service: Service,
        limits: ServerLimits | None = None,
        *,
        only_uids: frozenset[int] | None = None,
        inherited: bool = False,
    ) -> None:
        """Accept connections on ``listener`` until the server is closed.

        Args:
            only_uids: admitted users, by default all.
            inherited: another process listens afterwards; waiting clients are left to it.
        """
        answers = MessageAnswers(service, self._version)
        self._doors.append(Listener(self, listener, answers, limits or ServerLimits(), only_uids, inherited))

    async def close(self) -> None:
        for door in self._doors:
            door.close()
        await asyncio.sleep(0)
        self.disposal.end()


class Listener:
    def __init__(
        self,
        server: Server,
        listener: socket.socket,
        answers: MessageAnswers,
        limits: ServerLimits,
        only_uids: frozenset[int] | None,
        inherited: bool,
    ) -> None:
        self.disposal, self.turns, self._refusals = server.disposal, server.turns, server.refusals
        self.message_s, self.reply_s = limits.message_s, limits.reply_s
        self._listener = listener
        self._answers = answers
        self._limits = limits
        self._only_uids = only_uids
        self._inherited = inherited
        self._connections: set[Connection] = set()
        self._by_uid: Counter[int] = Counter()
        self._loop = asyncio.get_running_loop()
        listener.setblocking(False)
        listener.listen(_BACKLOG)
        self._open()

    def close(self) -> None:
        self._loop.remove_reader(self._listener)
        if not self._inherited:
            self._listener.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(OSError):
                while True:
                    sock, _ = self._listener.accept()
                    self.disposal.close(sock, _peer(sock).uid)
        self._listener.close()
        for connection in tuple(self._connections):
            connection.close()

    def refuse(self, connection: Connection, error: UsageError) -> bytes:
        self._refusals.note(connection.session.peer, error)
        return self._answers.error(error)

    def ended(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._by_uid[connection.session.peer.uid] -= 1
        self._answers.service.closed(connection.session)

    def _open(self) -> None:
        self._loop.add_reader(self._listener, self._accept_some)

    def _accept_some(self) -> None:
        try:
            for _ in range(_ACCEPTED_AT_ONCE):
                self._let_in(*self._listener.accept()[:1])
        except BlockingIOError:
            return
        except OSError as error:
            log.error("cannot accept connections: %s", error)
            self._loop.remove_reader(self._listener)
            self._loop.call_later(_PAUSE_S, self._open)

    def _let_in(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        # Otherwise the kernel skips an urgent byte, and drops its descriptors.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
        peer = _peer(sock)
        refusal = self._refusal(peer)
        if refusal is None:
            session = Session(peer)
            self._by_uid[peer.uid] += 1
            self._connections.add(Connection(sock, session, self, lambda message: self._answers.answer(session, message)))
            return
        self._refusals.note(peer, refusal)
        with contextlib.suppress(OSError):
            sock.send(self._answers.error(refusal))
        self.disposal.close(sock, peer.uid)

    def _refusal(self, peer: Peer) -> DaemonError | None:
        if self._only_uids is not None and peer.uid not in self._only_uids:
            return NotPermitted("this socket is root's")
        limits, own = self._limits, self._by_uid[peer.uid]
        total, most_of_one = limits.connections, limits.connections
        if peer.uid != 0:
            total -= min(limits.connections_for_root, limits.connections // 8)
            most_of_one = limits.connections_per_user
        if len(self._connections) >= total or own >= most_of_one:
            return LimitReached(
                f"{len(self._connections)} connections are open, {own} of them by uid {peer.uid}; "
                f"at most {total} and {most_of_one}"
            )
        return None


def _peer(sock: socket.socket) -> Peer:
    return Peer(*struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)))
