# SPDX-License-Identifier: Apache-2.0
"""The varlink server: connections, framing, peers and descriptors; it knows nothing about what is asked.

One event loop serves everybody. Calls on one connection are answered in order; connections do not wait for each other. What
a connection may use of the daemon is bounded: bytes buffered, calls queued, time to finish a message or to read a reply.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ...kernels.errors import KernelsError
from ...profiles.errors import ProfilesError
from ..errors import DaemonError, LimitReached, NotPermitted, UsageError
from . import protocol
from .interface import Interface, Mismatch

log = logging.getLogger(__name__)

_QUEUED_CALLS = 16
_DESCRIPTORS = 4
_CHUNK_BYTES = 1 << 16


class Peer(NamedTuple):
    """Who is at the other end, as the kernel says."""

    pid: int
    uid: int
    gid: int


@dataclass(frozen=True)
class ServerLimits:
    """What clients may use of the server."""

    connections: int = 64
    connections_per_user: int = 32
    message_s: float = 10.0
    reply_s: float = 10.0


@dataclass(eq=False)
class Session:
    """One connection as services see it; what they keep for it ends when they are told that it closed."""

    peer: Peer


class Service(Protocol):
    """What answers calls. ``call`` raises the package's errors; ``closed`` is told of every connection's end."""

    interface: Interface

    async def call(
        self, session: Session, method: str, parameters: dict[str, Any], descriptors: Sequence[int]
    ) -> dict[str, Any]: ...

    def closed(self, session: Session) -> None: ...


class Server:
    """Serves services on listening sockets, one service per socket."""

    def __init__(self, version: str, limits: ServerLimits | None = None) -> None:
        self._version = version
        self._limits = limits or ServerLimits()
        self._listeners: list[socket.socket] = []
        self._connections: set[_Connection] = set()

    def listen(self, listener: socket.socket, service: Service, *, only_uids: frozenset[int] | None = None) -> None:
        """Accept connections on ``listener`` until the server is closed; ``only_uids`` are let in, everybody by default."""
        listener.setblocking(False)
        self._listeners.append(listener)
        asyncio.get_running_loop().add_reader(listener, self._accept, listener, service, only_uids)

    async def close(self) -> None:
        """Stop listening and end every connection."""
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.remove_reader(listener)
            listener.close()
        for connection in tuple(self._connections):
            connection.close()
        await asyncio.sleep(0)

    def forget(self, connection: _Connection) -> None:
        self._connections.discard(connection)

    def _accept(self, listener: socket.socket, service: Service, only_uids: frozenset[int] | None) -> None:
        try:
            sock, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            log.error("cannot accept a connection: %s", error)
            return
        sock.setblocking(False)
        peer = Peer(*struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)))
        refusal = self._refusal(peer, only_uids)
        if refusal is None:
            self._connections.add(_Connection(self, sock, Session(peer), service, self._version, self._limits))
            return
        with sock, contextlib.suppress(OSError):
            sock.send(protocol.encode(protocol.error_reply(refusal, interface=service.interface.name)))

    def _refusal(self, peer: Peer, only_uids: frozenset[int] | None) -> DaemonError | None:
        if only_uids is not None and peer.uid not in only_uids:
            return NotPermitted("this socket is root's")
        same = sum(connection.session.peer.uid == peer.uid for connection in self._connections)
        if len(self._connections) >= self._limits.connections or same >= self._limits.connections_per_user:
            return LimitReached(
                f"{len(self._connections)} connections are open, {same} of them by uid {peer.uid}; "
                f"at most {self._limits.connections} and {self._limits.connections_per_user}"
            )
        return None


@dataclass(frozen=True)
class _Message:
    data: bytes
    descriptors: tuple[int, ...] = ()


class _Connection:
    """One client: reads messages as they come, answers them one after the other."""

    def __init__(
        self, server: Server, sock: socket.socket, session: Session, service: Service, version: str, limits: ServerLimits
    ) -> None:
        self.session = session
        self._server = server
        self._sock = sock
        self._service = service
        self._version = version
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._arriving: list[int] = []
        self._queue: deque[_Message] = deque()
        self._wakeup = asyncio.Event()
        self._busy = False
        self._reading = False
        self._closed = False
        self._deadline: asyncio.TimerHandle | None = None
        self._resume_reading()
        self._task = self._loop.create_task(self._serve())

    def close(self) -> None:
        """End the connection: what it was doing is cancelled, what it held is given up."""
        if self._closed:
            return
        self._closed = True
        self._pause_reading()
        if self._deadline is not None:
            self._deadline.cancel()
        if asyncio.current_task() is not self._task:
            self._task.cancel()
        _close_all(self._arriving)
        for message in self._queue:
            _close_all(message.descriptors)
        self._queue.clear()
        self._sock.close()
        self._server.forget(self)
        self._service.closed(self.session)

    def _resume_reading(self) -> None:
        if not self._reading and not self._closed:
            self._loop.add_reader(self._sock, self._readable)
            self._reading = True

    def _pause_reading(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._sock)
            self._reading = False

    def _readable(self) -> None:
        try:
            data, ancillary, flags, _ = self._sock.recvmsg(
                _CHUNK_BYTES, socket.CMSG_SPACE(_DESCRIPTORS * 4), socket.MSG_CMSG_CLOEXEC
            )
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        descriptors = _descriptors(ancillary)
        self._arriving += descriptors
        if not data:
            self.close()
            return
        self._buffer += data
        try:
            if flags & socket.MSG_CTRUNC:
                raise UsageError("message: more descriptors than any call takes")
            self._split()
        except UsageError as error:
            self._refuse(error)

    def _split(self) -> None:
        """Move complete messages from the buffer to the queue.

        A descriptor belongs to the message whose bytes it came with, which a stream only says for certain when no other message
        is on its way; so nothing may be pipelined around a message with a descriptor.
        """
        *complete, rest = self._buffer.split(b"\0")
        if self._arriving and (self._busy or self._queue or len(complete) > 1 or (complete and rest)):
            raise UsageError("message: a call with a descriptor is sent alone, after every earlier call was answered")
        if len(rest) >= protocol.MESSAGE_BYTES or any(len(data) >= protocol.MESSAGE_BYTES for data in complete):
            raise UsageError(f"message: longer than {protocol.MESSAGE_BYTES} bytes")
        for data in complete:
            self._queue.append(_Message(bytes(data), tuple(self._arriving)))
            self._arriving.clear()
        self._buffer = rest
        self._watch_partial(bool(rest))
        if len(self._queue) >= _QUEUED_CALLS:
            self._pause_reading()
        if complete:
            self._wakeup.set()

    def _watch_partial(self, partial: bool) -> None:
        """Give a message that has begun a time to end by, so that half a message cannot hold its buffer for ever."""
        if not partial and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        elif partial and self._deadline is None:
            late = UsageError(f"message: not complete after {self._limits.message_s:g} s")
            self._deadline = self._loop.call_later(self._limits.message_s, self._refuse, late)

    def _refuse(self, error: UsageError) -> None:
        """Say what is wrong with how this peer speaks, and hang up."""
        with contextlib.suppress(OSError):
            self._sock.send(protocol.encode(protocol.error_reply(error, interface=self._service.interface.name)))
        log.warning("pid %d, uid %d: %s", self.session.peer.pid, self.session.peer.uid, error)
        self.close()

    async def _serve(self) -> None:
        try:
            while not self._closed:
                await self._wakeup.wait()
                while self._queue:
                    self._busy = True
                    message = self._queue.popleft()
                    self._resume_reading()
                    try:
                        reply = await self._answer(message)
                    finally:
                        _close_all(message.descriptors)
                        self._busy = False
                    if reply is not None:
                        await asyncio.wait_for(self._loop.sock_sendall(self._sock, reply), self._limits.reply_s)
                self._wakeup.clear()
        except (OSError, asyncio.TimeoutError):
            self.close()

    async def _answer(self, message: _Message) -> bytes | None:
        interface = self._service.interface.name
        call: dict[str, Any] = {}
        try:
            call = protocol.decode(message.data)
            reply = protocol.encode(await self._dispatch(call, message.descriptors))
        except (DaemonError, KernelsError, ProfilesError) as error:
            reply = protocol.encode(protocol.error_reply(error, interface=interface))
        except Exception as error:
            log.exception("call %s failed", str(call.get("method"))[:100])
            reply = protocol.encode(protocol.error_reply(error, interface=interface))
        return None if call.get("oneway") is True else reply

    async def _dispatch(self, call: dict[str, Any], descriptors: tuple[int, ...]) -> dict[str, Any]:
        name, parameters = call.get("method"), call.get("parameters")
        if not isinstance(name, str) or "." not in name or len(name) > protocol.TEXT_CHARACTERS:
            return _service_error("MethodNotFound", method=str(name)[:100])
        interface, _, method = name.rpartition(".")
        parameters = {} if parameters is None else parameters
        if interface == protocol.SERVICE:
            return self._describe(method, parameters)
        definition = self._service.interface
        if interface != definition.name:
            return _service_error("InterfaceNotFound", interface=interface)
        if method not in definition.methods:
            return _service_error("MethodNotFound", method=method)
        try:
            definition.check_call(method, parameters)
        except Mismatch as error:
            return _service_error("InvalidParameter", parameter=error.path, message=f"{method}: {error}")
        return {"parameters": await self._service.call(self.session, method, parameters, descriptors)}

    def _describe(self, method: str, parameters: Any) -> dict[str, Any]:
        definition = self._service.interface
        if method == "GetInfo":
            return {
                "parameters": {
                    "vendor": "jetdvfs",
                    "product": "jetdvfsd",
                    "version": self._version,
                    "url": "",
                    "interfaces": [protocol.SERVICE, definition.name],
                }
            }
        if method == "GetInterfaceDescription":
            wanted = parameters.get("interface") if isinstance(parameters, dict) else None
            if wanted == definition.name:
                return {"parameters": {"description": definition.text}}
            if wanted == protocol.SERVICE:
                return {"parameters": {"description": _SERVICE_DEFINITION}}
            return _service_error("InterfaceNotFound", interface=str(wanted)[:100])
        return _service_error("MethodNotFound", method=method)


_SERVICE_DEFINITION = """interface org.varlink.service
method GetInfo() -> (vendor: string, product: string, version: string, url: string, interfaces: []string)
method GetInterfaceDescription(interface: string) -> (description: string)
error InterfaceNotFound (interface: string)
error MethodNotFound (method: string)
error InvalidParameter (parameter: string)
"""


def _service_error(name: str, **parameters: str) -> dict[str, Any]:
    return {"error": f"{protocol.SERVICE}.{name}", "parameters": parameters}


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found: list[int] = []
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found += struct.unpack(f"{len(data) // 4}i", data[: len(data) // 4 * 4])
    return found


def _close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
