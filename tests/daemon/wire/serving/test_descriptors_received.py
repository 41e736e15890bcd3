# SPDX-License-Identifier: Apache-2.0
"""Descriptors that come with calls: each with exactly one, and none is left open."""

from __future__ import annotations

import os
import socket
import time

import pytest

from jetdvfs.tests.support.daemons.board_daemon import eventually
from jetdvfs.tests.support.daemons.echo import Echo, answer, ask, hangs_up, message, open_descriptors, unread
from jetdvfs.tests.support.daemons.served import Served


def test_one_descriptor_comes_with_its_message_and_is_closed_afterwards(served: Served[Echo]) -> None:
    with served.connect() as sock, open(os.devnull, "rb") as file:
        before = 0
        for _ in range(5):
            socket.send_fds(sock, [message("Echo", text="with")], [file.fileno()])
            assert answer(sock)["parameters"]["descriptors"] == 1
            before = before or open_descriptors()
        assert ask(sock, "Echo", text="without")["parameters"]["descriptors"] == 0
        assert open_descriptors() == before


def test_what_nobody_receives_is_taken_off_the_connection_and_it_goes_on(served: Served[Echo]) -> None:
    with served.connect() as sock, open(os.devnull, "rb") as file:
        for text in ("not taken", "taken", "not taken"):
            socket.send_fds(sock, [message("Echo", text=text)], [file.fileno()])
            assert answer(sock)["parameters"]["text"] == text
        assert ask(sock, "Echo", text="without")["parameters"]["descriptors"] == 0


def test_calls_before_one_with_a_descriptor_are_answered_first_however_they_were_sent(served: Served[Echo]) -> None:
    with served.connect() as sock, open(os.devnull, "rb") as file:
        for pause_s in (0, 0.05):
            sock.sendall(message("Echo", text="slow", wait_s=0.1) + message("Echo", text="x" * 60_000))
            sock.sendall(message("Echo", text="third"))
            time.sleep(pause_s)
            socket.send_fds(sock, [message("Echo", text="with")], [file.fileno()])
            sock.sendall(message("Echo", text="last"))
            answers = [answer(sock)["parameters"] for _ in range(5)]
            assert [(one["text"][:5], one["descriptors"]) for one in answers] == [
                ("slow", 0),
                ("xxxxx", 0),
                ("third", 0),
                ("with", 1),
                ("last", 0),
            ]


@pytest.mark.parametrize("how", ["two calls", "half a call", "the other half", "one and a half"])
def test_a_descriptor_comes_with_exactly_one_call(served: Served[Echo], how: str) -> None:
    with served.connect() as sock, open(os.devnull, "rb") as file:
        ask(sock, "Echo", text="connected")
        one = message("Echo", text="x")
        if how == "the other half":
            sock.sendall(one[:3])
            assert eventually(lambda: not unread(sock))
        data = {"two calls": one + one, "half a call": one[:-3], "the other half": one[3:], "one and a half": one + one[:3]}[
            how
        ]
        socket.send_fds(sock, [data], [file.fileno()])
        refusal = answer(sock)
        assert refusal["error"] == "test.echo.InvalidRequest"
        assert "with a descriptor is sent by itself" in refusal["parameters"]["message"]
        assert hangs_up(sock)
