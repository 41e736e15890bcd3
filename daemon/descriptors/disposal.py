# SPDX-License-Identifier: Apache-2.0
"""Disposal of connections that may have clients' descriptors in their queues.

Closing such a connection may block on the file systems behind the descriptors. So a child of each user does, which is ended and
replaced after a while. If two children of a user cannot be ended, the third stays until the daemon ends.
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
from pathlib import Path

from msgspec import Struct

from ..errors import UsageError
from .children import ChildReaper, start_child
from .holder import SIZE


class DescriptorGrant(Struct, frozen=True):
    """Bytes with a client's descriptor, for a child to receive, as closing it here could block; exactly ``size`` bytes."""

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
    def __init__(self, stragglers: ChildReaper) -> None:
        self._stragglers = stragglers
        self._holders: dict[int, _HoldingChild] = {}
        self._ends: set[asyncio.Task[None]] = set()

    def close(self, sock: socket.socket, uid: int, *, shared: bool = False) -> None:
        """End a user's connection; ``shared`` if a child may be receiving from it at this moment."""
        with contextlib.suppress(OSError):  # its peer may have gone
            sock.shutdown(socket.SHUT_RDWR)
        # After the shutdown no more can arrive.
        if shared or _carries_descriptors(sock):
            self._holder(uid).give(sock)
        else:
            sock.close()

    async def receive(self, attached: DescriptorGrant) -> bool:
        """Have a child take these bytes off a connection that goes on; True if descriptors came with them."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        with contextlib.suppress(asyncio.TimeoutError):
            self._holder(attached.uid).give(attached.sock, attached.size, done)
            if found := await asyncio.wait_for(done, _ANSWER_S):
                return found == 2
        raise UsageError("message: a descriptor in the connection's queue cannot be got rid of")

    def end(self) -> None:
        for holder in self._holders.values():
            holder.close()

    def _holder(self, uid: int) -> _HoldingChild:
        if uid not in self._holders:
            self._holders[uid] = _HoldingChild()
            asyncio.get_running_loop().call_later(_KEPT_S, self._replace, uid)
        return self._holders[uid]

    def _replace(self, uid: int) -> None:
        """Let a user's holder end with its descriptors, unless too many could not."""
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


class _HoldingChild:
    def __init__(self) -> None:
        self.child: subprocess.Popen[bytes] | None = None
        self.waiting: deque[tuple[socket.socket, int, asyncio.Future[int] | None]] = deque()
        self._asked: deque[asyncio.Future[int]] = deque()
        self._loop = asyncio.get_running_loop()
        self._ours: socket.socket | None = None
        self._again: asyncio.TimerHandle | None = None
        self._starting: asyncio.Task[None] | None = None

    def give(self, sock: socket.socket, size: int = 0, done: asyncio.Future[int] | None = None) -> None:
        self.waiting.append((sock, size, done))
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
        if self._again is not None:
            self._again.cancel()
        if self._ours is None:
            if self._starting is None:
                self._starting = self._loop.create_task(self._start())
            return
        try:
            while self.waiting:
                sock, size, done = self.waiting[0]
                if done is None or not done.done():
                    socket.send_fds(self._ours, [SIZE.pack(size)], [sock.fileno()])
                    if done is None:
                        sock.close()
                    else:
                        self._asked.append(done)
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
            # The child ended, with all that it held; the next order starts another.
            self._loop.remove_reader(ours)
            ours.close()
            self._ours = None
        for _ in range(1 if answer else len(self._asked)):
            if not (done := self._asked.popleft()).done():
                done.set_result(int.from_bytes(answer, "big"))


def _carries_descriptors(sock: socket.socket) -> bool:
    """True if descriptors are in the queue of a connection after its shutdown; data before them is dropped."""
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
