# SPDX-License-Identifier: Apache-2.0
"""Simulated and real Jetson AGX Orin 64GB: layers at four power modes, kernels, rail power under stress.

Layers were timed alone by an interpreter: GPU time counts at batch 16 and 64, host time, a multiple of issuing, at batch 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ....kernels.network import KernelInvocation, Network
from ...reference import reference_network
from ...twin.silicon.chip import Array, Chip, Clocks, load_chip
from ...twin.silicon.silicon import Silicon, execute
from .fit import FittedQuantity, Report, numbers, product, read_rows

BOARD = "agx-orin-64gb"
LAYERS = "layer_latency_by_power_mode.csv.gz"
CONVOLUTIONS = "conv2d_sweep_full_cuda_50w.csv"
PRODUCTS = "gemm_sweep_full_cuda_50w.csv"
NETWORKS = ("mobilenet_v2", "resnet18", "vgg16")
LAYER_LIMIT, POWER_LIMIT = 0.30, 0.15
_TYPES = {"FP32": "float32", "FP16": "float16", "BF16": "bfloat16"}
_HARNESS = 8.7  # the measuring program's host time, relative to issuing
_FUNCTIONAL = frozenset({"add", "mean", "cat", "mul"})
_STRESS_C = 50.0


class MeasuredMode(Struct, frozen=True):
    """Caps of a power mode, and rail power under GPU and CPU stress (VDD_GPU_SOC, VDD_CPU_CV)."""

    cpu_hz: float
    gpu_hz: float
    emc_hz: float
    sm_count: int
    cores: int
    gpu_soc_w: float
    cpu_cv_w: float

    @property
    def clocks(self) -> Clocks:
        return Clocks(np.array([self.cpu_hz]), np.array([self.gpu_hz]), np.array([self.emc_hz]))


# Rail power: a user's, developer.nvidia.com forum, thread 323456.
MODES: Mapping[str, MeasuredMode] = {
    "15W": MeasuredMode(1.1136e9, 408e6, 2133e6, 6, 4, 5.2, 1.6),
    "30W": MeasuredMode(1.728e9, 612e6, 3199e6, 8, 8, 7.6, 5.6),
    "50W": MeasuredMode(1.4976e9, 816e6, 3199e6, 16, 12, 18.4, 6.0),
    "MAXN": MeasuredMode(2.2016e9, 1300.5e6, 3199e6, 16, 12, 40.4, 15.2),
}


class MeasuredLayer(Struct, frozen=True):
    model: str
    calls: tuple[KernelInvocation, ...]
    batch: int
    precision: str
    mode: str
    mean_ms: float
    least_ms: float
    held_out: bool

    @property
    def kind(self) -> str:
        call = next((call for call in self.calls if call.kind == "conv2d"), self.calls[0])
        if call.kind != "conv2d":
            return call.kind
        weight, groups = call.params["weight"], call.params["groups"]
        assert isinstance(weight, tuple) and isinstance(groups, int)
        return "depthwise" if groups > 1 else f"conv {weight[2]}x{weight[3]}"


@lru_cache(maxsize=64)
def named_launches(model: str, batch: int) -> dict[str, KernelInvocation]:
    seen: Counter[str] = Counter()
    named = {}
    for launch in reference_network(model, batch).launches:
        name = launch.kind if launch.kind in _FUNCTIONAL else launch.scope.replace(".", "_")
        named[name if not seen[name] else f"{name}_{seen[name]}"] = launch
        seen[name] += 1
    return named


def layers_of(table: Iterable[Mapping[str, str]]) -> list[MeasuredLayer]:
    rows = [
        row
        for row in table
        if row["model"] in NETWORKS and not row["calib_dir"].startswith("jetson_orin_agx")  # the same board, batch 1 again
    ]
    means, least = (numbers(rows, name, LAYERS) for name in ("lat_mean_ms", "lat_min_ms"))
    order: dict[tuple[str, str], int] = {}
    layers = []
    for row, mean_ms, least_ms in zip(rows, means.tolist(), least.tolist(), strict=True):
        named, dtype = named_launches(row["model"], int(row["batch"])), _TYPES[row["precision"]]
        calls = tuple(replace(named[node], dtype=dtype) for node in row["nodes"].split("|") if node in named)
        if calls:
            position = order.setdefault((row["model"], row["nodes"]), len(order))
            batch, mode = int(row["batch"]), row["thermal_profile"]
            layers.append(
                MeasuredLayer(row["model"], calls, batch, row["precision"], mode, mean_ms, least_ms, position % 4 == 0)
            )
    return layers


def compare(folder: Path) -> Report:
    """Compare with measurements in a folder. Raises ComparisonDataError."""
    chip = load_chip(BOARD)
    layers = layers_of(read_rows(folder, LAYERS))
    large, small = (_simulated(chip, [layer for layer in layers if layer.batch in batches]) for batches in ((16, 64), (1,)))
    return Report(
        BOARD,
        chip,
        "layers of torchvision networks, sweeps of kernels (branes-ai/graphs) and stress (a user) on a Jetson AGX Orin 64GB",
        (
            *_by(large, lambda layer: f"batch 16, 64: {layer.mode} {layer.precision}, ms", LAYER_LIMIT),
            *_by(large, lambda layer: f"batch 16, 64: {layer.kind}, ms", None),
            *_by(small, lambda layer: f"batch 1: {layer.mode}, ms", None),
            *_sweeps(folder, chip),
            *_stress(chip),
        ),
        (
            "Mean latency at batch 16 and 64; at batch 1 the least of fifty runs, whose mean follows the governors.",
            "Some additions at batch 1 were timed at under 25 us, less than a launch takes: the largest errors there.",
            "Convolutions in single precision run as TensorFloat-32 (they were faster than the FP32 peak), products do not.",
            f"Host time of the measuring program: {_HARNESS} times issuing.",
            "Stress is taken as a large FP32 product, and as busy cores; which programs the user ran is not known.",
        ),
    )


def _simulated(chip: Chip, layers: Sequence[MeasuredLayer]) -> list[tuple[MeasuredLayer, float]]:
    pairs: list[tuple[MeasuredLayer, float]] = []
    for name, mode in MODES.items():
        mine = [layer for layer in layers if layer.mode == name]
        pairs += zip(mine, layer_ms(chip, mode, [layer.calls for layer in mine]).tolist(), strict=True)
    return pairs


def _by(
    pairs: Sequence[tuple[MeasuredLayer, float]], group: Callable[[MeasuredLayer], str], limit: float | None
) -> list[FittedQuantity]:
    measured = np.array([layer.least_ms if layer.batch == 1 else layer.mean_ms for layer, _ in pairs])
    simulated = np.array([ms for _, ms in pairs])
    kept = np.array([layer.held_out for layer, _ in pairs])
    names = np.array([group(layer) for layer, _ in pairs])
    fits = []
    for name in dict.fromkeys(names.tolist()):
        mine = names == name
        split = bool(kept[mine].any() and not kept[mine].all())
        fits.append(FittedQuantity(name, measured[mine], simulated[mine], kept[mine] if split else None, limit))
    return fits


def layer_ms(chip: Chip, mode: MeasuredMode, layers: Sequence[Sequence[KernelInvocation]]) -> Array:
    """Latency of each group of calls, alone, under the measuring program."""
    ours = chip.gated(mode.sm_count)
    silicon = Silicon(None, BOARD, chip=replace(ours, host=replace(ours.host, scale=ours.host.scale * _HARNESS)))
    unique = {tuple(call.signature for call in calls): Network("", (), tuple(calls)) for calls in layers}
    times = {key: 1e3 * float(execute(network, silicon, mode.clocks).latency_s[0]) for key, network in unique.items()}
    return np.array([times[tuple(call.signature for call in calls)] for calls in layers])


def _sweeps(folder: Path, chip: Chip) -> list[FittedQuantity]:
    fits = []
    for file, what, read in (
        (CONVOLUTIONS, "convolution sweep", _swept_convolution),
        (PRODUCTS, "product sweep", _swept_product),
    ):
        rows = list(read_rows(folder, file))
        measured = numbers(rows, "empirical_time_ms", file)
        simulated = layer_ms(chip, MODES["50W"], [[read(row)] for row in rows])
        for precision in ("fp32", "fp16"):
            mine = np.array([row["precision"] == precision for row in rows])
            fits.append(FittedQuantity(f"{what} at 50W {precision}, ms", measured[mine], simulated[mine]))
    return fits


def _swept_convolution(row: Mapping[str, str]) -> KernelInvocation:
    names = ("batch_size", "in_channels", "out_channels", "spatial_size", "kernel_size", "stride", "groups")
    batch, channels, filters, size, kernel, stride, groups = (int(row[name]) for name in names)
    params: dict[str, bool | int | tuple[int, ...]] = {
        "weight": (filters, channels // groups, kernel, kernel),
        "bias": False,
        "stride": (stride, stride),
        "padding": (kernel // 2, kernel // 2),
        "dilation": (1, 1),
        "groups": groups,
    }
    side = (size - 1) // stride + 1
    image, output = (batch, channels, size, size), (batch, filters, side, side)
    return KernelInvocation("conv2d", "", (image,), output, _TYPES[row["precision"].upper()], params)


def _swept_product(row: Mapping[str, str]) -> KernelInvocation:
    m, n, k, batch = (int(row[name]) for name in ("M", "N", "K", "batch_size"))
    return product(m, k, n, batch, dtype=_TYPES[row["precision"].upper()])


def _stress(chip: Chip) -> list[FittedQuantity]:
    simulated = []
    for mode in MODES.values():
        silicon = Silicon(None, BOARD, chip=chip.gated(mode.sm_count))
        idle = silicon.idle_rails_w(mode.clocks, _STRESS_C)
        work = silicon.kernels([product(4096, 4096, 4096)], mode.clocks)
        gpu = idle["VDD_GPU_SOC"][0] + work.energy_j["VDD_GPU_SOC"][0, 0] / work.seconds[0, 0]
        cpu = idle["VDD_CPU_CV"] + silicon.other_rails_w(mode.clocks, cores=float(mode.cores))["VDD_CPU_CV"]
        simulated.append((float(gpu), float(cpu[0])))
    gpu_w, cpu_w = np.array(simulated).T
    return [
        FittedQuantity(
            "VDD_GPU_SOC under stress, W", np.array([m.gpu_soc_w for m in MODES.values()]), gpu_w, None, POWER_LIMIT, every=True
        ),
        FittedQuantity(
            "VDD_CPU_CV under stress, W", np.array([m.cpu_cv_w for m in MODES.values()]), cpu_w, None, POWER_LIMIT, every=True
        ),
    ]
