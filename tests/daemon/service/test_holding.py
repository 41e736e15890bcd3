# SPDX-License-Identifier: Apache-2.0
"""Clocks are held for who asks, and go back when that ends, by the real process on a simulated board."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from jetdvfs.daemon.errors import (
    InputError,
    LimitReached,
    TargetNotAttainable,
    UsageError,
)
from jetdvfs.daemon.wire import protocol
from jetdvfs.daemon.wire.calls import PUBLIC
from jetdvfs.daemon.wire.client import Client
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.tests.support.daemons.board_daemon import EMC, LOW, Board, Daemon, eventually, served_board
from jetdvfs.tests.support.daemons.replies import check_reply
from jetdvfs.tests.support.paths import REFERENCE

HIGH = FrequencyConfiguration(2265600, 216750000, 2133000000)

BOTH = FrequencyConfiguration(2265600, 675750000, 2133000000)

MODEL = REFERENCE / "squeezenet1_0.pt"

IMAGE = ["1x3x224x224"]


def test_a_held_configuration_is_in_force_and_goes_back_on_release(board: Board, found: dict[str, str], daemon: Daemon) -> None:
    with daemon.client() as client:
        lease = client.hold(configuration=LOW, reason="camera", app="viewer")
        assert lease.applied is not None and lease.applied["verified"]
        assert board.clocks == LOW
        status = client.status()
        assert status["baseline"] == "held"
        assert [(one["app"], one["reason"], one["pid"]) for one in status["leases"]] == [("viewer", "camera", os.getpid())]
        assert status["writes"] == lease.applied["writes"]
        lease.release()
        assert board.settings() == found
        assert client.status()["baseline"] == "none"


def test_what_the_daemon_answers_is_what_its_interface_promises(daemon: Daemon) -> None:
    with daemon.client() as client:
        network = client.load(MODEL, IMAGE)
        predicting = {"network": network.handle, "fps": 30}
        planning = {**predicting, "target": "latency_ms=30", "confidence": 0.9}
        for method, parameters in (
            ("Predict", predicting),
            ("Predict", {**predicting, "configuration": LOW._asdict(), "method": "sum"}),
            ("Predict", {**predicting, "execution": "graph", "beside": {"host_ms": 2, "copied_bytes": 1 << 20}}),
            ("Plan", planning),
            ("Plan", {**planning, "execution": "engine"}),
            ("Hold", planning),
            ("Hold", {"configuration": LOW._asdict()}),
            ("Report", {"lease": "1", "latency_ms": [1.5, 2]}),
            ("Status", {}),
            ("Release", {"lease": "1"}),
            ("Unload", {"network": network.handle}),
        ):
            check_reply(PUBLIC, method, client.call(method, parameters))


def test_a_target_is_planned_for_the_execution_and_what_a_frame_takes_besides(daemon: Daemon) -> None:
    with daemon.client() as client:
        network = client.load(MODEL, IMAGE)
        slow_host = FrequencyConfiguration(115200, 1377000000, 2133000000)
        eager, graph = (client.predict(network, slow_host, execution=execution)["at"] for execution in (None, "graph"))
        assert graph["energy_mj"] < eager["energy_mj"]  # which the calls of all its launches are part of
        target = f"latency_ms={eager['latency_ms']}"
        with pytest.raises(TargetNotAttainable):
            client.hold(network, target, beside={"host_ms": 50.0})
        lease = client.hold(network, target, execution="graph")
        assert lease.plan is not None and lease.plan["execution"] == "graph"
        assert "starting a graph was not measured" in lease.plan["why"]
        with pytest.raises(InputError, match="host_ms"):
            client.predict(network, beside={"host_ms": -1.0})
        with pytest.raises(UsageError, match="execution"):
            client.predict(network, execution="captured")


def test_clocks_go_back_when_the_client_dies(board: Board, found: dict[str, str], daemon: Daemon) -> None:
    program = f"import sys, time; from jetdvfs import Client; lease = Client(sys.argv[1]).hold(configuration={tuple(LOW)})"
    with daemon.client() as client:
        holder = subprocess.Popen([sys.executable, "-c", f"{program}; time.sleep(60)", str(daemon.socket)])
        assert eventually(lambda: client.status()["leases"])
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert eventually(lambda: not client.status()["leases"])
        assert board.settings() == found


def test_in_a_plain_folder_clocks_are_held_and_go_back_too(tmp_path: Path) -> None:
    with served_board(tmp_path / "root", "folder") as board:
        found = board.settings()
        with Daemon(board, tmp_path) as daemon:
            with daemon.client() as client, client.hold(configuration=LOW) as lease:
                assert lease.applied is not None and lease.applied["verified"]
                assert board.clocks == LOW
            assert eventually(lambda: board.settings() == found)
            daemon.client().hold(configuration=LOW)
            daemon.kill()
            daemon.start()
            with daemon.client():
                assert eventually(lambda: board.settings() == found)
            assert daemon.stop() == 0


def test_leases_together_get_the_highest_clock_on_each_axis(board: Board, found: dict[str, str], daemon: Daemon) -> None:
    with daemon.client() as one, daemon.client() as other:
        first = one.hold(configuration=LOW)
        second = other.hold(configuration=HIGH)
        assert board.clocks == BOTH
        raised = {lease["lease"]: lease["raised_by"] for lease in one.status()["leases"]}
        assert raised == {first.id: [second.id], second.id: [first.id]}
        first.release()
        assert board.clocks == HIGH
        second.release()
        assert board.settings() == found


def test_two_clients_at_once_are_answered(daemon: Daemon) -> None:
    with daemon.client() as reader, daemon.client() as other:
        # One waits for a model to be read; the other is answered meanwhile.
        descriptor = os.open(MODEL, os.O_RDONLY)
        tensors = [{"shape": [1, 3, 224, 224], "dtype": "float32"}]
        call = protocol.encode({"method": "io.jetdvfs.LoadModel", "parameters": {"inputs": tensors}})
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(daemon.socket))
            socket.send_fds(sock, [call], [descriptor])
            assert other.status()["leases"] == []
            assert reader.status()["leases"] == []
            sock.setblocking(False)
            with pytest.raises(BlockingIOError):
                sock.recv(1)
            sock.settimeout(20)
            assert b'"launches"' in sock.recv(1 << 16)
        os.close(descriptor)


def test_the_operator_s_limits_bind_plans_and_leases(board: Board, found: dict[str, str], tmp_path: Path, bundle: Path) -> None:
    config = tmp_path / "jetdvfsd.yaml"
    config.write_text("limits: {gpu_hz: {max: 675750000}}\naxes: [cpu, gpu]\nclients: {leases: 2}\n")
    with Daemon(board, tmp_path, "--config", str(config), "--profile", str(bundle)) as daemon:
        with daemon.client() as client:
            emc = client.status()["configuration"]["emc_hz"]
            with pytest.raises(UsageError, match=r"GPU 1377 MHz may not be set; nearest: 675\.75 MHz"):
                client.hold(configuration=(1190400, 1377000000, 204000000))
            network = client.load(MODEL, IMAGE)
            plan = client.plan(network, "min-edp")
            assert plan["choice"]["configuration"]["gpu_hz"] <= 675750000
            with client.hold(network, "min-edp"), client.hold(network, "min-edp"):
                assert board.read(f"{EMC}/mrq_rate_locked") == "0"
                assert emc > 0
                with pytest.raises(LimitReached):
                    client.hold(network, "min-edp")
                config.write_text("limits: {gpu_hz: {max: 318750000}}\naxes: [cpu, gpu]\n")
                with Client(daemon.admin, interface=protocol.ADMIN_INTERFACE) as admin:
                    assert admin.call("Reload", {}) == {"warnings": ["clients: its change takes effect at the next start"]}
                assert board.clocks.gpu_hz <= 318750000
        assert daemon.stop() == 0
        assert board.settings() == found
