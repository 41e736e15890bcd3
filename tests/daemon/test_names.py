# SPDX-License-Identifier: Apache-2.0
"""Names that others chose are shown everywhere, and steer neither a terminal nor a log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetdvfs.daemon.errors import DaemonError
from jetdvfs.daemon.system.journal import LEASE_BEGUN, fields
from jetdvfs.daemon.wire import protocol
from jetdvfs.tests.support.daemons.board_daemon import LOW, Board, Daemon

# Sets a terminal's title, turns the writing, hides a letter, and begins a line of its own.
ODD = "x\x1b]0;mine\x07\u202egnp\u200b\r\n<2>jetdvfsd: all is lost"
SHOWN = "x?]0;mine??gnp???<2>jetdvfsd: all is lost"


@pytest.fixture
def daemon(board: Board, tmp_path: Path, bundle: Path) -> Iterator[Daemon]:
    with Daemon(board, tmp_path, "--profile", str(bundle)) as daemon:
        yield daemon


def network(**changes: object) -> dict[str, object]:
    shape: dict[str, object] = {"inputs": [[1, 64, 56, 56]], "output": [1, 64, 56, 56], "dtype": "float32", "scope": ODD}
    launch = {"kind": "relu", "params": {}, "flops": 200704, "bytes": 1605632}
    return {"name": ODD, "launches": [{**shape, **launch, **changes}]}


def run(daemon: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "JETDVFS_SOCKET": str(daemon.socket), "PYTHONIOENCODING": "utf-8"}
    return subprocess.run([sys.executable, "-m", "jetdvfs.daemon.cli", *words], capture_output=True, text=True, env=env)


def test_of_leases_in_the_status_the_log_and_their_own_answers(daemon: Daemon) -> None:
    with daemon.client() as client:
        loaded = client.load_network(network(), accept_boundary=[ODD])
        client.hold(loaded, "min-energy", reason=ODD, app=ODD)
        (lease,) = client.status()["leases"]
        assert (lease["app"], lease["reason"], lease["network"]) == (SHOWN, SHOWN, SHOWN)
        shown = run(daemon, "status")
        assert shown.returncode == 0 and shown.stdout.count(SHOWN) >= 3
        assert all(line.isprintable() for line in shown.stdout.split("\n"))
    assert SHOWN in daemon.log.read_text()
    assert all(line.isprintable() and not line.startswith("<2>") for line in daemon.log.read_text().split("\n"))


def test_of_a_command_and_of_a_lease_that_there_is_not(daemon: Daemon, tmp_path: Path) -> None:
    command = tmp_path / "odd\x1b[2Jname"
    command.write_text(f"#!/bin/sh\nexec {sys.executable} -m jetdvfs.daemon.cli status\n")
    command.chmod(0o755)
    daemon.client().close()
    held = run(daemon, "hold", "--config", ",".join(map(str, LOW)), "--reason", ODD, "--", str(command))
    assert held.returncode == 0 and f"reason: {SHOWN}" in held.stdout and "odd?[2Jname" in held.stdout
    for refused in (run(daemon, "release", ODD), run(daemon, "hold", "--config", "1,1,1", "--", f"no{ODD}")):
        assert refused.returncode and len(refused.stderr.splitlines()) == 1
    for done in (held, refused):
        assert all(line.isprintable() for line in (*done.stdout.split("\n"), *done.stderr.split("\n")))


def test_of_everything_in_an_error(daemon: Daemon) -> None:
    with daemon.client() as client:
        loaded = client.load_network(network())
        for attempt in (
            lambda: client.load_network(network(dtype=ODD)),
            lambda: client.load_network({**network(), "boundary": {"operator": ODD, "place": ODD, "reason": ODD}}),
            lambda: client.plan(loaded, ODD),
            lambda: client.plan(ODD, "min-energy"),
            lambda: client.release(ODD),
            lambda: client.call(ODD, {}),
            lambda: client.call("Plan", {ODD: 1}),
            lambda: client.call("Plan", {"network": loaded.handle, "target": "min-energy", "method": ODD}),
        ):
            with pytest.raises(DaemonError) as caught:
                attempt()
            assert str(caught.value).isprintable(), attempt
    assert all(line.isprintable() for line in daemon.log.read_text().split("\n"))


def test_whatever_a_daemon_answers_an_error_s_text_is_one_printable_line() -> None:
    for error in (
        f"io.jetdvfs.{ODD}",
        "io.jetdvfs.HardwareRefused",
        "org.varlink.service.InvalidParameter",
        "org.varlink.service.X",
    ):
        for parameters in ({"message": ODD}, {"parameter": ODD}, {ODD: ODD}):
            with pytest.raises(DaemonError) as caught:
                protocol.raise_error(json.loads(json.dumps({"error": error, "parameters": parameters})))
            assert str(caught.value).isprintable()
    assert protocol.error_reply(ValueError(ODD))["parameters"]["message"].isprintable()


def test_in_the_fields_of_the_journal() -> None:
    assert fields(LEASE_BEGUN, app=ODD) == {"MESSAGE_ID": LEASE_BEGUN, "JETDVFS_APP": SHOWN}
