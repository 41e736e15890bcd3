# SPDX-License-Identifier: Apache-2.0
"""The units: accepted by systemd, hardened, and saying what the daemon needs."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import jetdvfs
from jetdvfs.tests.support.paths import DOCS, REFERENCE

UNITS = Path(jetdvfs.__file__).parent / "systemd"
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def settings(name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (UNITS / name).read_text().splitlines():
        if match := re.fullmatch(r"([A-Z][A-Za-z]+)=(.*)", line):
            found.setdefault(match[1], []).append(match[2])
    return found


def drop_in() -> str:
    """The drop-in that the documentation has for an application's unit."""
    (text,) = re.findall(r"^```ini\n(.*?)^```", (DOCS / "integrate.md").read_text(), re.MULTILINE | re.DOTALL)
    return str(text)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units with their programs where these tests have them."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for unit in UNITS.glob("jetdvfsd.*"):
        (tmp_path / unit.name).write_text(unit.read_text().replace("/usr/bin", str(programs)))
    for program in ("jetdvfs", "jetdvfsd"):
        (programs / program).write_text("#!/bin/sh\n")
        (programs / program).chmod(0o755)
    return tmp_path


@needs_systemd
def test_systemd_accepts_the_units(installed: Path) -> None:
    units = [str(installed / name) for name in ("jetdvfsd.service", "jetdvfsd.socket")]
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
def test_systemd_accepts_the_drop_in_of_an_application(installed: Path) -> None:
    programs = installed / "bin"
    shutil.copy(programs / "jetdvfs", programs / "camera")
    (installed / "camera.service").write_text(f"[Service]\nExecStart={programs}/camera\n")
    (installed / "camera.service.d").mkdir()
    (installed / "camera.service.d" / "jetdvfs.conf").write_text(drop_in().replace("/usr/bin", str(programs)))
    command = ["systemd-analyze", "verify", "--man=no", str(installed / "camera.service")]
    env = {**os.environ, "SYSTEMD_UNIT_PATH": f"{installed}:"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_drop_in_of_an_application_ends_with_6_without_a_daemon(tmp_path: Path) -> None:
    program, *words = re.findall("^ExecStart=(.+)$", drop_in(), re.MULTILINE)[0].split()
    places = {"/opt/camera/resnet18.pt": str(REFERENCE / "resnet18.pt"), "/usr/bin/camera": "true"}
    command = [sys.executable, "-m", "jetdvfs.daemon.cli", *(places.get(word, word) for word in words)]
    env = {**os.environ, "JETDVFS_SOCKET": str(tmp_path / "none.sock")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=60)
    assert (program, done.returncode) == ("/usr/bin/jetdvfs", 6) and "no daemon answers" in done.stderr


@needs_systemd
def test_the_daemon_is_confined(installed: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(installed / "jetdvfsd.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze cannot judge a unit that is not loaded")
    assert done.returncode == 0, done.stdout[-300:]


def test_the_board_stays_writable_and_is_given_back_whatever_happens() -> None:
    service = settings("jetdvfsd.service")
    # It would make /sys read-only.
    assert "ProtectKernelTunables" not in service
    assert service["Type"] == ["notify"]
    assert service["ExecStopPost"] == ["/usr/bin/jetdvfs restore"]
    assert float(service["WatchdogSec"][0]) >= 5
    assert {"nvpmodel.service", "nvpower.service", "nvfancontrol.service"} <= set(service["After"][0].split())


@needs_systemd
def test_a_socket_opened_by_systemd_is_used(tmp_path: Path) -> None:
    activate = shutil.which("systemd-socket-activate")
    if activate is None:
        pytest.skip("systemd-socket-activate is not installed")
    program = (
        "from jetdvfs.daemon.system.notify import listen_sockets; found = listen_sockets(); "
        "peer, _ = found['jetdvfs'].accept(); peer.sendall(b'hello'); peer.close()"
    )
    path = tmp_path / "socket"
    command = [activate, f"--listen={path}", "--fdname=jetdvfs", sys.executable, "-c", program]
    environment = {"PATH": os.environ["PATH"]}
    with subprocess.Popen([*command], env=environment, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 10
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(10)
            sock.connect(str(path))
            assert sock.recv(10) == b"hello"
        assert process.wait(10) == 0
