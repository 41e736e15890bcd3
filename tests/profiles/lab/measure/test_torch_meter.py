# SPDX-License-Identifier: Apache-2.0
"""The PyTorch worker, and what a meter makes of a GPU's answers."""

from __future__ import annotations

import ast
import contextlib
import math
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from jetdvfs.kernels.cost.features import MODELLED_KINDS
from jetdvfs.kernels.network import HostOp, KernelInvocation, ParamValue
from jetdvfs.profiles.adapt import torch_worker
from jetdvfs.profiles.adapt.torch_process import WORKER, TorchProcess
from jetdvfs.profiles.adapt.torch_worker import LateRequest, RefusedRequest, is_for_now
from jetdvfs.profiles.errors import MeasurementError, RefusedForNow, RequestRefused
from jetdvfs.profiles.lab.measure.meters import kernel_worker
from jetdvfs.profiles.lab.measure.meters.cpu import KERNEL_WORKER, CpuMeter, TimingLimits
from jetdvfs.profiles.lab.measure.meters.kernel_worker import KernelWorker
from jetdvfs.profiles.lab.measure.meters.rapl import Rapl
from jetdvfs.profiles.lab.measure.processor import (
    MeasuredModel,
)
from jetdvfs.profiles.lab.train.listed_networks import left_out_networks, trained_networks
from jetdvfs.profiles.reference import reference_network
from jetdvfs.tests.support.profiles.cuda_stand_in import StandInCuda

SHORT = TimingLimits(kernel_s=0.0, network_s=0.0, power_s=0.01, timings=5)


def smallest(kind: str) -> KernelInvocation:
    networks = (*trained_networks(), *left_out_networks(), reference_network("mobilenet_v2"))
    calls = [call for network in networks for call in network.launches if call.kind == kind and call.dtype == "float32"]
    return min(calls, key=lambda call: call.flops + call.bytes)


@pytest.mark.parametrize("file", [WORKER, KERNEL_WORKER])
def test_the_workers_are_files_for_python_3_8_with_torch_alone(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 8))
    imported = {
        name.name if isinstance(node, ast.Import) else node.module or "."
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in node.names
    }
    assert not imported - {"torch", "torch_worker", "adapt.torch_worker"} - sys.stdlib_module_names
    newer = {"removeprefix", "removesuffix", "pairwise", "batched"}
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not used & newer
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "strict"]


@pytest.mark.parametrize("kind", [*MODELLED_KINDS, "sigmoid", "gelu", "mul", "mul_scalar", "embedding", "upsample_nearest2d"])
def test_a_kernel_of_each_modelled_kind_runs_and_makes_what_it_should(kind: str, process: TorchProcess) -> None:
    answer = process.ask({"do": "kernel", "kernel": smallest(kind).to_json(), "timings": 5, "seconds": 0.0})
    assert answer["ms"] > 0 and answer["timings"] >= 5
    assert any(name.startswith("aten::") for name in answer["ran"])


class WatchedTorch:
    """PyTorch that notes when its profiler was done."""

    def __init__(self, torch: Any) -> None:
        self._torch, self.profiler, self.profiled_s = torch, self, list[float]()
        self.ProfilerActivity = torch.profiler.ProfilerActivity

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    @contextlib.contextmanager
    def profile(self, activities: Any) -> Iterator[Any]:
        with self._torch.profiler.profile(activities=activities) as profiler:
            yield profiler
        self.profiled_s.append(time.monotonic())


def test_what_runs_until_a_network_is_answered_for_are_inferences_and_no_profiler(models: list[MeasuredModel]) -> None:
    watched = WatchedTorch(pytest.importorskip("torch"))
    worker, seconds = KernelWorker(watched, "cpu"), 0.1
    for _ in range(2):
        for model in models[:2]:
            inputs = [spec.to_json() for spec in model.inputs]
            request = {"do": "network", "path": str(model.path), "inputs": inputs, "timings": 10**6, "seconds": seconds}
            assert "aten::conv2d" in worker.answer(request)["ran"]
            assert time.monotonic() - watched.profiled_s[-1] >= seconds
    assert len(watched.profiled_s) == 2  # once of each model


@pytest.mark.parametrize("issue_ms", [0.01, 0.3, 3.0])
@pytest.mark.parametrize("event_ms", [0.0, 0.0018])
def test_time_of_a_gpus_kernel_has_neither_the_host_nor_events_in_it(issue_ms: float, event_ms: float) -> None:
    gpu = StandInCuda(pytest.importorskip("torch"), issue_ms, kernel_ms=0.02, gpu_hz=1.377e9, event_ms=event_ms)
    request = {"do": "kernel", "kernel": smallest("relu").to_json(), "timings": 60, "seconds": 5.0}
    answer = KernelWorker(gpu, "cuda").answer(request)
    assert answer["ms"] == pytest.approx(0.02) and answer["timings"] == 60 and answer["runs"] == 10
    assert answer["event_us"] == pytest.approx(1e3 * event_ms, abs=1e-9)


class SplittingCuda(StandInCuda):
    """A library that runs a kernel in two parts, and adds them."""

    def launch(self, *kernels: str) -> None:
        super().launch(*(part for kernel in kernels for part in (kernel, kernel, "sum")))


@pytest.mark.parametrize(("gpu", "events"), [(StandInCuda, 1), (SplittingCuda, 3)])
def test_a_kernel_counts_all_that_it_runs_on_a_gpu(gpu: type[StandInCuda], events: int) -> None:
    library = gpu(pytest.importorskip("torch"), issue_ms=0.01, kernel_ms=0.02, gpu_hz=1e9)
    request = {"do": "kernel", "kernel": smallest("relu").to_json(), "timings": 20, "seconds": 0.1}
    worker = KernelWorker(library, "cuda")
    for _ in range(2):  # the second answer is remembered
        answer = worker.answer(request)
        assert answer["events"] == events and answer["ran"] == sorted({"relu", "sum"} if events > 1 else {"relu"})


@pytest.mark.parametrize(("captures", "took_ms"), [(True, 0.025), (False, 0.02)])
def test_a_gpus_kernel_is_timed_after_another_in_a_graph_if_it_can_be_captured(captures: bool, took_ms: float) -> None:
    gpu = StandInCuda(pytest.importorskip("torch"), 0.01, 0.02, gpu_hz=1.377e9, switch_ms=0.005, captures=captures)
    answer = KernelWorker(gpu, "cuda").answer(
        {"do": "kernel", "kernel": smallest("gelu").to_json(), "timings": 2000, "seconds": 5.0}
    )
    assert answer["ms"] == pytest.approx(took_ms, rel=1e-3) and answer["burst_ms"] == pytest.approx(0.02, rel=1e-2)


def test_a_gpus_kernel_is_timed_anew_at_another_clock() -> None:
    gpu = StandInCuda(pytest.importorskip("torch"), 0.01, 0.02, gpu_hz=1.377e9)
    worker, kernel = KernelWorker(gpu, "cuda"), smallest("gelu").to_json()
    for took_ms in (0.02, 0.05):
        gpu.kernel_ms = took_ms
        answer = worker.answer({"do": "kernel", "kernel": kernel, "timings": 60, "seconds": 5.0})
        assert answer["ms"] == pytest.approx(took_ms, rel=1e-3)
        assert worker.answer({"do": "repeat", "kernel": kernel, "graph": True, "seconds": 0.0})["gpu_ms"] == pytest.approx(
            took_ms
        )


@pytest.mark.parametrize(("kind", "function"), [("matmul", "linear"), ("conv2d", "conv2d")])
def test_a_gpus_kernel_finds_its_weights_outside_of_the_cache_as_in_a_network(
    kind: str, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    used: dict[int, int] = {}
    real = getattr(torch.nn.functional, function)

    def watched(x: Any, weight: Any, *rest: Any, **named: Any) -> Any:
        used[weight.data_ptr()] = weight.numel() * weight.element_size()
        return real(x, weight, *rest, **named)

    monkeypatch.setattr(torch.nn.functional, function, watched)
    gpu = StandInCuda(torch, 0.01, 0.02, gpu_hz=1.377e9)
    params: dict[str, ParamValue] = {"m": 1, "n": 512, "k": 512, "batch": 1, "bias": False}
    kernel = KernelInvocation("matmul", "", ((1, 512),), (1, 512), "float32", params, 2 * 512**2, 4 * (512**2 + 1024))
    if kind == "conv2d":
        params = {
            "weight": (512, 512, 1, 1),
            "bias": False,
            "stride": (1, 1),
            "padding": (0, 0),
            "dilation": (1, 1),
            "groups": 1,
        }
        kernel = replace(kernel, kind=kind, inputs=((1, 512, 1, 1),), output=(1, 512, 1, 1), params=params)
    KernelWorker(gpu, "cuda").answer({"do": "kernel", "kernel": kernel.to_json(), "timings": 60, "seconds": 5.0})
    assert sum(used.values()) > 2 * gpu.get_device_properties(0).L2_cache_size
    used.clear()
    KernelWorker(torch, "cpu").answer({"do": "kernel", "kernel": kernel.to_json(), "timings": 5, "seconds": 0.0})
    assert len(used) == 1


def test_a_batch_norm_of_half_precision_has_its_statistics_in_that(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    types: set[Any] = set()
    real = torch.nn.functional.batch_norm

    def watched(*tensors: Any) -> Any:
        types.update(tensor.dtype for tensor in tensors if isinstance(tensor, torch.Tensor))
        return real(*tensors)

    monkeypatch.setattr(torch.nn.functional, "batch_norm", watched)
    kernel = {"kind": "batch_norm", "inputs": [[1, 8, 4, 4]], "output": [1, 8, 4, 4], "dtype": "bfloat16", "params": {}}
    KernelWorker(torch, "cpu").answer({"do": "kernel", "kernel": kernel, "timings": 5, "seconds": 0.0})
    assert types == {torch.bfloat16}


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("batch_norm", {}),
        ("max_pool2d", {"kernel_size": [1, 1], "stride": [1, 1]}),
        (
            "conv2d",
            {"weight": [8, 8, 1, 1], "bias": False, "stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "groups": 1},
        ),
    ],
)
def test_a_kernel_of_a_channels_last_network_has_its_operands_so(
    kind: str, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    laid: list[bool] = []
    real = getattr(torch.nn.functional, kind)

    def watched(*tensors: Any, **named: Any) -> Any:
        laid.extend(x.is_contiguous(memory_format=torch.channels_last) for x in tensors if getattr(x, "ndim", 0) == 4)
        return real(*tensors, **named)

    monkeypatch.setattr(torch.nn.functional, kind, watched)
    kernel = {"kind": kind, "inputs": [[2, 8, 4, 4]], "output": [2, 8, 4, 4], "dtype": "float32"}
    worker = KernelWorker(torch, "cpu")
    worker.answer(
        {"do": "kernel", "kernel": {**kernel, "params": {**params, "channels_last": True}}, "timings": 5, "seconds": 0.0}
    )
    assert laid and all(laid)
    laid.clear()
    worker.answer({"do": "kernel", "kernel": {**kernel, "params": params}, "timings": 5, "seconds": 0.0})
    assert not laid[0]


def test_a_product_whose_weight_is_on_the_left_runs() -> None:
    params = {"m": 32, "n": 128, "k": 1, "batch": 1, "bias": False}
    kernel = {"kind": "matmul", "inputs": [[1, 1, 128]], "output": [1, 32, 128], "dtype": "float32", "params": params}
    answer = KernelWorker(pytest.importorskip("torch"), "cpu").answer(
        {"do": "kernel", "kernel": kernel, "timings": 5, "seconds": 0.0}
    )
    assert answer["ms"] > 0


def test_attention_gets_the_mask_that_no_fused_kernel_takes_and_shared_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    masks: list[Any] = []
    real = torch.nn.functional.scaled_dot_product_attention

    def watched(*tensors: Any, **named: Any) -> Any:
        masks.append(named["attn_mask"])
        return real(*tensors, **named)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    kernel = {"kind": "attention", "inputs": [[1, 4, 8, 16]] * 3, "output": [1, 4, 8, 16], "dtype": "float32"}
    worker = KernelWorker(torch, "cpu")
    for params, strides in (({"mask": True, "math": True}, (1, 0)), ({"mask": True}, (8, 1)), ({"mask": False}, None)):
        worker.answer({"do": "kernel", "kernel": {**kernel, "params": params}, "timings": 5, "seconds": 0.0})
        assert (masks[-1] if strides is None else masks[-1].stride()) == strides
    shared = {**kernel, "inputs": [[1, 4, 8, 16], [1, 2, 8, 16], [1, 2, 8, 16]], "params": {"mask": False}}
    assert worker.answer({"do": "kernel", "kernel": shared, "timings": 5, "seconds": 0.0})["ms"] > 0


@pytest.mark.parametrize("shape", [[6], [4, 6], [2, 3, 4], [1, 8, 16, 4]])
def test_a_copy_is_of_what_lies_otherwise_in_memory(shape: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    copied, real = [], torch.Tensor.clone

    def watched(x: Any, **named: Any) -> Any:
        copied.append((list(x.shape), x.is_contiguous()))
        return real(x, **named)

    monkeypatch.setattr(torch.Tensor, "clone", watched)
    kernel = {"kind": "clone", "inputs": [shape], "output": shape, "dtype": "float32", "params": {}}
    KernelWorker(torch, "cpu").answer({"do": "kernel", "kernel": kernel, "timings": 5, "seconds": 0.0})
    assert copied and all(one == (shape, len(shape) == 1) for one in copied)


MOVING = {
    "index": ([[169, 3], [2401]], [2401, 3]),
    "constant_pad_nd": ([[1, 5, 6, 8]], [1, 7, 7, 8]),
    "roll": ([[1, 7, 7, 8]], [1, 7, 7, 8]),
    "zeros": ([], [7, 7]),
    "fill": ([], [4, 3]),
    "masked_fill": ([[4, 49, 49], [4, 49, 49]], [4, 49, 49]),
}


@pytest.mark.parametrize("kind", MOVING)
def test_kernels_that_move_or_fill_make_what_the_network_says(kind: str, process: TorchProcess) -> None:
    inputs, output = MOVING[kind]
    kernel = {"kind": kind, "inputs": inputs, "output": output, "dtype": "float32", "params": {}}
    answer = process.ask({"do": "kernel", "kernel": kernel, "timings": 5, "seconds": 0.0})
    assert answer["ms"] > 0 and any(name.startswith("aten::") for name in answer["ran"])


@pytest.mark.parametrize(("captures", "launches"), [(True, 75), (False, 0)])
def test_a_short_kernel_is_repeated_in_a_graph_if_it_can_be_captured(captures: bool, launches: int) -> None:
    gpu = StandInCuda(pytest.importorskip("torch"), 0.01, kernel_ms=0.02, gpu_hz=1.377e9, captures=captures)
    request = {"do": "repeat", "kernel": smallest("relu").to_json(), "graph": True, "seconds": 0.01}
    answer = KernelWorker(gpu, "cuda").answer(request)
    assert answer.get("graph", 0) == launches and answer["count"] % max(launches, 1) == 0
    if captures:
        assert answer["gpu_ms"] == pytest.approx(0.02)


def test_rates_of_a_gpu_are_by_element_type_and_its_modes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(kernel_worker, "_MOST_SIDE", 64)
    monkeypatch.setattr(kernel_worker, "_PROBE_SIDE", 64)
    monkeypatch.setattr(kernel_worker, "_PROBE_BYTES", 1 << 12)
    gpu = StandInCuda(torch, 0.01, kernel_ms=0.02, gpu_hz=1.377e9)
    before = torch.backends.cuda.matmul.allow_tf32
    worker = KernelWorker(gpu, "cuda")
    monkeypatch.setattr(worker, "_in_bursts", lambda run, limits: (run(), {"ms": 0.02})[1])
    rates = worker.answer({"do": "rates"})
    assert {"float32", "tf32", "float16", "bfloat16"} <= set(rates["flops_per_s_of"])
    assert rates["flops_per_s"] == rates["flops_per_s_of"]["float32"] == pytest.approx(2e3 * 64**3 / 0.02)
    assert torch.backends.cuda.matmul.allow_tf32 == before


def test_a_gpus_settings_are_part_of_what_the_worker_says() -> None:
    gpu = StandInCuda(pytest.importorskip("torch"), 0.01, kernel_ms=0.02, gpu_hz=1.377e9)
    told = KernelWorker(gpu, "cuda").answer({"do": "hello"})
    assert {"cuda", "cudnn", "cudnn_benchmark", "cudnn_tf32", "matmul_tf32"} <= set(told)


def test_host_reference_work_is_timed_between_the_inferences_on_a_gpu(models: list[MeasuredModel]) -> None:
    gpu = StandInCuda(pytest.importorskip("torch"), 0.01, kernel_ms=0.02, gpu_hz=1.377e9)
    worker = KernelWorker(gpu, "cuda")
    worker.device = "cpu"  # where the stand-in's tensors are
    run = worker._loaded(str(models[0].path), [spec.to_json() for spec in models[0].inputs], "eager")
    worker.device, worker._last = "cuda", ("kept", run)
    worker._kept = lambda key, make: run  # type: ignore[method-assign]
    answer = worker.answer({"do": "network", "path": "", "inputs": [], "timings": 5, "seconds": 0.0})
    assert answer["ms"] > 0 and answer["reference_ms"] > 0


def test_a_trace_with_a_device_in_its_code_is_refused_with_the_way_out(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Positions(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x: Any) -> Any:
            return x + torch.arange(4, device="cpu")

    path = tmp_path / "positions.pt"
    torch.jit.save(torch.jit.trace(Positions(), torch.randn(2, 4)), path)
    request = {"do": "network", "path": str(path), "inputs": [{"shape": [2, 4], "dtype": "float32"}]}
    worker = KernelWorker(torch, "cpu")
    assert worker.answer({**request, "timings": 1, "seconds": 0.0})["ms"] > 0
    worker = KernelWorker(torch, "cpu")
    worker.device = "meta"  # any other than that of the trace
    with pytest.raises(RefusedRequest, match=r"names the device cpu .* trace it with model and inputs on meta") as refused:
        worker.answer(request)
    assert "\n" not in str(refused.value)


def test_an_error_of_torchscripts_interpreter_is_told_by_its_reason() -> None:
    code = "".join(f"  File {line}\n" for line in range(99))
    error = RuntimeError(f"The following operation failed in the TorchScript interpreter.\n{code}RuntimeError: two devices\n")
    assert torch_worker._reason(error) == "RuntimeError: two devices"
    assert torch_worker._reason(ValueError("a\nb")) == "ValueError: a b"


def test_a_kernel_that_waits_for_the_gpu_itself_is_refused() -> None:
    gpu = StandInCuda(pytest.importorskip("torch"), issue_ms=1e5, kernel_ms=0.02, gpu_hz=1.377e9)
    with pytest.raises(RefusedRequest, match="20 launches of a kernel are not issued while the GPU is kept busy"):
        KernelWorker(gpu, "cuda").answer({"do": "kernel", "kernel": smallest("relu").to_json()})


def test_a_gpus_real_clock_is_told_by_cycles_that_it_counts() -> None:
    gpu = StandInCuda(pytest.importorskip("torch"), issue_ms=0.01, kernel_ms=0.02, gpu_hz=0.9e9)
    assert KernelWorker(gpu, "cuda").answer({"do": "gpu_clock"})["gpu_hz"] == pytest.approx(0.9e9)


def test_a_kernel_that_takes_more_is_measured_as_taking_more(process: TorchProcess) -> None:
    def product(side: int) -> KernelInvocation:
        params: dict[str, Any] = {"m": side, "n": side, "k": side, "batch": 1, "bias": False}
        return KernelInvocation("matmul", "", ((side, side),), (side, side), "float32", params, 2 * side**3, 12 * side**2)

    meter = CpuMeter(process, {}, Rapl(Path("/nowhere")), SHORT)
    small, large = meter.kernel_times_ms([product(32), product(512)], [None, None])  # type: ignore[list-item]
    assert 10 * small < large


def test_a_refused_kernel_keeps_no_other_from_being_asked(process: TorchProcess) -> None:
    def convolution(channels: int, output: tuple[int, ...]) -> KernelInvocation:
        params: dict[str, Any] = {"weight": (channels, 3, 3, 3), "bias": False, "stride": (1, 1), "padding": (1, 1)}
        params |= {"dilation": (1, 1), "groups": 1}
        return KernelInvocation("conv2d", "", ((1, 3, 8, 8),), output, "float32", params, 1, 1)

    meter = CpuMeter(process, {}, Rapl(Path("/nowhere")), SHORT)
    wrong, right = convolution(4, (1, 9, 9, 9)), convolution(8, (1, 8, 8, 8))
    first, second = meter.kernel_times_ms([wrong, right], [None, None])  # type: ignore[list-item]
    assert math.isnan(first) and second > 0
    assert list(meter._notebook.open.refused) == ["conv2d 1x3x8x8 4x3x3x3 -> 1x9x9x9 float32"]


class ShortOfMemory:
    """A worker that refuses its first request for now, and its first network for good."""

    def __init__(self) -> None:
        self.about: Mapping[str, Any] = {"kinds": ["relu"]}
        self.asked: list[str] = []

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(request["do"])
        if self.asked == ["kernel"]:
            raise RefusedForNow("meter: out of memory")
        if self.asked.count("network") == 1:
            raise RequestRefused("meter: no such operator")
        return {"ms": 1.0}


def test_a_request_that_was_refused_for_now_alone_is_asked_again() -> None:
    worker = ShortOfMemory()
    meter = CpuMeter(worker, {}, Rapl(Path("/nowhere")), SHORT)
    found = [meter.asked(what, {"do": what}) for what in ("kernel", "kernel", "network", "network")]
    assert found == [None, {"ms": 1.0}, None, None] and worker.asked == ["kernel", "kernel", "network"]
    assert meter._notebook.open.refused == {"kernel": "out of memory", "network": "no such operator"}
    assert is_for_now(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")) and is_for_now(MemoryError())
    assert not is_for_now(RefusedRequest("no such kind")) and is_for_now(LateRequest("the host is busy"))


def test_calls_that_launch_nothing_take_microseconds(process: TorchProcess) -> None:
    meter = CpuMeter(process, {}, Rapl(Path("/nowhere")), SHORT)
    (burst_ms,) = meter.host_time_ms([HostOp(name, "") for name in ("view", "slice", "dropout", "strange")] * 8, [None])  # type: ignore[list-item]
    assert 1e-4 < burst_ms / 32 < 1


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"do": "fly"}, "'fly' is not known; valid: hello"),
        ({"do": "kernel", "kernel": {"kind": "lstm", "inputs": [], "output": [1], "dtype": "float32", "params": {}}}, "'lstm'"),
        (
            {"do": "kernel", "kernel": {"kind": "relu", "inputs": [[4]], "output": [5], "dtype": "float32", "params": {}}},
            "makes a tensor of [4], not of [5]",
        ),
        ({"do": "network", "path": "/nowhere.pt", "inputs": []}, "/nowhere.pt"),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_line_and_the_worker_goes_on(
    request_: dict[str, Any], said: str, process: TorchProcess
) -> None:
    with pytest.raises(MeasurementError) as refused:
        process.ask(request_)
    assert said in str(refused.value) and "\n" not in str(refused.value)
    assert process.ask({"do": "hello"})["device"] == "cpu"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import time; time.sleep(60)", "did not answer 'hello' within 0.5 s"),
        ("import sys; sys.exit('no memory left')", "ended at 'hello' with code 1: no memory left"),
        ("import os; os.kill(os.getpid(), 9)", "with signal 9"),
        ("print('Segmentation fault', flush=True); input()", "answered 'hello' with 'Segmentation fault"),
        ("print('[1]', flush=True); input()", "answered 'hello'"),
    ],
)
def test_a_worker_that_hangs_dies_or_babbles_ends_with_one_line(program: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(program)
    with pytest.raises(MeasurementError) as ended:
        TorchProcess(worker=tmp_path / "worker.py", patience_s=0.5 if "sleep" in program else 30)
    assert said in str(ended.value) and "\n" not in str(ended.value)


def test_a_python_that_is_not_there_or_has_no_cuda_is_told(process: TorchProcess) -> None:
    import torch

    with pytest.raises(MeasurementError, match="/nowhere/python cannot be started"):
        TorchProcess("/nowhere/python")
    if not torch.cuda.is_available():
        with pytest.raises(MeasurementError, match="has no CUDA; valid: the --python of one that has"):
            TorchProcess(device="cuda")
