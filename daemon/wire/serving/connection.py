# SPDX-License-Identifier: Apache-2.0
"""One client's connection: reads messages, and answers them in order.

Input is peeked at before it is received: a message with a descriptor stays in the queue for a child
(:mod:`jetdvfs.daemon.descriptors`). Each connection is bounded: buffered bytes, queued calls, time for a message or a reply.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import socket
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Protocol, TypeAlias

from msgspec import Struct

from ...descriptors.disposal import DescriptorGrant, Disposal
from ...errors import UsageError
from ...system.journal import ACTING
from .. import protocol
from ..protocol import one_line
from .session import Peer, Session

log = logging.getLogger(__name__)

_EVERY_S = 60.0


class RefusalLog:
    def __init__(self, every_s: float = _EVERY_S) -> None:
        self._every_s = every_s
        self._since: Counter[int] = Counter()
        self._last: dict[int, BaseException] = {}

    def note(self, peer: Peer, error: BaseException, *, unforeseen_in: str = "") -> None:
        if peer.uid in self._last:
            self._since[peer.uid] += 1
        else:
            if unforeseen_in:
                log.error("pid %d, uid %d: %s failed", peer.pid, peer.uid, unforeseen_in, exc_info=error)
            else:
                log.warning("pid %d, uid %d: %s", peer.pid, peer.uid, one_line(error))
            asyncio.get_running_loop().call_later(self._every_s, self._sum_up, peer.uid)
        self._last[peer.uid] = error

    def _sum_up(self, uid: int) -> None:
        count, last = self._since.pop(uid, 0), self._last[uid]
        if not count:
            del self._last[uid]
            return
        log.warning("uid %d: refused %d times more within %g s, last: %s", uid, count, self._every_s, one_line(last))
        asyncio.get_running_loop().call_later(self._every_s, self._sum_up, uid)


_READ_BYTES = 1 << 16


class FairTurns:
    """Grants one call per round of the event loop, and a share of reading to each user."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[int, deque[asyncio.Future[None]]] = OrderedDict()
        self._read: Counter[int] = Counter()
        self._given = False
        self._loop = asyncio.get_running_loop()

    async def take(self, uid: int) -> None:
        """Wait for a turn of this user; calls of one user keep their order."""
        if not self._given:
            self._begin_round()
            self._given = True
            return
        turn = self._loop.create_future()
        self._waiting.setdefault(uid, deque()).append(turn)
        await turn

    def may_read(self, uid: int) -> bool:
        return self._read[uid] < _READ_BYTES

    def has_read(self, uid: int, size: int) -> None:
        self._begin_round()
        self._read[uid] += size

    def _begin_round(self) -> None:
        if not (self._given or self._read):
            self._loop.call_soon(self._next_round)

    def _next_round(self) -> None:
        self._read.clear()
        self._given = False
        while self._waiting and not self._given:
            uid, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[uid] = turns
            if not turn.done():  # the connection may have closed
                self._begin_round()
                self._given = True
                turn.set_result(None)


PIECE_BYTES = 32 << 10
"""Longest call with a descriptor; the kernel keeps this many bytes in one piece."""

_CTRUNC = int(socket.MSG_CTRUNC)  # operators of enum members are slower than receiving
_READ_AHEAD_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 16


class Message(Struct, frozen=True):
    data: bytes
    attached: DescriptorGrant | None = None


Answering: TypeAlias = Callable[[Message], Awaitable["bytes | AsyncGenerator[bytes, None] | None"]]


class ConnectionHost(Protocol):
    disposal: Disposal
    turns: FairTurns
    message_s: float
    reply_s: float

    def refuse(self, connection: Connection, error: UsageError) -> bytes:
        """Note a refused client; return the reply with the error."""

    def ended(self, connection: Connection) -> None: ...


class Connection:
    """One admitted client on a non-blocking socket; ``answer`` returns a reply, None, or an iterator of replies."""

    def __init__(self, sock: socket.socket, session: Session, host: ConnectionHost, answer: Answering) -> None:
        self.session = session
        self._sock = sock
        self._host = host
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._end = -1
        self._attached: DescriptorGrant | None = None
        self._wakeup = asyncio.Event()
        self._busy = False
        self._reading = False
        self._half_closed = False
        self._closed = False
        self._child_may_receive = False
        self._earlier: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._hangup: select.epoll | None = None
        self._resume_reading()
        self._task = self._loop.create_task(self._serve())

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._pause_reading()
        # The task that waits to send is cancelled only later, when the descriptor may be another connection's already.
        self._loop.remove_writer(self._sock)
        if self._hangup is not None:
            self._loop.remove_reader(self._hangup)
            self._hangup.close()
        for task in (self._task, self._earlier):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        self._host.disposal.close(self._sock, self.session.peer.uid, shared=self._child_may_receive)
        self._host.ended(self)

    def _resume_reading(self) -> None:
        """Read on, unless the peer has to wait: for a call with much after it, or a child."""
        ahead = self._end >= 0 and len(self._buffer) >= _READ_AHEAD_BYTES
        if not (ahead or self._reading or self._child_may_receive or self._attached or self._half_closed or self._closed):
            self._loop.add_reader(self._sock, self._readable)
            self._reading = True
            self._watch_partial()

    def _pause_reading(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._sock)
            self._reading = False
            self._watch_partial()
        if self._hangup is None and not self._closed:
            # Detects a hang-up while nothing is read.
            self._hangup = select.epoll(1)
            self._hangup.register(self._sock, 0)
            self._loop.add_reader(self._hangup, self.close)

    def _readable(self) -> None:
        uid = self.session.peer.uid
        if not self._host.turns.may_read(uid):
            return  # the loop calls again
        try:
            data, descriptors = self._peek(_CHUNK_BYTES)
            self._host.turns.has_read(uid, len(data))
            if not data:
                self._half_closed = True
                self._pause_reading()
                self._wakeup.set()
            elif descriptors:
                self._examine_attached(data)
            else:
                self._take(self._sock.recv(len(data)))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
        except UsageError as error:
            self._refuse(error)

    def _peek(self, size: int) -> tuple[bytes, bool]:
        """The next bytes without receiving them, and True if a descriptor is in the queue; none is from beyond it."""
        data, _, flags, _ = self._sock.recvmsg(size, 0, socket.MSG_PEEK)
        return data, bool(flags & _CTRUNC)

    def _take(self, data: bytes) -> None:
        if self._end < 0 and (found := data.find(0)) >= 0:
            self._end = len(self._buffer) + found
        self._buffer += data
        if (self._end if self._end >= 0 else len(self._buffer)) >= protocol.MESSAGE_BYTES:
            raise UsageError(f"message: longer than {protocol.MESSAGE_BYTES} bytes")
        self._watch_partial()
        if self._end >= 0:
            self._wakeup.set()
            if len(self._buffer) >= _READ_AHEAD_BYTES:
                self._pause_reading()

    def _examine_attached(self, data: bytes) -> None:
        """Examine a call with a descriptor, left to a child; its piece may begin anywhere, but a peek ends with it."""
        whole = data.endswith(b"\0")
        if not whole and len(data) < _CHUNK_BYTES:
            raise _not_alone()
        self._pause_reading()
        earlier = data.rfind(0, 0, -1) + 1 if whole else len(data)
        if earlier:
            others = DescriptorGrant(self._sock, earlier, self.session.peer.uid)
            self._child_may_receive = True
            self._earlier = self._loop.create_task(self._take_earlier(data[:earlier], others))
        elif self._end >= 0 or self._busy:
            return  # examined again once all is answered
        elif self._buffer or len(data) > PIECE_BYTES:
            raise _not_alone()
        else:
            self._attached = DescriptorGrant(self._sock, len(data), self.session.peer.uid)
            self._wakeup.set()

    async def _take_earlier(self, data: bytes, others: DescriptorGrant) -> None:
        try:
            if await self._host.disposal.receive(others):
                raise _not_alone()
            self._child_may_receive = False
            self._take(data)
            self._resume_reading()
        except UsageError as error:
            self._refuse(error)

    def _watch_partial(self) -> None:
        """Set a deadline for a message that has begun."""
        partial = self._reading and self._end < 0 and bool(self._buffer)
        if not partial and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        elif partial and self._deadline is None:
            late = UsageError(f"message: not complete after {self._host.message_s:g} s")
            self._deadline = self._loop.call_later(self._host.message_s, self._refuse, late)

    def _refuse(self, error: UsageError) -> None:
        with contextlib.suppress(OSError):
            self._sock.send(self._host.refuse(self, error))
        self.close()

    async def _serve(self) -> None:
        ACTING.set(self.session.peer.uid)
        try:
            while True:
                while self._end >= 0 or self._attached:
                    self._busy = True
                    await self._host.turns.take(self.session.peer.uid)
                    reply = await (self._answer_attached(self._attached) if self._attached else self._answer(self._next()))
                    if isinstance(reply, bytes):
                        await self._send(reply)
                    elif reply is not None:
                        async with contextlib.aclosing(reply):
                            async for one in reply:
                                await self._send(one)
                    self._busy = False
                if self._half_closed:
                    break
                self._resume_reading()
                self._wakeup.clear()
                await self._wakeup.wait()
            if self._buffer:
                raise UsageError("message: not complete when the input ended; each ends with a NUL byte")
            self.close()
        except (OSError, asyncio.TimeoutError):
            self.close()
        except UsageError as error:
            self._refuse(error)

    def _next(self) -> Message:
        data = bytes(memoryview(self._buffer)[: self._end])
        del self._buffer[: self._end + 1]
        self._end = self._buffer.find(0)
        self._resume_reading()
        return Message(data)

    async def _answer_attached(self, attached: DescriptorGrant) -> bytes | AsyncGenerator[bytes, None] | None:
        data, _ = self._peek(attached.size)
        self._child_may_receive = True
        reply = await self._answer(Message(data[:-1], attached))
        with contextlib.suppress(BlockingIOError):
            if self._peek(attached.size) == (data, True):  # refused before a child received it
                await self._host.disposal.receive(attached)
        self._child_may_receive = False
        self._attached = None
        return reply

    async def _send(self, reply: bytes) -> None:
        try:
            sent = self._sock.send(reply)
        except BlockingIOError:
            sent = 0
        if sent < len(reply):
            await asyncio.wait_for(self._loop.sock_sendall(self._sock, memoryview(reply)[sent:]), self._host.reply_s)


def _not_alone() -> UsageError:
    return UsageError(f"message: a call with a descriptor is sent by itself, in one piece of at most {PIECE_BYTES} bytes")
