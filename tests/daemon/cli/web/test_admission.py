# SPDX-License-Identifier: Apache-2.0
"""One client, however it goes about it, takes neither every place of the page's server nor one for long."""

from __future__ import annotations

import encodings.idna  # noqa: F401  which another user could not load
import http.client
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from jetdvfs.daemon.cli.web.server import (
    CONNECTIONS,
    PER_CLIENT,
    REQUEST_S,
    STREAMS,
    STREAMS_PER_CLIENT,
    Admission,
    client_of_connection,
)
from jetdvfs.tests.support.boards.hardware_kernel import FakeClock
from jetdvfs.tests.support.daemons import web_page
from jetdvfs.tests.support.daemons.board_daemon import eventually
from jetdvfs.tests.support.daemons.other_users import somebody_else
from jetdvfs.tests.support.daemons.web_page import asked, served

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """A server of the page; no daemon answers it."""
    with served(tmp_path / "none.sock") as (port, _):
        yield port


@pytest.fixture
def sockets() -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(one) for _ in range(CONNECTIONS) for one in socket.socketpair()]


def test_a_client_has_a_few_places_and_fewer_streams(sockets: list[socket.socket]) -> None:
    clients = {one: number // (2 * PER_CLIENT) for number, one in enumerate(sockets)}
    admission = Admission(client_of=lambda one: clients[one])
    admitted = [one for one in sockets if admission.enter(one)]
    assert len(admitted) == CONNECTIONS
    assert {client: sum(clients[one] == client for one in admitted) for client in range(4)} == dict.fromkeys(
        range(4), PER_CLIENT
    )
    streams = [one for one in admitted if admission.stream(one)]
    assert len(streams) == STREAMS < CONNECTIONS
    assert sum(clients[one] == 0 for one in streams) == STREAMS_PER_CLIENT
    admission.leave(streams[0])
    assert admission.enter(streams[0]) and admission.stream(streams[0])


def test_a_request_has_a_time_as_a_whole_and_a_stream_has_none(sockets: list[socket.socket]) -> None:
    clock = FakeClock()
    admission = Admission(clock.monotonic, client_of=lambda one: None)
    late, again, stream = sockets[0], sockets[2], sockets[4]
    for one in (late, again, stream):
        assert admission.enter(one)
    assert admission.stream(stream)
    clock.sleep(REQUEST_S - 1)
    admission.next_request(again)
    clock.sleep(2)
    admission.hang_up_on_late()
    assert sockets[1].recv(1) == b""
    for other in (sockets[3], sockets[5]):
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.recv(1)


@as_root
def test_another_user_of_this_machine_gets_the_page_while_one_takes_every_place_it_can(port: int) -> None:
    with somebody_else(65534, 54101), ExitStack() as stack:
        for _ in range(2 * PER_CLIENT):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            with suppress(OSError):
                one.sendall(b"GET / HTTP/1.1\r\nX: ")
        with pytest.raises((http.client.HTTPException, OSError)):
            asked(port)
        os.seteuid(0)
        assert asked(port)[0].status == 200


def test_a_request_sent_byte_by_byte_is_over_in_time(port: int) -> None:
    with closing(socket.create_connection(("127.0.0.1", port), timeout=20)) as one:
        one.sendall(b"GET / HTTP/1.1\r\nX: ")
        begun_s = time.monotonic()

        def is_over() -> bool:
            try:
                one.sendall(b"a")
            except OSError:
                return True
            time.sleep(0.5)
            return False

        assert eventually(is_over)
        assert web_page.REQUEST_S - 1 < time.monotonic() - begun_s < REQUEST_S


def test_streams_of_one_client_leave_it_the_page(port: int) -> None:
    with ExitStack() as stack:
        answers = []
        for _ in range(STREAMS_PER_CLIENT + 1):
            connection = stack.enter_context(closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)))
            connection.request("GET", "/events")
            answers.append(connection.getresponse())
        assert [one.status for one in answers] == [200] * STREAMS_PER_CLIENT + [503]
        assert asked(port)[0].status == 200


def test_the_user_at_the_other_end_is_known_on_this_machine() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server, closing(socket.create_connection(server.getsockname())):
        accepted, _ = server.accept()
        with accepted:
            assert client_of_connection(accepted) == ("user", str(os.geteuid()))


@as_root
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_users_whose_connections_have_one_port_are_told_apart(family: socket.AddressFamily) -> None:
    with ExitStack() as stack:
        wide = family == socket.AF_INET6
        server = stack.enter_context(socket.create_server(("", 0), family=family, dualstack_ipv6=wide))
        port = server.getsockname()[1]
        accepted, source = {}, 0
        for uid, address in ((1001, "127.0.0.1"), (1002, "127.0.0.2")):
            client = stack.enter_context(closing(socket.socket()))
            os.fchown(client.fileno(), uid, -1)
            client.bind((address, source))
            client.connect((address, port))
            source = client.getsockname()[1]
            accepted[uid] = stack.enter_context(server.accept()[0])
        seen = {uid: client_of_connection(connection) for uid, connection in accepted.items()}
    assert seen == {1001: ("user", "1001"), 1002: ("user", "1002")}
