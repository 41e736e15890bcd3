# SPDX-License-Identifier: Apache-2.0
"""The daemon's promises, kept by the real process on a simulated board."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from jetdvfs.daemon import qos
from jetdvfs.daemon.errors import (
    DaemonError,
    HardwareBusy,
    HardwareRefused,
    InputError,
    LimitReached,
    NoDaemon,
    NotPermitted,
    TargetNotAttainable,
    UsageError,
)
from jetdvfs.daemon.wire import protocol
from jetdvfs.daemon.wire.client import Client
from jetdvfs.daemon.wire.interface import Interface
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.tests.support import handmade
from jetdvfs.tests.support.board_daemon import CPU, EMC, GPU, Board, Daemon, eventually, served_board
from jetdvfs.tests.support.other_users import open_to_everybody, somebody_else
from jetdvfs.tests.support.paths import REFERENCE
from jetdvfs.tests.support.small_bundle import make_bundle

LOW = FrequencyConfiguration(1190400, 675750000, 1600000000)
HIGH = FrequencyConfiguration(2265600, 216750000, 2133000000)
BOTH = FrequencyConfiguration(2265600, 675750000, 2133000000)
MODEL = REFERENCE / "squeezenet1_0.pt"
IMAGE = ["1x3x224x224"]


@pytest.fixture
def found(board: Board) -> dict[str, str]:
    """How the board stands before a test; a test must leave it so."""
    board.twin.faults.clear()
    return board.settings()


@pytest.fixture
def daemon(board: Board, found: dict[str, str], tmp_path: Path, bundle: Path) -> Iterator[Daemon]:
    with Daemon(board, tmp_path, "--profile", str(bundle)) as daemon:
        yield daemon
    assert board.settings() == found
    assert not daemon.baseline.exists()


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
    definition = Interface.load(protocol.DEFINITIONS[protocol.INTERFACE])
    with daemon.client() as client:
        network = client.load(MODEL, IMAGE)
        predicting = {"network": network.handle, "fps": 30}
        planning = {**predicting, "target": "latency_ms=30", "confidence": 0.9}
        for method, parameters in (
            ("Predict", predicting),
            ("Predict", {**predicting, "configuration": LOW._asdict(), "method": "sum"}),
            ("Plan", planning),
            ("Hold", planning),
            ("Hold", {"configuration": LOW._asdict()}),
            ("Report", {"lease": "1", "latency_ms": [1.5, 2]}),
            ("Status", {}),
            ("Release", {"lease": "1"}),
            ("Unload", {"network": network.handle}),
        ):
            definition.check_reply(method, client.call(method, parameters))


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


def test_a_plan_for_a_model_is_held_and_reported_on(board: Board, daemon: Daemon) -> None:
    with daemon.client() as client:
        network = client.load(MODEL, IMAGE)
        assert network.info["kinds"]["conv2d"] == 26
        plan = client.plan(network, "latency_ms=30", fps=20)
        assert plan["simulated"] and plan["choice"]["latency_ms"] <= 30
        assert {tuple(plan["choice"]["configuration"].values())} <= {
            tuple(point["configuration"].values()) for point in plan["front"]
        } | {tuple(plan["choice"]["configuration"].values())}
        with client.hold(network, "latency_ms=30", fps=20) as lease:
            assert lease.plan == plan
            assert board.clocks == FrequencyConfiguration(**plan["choice"]["configuration"])
            for _ in range(40):
                lease.report(12.5)
            lease.flush()
            (seen,) = client.status()["leases"]
            assert seen["observed"] == {"frames": 40, "mean_ms": 12.5, "p50_ms": 12.5, "p95_ms": 12.5}
            assert seen["predicted"] == plan["choice"]


def test_a_network_given_as_launches_predicts_as_the_model_does(daemon: Daemon) -> None:
    with daemon.client() as client:
        command = [sys.executable, "-m", "jetdvfs.daemon.cli", "decompose", str(MODEL), "--input", IMAGE[0], "--json"]
        listed = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
        network = client.load_network(listed)
        assert network.info["launches"] == client.load(MODEL, IMAGE).info["launches"]
        predictions = client.predict(network)
        assert predictions["fastest"]["latency_ms"] <= predictions["top"]["latency_ms"]
        assert predictions["frugal"]["energy_mj"] <= predictions["top"]["energy_mj"]
        at = client.predict(network, LOW)["at"]
        assert at["configuration"] == LOW._asdict() and at["latency_ms"] > predictions["top"]["latency_ms"]


def test_a_part_of_a_network_is_refused_unless_its_end_is_accepted_and_every_answer_says_so(
    board: Board, found: dict[str, str], daemon: Daemon
) -> None:
    definition = Interface.load(protocol.DEFINITIONS[protocol.INTERFACE])
    relu = {"kind": "relu", "inputs": [[1, 64, 56, 56]], "output": [1, 64, 56, 56], "dtype": "float32"}
    launches = [{**relu, "scope": "", "params": {}, "flops": 200704, "bytes": 1605632}]
    end = {"operator": "torchvision::nms", "place": "line 7", "reason": "boxes decide"}
    part = {"name": "detector", "launches": launches, "boundary": end}
    with daemon.client() as client:
        for accepted in ((), ("aten::nms",), ("torchvision::nms ",)):
            with pytest.raises(InputError, match="detector: the list of launches ends at torchvision::nms") as refused:
                client.load_network(part, accept_boundary=accepted)
            assert refused.value.exit_code == 3 and "accept_boundary" in str(refused.value)
        with pytest.raises(UsageError, match="'n1' is not loaded"):
            client.plan("n1", "min-energy")
        for names in (["x"] * 65, ["x" * 257]):
            with pytest.raises(UsageError, match="accept_boundary: expected at most"):
                client.load_network(part, accept_boundary=names)
        whole = client.load_network({"name": "detector", "launches": launches})
        network = client.load_network(part, accept_boundary=["prim::If", "torchvision::nms"])
        assert (whole.info["boundary"], network.info["boundary"]) == (None, end)
        asked = {"network": network.handle, "target": "min-energy"}
        answers = [client.call(*call) for call in (("Predict", {"network": network.handle}), ("Plan", asked), ("Hold", asked))]
        for method, answer in zip(("Predict", "Plan", "Hold"), answers, strict=True):
            definition.check_reply(method, answer)
        predicted, planned, held = answers
        assert predicted["boundary"] == planned["plan"]["boundary"] == held["plan"]["boundary"] == end
        assert "a part of the network: decomposed up to torchvision::nms at line 7" in planned["plan"]["why"]
        answer = client.call("Status", {})
        definition.check_reply("Status", answer)
        assert [lease["boundary"] for lease in answer["status"]["leases"]] == [end]
        command = [sys.executable, "-m", "jetdvfs.daemon.cli", "status", "--socket", str(daemon.socket)]
        shown = subprocess.run(command, capture_output=True, check=True, text=True).stdout
        assert "planned for a part of the network: up to torchvision::nms at line 7" in shown
        client.release(held["lease"])
        assert client.predict(whole) == predicted["predictions"]
        assert client.call("Predict", {"network": whole.handle}).get("boundary") is None
        assert board.settings() == found


def test_surfaces_outlast_a_restart_and_a_damaged_one_is_made_anew(board: Board, found: dict[str, str], tmp_path: Path) -> None:
    make_bundle(tmp_path / "own")
    with Daemon(board, tmp_path, "--profile", str(tmp_path / "own")) as daemon:
        with daemon.client() as client:
            predicted = client.predict(client.load(MODEL, IMAGE))
        assert daemon.stop() == 0
        models = {path: path.read_bytes() for path in (tmp_path / "own").glob("*.xz")}
        for path in (*models, *(daemon.state / "cache").rglob("*.nodes")):
            path.unlink()  # nothing can be swept any more
        daemon.start()
        with daemon.client() as client:
            network = client.load(MODEL, IMAGE)
            assert client.predict(network) == predicted
            with pytest.raises(InputError):
                client.predict(network, method="sum")
        assert daemon.stop() == 0
        for path, content in models.items():
            path.write_bytes(content)
        (stored,) = (daemon.state / "surfaces").iterdir()
        stored.write_bytes(stored.read_bytes()[:-1])
        daemon.start()
        with daemon.client() as client:
            assert client.predict(client.load(MODEL, IMAGE)) == predicted
        assert daemon.stop() == 0


def test_what_cannot_be_done_is_refused_with_its_exit_code(board: Board, found: dict[str, str], daemon: Daemon) -> None:
    with daemon.client() as client:
        network = client.load(MODEL, IMAGE)

        def release_of_nobody() -> None:
            client.hold(configuration=LOW, app="x", reason="")
            client.release("99")

        refusals: list[tuple[type[Exception], Callable[[], object]]] = [
            (TargetNotAttainable, lambda: client.hold(network, "latency_ms=0.001")),
            (UsageError, lambda: client.hold(network, "speed=9")),
            (UsageError, lambda: client.hold("n99", "min-energy")),
            (UsageError, lambda: client.hold(network)),
            (UsageError, lambda: client.hold(network, "min-energy", configuration=LOW)),
            (UsageError, lambda: client.hold(configuration=(1, 2, 3))),
            (UsageError, release_of_nobody),
            (InputError, lambda: client.load(__file__, IMAGE)),
            (InputError, lambda: client.load(MODEL, ["1x3x8"])),
            (InputError, lambda: client.load(MODEL, ["1x3x224x224:float33"])),
            (InputError, lambda: client.load_network({"launches": []})),
            (InputError, lambda: client.load_network({"launches": [{"kind": "conv2d"}]})),
        ]
        for kind, attempt in refusals:
            with pytest.raises(kind) as caught:
                attempt()
            assert "\n" not in str(caught.value)
        client.release("1")
        assert board.settings() == found


def test_a_pipe_instead_of_a_model_is_refused_and_the_daemon_goes_on(daemon: Daemon) -> None:
    reading, writing = os.pipe()
    with daemon.client() as client:
        with pytest.raises(InputError, match="a pipe"):
            client.load_descriptor(reading, IMAGE)
        with pytest.raises(UsageError, match="exactly one descriptor"):
            client.call("LoadModel", {"inputs": [{"shape": [1]}]})
        assert client.status()["leases"] == []
    os.close(reading)
    os.close(writing)


def test_a_file_that_refuses_leaves_everything_as_it_was(board: Board, found: dict[str, str], daemon: Daemon) -> None:
    with daemon.client() as client:
        board.twin.faults.refuse(f"/{GPU}/userspace/set_freq")
        with pytest.raises((HardwareRefused, HardwareBusy), match="set_freq"):
            client.hold(configuration=LOW)
        assert board.settings() == found
        status = client.status()
        assert status["leases"] == [] and status["baseline"] == "none"
        board.twin.faults.clear()
        with client.hold(configuration=LOW):
            assert board.clocks == LOW
            # Another lease that cannot be had does not disturb the first.
            board.twin.faults.refuse(f"/{GPU}/userspace/set_freq")
            with pytest.raises(DaemonError):
                client.hold(configuration=FrequencyConfiguration(2265600, 1377000000, 2133000000))
            board.twin.faults.clear()
            assert board.clocks == LOW
            assert len(client.status()["leases"]) == 1


def test_a_stuck_clock_is_said_to_be_unverified(board: Board, daemon: Daemon) -> None:
    with daemon.client() as client:
        board.twin.faults.stick("gpu", 318750000)
        with client.hold(configuration=LOW) as lease:
            assert lease.applied is not None and not lease.applied["verified"]
            assert lease.applied["requested"]["gpu_hz"] == LOW.gpu_hz
            assert lease.applied["effective"]["gpu_hz"] == 318750000
            assert any("GPU" in reason for reason in client.status()["degraded"])
        board.twin.faults.clear()
        assert client.status()["degraded"] == []


def test_a_clock_file_that_hangs_is_named_and_everybody_is_answered(
    board: Board, found: dict[str, str], daemon: Daemon
) -> None:
    with daemon.client() as client, client.hold(configuration=LOW):
        board.twin.faults.slow_down(f"/{EMC}/pto_counter", 4.0)
        assert eventually(lambda: f"/{EMC}/pto_counter: reading it hangs" in client.status()["degraded"])
        started = time.monotonic()
        status = client.status()
        assert time.monotonic() - started < 2
        assert len(status["leases"]) == 1 and status["temperatures_mc"]
        board.twin.faults.clear()
        assert eventually(lambda: client.status()["degraded"] == [], 15)
        assert board.clocks == LOW


def test_killed_while_holding_the_next_start_brings_the_baseline_back(
    board: Board, found: dict[str, str], daemon: Daemon
) -> None:
    client = daemon.client()
    client.hold(configuration=LOW)
    daemon.kill()
    assert board.settings() != found
    with pytest.raises(NoDaemon):
        client.status()
    daemon.start()
    with daemon.client() as again:
        assert board.settings() == found
        assert again.status()["baseline"] == "none"


def test_killed_while_holding_what_somebody_else_set_since_is_left_alone(
    board: Board, found: dict[str, str], daemon: Daemon
) -> None:
    daemon.client().hold(configuration=LOW)
    daemon.kill()
    board.write(f"{CPU}/scaling_governor", "performance")
    daemon.start()
    with daemon.client() as again:
        assert board.read(f"{CPU}/scaling_governor") == "performance"
        assert board.read(f"{GPU}/governor") == found[f"{GPU}/governor"]
        assert board.read(f"{EMC}/mrq_rate_locked") == "0"
        with again.hold(configuration=LOW):
            assert board.clocks == LOW
        assert board.read(f"{CPU}/scaling_governor") == "performance"
    board.write(f"{CPU}/scaling_governor", found[f"{CPU}/scaling_governor"])


def test_a_dry_run_of_restore_leaves_a_running_daemon_alone(board: Board, daemon: Daemon) -> None:
    folders = ["--root", str(board.root), "--state-dir", str(daemon.state), "--runtime-dir", str(daemon.runtime)]
    command = [sys.executable, "-m", "jetdvfs.daemon.cli", "restore", "--dry-run", *folders]
    with daemon.client() as client, client.hold(configuration=LOW):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (5, "", 1)
        assert "a daemon runs" in done.stderr
        assert len(client.status()["leases"]) == 1


def test_restore_by_hand_works_without_a_daemon(board: Board, found: dict[str, str], daemon: Daemon) -> None:
    daemon.client().hold(configuration=LOW)
    daemon.kill()
    command = [
        sys.executable,
        "-m",
        "jetdvfs.daemon.cli",
        "restore",
        "--root",
        str(board.root),
        "--state-dir",
        str(daemon.state),
        "--runtime-dir",
        str(daemon.runtime),
    ]
    before = board.settings()
    tried = subprocess.run([*command, "--dry-run"], capture_output=True, text=True, check=True)
    assert "would restore" in tried.stdout and board.settings() == before
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    assert [f"would restore  {line}" for line in json.loads(done.stdout)["restored"]] == tried.stdout.splitlines()
    assert board.settings() == found
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert again.stdout == "nothing to restore: no baseline of this boot is kept\n"
    # A lock without a baseline is not known to be ours.
    board.write(f"{EMC}/mrq_rate_locked", 1)
    assert "locked by somebody else" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert board.read(f"{EMC}/mrq_rate_locked") == "1"
    unlock = [sys.executable, "-m", "jetdvfs.daemon.cli", "board", "unlock", "--root", str(board.root)]
    subprocess.run(unlock, capture_output=True, check=True)
    assert board.settings() == found
    daemon.start()
    daemon.client().close()


def test_restore_asks_a_running_daemon(board: Board, found: dict[str, str], daemon: Daemon) -> None:
    with daemon.client() as client:
        client.hold(configuration=LOW)
        command = [sys.executable, "-m", "jetdvfs.daemon.cli", "restore", "--root", str(board.root)]
        command += ["--state-dir", str(daemon.state), "--runtime-dir", str(daemon.runtime), "--socket", str(daemon.socket)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "1 lease ended\n" in done.stdout
        assert board.settings() == found
        assert client.status()["leases"] == []


def test_stopping_gives_the_board_back(board: Board, found: dict[str, str], daemon: Daemon) -> None:
    daemon.client().hold(configuration=LOW)
    assert board.settings() != found
    assert daemon.stop() == 0
    assert board.settings() == found
    assert not daemon.socket.exists() and not daemon.admin.exists()


def test_asked_to_end_while_it_starts_it_ends_in_order(board: Board, found: dict[str, str], tmp_path: Path) -> None:
    with Daemon(board, tmp_path) as daemon:
        assert eventually((daemon.state / "lock").exists)
        assert daemon.stop() == 0, daemon.log.read_text()
        assert board.settings() == found


def test_the_operator_s_limits_bind_plans_and_leases(board: Board, found: dict[str, str], tmp_path: Path, bundle: Path) -> None:
    config = tmp_path / "jetdvfsd.yaml"
    config.write_text("limits: {gpu_hz: {max: 675750000}}\naxes: [cpu, gpu]\nclients: {leases: 2}\ntypo: 1\n")
    with Daemon(board, tmp_path, "--config", str(config), "--profile", str(bundle)) as daemon:
        with daemon.client() as client:
            assert "typo is unknown" in daemon.log.read_text()
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


def test_a_second_daemon_on_the_same_state_does_not_start(board: Board, daemon: Daemon) -> None:
    daemon.client().close()
    command = [sys.executable, "-m", "jetdvfs.daemon.service", "--root", str(board.root), "--socket", str(daemon.socket) + "2"]
    command += ["--state-dir", str(daemon.state), "--runtime-dir", str(daemon.runtime)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 5
    assert done.stderr.count("\n") == 1 and "another jetdvfsd" in done.stderr


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--profile", "nothing-like-it"], 3, "no such bundle"),
        (["--board", "toaster"], 2, "is not described"),
        (["--root", "/nonexistent"], 3, "no described board fits"),
        (["--config", "/nonexistent"], 2, "No such file"),
    ],
)
def test_what_keeps_it_from_starting_is_said_in_one_line(
    board: Board, tmp_path: Path, options: list[str], code: int, text: str
) -> None:
    command = [sys.executable, "-m", "jetdvfs.daemon.service", "--root", str(board.root), "--socket", str(tmp_path / "s")]
    done = subprocess.run(
        [*command, "--state-dir", str(tmp_path), "--runtime-dir", str(tmp_path), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert done.returncode == code
    assert text in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_board_that_is_a_file_tree_elsewhere_is_predicted_by_a_simulated_profile(
    board: Board, found: dict[str, str], tmp_path: Path
) -> None:
    with Daemon(board, tmp_path) as daemon, daemon.client() as client:
        status = client.status()
        assert status["profile"] == {"name": "agx-xavier-sim", "board": "agx-xavier", "simulated": True}
        assert status["degraded"] == []
        assert client.plan(client.load(MODEL, IMAGE), "min-energy")["simulated"]


def handles_terminate(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.split("SigCgt:")[1].split()[0], 16) & 1 << signal.SIGTERM - 1)


@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.3])
def test_asked_to_end_while_it_loads_it_ends_in_order(
    board: Board, found: dict[str, str], tmp_path: Path, after_s: float
) -> None:
    with Daemon(board, tmp_path) as daemon:
        # Python itself must have started: until then nobody can keep a signal.
        assert eventually(lambda: handles_terminate(daemon.process.pid))
        time.sleep(after_s)
    assert board.settings() == found


def test_a_profile_for_another_board_is_refused(board: Board, tmp_path: Path, bundle: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(bundle, other)
    manifest = json.loads((other / "manifest.json").read_text())
    (other / "manifest.json").write_text(json.dumps({**manifest, "board": "toaster"}))
    daemon = Daemon(board, tmp_path, "--profile", str(other))
    assert daemon.process.wait(20) == 3
    assert "toaster" in daemon.log.read_text()


def test_the_resident_process_is_small_and_loads_no_machine_learning_library(daemon: Daemon) -> None:
    with daemon.client() as client:
        network = client.load(MODEL, IMAGE)
        client.plan(network, "min-energy")
        maps = Path(f"/proc/{daemon.process.pid}/maps").read_text()
        assert "/numpy/" in maps
        for library in ("treelite", "xgboost", "torch", "scipy"):
            assert f"/{library}" not in maps
        process = psutil.Process(daemon.process.pid)
        assert process.memory_info().rss < 64 << 20
        assert process.num_fds() < 16


def test_large_networks_leave_no_memory_behind(daemon: Daemon, tmp_path: Path) -> None:
    path = tmp_path / "large.pt"
    path.write_bytes(handmade.archive(handmade.forward("for i in range(38000):", "  x = torch.relu(x)", "return x")))
    launch = {"kind": "relu", "inputs": [[8, 8]], "output": [8, 8], "dtype": "float32", "flops": 64, "bytes": 512}
    listed = {"launches": [{**launch, "scope": str(number)} for number in range(7000)]}
    process = psutil.Process(daemon.process.pid)
    with daemon.client() as client:
        client.call("Unload", {"network": client.load(MODEL, IMAGE).handle})
        before = process.memory_info().rss
        for _ in range(3):
            for network in (client.load(path, ["8x8"]), client.load_network(listed)):
                assert network.info["launches"] >= 7000
                client.call("Unload", {"network": network.handle})
        assert process.memory_info().rss - before < 4 << 20


def test_the_command_line_holds_while_a_command_runs(board: Board, found: dict[str, str], daemon: Daemon) -> None:
    daemon.client().close()
    jetdvfs = [sys.executable, "-m", "jetdvfs.daemon.cli"]
    env = {**os.environ, "JETDVFS_SOCKET": str(daemon.socket)}
    clocks = ",".join(map(str, LOW))
    inner = [*jetdvfs, "status", "--json"]
    done = subprocess.run(
        [*jetdvfs, "hold", "--config", clocks, "--json", "--", *inner], capture_output=True, text=True, env=env
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stderr)["applied"]["verified"]
    (lease,) = json.loads(done.stdout)["leases"]  # the command's output, and nothing else
    assert lease["configuration"] == LOW._asdict()
    assert board.settings() == found
    failing = [*jetdvfs, "hold", str(MODEL), "--input", IMAGE[0], "--target", "min-energy", "--", "sh", "-c", "exit 7"]
    assert subprocess.run(failing, capture_output=True, env=env).returncode == 7
    unattainable = [*jetdvfs, "hold", str(MODEL), "--input", IMAGE[0], "--target", "latency_ms=0.01", "--", "true"]
    done = subprocess.run(unattainable, capture_output=True, text=True, env=env)
    assert done.returncode == 4 and done.stderr.count("\n") == 1
    assert subprocess.run([*jetdvfs, "status"], env=env, capture_output=True, text=True).stdout.startswith("board      NVIDIA")
    nobody = {**env, "JETDVFS_SOCKET": str(daemon.socket) + ".gone"}
    assert subprocess.run([*jetdvfs, "status"], env=nobody, capture_output=True).returncode == 6


def test_the_command_line_takes_a_scalar_input_and_clocks_in_mhz(
    board: Board, found: dict[str, str], daemon: Daemon, tmp_path: Path
) -> None:
    model = tmp_path / "scaled.pt"
    code = handmade.forward("return torch.relu(torch.mul(x, n))", arguments="x: Tensor,\n    n: Tensor")
    model.write_bytes(handmade.archive(code))
    daemon.client().close()
    hold = [sys.executable, "-m", "jetdvfs.daemon.cli", "hold"]
    env = {**os.environ, "JETDVFS_SOCKET": str(daemon.socket)}
    inputs = ["--input", "8x16", "--input", "scalar:int64"]
    for asked in ([str(model), *inputs, "--target", "min-energy"], ["--config", "1190.4,675.75,1600"]):
        done = subprocess.run([*hold, *asked, "--json", "--", "true"], capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stderr)["applied"]["verified"]
    assert json.loads(done.stderr)["applied"]["requested"] == LOW._asdict()
    assert board.settings() == found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("command", "after_s"), [([], 0.0), (["--", "sleep", "60"], 0.0), (["--", "sleep", "60"], 0.2)])
def test_the_command_line_gives_back_when_it_is_told_to_end(
    board: Board, found: dict[str, str], daemon: Daemon, command: list[str], after_s: float, number: signal.Signals
) -> None:
    with daemon.client() as client:
        hold = [sys.executable, "-m", "jetdvfs.daemon.cli", "hold", "--config", ",".join(map(str, LOW)), *command]
        env = {**os.environ, "JETDVFS_SOCKET": str(daemon.socket)}
        with subprocess.Popen(
            hold, env=env, text=True, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            assert process.stdout is not None
            assert "in force" in process.stdout.readline()
            if not command:
                assert "until interrupted" in process.stdout.readline()
            time.sleep(after_s)
            # As a terminal does for an interrupt: to everybody in the foreground.
            os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
            assert process.wait(10) == (128 + number if command else 0)
        assert eventually(lambda: not client.status()["leases"])
        assert board.settings() == found


def test_a_lease_is_released_from_the_command_line(board: Board, found: dict[str, str], daemon: Daemon) -> None:
    with daemon.client() as client:
        lease = client.hold(configuration=LOW)
        env = {**os.environ, "JETDVFS_SOCKET": str(daemon.socket)}
        subprocess.run([sys.executable, "-m", "jetdvfs.daemon.cli", "release", lease.id], env=env, check=True)
        assert board.settings() == found


def as_nobody(path: Path, group_id: int = 65534) -> Client:
    with somebody_else(group_id):
        return Client(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")
def test_another_user_may_ask_but_neither_end_foreign_leases_nor_reach_the_admin_socket(daemon: Daemon, tmp_path: Path) -> None:
    with daemon.client() as client:
        lease = client.hold(configuration=LOW)
        # What the sockets' permissions would keep out is kept out by who is asking, too.
        open_to_everybody(daemon.socket)
        open_to_everybody(daemon.admin)
        with as_nobody(daemon.socket) as other, pytest.raises(NotPermitted):
            other.release(lease.id)
        with as_nobody(daemon.admin) as other, pytest.raises(NotPermitted):
            other.call("Restore", {})
        with as_nobody(daemon.socket) as other:
            assert [one["uid"] for one in other.status()["leases"]] == [0]
        assert len(client.status()["leases"]) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")
def test_root_gets_through_when_others_have_taken_every_place(board: Board, found: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("clients: {connections: 16, leases: 16}\n")
    with (
        tempfile.TemporaryDirectory() as folder,
        Daemon(board, Path(folder), "--config", str(tmp_path / "config.yaml")) as daemon,
        contextlib.ExitStack() as taken,
    ):
        daemon.client().close()
        Path(folder).chmod(0o755)
        daemon.socket.chmod(0o666)
        held: list[str] = []
        for user_id in range(61000, 61020):
            with somebody_else(65533, user_id), pytest.raises(LimitReached):
                client = taken.enter_context(Client(daemon.socket))
                while True:
                    held.append(client.hold(configuration=LOW).id)
        assert len(held) == 14
        jetdvfs = [sys.executable, "-m", "jetdvfs.daemon.cli"]
        env = {**os.environ, "JETDVFS_SOCKET": str(daemon.socket)}
        for words in (["status"], ["hold", "--config", ",".join(map(str, LOW)), "--", "true"], ["release", held[0]]):
            done = subprocess.run([*jetdvfs, *words], capture_output=True, text=True, env=env)
            assert done.returncode == 0, done.stderr
        restore = ["restore", "--root", str(board.root), "--state-dir", str(daemon.state)]
        restore += ["--runtime-dir", str(daemon.runtime), "--socket", str(daemon.socket)]
        done = subprocess.run([*jetdvfs, *restore], capture_output=True, text=True)
        assert done.returncode == 0 and "13 leases ended" in done.stdout, done
        assert board.settings() == found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")
def test_only_the_group_named_may_ask_and_others_are_told_how_to(board: Board, tmp_path: Path) -> None:
    group = grp.getgrgid(65534).gr_name
    (tmp_path / "config.yaml").write_text(f"socket_group: {group}\n")
    with Daemon(board, tmp_path, "--config", str(tmp_path / "config.yaml")) as daemon:
        daemon.client().close()
        for folder in daemon.socket.parents:
            if folder != Path(tempfile.gettempdir()) and folder.is_relative_to(tempfile.gettempdir()):
                folder.chmod(0o755)
        as_nobody(daemon.socket).close()
        with pytest.raises(NotPermitted, match=f"permission denied on {daemon.socket}: join the group {group} ") as caught:
            as_nobody(daemon.socket, group_id=65533)
        assert caught.value.exit_code == 3
        with pytest.raises(NotPermitted, match=r"admin\.sock: only root may use it"):
            as_nobody(daemon.admin)
        with somebody_else(65533), qos.hold(configuration=LOW, socket_path=daemon.socket, required=False) as lease:
            assert lease.applied is None


def test_it_tells_a_service_manager_how_it_is(board: Board, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(15)
        with Daemon(board, tmp_path, env={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"}) as daemon:
            heard: list[str] = []
            while "WATCHDOG=1" not in heard:
                heard += manager.recv(4096).decode().split("\n")
            assert heard[0] == "READY=1"
            started = time.monotonic()
            manager.recv(4096)
            assert time.monotonic() - started < 0.3
            assert daemon.stop() == 0
            manager.setblocking(False)
            while "STOPPING=1" not in heard:
                heard += manager.recv(4096).decode().split("\n")
    assert daemon.log.read_text().startswith("<")


@pytest.mark.parametrize("kind", ["file", "folder", "pipe", "link", "link to a socket"])
def test_what_is_no_socket_is_not_replaced_by_one(board: Board, tmp_path: Path, kind: str) -> None:
    there = tmp_path / "there"
    with socket.socket(socket.AF_UNIX) as other:
        if kind == "file":
            there.write_text("dear")
        elif kind == "folder":
            there.mkdir()
        elif kind == "pipe":
            os.mkfifo(there)
        else:
            (tmp_path / "other").touch() if kind == "link" else other.bind(str(tmp_path / "other"))
            there.symlink_to(tmp_path / "other")
        before = there.lstat()
        command = [sys.executable, "-m", "jetdvfs.daemon.service", "--root", str(board.root), "--state-dir", str(tmp_path)]
        done = subprocess.run([*command, "--socket", str(there)], capture_output=True, text=True, check=False, timeout=20)
        assert done.returncode == 2
        assert "something else than a socket is there" in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr
        assert (there.lstat().st_ino, there.lstat().st_mode) == (before.st_ino, before.st_mode)


def test_the_socket_of_a_daemon_that_was_killed_is_replaced(daemon: Daemon) -> None:
    daemon.client().close()
    daemon.kill()
    assert daemon.socket.is_socket()
    daemon.start()
    daemon.client().close()
