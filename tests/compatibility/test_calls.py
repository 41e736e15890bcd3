# SPDX-License-Identifier: Apache-2.0
"""Clients and daemons of different releases: calls and replies of 1.0, as stored, against those of this tree."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from jetdvfs import Client, qos
from jetdvfs.daemon.errors import DaemonError, TargetNotAttainable, UsageError
from jetdvfs.tests.support import stable
from jetdvfs.tests.support.stable import STORED, keys, lost
from jetdvfs.tests.support.stable_board import MODEL, exchanges, stable_board
from jetdvfs.tests.support.verbs import run_in

EXCHANGES = [json.loads(line) for line in (STORED / "calls.jsonl").read_text().splitlines()]
INTERFACE = stable.varlink((STORED / "jetdvfs.varlink").read_text())


def test_an_older_client_gets_every_member_that_it_knows(tmp_path: Path) -> None:
    with stable_board(tmp_path) as (_, daemon):
        calls = tuple((one["method"], one["parameters"]) for one in EXCHANGES)
        for before, now in zip(EXCHANGES, exchanges(daemon.socket, calls), strict=True):
            assert not lost(keys(before["reply"]), keys(now["reply"])), before["method"]
            assert before["reply"].get("error") == now["reply"].get("error"), before["method"]
            assert before["reply"]["parameters"].get("exit_code") == now["reply"]["parameters"].get("exit_code")


class DaemonOfThen:
    """A daemon of release 1.0: it refuses members that 1.0 does not have, and answers with the stored replies."""

    def __init__(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        data = b""
        with connection, contextlib.suppress(OSError):
            while received := connection.recv(1 << 16):
                *messages, data = (data + received).split(b"\0")
                for call in map(json.loads, messages):
                    reply = self._reply(call["method"].rpartition(".")[2], call.get("parameters") or {})
                    if not call.get("oneway"):
                        connection.sendall(json.dumps(reply).encode() + b"\0")

    def _reply(self, method: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        if method not in INTERFACE["methods"]:
            return {"error": "org.varlink.service.MethodNotFound", "parameters": {"method": method}}
        if strange := [*unknown(parameters, INTERFACE["methods"][method]["parameters"])]:
            return {"error": "org.varlink.service.InvalidParameter", "parameters": {"parameter": strange[0]}}
        if parameters.get("target") == "latency_ms=0.001":
            return next(one["reply"] for one in EXCHANGES if "TargetNotAttainable" in one["reply"].get("error", ""))
        replies = [one["reply"] for one in EXCHANGES if one["method"].endswith(f".{method}") and "error" not in one["reply"]]
        return dict(replies[0])


def unknown(value: Any, members: Mapping[str, Any]) -> Iterator[str]:
    for name, inner in value.items():
        if name not in members:
            yield name
            continue
        kind = re.sub(r"[^\w]", "", str(members[name]))
        for item in inner if isinstance(inner, list) else [inner]:
            if kind in INTERFACE["types"] and isinstance(item, dict):
                yield from unknown(item, INTERFACE["types"][kind])


@pytest.fixture
def older(tmp_path: Path) -> Iterator[Path]:
    daemon = DaemonOfThen(tmp_path / "jetdvfs.sock")
    yield tmp_path / "jetdvfs.sock"
    daemon.close()


def test_every_call_of_the_client_is_understood_by_an_older_daemon(older: Path) -> None:
    with Client(older) as client:
        assert client.status()["board"] == "agx-xavier"
        network = client.load(MODEL, ["1x3x224x224"])
        assert client.predict(network, fps=30)["top"]["latency_ms"] > 0
        assert client.plan(network, "latency_ms=20", fps=30, confidence=0.9)["choice"]["configuration"]
        with pytest.raises(TargetNotAttainable):
            client.plan(network, "latency_ms=0.001")
        assert client.preview(configuration="max")["cpu_khz"]
        with client.hold(network, "latency_ms=20", fps=30, reason="test", app="camera", ceiling_c=90.0) as lease:
            assert lease.plan is not None and lease.applied is not None
            lease.report(12.5)
            lease.flush()
            lease.change(target="latency_ms=30")
            assert lease.missed() is None
        assert client.log() and client.learned() == client.learned("x") and client.forget("x") == 0
        network.unload()


def test_hooks_of_an_application_run_with_an_older_daemon(older: Path) -> None:
    with qos.hold(str(MODEL), ["1x3x224x224"], "latency_ms=20", fps=30, socket_path=older) as lease:
        for _ in range(3):
            with qos.frame(lease, wait=False):
                pass
        assert lease.held


@pytest.mark.parametrize("words", [("status",), ("status", "--why"), ("status", "--prometheus"), ("top", "--once"), ("log",)])
def test_commands_show_an_older_daemon(words: tuple[str, ...], older: Path, tmp_path: Path) -> None:
    done = run_in(tmp_path, *words, "--socket", older)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout


def test_an_option_that_an_older_daemon_does_not_know_is_named_in_one_line(older: Path) -> None:
    with Client(older) as client, pytest.raises(UsageError, match="later") as refusal:
        client.call("Hold", {"configuration_text": "max", "later": 1})
    assert "\n" not in str(refusal.value)
    with Client(older) as client, pytest.raises(DaemonError, match="MethodNotFound"):
        client.call("Later", {})
