# SPDX-License-Identifier: Apache-2.0
"""Connections with descriptors in them are closed by a child, and taken off others that go on."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable

import psutil
import pytest

from jetdvfs.daemon.descriptors.children import ChildReaper
from jetdvfs.daemon.descriptors.disposal import Disposal
from jetdvfs.daemon.errors import UsageError
from jetdvfs.tests.support.daemons.attached import attached
from jetdvfs.tests.support.daemons.silent_files import lingering_socket


def disposing(job: Callable[[Disposal], Awaitable[None]]) -> None:
    async def run() -> None:
        disposal = Disposal(ChildReaper())
        try:
            await job(disposal)
        finally:
            disposal.end()

    asyncio.run(run())


def children() -> list[psutil.Process]:
    return [process for process in psutil.Process().children() if process.status() != psutil.STATUS_ZOMBIE]


def test_a_connection_without_descriptors_is_closed_here() -> None:
    async def job(disposal: Disposal) -> None:
        before = children()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            theirs.sendall(b"unread" * 1000)
            disposal.close(ours, 1000)
            assert theirs.recv(1) == b""
        assert ours.fileno() < 0 and children() == before

    disposing(job)


@pytest.mark.parametrize("ahead", [0, 1, 100_000])
def test_one_with_descriptors_is_handed_on_wherever_in_it_they_are(ahead: int) -> None:
    async def job(disposal: Disposal) -> None:
        before = set(children())
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs, lingering_socket() as lingering:
            theirs.sendall(bytes(ahead))
            socket.send_fds(theirs, [b"x"], [lingering.fileno()])
            lingering.close()  # whoever drops it from the queue waits for an hour
            started = time.monotonic()
            disposal.close(ours, 1000)
            while ours.fileno() >= 0 and time.monotonic() - started < 5:
                await asyncio.sleep(0.01)
            assert ours.fileno() < 0 and len(set(children()) - before) == 1
            theirs.settimeout(5)
            assert theirs.recv(1) == b""

    disposing(job)


def test_what_is_taken_off_a_connection_is_gone_from_it_and_the_rest_is_not() -> None:
    async def job(disposal: Disposal) -> None:
        with open(os.devnull, "rb") as file, attached(file.fileno()) as sent:
            assert await disposal.receive(sent)
            with pytest.raises(BlockingIOError):
                sent.sock.recv(1)
        with attached() as plain:
            assert not await disposal.receive(plain)
        with attached() as nothing, pytest.raises(UsageError, match="cannot be got rid of"):
            nothing.sock.recv(10)
            await disposal.receive(nothing)

    disposing(job)


def test_a_child_that_was_killed_is_replaced() -> None:
    async def job(disposal: Disposal) -> None:
        before = children()
        for _ in range(3):
            with open(os.devnull, "rb") as file, attached(file.fileno()) as sent:
                assert await disposal.receive(sent)
            (holder,) = [process for process in children() if process not in before]
            holder.kill()
            await asyncio.sleep(0.1)

    disposing(job)
