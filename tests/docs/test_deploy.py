# SPDX-License-Identifier: Apache-2.0
"""The files of docs/deploy/daemon: they name programs, options and folders that the product has."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from jetdvfs.daemon.config import read_config
from jetdvfs.daemon.system.folders import RUNTIME_DIR, STATE_DIR
from jetdvfs.daemon.wire.protocol import SOCKET_NAME
from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon
from jetdvfs.tests.support.paths import DOCS, ROOT

FILES = DOCS / "deploy" / "daemon"
PAGE = (DOCS / "integrate.md").read_text(encoding="utf-8")


def documents() -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all((FILES / "daemonset.yaml").read_text(encoding="utf-8"))}


def options(words: list[str]) -> dict[str, str]:
    """The options of a command line, each with its value."""
    return dict(zip(words[::2], words[1::2], strict=True))


def test_the_daemon_set_starts_the_daemon_with_options_that_it_has_and_folders_that_are_mounted() -> None:
    spec = documents()["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    given = options(container["args"])
    assert Path(given["--runtime-dir"]) == RUNTIME_DIR and Path(given["--state-dir"]) == STATE_DIR
    assert Path(given["--socket"]) == RUNTIME_DIR / SOCKET_NAME
    shown = subprocess.run([sys.executable, "-m", "jetdvfs.daemon.service", "--help"], capture_output=True, text=True).stdout
    assert all(f"{option} " in shown for option in given)
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    assert {str(Path(path)) for path in ("/sys", RUNTIME_DIR, STATE_DIR, "/var/lib/nvpmodel")} <= set(mounts)
    assert all(any(Path(path).is_relative_to(mount) for mount in mounts) for path in given.values())
    assert set(mounts.values()) == {volume["name"] for volume in spec["volumes"]}
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    assert all(mounts[path] in paths for path in ("/sys", str(RUNTIME_DIR), str(STATE_DIR)))
    assert container["securityContext"]["privileged"] and spec["hostPID"]
    # Giving back may take as long as the service's own end.
    unit = (ROOT / "systemd" / "jetdvfsd.service").read_text(encoding="utf-8")
    assert spec["terminationGracePeriodSeconds"] > int(re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)[0])


def test_the_configuration_in_the_daemon_set_is_one(tmp_path: Path) -> None:
    (name, text), *others = documents()["ConfigMap"]["data"].items()
    assert (name, others) == ("jetdvfsd.yaml", [])
    (tmp_path / name).write_text(text)
    reading = read_config(tmp_path / name)
    assert reading.members is not None and not reading.problems and not reading.warnings


def test_the_command_of_the_daemon_set_serves_and_its_probe_passes(board: Board, tmp_path: Path) -> None:
    (container,) = documents()["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    for probe in ("readinessProbe", "livenessProbe"):
        program, *words = container[probe]["exec"]["command"]
        assert program == "/usr/bin/jetdvfs"
        with Daemon(board, tmp_path) as daemon, daemon.client():
            command = [sys.executable, "-m", "jetdvfs.daemon.cli", *words, "--socket", str(daemon.socket)]
            assert subprocess.run(command, capture_output=True, timeout=60).returncode == 0
        assert subprocess.run(command, capture_output=True, timeout=60).returncode == 6


def test_the_image_is_made_of_the_package_and_starts_its_program() -> None:
    text = (FILES / "Containerfile").read_text(encoding="utf-8")
    assert 'ENTRYPOINT ["/usr/bin/jetdvfsd"]' in text and "dist/jetdvfs_*.deb" in text
    (number,) = re.findall(r"--gid (\d+) jetdvfs", text)
    assert f"supplementalGroups: [{number}]" in PAGE
    assert "make deb" in PAGE and re.search(r"^deb:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
