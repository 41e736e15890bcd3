# SPDX-License-Identifier: Apache-2.0
"""The varlink server, spoken to over real sockets: framing, limits, and clients that misbehave."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import varlink
from hypothesis import given, settings
from hypothesis import strategies as st

from jetdvfs.daemon.wire import protocol
from jetdvfs.daemon.wire.serving.server import ServerLimits
from jetdvfs.tests.support.daemons.board_daemon import eventually
from jetdvfs.tests.support.daemons.echo import Echo, answer, ask, hangs_up, message, unread
from jetdvfs.tests.support.daemons.other_users import open_to_everybody, somebody_else
from jetdvfs.tests.support.daemons.served import Served


def test_calls_on_one_connection_are_answered_in_order(served: Served[Echo]) -> None:
    with served.connect() as sock:
        sock.sendall(message("Echo", text="slow", wait_s=0.1) + message("Echo", text="quick"))
        assert [answer(sock)["parameters"]["text"] for _ in range(2)] == ["slow", "quick"]


@pytest.mark.alone
def test_a_waiting_client_does_not_hold_up_another(served: Served[Echo]) -> None:
    with served.connect() as slow, served.connect() as quick:
        slow.sendall(message("Echo", text="slow", wait_s=1))
        started = time.monotonic()
        assert ask(quick, "Echo", text="quick")["parameters"]["text"] == "quick"
        assert time.monotonic() - started < 0.5


def test_a_message_sent_byte_by_byte_is_understood(served: Served[Echo]) -> None:
    with served.connect() as sock:
        for byte in message("Echo", text="drop by drop"):
            sock.sendall(bytes([byte]))
        assert answer(sock)["parameters"]["text"] == "drop by drop"


def test_half_a_message_is_hung_up_on_in_time_and_blocks_nobody(served: Served[Echo]) -> None:
    with served.connect() as half, served.connect() as other:
        half.sendall(message("Echo", text="x")[:-5])
        assert ask(other, "Echo", text="y")["parameters"]["text"] == "y"
        assert "not complete after" in answer(half)["parameters"]["message"]
        assert hangs_up(half)


def test_a_message_over_the_limit_is_refused(served: Served[Echo]) -> None:
    with served.connect() as sock:
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while True:
                sock.sendall(b" " * (1 << 16))
        assert hangs_up(sock)
    with served.connect() as sock:
        assert ask(sock, "Echo", text="still here")["parameters"]["text"] == "still here"


def test_a_client_that_reads_nothing_is_hung_up_on_and_blocks_nobody(served: Served[Echo]) -> None:
    with served.connect() as deaf, served.connect() as other:
        deaf.settimeout(0.2)
        long = message("Echo", text="x" * 200_000)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while True:
                try:
                    deaf.sendall(long)
                except TimeoutError:
                    assert ask(other, "Echo", text="y")["parameters"]["text"] == "y"
        assert ask(other, "Echo", text="z")["parameters"]["text"] == "z"


def test_who_comes_as_one_that_read_nothing_goes_is_served(served: Served[Echo]) -> None:
    for _ in range(3):
        with served.connect() as deaf:
            deaf.settimeout(0.1)
            with pytest.raises(TimeoutError):
                while True:
                    deaf.sendall(message("Echo", text="x" * 200_000))
            served.stand_still(0.2)
        with served.connect() as other:
            assert ask(other, "Echo", text="y")["parameters"]["text"] == "y"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"{}",
        b"[]",
        b"null",
        b'"x"',
        b'{"method": 1}',
        b"[" * 500_000,
        b'{"a":' * 100_000,
        b'{"method": NaN}',
        b"\xff\xfe",
        b"1e999999",
    ],
)
def test_what_is_no_json_object_is_answered_with_an_error(served: Served[Echo], data: bytes) -> None:
    with served.connect() as sock:
        sock.sendall(data + b"\0")
        assert answer(sock)["error"] == "test.echo.InvalidRequest"
        assert ask(sock, "Echo", text="next")["parameters"]["text"] == "next"


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_stop_the_server(lasting: Served[Echo], data: bytes) -> None:
    with lasting.connect() as sock:
        sock.sendall(data)
    with lasting.connect() as sock:
        assert ask(sock, "Echo", text="alive")["parameters"]["text"] == "alive"


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served[Echo]]:
    server = Served(tmp_path_factory.mktemp("lasting") / "s", Echo(), ServerLimits())
    yield server
    server.stop()


def test_methods_and_parameters_are_checked_against_the_definition(served: Served[Echo]) -> None:
    with served.connect() as sock:
        assert ask(sock, "Nothing")["error"] == "org.varlink.service.MethodNotFound"
        wrong = ask(sock, "Echo", text=1)
        assert wrong["error"] == "org.varlink.service.InvalidParameter"
        assert wrong["parameters"]["parameter"] == "text"
        assert ask(sock, "Echo")["parameters"]["parameter"] == "text"
        assert ask(sock, "Echo", text="x", extra=1)["parameters"]["parameter"] == "extra"
        assert ask(sock, "Sum", pairs=[{"left": 1}, {"left": True}], names={})["parameters"]["parameter"] == "pairs[1].left"
        assert ask(sock, "Sum", pairs=[], names={"a": 1})["parameters"]["parameter"] == "names[...]"
        assert ask(sock, "Sum", pairs=[], names={}, sort="sideways")["parameters"]["message"].endswith("up or down")
        assert ask(sock, "Sum", pairs=[{"left": 2, "right": None}], names={}, sort="up")["parameters"] == {"sum": 2}
        sock.sendall(protocol.encode({"method": "other.interface.Echo"}))
        assert answer(sock)["error"] == "org.varlink.service.InterfaceNotFound"


def test_the_service_describes_itself(served: Served[Echo]) -> None:
    with served.connect() as sock:
        sock.sendall(protocol.encode({"method": "org.varlink.service.GetInfo"}))
        info = answer(sock)["parameters"]
        assert info["version"] == "1.2.3"
        assert info["interfaces"] == ["org.varlink.service", "test.echo"]
        for name in info["interfaces"]:
            call = {"method": "org.varlink.service.GetInterfaceDescription", "parameters": {"interface": name}}
            sock.sendall(protocol.encode(call))
            assert varlink.Interface(answer(sock)["parameters"]["description"]).name == name


def test_errors_carry_one_line_and_an_exit_code(served: Served[Echo]) -> None:
    with served.connect() as sock:
        failed = ask(sock, "Fail", how="named")
        assert failed == {"error": "test.echo.TargetNotAttainable", "parameters": {"message": "two lines", "exit_code": 4}}
        assert ask(sock, "Fail", how="unforeseen")["error"] == "test.echo.Internal"
        assert ask(sock, "Fail", how="unspeakable") == {"parameters": {"sum": None}}
        assert ask(sock, "Echo", text="alive")["parameters"]["text"] == "alive"


def test_a_half_closed_connection_gets_its_answers(served: Served[Echo]) -> None:
    with served.connect() as sock:
        sock.sendall(message("Echo", text="slow", wait_s=0.1) + message("Echo", text="quick"))
        sock.shutdown(socket.SHUT_WR)
        assert [answer(sock)["parameters"]["text"] for _ in range(2)] == ["slow", "quick"]
        assert hangs_up(sock)


def test_a_half_closed_connection_with_half_a_message_is_told_so(served: Served[Echo]) -> None:
    with served.connect() as sock:
        sock.sendall(message("Echo", text="whole") + message("Echo", text="half")[:-1])
        sock.shutdown(socket.SHUT_WR)
        assert answer(sock)["parameters"]["text"] == "whole"
        assert "each ends with a NUL byte" in answer(sock)["parameters"]["message"]
        assert hangs_up(sock)


def test_a_connection_that_half_closed_ends_when_its_peer_goes(served: Served[Echo]) -> None:
    with served.connect() as sock:
        sock.sendall(message("Echo", text="never answered", wait_s=60))
        sock.shutdown(socket.SHUT_WR)
        assert eventually(lambda: not unread(sock))
    assert eventually(lambda: served.service.ended == 1)


def test_a_connection_ends_with_its_peer_also_while_nothing_more_of_it_is_read(served: Served[Echo]) -> None:
    with served.connect() as sock:
        sock.sendall(message("Echo", text="never answered", wait_s=60))
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                sock.sendall(message("Echo", text="x" * 10_000))
    assert eventually(lambda: served.service.ended == 1)


def test_a_oneway_call_is_not_answered(served: Served[Echo]) -> None:
    with served.connect() as sock:
        sock.sendall(protocol.encode({"method": "test.echo.Echo", "parameters": {"text": "a"}, "oneway": True}))
        assert ask(sock, "Echo", text="b")["parameters"]["text"] == "b"


def test_a_connection_too_many_is_told_so_and_a_freed_place_is_given_again(served: Served[Echo]) -> None:
    socks = [served.connect() for _ in range(10)]
    for sock in socks:
        ask(sock, "Echo", text="here")
    with served.connect() as extra:
        assert answer(extra)["error"] == "test.echo.LimitReached"
        assert hangs_up(extra)
    for sock in socks:
        sock.close()
    time.sleep(0.1)
    with served.connect() as again:
        assert ask(again, "Echo", text="x")["parameters"]["text"] == "x"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")
def test_one_user_s_connections_leave_others_theirs_and_everybody_s_leave_root_s(tmp_path: Path) -> None:
    served = Served(tmp_path / "s", Echo(), ServerLimits(connections=16, connections_per_user=8))
    open_to_everybody(served.path)
    socks: list[socket.socket] = []

    def let_in(uid: int) -> int:
        """How many connections this user gets until there are no more."""
        for number in range(20):
            with somebody_else(uid, uid):
                socks.append(served.connect())
            if "error" in ask(socks[-1], "Echo", text="x"):
                return number
        return 20

    assert let_in(1000) == 8
    assert let_in(1001) == 6
    assert let_in(1002) == 0
    assert let_in(0) == 2
    for sock in socks:
        sock.close()
    served.stop()


def test_the_service_is_told_of_every_connection_that_ends(served: Served[Echo]) -> None:
    with served.connect() as gone, served.connect() as busy:
        ask(gone, "Echo", text="x")
        busy.sendall(message("Echo", text="never answered", wait_s=60))
    deadline = time.monotonic() + 5
    while served.service.ended < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert served.service.ended == 2
