# SPDX-License-Identifier: Apache-2.0
"""Others' varlink clients against the running daemon: systemd's varlinkctl and the varlink project's library for Python."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import varlink

from jetdvfs.daemon.wire import protocol
from jetdvfs.docs.interfaces import definitions
from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon

LOW = {"cpu_khz": 1190400, "gpu_hz": 675750000, "emc_hz": 1600000000}
needs_varlinkctl = pytest.mark.skipif(shutil.which("varlinkctl") is None, reason="varlinkctl comes with systemd 255")


@pytest.fixture
def daemon(board: Board, tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(board, tmp_path) as daemon:
        daemon.client().close()
        yield daemon


def varlinkctl(*arguments: object) -> str:
    done = subprocess.run(["varlinkctl", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_varlinkctl
@pytest.mark.parametrize("path", definitions())
def test_varlinkctl_finds_the_definitions_valid(path: Path) -> None:
    varlinkctl("validate-idl", path)


@needs_varlinkctl
def test_varlinkctl_asks_the_daemon(board: Board, daemon: Daemon) -> None:
    info = json.loads(varlinkctl("info", "--json=short", daemon.socket))
    assert info["interfaces"] == ["org.varlink.service", protocol.INTERFACE]
    assert varlinkctl("list-interfaces", daemon.socket).split() == ["io.jetdvfs", "org.varlink.service"]
    assert f"{protocol.INTERFACE}.Hold" in varlinkctl("list-methods", daemon.socket, protocol.INTERFACE)
    for name in info["interfaces"]:
        assert f"interface {name}" in varlinkctl("introspect", daemon.socket, name)
    asked = json.dumps({"configuration": LOW})
    for more in ((), ("--more",)):
        text = varlinkctl("call", "--json=short", *more, daemon.socket, f"{protocol.INTERFACE}.Hold", asked)
        held = json.loads(text.lstrip("\x1e"))  # so begins a record of several
        assert held["applied"]["requested"] == LOW
    status = json.loads(varlinkctl("call", "--json=short", daemon.socket, f"{protocol.INTERFACE}.Status", "{}"))["status"]
    assert status["board"] == "agx-xavier" and status["leases"] == []
    wrong = ["varlinkctl", "call", str(daemon.socket), f"{protocol.INTERFACE}.Release", '{"lease":"none"}']
    done = subprocess.run(wrong, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and f"{protocol.INTERFACE}.InvalidRequest" in done.stderr


@needs_varlinkctl
def test_varlinkctl_asks_on_the_socket_of_root(daemon: Daemon) -> None:
    assert "method Reload" in varlinkctl("introspect", daemon.admin, protocol.ADMIN_INTERFACE)
    answered = json.loads(varlinkctl("call", "--json=short", daemon.admin, f"{protocol.ADMIN_INTERFACE}.Restore", "{}"))
    assert answered["leases"] == 0


def test_the_library_for_python_asks_the_daemon(board: Board, daemon: Daemon) -> None:
    found = board.settings()
    with varlink.Client.new_with_address(f"unix:{daemon.socket}") as client:
        assert set(client.get_interfaces()) == {"org.varlink.service", protocol.INTERFACE}
        assert "method Hold(" in client.get_interface(protocol.INTERFACE).description
        with client.open(protocol.INTERFACE) as asking:
            info: dict[str, Any] = asking.Status()["status"]
            assert info["board"] == "agx-xavier"
            held = asking.Hold(configuration=LOW, fps=30, reason="tried by another client")
            assert held["applied"]["verified"]
            assert board.clocks._asdict() == LOW
            asking.Release(held["lease"])
            with pytest.raises(varlink.VarlinkError) as caught:
                asking.Release(held["lease"])
            assert caught.value.error() == f"{protocol.INTERFACE}.InvalidRequest"
    assert board.settings() == found
