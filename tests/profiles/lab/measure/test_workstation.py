# SPDX-License-Identifier: Apache-2.0
"""Measuring a workstation's GPU by PyTorch and NVML; stand-ins for both, for there is no GPU here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jetdvfs.kernels.grid import FrequencyGrid
from jetdvfs.kernels.network import KernelInvocation
from jetdvfs.profiles.adapt.measurements import Measurements
from jetdvfs.profiles.adapt.torch_process import TorchProcess
from jetdvfs.profiles.board import ChipRates
from jetdvfs.profiles.device import Device
from jetdvfs.profiles.errors import MeasurementError
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.measure.gpus import measure_gpu, plan_gpu, workstation
from jetdvfs.profiles.lab.measure.meters.cpu import TimingLimits
from jetdvfs.profiles.lab.measure.meters.nvml import Nvml, gpu_device
from jetdvfs.profiles.lab.measure.processor import MeasuredModel
from jetdvfs.profiles.reference import reference_network
from jetdvfs.tests.support.profiles.nvml_stand_in import POWER_W, StandInNvml

SHORT = TimingLimits(kernel_s=0.0, network_s=0.0, power_s=0.07, timings=5)
WORKER = """
import json, sys
answer = {
    "torch": "2", "device_name": "NVIDIA RTX 0", "threads": 1, "kinds": ["conv2d", "relu"], "ran": [], "timings": 5,
    "events": 3, "ms": 1.0, "gpu_ms": 0.9, "period_ms": 1.0, "flops_per_s": 1e13, "bytes_per_s": 1e12,
}
for line in sys.stdin:
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What stands in for PyTorch on a GPU: every kernel takes a millisecond."""
    path = tmp_path_factory.mktemp("worker") / "worker.py"
    path.write_text(WORKER)
    return path


@pytest.fixture(scope="module")
def model() -> MeasuredModel:
    whole = reference_network("resnet18")
    network = msgspec.structs.replace(whole, name="beginning", calls=whole.calls[:6], reads=())
    return MeasuredModel(Path("beginning.pt"), network, network.inputs)


def measured(
    library: StandInNvml, worker: Path, model: MeasuredModel, *clocks_mhz: int, folder: Path | None = None
) -> Measurements:
    with workstation(library, lambda: TorchProcess(worker=worker), clocks_mhz) as gpu:
        campaign = plan_gpu(gpu.device, [model], gpu.process.about["kinds"], 1)
        return measure_gpu(campaign, [model], gpu, SHORT, folder)


def test_clocks_stay_as_they_are_and_power_is_what_nvml_counts(worker: Path, model: MeasuredModel) -> None:
    library = StandInNvml()
    found = measured(library, worker, model)
    assert library.told == ["shut down"]
    assert found.rails == ("gpu",) and found.described.grid.gpu_hz == (1_800_000_000,)
    for name in ("idle_mw", "network_mw"):  # of a few milliseconds, in which this process may have had to wait
        assert 0.3e3 * POWER_W < found.tables[name].value.mean() < 3e3 * POWER_W
    assert (found.tables["kernel_ms"].value > 0).all() and (found.tables["host_us"].value > 0).all()
    assert found.environment["clocks_seen_mhz"] == [1800] and found.environment["clocks_locked"] is False


def test_gpu_events_are_counted_once_a_kernel(worker: Path, model: MeasuredModel) -> None:
    found = measured(StandInNvml(), worker, model, 600, 1800)
    counted = found.tables["kernel_events"]
    assert sorted(counted.what) == sorted({*found.tables["kernel_ms"].what}) and set(counted.value) == {3.0}


def test_networks_run_as_cuda_graphs_too(worker: Path, model: MeasuredModel) -> None:
    found = measured(StandInNvml(), worker, model)
    assert found.tables["graph_ms"].value.tolist() == [1.0] and found.tables["graph_gpu_ms"].value.tolist() == [0.9]
    assert 0.3e3 * POWER_W < found.tables["graph_mw"].value.mean() < 3e3 * POWER_W
    assert found.device is not None and found.device.own_memory
    assert Device.from_json(msgspec.to_builtins(found.device)) == found.device


def test_random_kernels_are_of_the_types_and_sizes_that_the_gpu_has_rates_for(model: MeasuredModel) -> None:
    grid = FrequencyGrid((2_100_000,), (1_980_000_000,), (3_201_000_000,))
    chips = [ChipRates({"float32": flops, "float16": 4e5}, 1300.0) for flops in (25_000.0, 2500.0)]
    fast, slow = (plan_gpu(Device("made", grid, chip, ("gpu",)), [model], ["conv2d", "relu"], 40) for chip in chips)
    assert {kernel.dtype for kernel in fast.invocations} == {"float32", "float16"}
    largest = [max(kernel.flops for kernel in campaign.invocations) for campaign in (fast, slow)]
    assert largest[0] > largest[1] and largest[0] <= 0.005 * 25_000 * 1_980_000_000


REFUSING = """
import json, sys
answer = {"torch": "2", "device_name": "NVIDIA RTX 0", "threads": 1, "kinds": ["conv2d", "relu"], "ran": [], "timings": 5}
answer.update(ms=1.0, period_ms=1.0, flops_per_s=1e13, bytes_per_s=1e12)
for line in sys.stdin:
    request = json.loads(line)
    refused = request.get("kernel", {}).get("kind") == "relu" or request["do"] == "network"
    refused |= any(call.get("kind") == "relu" for call in request.get("calls", ()))
    print(json.dumps({"error": "no memory for " + str(request.get("path"))} if refused else answer), flush=True)
"""


def test_a_campaign_goes_on_without_what_the_worker_refuses_and_the_record_names_it(
    model: MeasuredModel, tmp_path: Path
) -> None:
    (tmp_path / "worker.py").write_text(REFUSING)
    found = measured(StandInNvml(), tmp_path / "worker.py", model, folder=tmp_path / "kept")
    kinds = {found.invocations[what].kind for what in found.tables["kernel_ms"].what}
    assert kinds == {"conv2d"} and not len(found.tables["network_ms"])
    assert not found.environment["without_power"]
    refused = found.environment["refused"]
    assert {name.split()[0] for name in refused} == {"relu", "network", "graph", "issuing"}
    assert refused["network beginning"] == "no memory for beginning.pt"
    again = measured(StandInNvml(), tmp_path / "worker.py", model, folder=tmp_path / "kept")
    assert again.environment["refused"] == refused


ENDING = """
import json, sys
answer = {"torch": "2", "device_name": "NVIDIA RTX 0", "threads": 1, "kinds": ["conv2d", "relu"], "ran": [], "timings": 5}
answer.update(ms=1.0, period_ms=1.0, flops_per_s=1e13, bytes_per_s=1e12)
for line in sys.stdin:
    request = json.loads(line)
    if ENDS:
        sys.exit("CUDA error: device-side assert triggered")
    print(json.dumps(answer), flush=True)
"""


def test_a_worker_that_an_error_of_the_gpu_ended_is_started_anew_and_the_record_names_what_it_was(
    model: MeasuredModel, tmp_path: Path
) -> None:
    (tmp_path / "worker.py").write_text(ENDING.replace("ENDS", "request['do'] == 'network'"))
    found = measured(StandInNvml(), tmp_path / "worker.py", model)
    assert len(found.tables["kernel_ms"]) and not len(found.tables["network_ms"])
    assert "device-side assert triggered" in found.environment["refused"]["network beginning"]


def test_a_worker_that_ends_again_and_again_ends_the_campaign_with_its_last_words(model: MeasuredModel, tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(ENDING.replace("ENDS", "request['do'] not in ('hello', 'rates')"))
    with pytest.raises(MeasurementError, match=r"ended at '.*' with code 1: CUDA error: device-side"):
        measured(StandInNvml(), tmp_path / "worker.py", model)


def test_pointwise_kernels_of_networks_are_measured_and_each_kind_is_drawn(worker: Path) -> None:
    network = reference_network("mobilenet_v2")
    kinds = {"silu", "hardswish", "mul", "ge_scalar"}
    shapes = [launch.output for launch in network.launches if launch.kind == "hardtanh"]
    calls = [
        KernelInvocation(
            kind, "", (shape,), shape, "bool" if kind == "ge_scalar" else "float32", {}, prod(shape), 8 * prod(shape)
        )
        for kind in sorted(kinds)
        for shape in dict.fromkeys(shapes)
    ]
    whole = msgspec.structs.replace(network, name="pointwise", calls=tuple(calls), reads=())
    with workstation(StandInNvml(), lambda: TorchProcess(worker=worker)) as gpu:
        campaign = plan_gpu(gpu.device, [MeasuredModel(Path("pointwise.pt"), whole, whole.inputs)], sorted(kinds), 1)
    own = {call.signature for call in calls}
    assert {call.signature for call in campaign.invocations} > own
    assert {call.kind for call in campaign.invocations if call.signature not in own} == kinds


def test_a_campaign_asks_for_no_call_of_a_kind_that_the_worker_does_not_run(worker: Path, model: MeasuredModel) -> None:
    asked = []

    class Watched(TorchProcess):
        def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
            asked.append(request)
            return super().ask(request)

    with workstation(StandInNvml(), lambda: Watched(worker=worker)) as gpu:
        campaign = plan_gpu(gpu.device, [model], gpu.process.about["kinds"], 1)
        measure_gpu(campaign, [model], gpu, SHORT)
    calls = [call for request in asked for call in request.get("calls", ())]
    assert {call["kind"] for call in calls if "kind" in call} == {"conv2d", "relu"}
    assert {call.kind for call in model.network.launches} - {"conv2d", "relu"}


def test_the_record_describes_driver_temperature_and_why_the_clock_is_what_it_is(worker: Path, model: MeasuredModel) -> None:
    found = measured(StandInNvml(), worker, model)
    assert found.environment["driver"] == "580.1" and "power_limit_mw" not in found.environment
    assert found.temperature_c == 41 and found.environment["die_c"] == [41, 41]
    assert set(found.environment["clock_reasons"]) == {"power cap"}


def test_rates_of_a_device_are_by_element_type_and_tf32_counts_if_convolutions_take_it() -> None:
    class Rated:
        def __init__(self, tf32: bool) -> None:
            self.about = {"cudnn_tf32": tf32}

        def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
            by_type = {"float32": 50e12, "tf32": 372e12, "float16": 672e12}
            return {"flops_per_s": 50e12, "bytes_per_s": 4e12, "flops_per_s_of": by_type}

    rates = gpu_device(Rated(True), Nvml(StandInNvml()), "rated").chip.flops_per_gpu_cycle
    assert {name: rate * 1.8e9 for name, rate in rates.items()} == pytest.approx(
        {"float32": 50e12, "tf32": 372e12, "float16": 672e12}
    )
    assert "tf32" not in gpu_device(Rated(False), Nvml(StandInNvml()), "rated").chip.flops_per_gpu_cycle


def test_times_of_a_gpu_are_those_in_a_stream_so_pauses_are_no_figures(worker: Path, model: MeasuredModel) -> None:
    found = measured(StandInNvml(), worker, model)
    assert len(found.tables["kernel_mw"]) and not len(found.tables["gap_us"]) and not len(found.tables["timing_us"])


def test_clocks_that_are_asked_for_are_locked_and_given_back(worker: Path, model: MeasuredModel) -> None:
    library = StandInNvml()
    found = measured(library, worker, model, 600, 1200)
    assert found.described.grid.gpu_hz == (600_000_000, 1_200_000_000)
    assert set(found.tables["network_ms"].configuration) == {0, 1}
    assert library.told[-2:] == ["given back", "shut down"] and {"locked 600", "locked 1200"} <= set(library.told)
    assert found.environment["clocks_seen_mhz"] == [600, 1200]


def test_a_gpu_that_is_lost_ends_it_with_what_was_measured_kept_and_its_clocks_given_back(
    worker: Path, model: MeasuredModel, tmp_path: Path
) -> None:
    library = StandInNvml(fails_after=4)
    with pytest.raises(MeasurementError, match="NVML, energy: GPU is lost"):
        measured(library, worker, model, 600, 1200, folder=tmp_path)
    assert library.told[-2:] == ["given back", "shut down"] and list(tmp_path.rglob("unit-*.npz"))


@pytest.mark.parametrize(
    ("spoil", "clocks_mhz", "said"),
    [
        (lambda one: msgspec.structs.replace(one, energy=False), (), "NVML, energy: Not Supported"),
        (lambda one: msgspec.structs.replace(one, may_lock=False), (600,), "locking 600 MHz: Insufficient Permissions"),
        (lambda one: one, (700,), r"no clock of 700 MHz; the nearest: \[600, 1200, 1800\]"),
    ],
)
def test_what_a_gpu_cannot_do_is_told(
    spoil: Callable[[StandInNvml], StandInNvml], clocks_mhz: tuple[int, ...], said: str, worker: Path, model: MeasuredModel
) -> None:
    library = spoil(StandInNvml())
    with pytest.raises(MeasurementError, match=said):
        measured(library, worker, model, *clocks_mhz)
    assert library.told == ["shut down"]


def test_a_machine_without_nvml_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["collect", "resnet18", "--out", str(tmp_path / "gpu.npz")]
    assert main([*arguments, "--gpu-mhz", "600"]) == 2
    assert "--gpu-mhz: clocks are locked with --meter nvml" in capsys.readouterr().err
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    assert main([*arguments, "--meter", "nvml"]) == 3
    told = capsys.readouterr().err
    assert "NVML" in told and told.count("\n") == 1
