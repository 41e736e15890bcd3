# SPDX-License-Identifier: Apache-2.0
"""Getting rid of connections that may have strangers' descriptors in their queues.

The last to close such a connection drops the descriptors, and may have to wait for the file systems behind them. So that is
left to a child: one for each user who makes it necessary, ended after a while and replaced by the next. Where two of a user's
could not be ended, the third is kept for good; it holds what comes until the daemon ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from .children import Stragglers, start_child
from .holder import SIZE


@dataclass(frozen=True)
class Attached:
    """What a child needs to get the descriptor for itself.

    Closing a stranger's descriptor asks the file system behind it, which may never answer. So the resident process does not
    even receive it: it hands the connection to a child that does.

    Attributes:
        sock: the connection; only its number is for use, to be inherited.
        size: how many bytes are to be received from it, neither more nor less; the descriptor comes with them.
        uid: the user who sent it.
    """

    sock: socket.socket
    size: int
    uid: int


log = logging.getLogger(__name__)

_KEPT_S = 10.0
_AGAIN_S = 0.1
_ANSWER_S = 2.0
_CHUNK_BYTES = 1 << 16
_COMMAND = (sys.executable, "-I", "-S", "-B", os.fspath(Path(__file__).with_name("holder.py")))


class Disposal:
    """Closes connections so that nothing a stranger sent can hold this process up."""

    def __init__(self, stragglers: Stragglers) -> None:
        self._stragglers = stragglers
        self._holders: dict[int, _Holder] = {}
        self._ends: set[asyncio.Task[None]] = set()

    def close(self, sock: socket.socket, uid: int, *, shared: bool = False) -> None:
        """End a connection of this user and give it up; ``shared`` where a child may be receiving from it at this moment."""
        with contextlib.suppress(OSError):  # its peer may have gone
            sock.shutdown(socket.SHUT_RDWR)
        # Nothing can be sent on it any more, so what is seen now is all there is.
        if shared or _carries_descriptors(sock):
            self._holder(uid).give(_Order(sock))
        else:
            sock.close()

    async def receive(self, attached: Attached) -> bool:
        """Have these bytes taken off a connection that goes on, with any descriptors; whether there were any.

        Raises:
            UsageError: it cannot be done; the connection must be closed.
        """
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        with contextlib.suppress(asyncio.TimeoutError):
            self._holder(attached.uid).give(_Order(attached.sock, attached.size, done))
            if found := await asyncio.wait_for(done, _ANSWER_S):
                return found == 2
        raise UsageError("message: a descriptor in the connection's queue cannot be got rid of")

    def end(self) -> None:
        """Let every holder end, without waiting for it."""
        for holder in self._holders.values():
            holder.close()

    def _holder(self, uid: int) -> _Holder:
        if uid not in self._holders:
            self._holders[uid] = _Holder()
            asyncio.get_running_loop().call_later(_KEPT_S, self._replace, uid)
        return self._holders[uid]

    def _replace(self, uid: int) -> None:
        """Let a user's holder end with what it holds, unless too many could not."""
        holder, loop = self._holders[uid], asyncio.get_running_loop()
        if holder.waiting or self._stragglers.too_many(uid):
            loop.call_later(_KEPT_S, self._replace, uid)
            return
        del self._holders[uid]
        holder.close()
        if holder.child is not None:
            end = loop.create_task(self._stragglers.end(holder.child, uid))
            self._ends.add(end)
            end.add_done_callback(self._ends.discard)


@dataclass(frozen=True)
class _Order:
    """A connection to hold, or, with a size, one to receive so many bytes from."""

    sock: socket.socket
    size: int = 0
    done: asyncio.Future[int] | None = None


class _Holder:
    """One child, and what it could not be given yet."""

    def __init__(self) -> None:
        self.child: subprocess.Popen[bytes] | None = None
        self.waiting: deque[_Order] = deque()
        self._asked: deque[asyncio.Future[int]] = deque()
        self._loop = asyncio.get_running_loop()
        self._ours: socket.socket | None = None
        self._again: asyncio.TimerHandle | None = None
        self._starting: asyncio.Task[None] | None = None

    def give(self, order: _Order) -> None:
        self.waiting.append(order)
        self._pass_on()

    def close(self) -> None:
        if self._again is not None:
            self._again.cancel()
        if self._starting is not None:
            self._starting.cancel()
        if self._ours is not None:
            self._loop.remove_reader(self._ours)
            self._ours.close()

    def _pass_on(self) -> None:
        """Give the child what waits; what it cannot take now it is given later."""
        if self._again is not None:
            self._again.cancel()
        if self._ours is None:
            if self._starting is None:
                self._starting = self._loop.create_task(self._start())
            return
        try:
            while self.waiting:
                order = self.waiting[0]
                if order.done is None or not order.done.done():
                    socket.send_fds(self._ours, [SIZE.pack(order.size)], [order.sock.fileno()])
                    if order.done is None:
                        order.sock.close()
                    else:
                        self._asked.append(order.done)
                self.waiting.popleft()
        except OSError as error:
            self._later(error)

    def _later(self, error: OSError) -> None:
        if not isinstance(error, BlockingIOError):
            log.warning("cannot hand over a connection: %s", error.strerror)
        self._again = self._loop.call_later(_AGAIN_S, self._pass_on)

    async def _start(self) -> None:
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.setblocking(False)
            with theirs:
                self.child = await start_child([*_COMMAND, str(theirs.fileno())], [theirs.fileno()], {"PATH": "/usr/bin:/bin"})
        except OSError as error:
            self._starting = None
            self._later(error)
            return
        self._starting = None
        self._loop.add_reader(ours, self._answered, ours)
        self._ours = ours
        self._pass_on()

    def _answered(self, ours: socket.socket) -> None:
        answer = b""
        with contextlib.suppress(OSError):
            answer = ours.recv(1)
        if not answer:
            # It ended, with whatever it held; the next order starts another.
            self._loop.remove_reader(ours)
            ours.close()
            self._ours = None
        for _ in range(1 if answer else len(self._asked)):
            if not (done := self._asked.popleft()).done():
                done.set_result(int.from_bytes(answer, "big"))


def _carries_descriptors(sock: socket.socket) -> bool:
    """Whether descriptors are in the queue of a connection that was shut down; what comes before them is dropped."""
    while True:
        try:
            data, _, flags, _ = sock.recvmsg(_CHUNK_BYTES, 0, socket.MSG_PEEK)
            if flags & socket.MSG_CTRUNC:
                return True
            if not data:
                return False
            sock.recv(len(data))
        except OSError:  # it has nothing, or was reset
            return False
