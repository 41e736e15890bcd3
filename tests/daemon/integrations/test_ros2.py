# SPDX-License-Identifier: Apache-2.0
"""The package for ROS 2, with the real daemon on a simulated board: with a stand-in for rclpy and, where it is, rclpy."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon, eventually
from jetdvfs.tests.support.pages import INTEGRATIONS
from jetdvfs.tests.support.paths import REFERENCE, ROOT

PACKAGE = INTEGRATIONS / "ros2"
OURS = ("rclpy", "diagnostic_msgs", "std_srvs", "jetdvfs_ros")


@pytest.fixture
def holder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The node, made of the stand-in."""
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "support" / "ros2_stand_in"))
    monkeypatch.syspath_prepend(str(PACKAGE))
    node = importlib.import_module("jetdvfs_ros.holder").HolderNode()
    yield node
    node.clocks.destroy()
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def daemon(board: Board, tmp_path: Path, bundle: Path) -> Iterator[Daemon]:
    with Daemon(board, tmp_path, "--profile", str(bundle)) as daemon:
        # What is planned for once is there at once: who can do without a lease waits for it for ten seconds alone.
        with daemon.client() as client:
            client.plan(client.load(REFERENCE / "squeezenet1_0.pt", ["1x3x224x224"]), "min-energy", fps=10.0)
        yield daemon


def configure(node: Any, daemon: Daemon, folder: Path) -> None:
    model = shutil.copy(REFERENCE / "squeezenet1_0.pt", folder)
    node.parameters |= {"jetdvfs.model": str(model), "jetdvfs.inputs": ["1x3x224x224"], "jetdvfs.fps": 10.0}
    node.parameters["jetdvfs.socket"] = str(daemon.socket)


def told(node: Any) -> tuple[Any, dict[str, str]]:
    node.clocks.diagnose()
    (status,) = node.published[-1].status
    return status, {item.key: item.value for item in status.values}


def test_an_active_node_holds_and_an_inactive_one_has_given_back(
    holder: Any, board: Board, found: dict[str, str], daemon: Daemon, tmp_path: Path
) -> None:
    configure(holder, daemon, tmp_path)
    assert holder.on_activate(None) == "SUCCESS" and holder.clocks.held
    with daemon.client() as client:
        (lease,) = client.status()["leases"]
        assert (lease["app"], lease["reason"], lease["target"]) == ("jetdvfs", "ROS 2 node /jetdvfs", "min-energy")
        stamp = holder.get_clock().now().to_msg()
        time.sleep(0.02)
        for _ in range(5):
            holder.clocks.frame(stamp)
        assert eventually(lambda: client.status()["leases"][0]["observed"])
        assert 20 <= client.status()["leases"][0]["observed"]["p50_ms"] < 5_000
        status, values = told(holder)
        assert (status.level, status.message) == (b"\0", "held for min-energy")
        assert values["frames"] == "5" and float(values["last_ms"]) >= 20 and int(values["gpu_hz"]) > 0
        assert holder.on_deactivate(None) == "SUCCESS" and not holder.clocks.held
        assert eventually(lambda: client.status()["leases"] == [])
    assert eventually(lambda: board.settings() == found)
    assert told(holder)[0].message == "not held"


def test_services_hold_and_release(holder: Any, daemon: Daemon, tmp_path: Path) -> None:
    configure(holder, daemon, tmp_path)
    assert holder.call("~/release").success is False
    answer = holder.call("~/hold")
    assert (answer.success, answer.message) == (True, "held for min-energy")
    assert holder.call("~/hold").success
    assert holder.call("~/release").success and not holder.clocks.held
    holder.parameters["jetdvfs.inputs"] = ["nonsense"]
    refused = holder.call("~/hold")
    assert refused.success is False and "nonsense" in refused.message


def test_without_a_daemon_the_node_runs_the_same(holder: Any, tmp_path: Path) -> None:
    configure(holder, SimpleNamespace(socket=tmp_path / "none.sock"), tmp_path)  # type: ignore[arg-type]
    assert holder.on_activate(None) == "SUCCESS" and not holder.clocks.held
    holder.clocks.report(5.0)
    status, values = told(holder)
    assert status.level == b"\1" and status.message.startswith("not held: ") and values["frames"] == "1"
    assert holder.on_shutdown(None) == "SUCCESS"


class Graph:
    """A ROS 2 graph of this machine alone: the holder's process, and a caller's."""

    def __init__(self, daemon: Daemon, folder: Path) -> None:
        model = shutil.copy(REFERENCE / "squeezenet1_0.pt", folder)
        said = {"model": model, "inputs": "['1x3x224x224']", "fps": 10.0, "socket": daemon.socket}
        parameters = [word for name, value in said.items() for word in ("-p", f"jetdvfs.{name}:={value}")]
        program = "from jetdvfs_ros.holder import main; main()"
        self._env = {**os.environ, "PYTHONPATH": str(PACKAGE), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
        self._env |= {"ROS_DOMAIN_ID": str(os.getpid() % 100), "ROS_LOG_DIR": str(folder)}
        self.holder = self._started("-c", program, "--ros-args", *parameters)
        self._caller = self._started(str(ROOT / "tests" / "support" / "ros2_caller.py"))

    def _started(self, *words: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen([sys.executable, *words], stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=self._env)

    def ask(self, what: str) -> Any:
        assert self._caller.stdin and self._caller.stdout
        print(what, file=self._caller.stdin, flush=True)
        answer = self._caller.stdout.readline()
        assert answer, self._caller.stderr and self._caller.stderr.read()
        return json.loads(answer)

    def close(self) -> None:
        for process in (self._caller, self.holder):
            process.kill()
            process.communicate()


@pytest.fixture
def graph(daemon: Daemon, tmp_path: Path) -> Iterator[Graph]:
    # Asked of a process of its own: in this one the stand-in may be what is found.
    needed = "import rclpy, diagnostic_msgs.msg, lifecycle_msgs.srv, std_srvs.srv"
    if subprocess.run([sys.executable, "-c", needed], capture_output=True, check=False).returncode:
        pytest.skip("rclpy is not installed (pip install ros-kilted-rclpy[fastrtps] ros-kilted-diagnostic-msgs ...)")
    graph = Graph(daemon, tmp_path)
    yield graph
    graph.close()


def test_a_node_of_the_real_rclpy_holds_while_it_is_active(
    graph: Graph, board: Board, found: dict[str, str], daemon: Daemon
) -> None:
    assert graph.ask("configure") and graph.ask("activate")
    with daemon.client() as client:
        (lease,) = client.status()["leases"]
        assert (lease["app"], lease["reason"], lease["target"]) == ("jetdvfs", "ROS 2 node /jetdvfs", "min-energy")
        told = graph.ask("diagnostics")
        assert (told["level"], told["message"]) == (0, "held for min-energy") and int(told["gpu_hz"]) > 0
        assert graph.ask("deactivate")
        assert eventually(lambda: client.status()["leases"] == [])
        assert eventually(lambda: board.settings() == found)
        assert graph.ask("hold") == {"success": True, "message": "held for min-energy"}
        assert graph.ask("release")["success"] and not graph.ask("release")["success"]
        assert graph.ask("hold")["success"]
        told = graph.ask("frame")
        assert told["frames"] == "1" and 20 <= float(told["last_ms"]) < 5_000 and told["message"] == "not held"
        graph.holder.terminate()
        _, errors = graph.holder.communicate(timeout=30)
        assert graph.holder.returncode == 0 and "Traceback" not in errors
        assert eventually(lambda: client.status()["leases"] == [])


def test_the_package_is_one_and_its_readme_says_what_it_was_tried_with() -> None:
    manifest = ET.parse(PACKAGE / "package.xml").getroot()
    assert manifest.findtext("name") == "jetdvfs_ros" and manifest.findtext("export/build_type") == "ament_python"
    needed = {element.text for element in manifest.findall("exec_depend")}
    imported = set()
    for path in (PACKAGE / "jetdvfs_ros").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        imported |= set(re.findall(r"^(?:from|import) (rclpy|\w+_(?:msgs|srvs))", text, re.MULTILINE))
    assert imported == needed
    assert (PACKAGE / "resource" / "jetdvfs_ros").is_file()
    readme = (PACKAGE / "README.md").read_text(encoding="utf-8")
    assert "tests/support/ros2_stand_in" in readme and "ros-kilted-rclpy" in readme
