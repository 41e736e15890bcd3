# SPDX-License-Identifier: Apache-2.0
"""Models read, predicted and planned for by the real process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from jetdvfs.daemon.errors import (
    InputError,
    UsageError,
)
from jetdvfs.daemon.wire.calls import PUBLIC
from jetdvfs.kernels.cost.region import ModelPair, Span, size_names
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.profiles.bundle.manifest import RegionEntry
from jetdvfs.tests.support.daemons.board_daemon import LOW, Board, Daemon
from jetdvfs.tests.support.daemons.replies import check_reply
from jetdvfs.tests.support.models import handmade
from jetdvfs.tests.support.models import handmade_onnx as onnx
from jetdvfs.tests.support.models.handmade_engine import account, small
from jetdvfs.tests.support.models.handmade_gguf import gguf, model
from jetdvfs.tests.support.paths import REFERENCE
from jetdvfs.tests.support.profiles.small_bundle import make_bundle

MODEL = REFERENCE / "squeezenet1_0.pt"

IMAGE = ["1x3x224x224"]


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
            assert lease.plan == plan and json.loads(json.dumps(lease.plan)) == plan
            assert repr(lease.plan).startswith("<plan for latency_ms=30: cpu_khz=") and len(repr(lease.plan)) < 120
            assert board.clocks == FrequencyConfiguration(**plan["choice"]["configuration"])
            for _ in range(40):
                lease.report(12.5)
            lease.flush()
            (seen,) = client.status()["leases"]
            assert seen["observed"] == {"frames": 40, "mean_ms": 12.5, "p50_ms": 12.5, "p95_ms": 12.5, "last_ms": 12.5}
            assert seen["predicted"] == plan["choice"]


def test_a_model_that_declares_its_inputs_is_loaded_without_any(daemon: Daemon, tmp_path: Path) -> None:
    path = tmp_path / "declared.onnx"
    path.write_bytes(onnx.model(onnx.graph([onnx.node("Relu", ["x"], ["y"])], [onnx.declared("x", (2, 3), 10)], ["y"])))
    with daemon.client() as client:
        assert client.load(path).info["digest"] == client.load(path, ["2x3"]).info["digest"]
        with pytest.raises(InputError, match="2x3:float16"):
            client.load(path, ["2x3:float32"])
        with pytest.raises(InputError, match=r"takes the inputs .* say the shape"):
            client.load(MODEL)


def test_an_engine_is_loaded_by_its_layers_without_inputs(daemon: Daemon, tmp_path: Path) -> None:
    path = tmp_path / "engine.json"
    path.write_bytes(account(small(), "x", "y"))
    with daemon.client() as client:
        network = client.load(path)
        assert network.info["kinds"]["conv2d_add_relu"] == 1
        assert {guess["kind"] for guess in client.call("Predict", {"network": network.handle})["guessed"]} >= {
            "conv2d_relu",
            "conv2d_add_relu",
        }
        with pytest.raises(InputError):
            client.load(MODEL)


def test_a_language_model_is_loaded_by_its_phase(daemon: Daemon, tmp_path: Path) -> None:
    path = tmp_path / "small.gguf"
    path.write_bytes(gguf(*model()))
    with daemon.client() as client:
        token_network = client.load(path, ["decode=64:int"])
        token = client.predict(token_network)["top"]
        prompt = client.predict(client.load(path, ["prefill=4096:int"]))["top"]
        assert prompt["latency_ms"] > token["latency_ms"] > 0
        assert token_network.info["phase"] == "decode"
        assert client.plan(token_network, "tokens_per_s=1")["choice"]["latency_ms"] <= 1000
        with pytest.raises(UsageError, match=r"ttft_ms=500 is for a language model reading .*, not of making"):
            client.plan(token_network, "ttft_ms=500")
        with pytest.raises(UsageError, match="mj_per_token=5 is for a language model making tokens"):
            client.hold(client.load(MODEL, IMAGE), "mj_per_token=5")
        with pytest.raises(InputError, match="prefill=TOKENS:int"):
            client.load(path)


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
            check_reply(PUBLIC, method, answer)
        predicted, planned, held = answers
        assert predicted["boundary"] == planned["plan"]["boundary"] == held["plan"]["boundary"] == end
        assert "a part of the network: decomposed up to torchvision::nms at line 7" in planned["plan"]["why"]
        answer = client.call("Status", {})
        check_reply(PUBLIC, "Status", answer)
        assert [lease["boundary"] for lease in answer["status"]["leases"]] == [end]
        command = [sys.executable, "-m", "jetdvfs.daemon.cli", "status", "--socket", str(daemon.socket)]
        shown = subprocess.run(command, capture_output=True, check=True, text=True).stdout
        assert "planned for a part of the network: up to torchvision::nms at line 7" in shown
        client.release(held["lease"])
        assert client.predict(whole) == predicted["predictions"]
        assert client.call("Predict", {"network": whole.handle}).get("boundary") is None
        assert board.settings() == found


def test_answers_on_the_socket_name_what_is_guessed(board: Board, found: dict[str, str], tmp_path: Path) -> None:
    sizes = size_names("relu")
    measured = Span(4, (0.0,) * len(sizes), (12.0,) * len(sizes), {"float32": 4})  # nothing as large as the model's
    region = RegionEntry(
        sizes,
        {"relu": {"float32": 4}},
        {"1 tensors": measured},
        ModelPair(0.2, 0.2),
        ModelPair(0.5, 0.5),
        ModelPair(0.4, 0.3),
        ModelPair(0.1, 0.2),
    )
    make_bundle(tmp_path / "own", region=region)
    with Daemon(board, tmp_path, "--profile", str(tmp_path / "own")) as daemon, daemon.client() as client:
        network = client.load(MODEL, IMAGE)
        answer = client.call("Predict", {"network": network.handle})
        whys = {guess["kind"]: guess["why"] for guess in answer["guessed"]}
        assert whys["relu"].startswith("1 tensors: ") and whys["conv2d"] == "no model"
        assert sum(guess["time_share"] for guess in answer["guessed"]) == pytest.approx(1)
        assert all(each["guessed_share"] == 1 for each in answer["predictions"].values())
        with client.hold(network, "min-energy") as lease:
            assert lease.plan is not None and lease.plan["why"].startswith("Guessed: 100% of the GPU's time (")
            (seen,) = client.status()["leases"]
            assert seen["predicted"]["guessed_share"] == 1
            assert seen["guessed"] == lease.plan["guessed"][:4]
            assert seen["guessed_more"] == len(lease.plan["guessed"]) - len(seen["guessed"])
            command = [sys.executable, "-m", "jetdvfs.daemon.cli", "status", "--socket", str(daemon.socket)]
            shown = subprocess.run(command, capture_output=True, check=True, text=True).stdout
            first = seen["guessed"][0]
            assert "guessed: 100% of the GPU's time" in shown
            assert f"{first['kind']}, {first['why']} ({first['launches']} launches, {first['time_share']:.1%}" in shown
    assert board.settings() == found


@pytest.mark.slow
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
        assert process.num_fds() < 18  # two for the child that waits for the next sweep


@pytest.mark.slow
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
