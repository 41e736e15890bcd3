# SPDX-License-Identifier: Apache-2.0
"""Records of networks and the campaigns that make them: whole after every network, gone on with after an interruption."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.kernels.network import Network
from jetdvfs.profiles.adapt.torch_process import TorchProcess
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.errors import MeasurementError, RecordError
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.measure.gpus import workstation
from jetdvfs.profiles.lab.networks.campaign import measure_networks
from jetdvfs.profiles.lab.networks.families import FAMILIES
from jetdvfs.profiles.lab.networks.gpu_meter import GpuNetworkMeter
from jetdvfs.profiles.lab.networks.record import NetworkRecorder, RecordContents, RecordRow, device_features, read_record
from jetdvfs.tests.support.profiles.measured_networks import measured
from jetdvfs.tests.support.profiles.nvml_stand_in import POWER_W, StandInNvml

ABOUT = RecordContents("a formula", True, ("latency_ms", "peak_mib"))


def written(folder: Path, count: int) -> NetworkRecorder:
    recorder = NetworkRecorder(folder, ABOUT)
    for network in measured(count):
        if network.name not in recorder.done:
            recorder.add(network)
    return recorder


def test_a_record_holds_what_was_measured(tmp_path: Path) -> None:
    written(tmp_path / "record", 3).leave_out("wide-9", "too wide")
    record = read_record(tmp_path / "record")
    assert record.about == ABOUT and record.left_out == {"wide-9": "too wide"}
    for found, given in zip(record.networks, measured(3), strict=True):
        assert (found.name, found.family, found.network, found.rows) == (given.name, given.family, given.network, given.rows)
    assert [(sample.name, sample.board) for sample in record.samples][:3] == [
        ("narrow-0", "device 0"), ("narrow-0", "device 1"), ("wide-1", "device 0"),
    ]  # fmt: skip


@pytest.mark.parametrize("lost", [1, 30, 200])
def test_what_an_interruption_left_half_written_is_made_again(tmp_path: Path, lost: int) -> None:
    written(tmp_path, 4)
    path = tmp_path / "networks.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-lost])
    assert len(read_record(tmp_path).networks) == 3
    written(tmp_path, 4)
    assert [network.name for network in read_record(tmp_path).networks] == [network.name for network in measured(4)]


def test_a_folder_of_another_record_is_refused(tmp_path: Path) -> None:
    written(tmp_path, 1)
    with pytest.raises(RecordError, match="holds a record of a formula"):
        NetworkRecorder(tmp_path, msgspec.structs.replace(ABOUT, source="something else"))
    with pytest.raises(RecordError, match="jetdvfs-lab networks measure"):
        read_record(tmp_path / "none")
    path = tmp_path / "networks.jsonl.gz"
    path.write_bytes(b"no gzip at all")
    with pytest.raises(RecordError, match="damaged at byte 0"):
        read_record(tmp_path)


def test_a_record_that_was_packed_again_is_read_as_before(tmp_path: Path) -> None:
    written(tmp_path, 3)
    path = tmp_path / "networks.jsonl.gz"
    lines = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(lines))
    assert [one.name for one in read_record(tmp_path).networks] == [one.name for one in measured(3)]
    path.write_bytes(gzip.compress(lines + b"{no line"))
    with pytest.raises(RecordError, match="damaged at byte 0"):
        read_record(tmp_path)


def test_a_device_is_told_by_what_its_clocks_come_to() -> None:
    board = load_board("agx-xavier")
    ((host, flops, moved, memory),) = device_features(
        board.chip, [FrequencyConfiguration(1_190_400, 905_250_000, 1_065_600_000)], board.chip.dram_gib
    )
    assert (host, memory) == (1.1904, 32)
    assert flops == pytest.approx(1024 * 0.90525) and moved == pytest.approx(64 * 1.0656)


class CountingMeter:
    """Says how many launches a network has; of one family it can say nothing."""

    about = RecordContents("launches", True, ("launches",))

    def rows(self, network: Network, path: Path) -> Sequence[RecordRow]:
        assert path.exists()
        if network.name.startswith("squeezenet"):
            raise MeasurementError("it was squeezed")
        return [RecordRow("nothing", (1.0, 1.0, 1.0, 1.0), {"launches": float(len(network.launches))})]


@pytest.mark.slow
@pytest.mark.torch
def test_a_campaign_goes_on_where_it_stopped_and_names_what_it_left_out(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="makes the networks")
    told: list[tuple[int, int, str]] = []
    families = ("squeezenet", "cells")
    measure_networks(tmp_path, CountingMeter(), 3, families, lambda *news: told.append(news))
    assert [(done, total) for done, total, _ in told] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    record = read_record(tmp_path)
    assert [network.name for network in record.networks] == ["cells-0"]
    assert record.left_out == {"squeezenet-0": "it was squeezed", "squeezenet-1": "it was squeezed"}
    told.clear()
    measure_networks(tmp_path, CountingMeter(), 4, families, lambda *news: told.append(news))
    assert [done for done, _, _ in told] == [3, 4]
    assert [network.name for network in read_record(tmp_path).networks] == ["cells-0", "cells-1"]
    with pytest.raises(MeasurementError, match="valid: vgg"):
        measure_networks(tmp_path, CountingMeter(), 4, ("transformers",))


@pytest.mark.slow
@pytest.mark.torch
def test_networks_that_are_made_beside_the_measured_one_are_the_same_and_their_files_go(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="makes the networks")
    families = ("squeezenet", "cells", "vit")
    for processes in (1, 2):
        measure_networks(tmp_path / str(processes), CountingMeter(), 3, families, first=4, processes=processes)
    alone, parallel = (read_record(tmp_path / str(processes)) for processes in (1, 2))
    assert [one.name for one in alone.networks] == [one.name for one in parallel.networks] == ["cells-4", "vit-4"]
    assert [one.network.digest for one in alone.networks] == [one.network.digest for one in parallel.networks]
    assert parallel.left_out == {"squeezenet-4": "it was squeezed"}


WORKER = """
import json, sys
answers = {
    "hello": {"torch": "2", "device_name": "NVIDIA RTX 0", "threads": 1, "kinds": [], "memory_bytes": 8 << 30},
    "rates": {"flops_per_s": 1e13, "bytes_per_s": 1e12}, "reference": {"ms": 0.5}, "memory": {"peak_mib": 64.0},
    "network": {"ms": EAGER, "reference_ms": 1.0, "gpu_ms": 2.0}, "repeat": {"count": 50},
}
import time
for line in sys.stdin:
    request = json.loads(line)
    time.sleep(0.12 * (request["do"] == "repeat"))
    print(json.dumps(answers[request["do"]]), flush=True)
"""


@pytest.mark.parametrize(("eager_ms", "relative_ms"), [(6.0, 3.0), (3.0, 2.0), (1.9, 1.9)])
def test_a_network_on_a_gpu_has_latency_energy_and_memory_and_its_eager_latency_is_that_of_a_host_of_one_speed(
    eager_ms: float, relative_ms: float, tmp_path: Path
) -> None:
    (tmp_path / "worker.py").write_text(WORKER.replace("EAGER", str(eager_ms)))
    with workstation(StandInNvml(), lambda: TorchProcess(worker=tmp_path / "worker.py")) as gpu:
        meter = GpuNetworkMeter(gpu)
        ((row),) = meter.rows(measured(1)[0].network, tmp_path / "one.pt")
        again = GpuNetworkMeter(gpu, {**meter.about.speed, "reference_ms": 2.0})
        ((faster),) = again.rows(measured(1)[0].network, tmp_path / "one.pt")
    assert row.values["latency_ms"] == 2.0 and row.values["peak_mib"] == 64.0
    assert row.values["eager_latency_ms"] == pytest.approx(relative_ms)
    assert faster.values["eager_latency_ms"] == pytest.approx(2 * eager_ms)
    assert row.values["energy_mj"] == pytest.approx(1e3 * POWER_W * 0.12 / 50, rel=0.5)
    assert row.device[3] == 8.0 and again.about == meter.about


@pytest.mark.torch
@pytest.mark.parametrize(
    "family", [name if name in ("squeezenet", "resnet") else pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES]
)
def test_every_family_is_decomposed_with_edges_and_is_the_same_again(family: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="makes the networks")
    from jetdvfs.kernels.graph import graph_of
    from jetdvfs.profiles.lab.networks.exported_networks import export

    one, again = (export(family, 1, tmp_path / f"{turn}.pt") for turn in "ab")
    assert one == again
    graph = graph_of(one)
    assert len(graph.edges) >= len(graph.nodes) - 1 and graph.globals["flops_total"] > 1e6
    read = {edge.source for edge in graph.edges}
    assert set(range(len(graph.nodes))) - read == {len(graph.nodes) - 1}  # only the last result is nobody's


@pytest.mark.torch
@pytest.mark.slow
def test_the_processor_and_simulated_boards_are_measured_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="makes the networks")
    asked = ("networks", "measure", "--count", "1", "--family", "squeezenet", "--json")
    assert main([*asked, str(tmp_path / "boards"), "--board", "agx-xavier", "--nodes", "2", "--configs", "3"]) == 0
    assert json.loads(capsys.readouterr().out)["measured"] == 1
    record = read_record(tmp_path / "boards")
    assert record.about.simulated and record.about.metrics == ("latency_ms", "energy_mj")
    rows = record.networks[0].rows
    assert [row.board for row in rows] == ["agx-xavier 0"] * 3 + ["agx-xavier 1"] * 3
    assert main([*asked, str(tmp_path / "cpu")]) == 0
    record = read_record(tmp_path / "cpu")
    (row,) = record.networks[0].rows
    assert not record.about.simulated and row.values["latency_ms"] > 0
    # What weights and activations take at least, and no more than a library adds.
    needed = record.networks[0].graph.memory.total_bytes / (1 << 20)
    assert needed * 0.5 < row.values["peak_mib"] < needed + 500
    speed = record.about.speed
    assert {"product_ms", "copy_ms", "convolutions_ms"} < set(speed) and row.device[0] == speed["host_ghz"]
    capsys.readouterr()
    # Measured again, another process that was forked from a fresh one takes about the same memory.
    assert main([*asked[:2], str(tmp_path / "cpu"), "--again", "1", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["again"]
    assert again["peak_mib"]["mean"] < 0.05 and again["latency_ms"]["rows"] == 1
    assert len(read_record(tmp_path / "cpu").networks) == 1
