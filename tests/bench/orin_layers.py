# SPDX-License-Identifier: Apache-2.0
"""The timeline against the sum on a real board: layers of torchvision networks measured on a Jetson AGX Orin.

    python tests/bench/orin_layers.py ../shared/data/orin-agx-layers

The folder holds ``layer_latency_by_power_mode.csv.gz`` (branes-ai/graphs, MIT): the mean latency of each fused layer, alone, in
four power modes, at batch 1 to 64. At batch 1 the host that launches a layer is the bottleneck, at batch 64 the GPU. There is
no profile of the board, so two simple models are fitted in each power mode: a kind's time as a multiple of its roofline bound,
to layers at batch 16 and 64, and a call's host time by kind, to those at batch 1. Every second layer is predicted with what the
others teach, by both methods: they share the kernels' times, so what differs between them is the host.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jetdvfs.kernels.cost.board import BoardCost, KernelModel
from jetdvfs.kernels.cost.features import feature_names
from jetdvfs.kernels.cost.host import HostModel, issue_key
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.cost.roofline import bound_at_ms
from jetdvfs.kernels.grid import FrequencyGrid
from jetdvfs.kernels.kinds import ELEMENTWISE, served_by
from jetdvfs.kernels.network import KernelInvocation, Network
from jetdvfs.kernels.units import METHODS
from jetdvfs.profiles.board import ChipRates
from jetdvfs.profiles.lab.compare.agx_orin import named_launches

FILE = "layer_latency_by_power_mode.csv.gz"
NETWORKS = ("mobilenet_v2", "resnet18", "vgg16")
_CORES = 256  # FP32 multiply-adds per cycle of a texture processing cluster


@dataclass(frozen=True)
class Mode:
    """What a power mode caps: CPU in kHz, GPU and EMC in Hz, and how many of the GPU's clusters are on."""

    cpu_khz: int
    gpu_hz: int
    emc_hz: int
    clusters: int

    @property
    def grid(self) -> FrequencyGrid:
        return FrequencyGrid((self.cpu_khz,), (self.gpu_hz,), (self.emc_hz,))

    @property
    def chip(self) -> ChipRates:
        return ChipRates({"float32": 2.0 * _CORES * self.clusters}, 64.0)


MODES = {
    "15W": Mode(1_113_600, 408_000_000, 2_133_000_000, 3),
    "30W": Mode(1_728_000, 612_000_000, 3_199_000_000, 4),
    "50W": Mode(1_497_600, 816_000_000, 3_199_000_000, 8),
    "MAXN": Mode(2_201_600, 1_300_500_000, 3_199_000_000, 8),
}


@dataclass(frozen=True)
class Layer:
    """One measured layer: its kernels as a network of their own."""

    network: Network
    model: str
    batch: int
    mode: str
    latency_ms: float


class Multiple:
    """Kernels that take a fixed multiple of their bound; depthwise convolutions, and those without a window, another one."""

    def __init__(self, kind: str, multiples: Mapping[str, float]) -> None:
        self._names = feature_names(kind)
        self._usual = multiples.get(kind, multiples["otherwise"])
        self._depthwise = multiples.get(f"{kind}.depthwise", self._usual)
        self._pointwise = multiples.get(f"{kind}.pointwise", self._usual)

    def sweep(self, features: NDArray[np.float32], levels: tuple[NDArray[np.float32], ...]) -> NDArray[np.float32]:
        multiple = np.full(len(features), self._usual, np.float32)
        if "depthwise" in self._names:
            height, width, depthwise = (
                features[:, self._names.index(name)] for name in ("kernel_height", "kernel_width", "depthwise")
            )
            multiple[(height == 1) & (width == 1)] = self._pointwise
            multiple[depthwise > 0] = self._depthwise
        shape = (len(features), *map(len, levels))
        return np.ascontiguousarray(np.broadcast_to(np.log(multiple)[:, None, None, None], shape))


def read_layers(folder: Path) -> list[Layer]:
    """The FP32 layers of the networks that are known, those left out that launch nothing."""
    layers = []
    with gzip.open(folder / FILE, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["precision"] != "FP32" or row["model"] not in NETWORKS or "agx" in row["calib_dir"]:
                continue
            named = named_launches(row["model"], int(row["batch"]))
            calls = tuple(named[node] for node in row["nodes"].split("|") if node in named)
            if calls:
                network = Network(row["nodes"], (), calls)
                latency_ms = float(row["lat_mean_ms"])
                layers.append(Layer(network, row["model"], int(row["batch"]), row["thermal_profile"], latency_ms))
    return layers


def fit(layers: Sequence[Layer]) -> tuple[dict[str, float], HostModel]:
    """Multiples of the bound by kind, from large batches, and host times by call, from batch 1, of one mode's layers."""
    kinds = sorted({issue_key(call)[0] for layer in layers for call in layer.network.launches})
    large = [layer for layer in layers if layer.batch >= 16]
    small = [layer for layer in layers if layer.batch == 1]
    bounds, counts = np.zeros((len(large), len(kinds))), np.zeros((len(small), len(kinds)))
    for row, layer in zip(bounds, large, strict=True):
        calls = layer.network.launches
        for call, bound in zip(calls, _bounds_ms(calls, MODES[layer.mode]), strict=True):
            row[kinds.index(issue_key(call)[0])] += bound
    for row, layer in zip(counts, small, strict=True):
        for call in layer.network.launches:
            row[kinds.index(issue_key(call)[0])] += 1
    # Convolutions may beat the FP32 bound: the library lets them use TF32.
    multiples = _relative_least_squares(bounds, [layer.latency_ms for layer in large], least=0.1)
    known = {kind: float(multiple) for kind, multiple in zip(kinds, multiples, strict=True)}
    known["otherwise"] = float(np.median(multiples))
    times_us = _relative_least_squares(counts, [1e3 * layer.latency_ms for layer in small], least=0.0)
    host = {kind: (float(us), 0.0, 0.0, 0.0) for kind, us in zip(kinds, times_us, strict=True)}
    return known, HostModel(host, (float(times_us.mean()), 0.0, 0.0, 0.0))


def _bounds_ms(calls: Sequence[KernelInvocation], mode: Mode) -> NDArray[np.float64]:
    return bound_at_ms(calls, mode.gpu_hz / 1e6, mode.emc_hz / 1e6, mode.chip)


def _relative_least_squares(columns: NDArray[np.float64], measured: Sequence[float], least: float) -> NDArray[np.float64]:
    """Coefficients, each at least ``least``, of the least relative error; what would fall below is held there."""
    rows = columns / np.asarray(measured)[:, None]
    held = np.zeros(rows.shape[1], bool)
    while True:
        solution = np.full(rows.shape[1], least)
        solution[~held] = np.linalg.lstsq(rows[:, ~held], 1 - rows[:, held].sum(axis=1) * least, rcond=None)[0]
        below = ~held & (solution < least)
        if not below.any():
            return solution
        held |= below


def board_cost(mode: Mode, multiples: Mapping[str, float], host: HostModel) -> BoardCost:
    """Cost models of the board at one power mode's clocks."""
    pointwise = served_by(ELEMENTWISE)
    kinds = ("conv2d", "batch_norm", "matmul", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "mean", *sorted(pointwise))
    kernels = {}
    for kind in kinds:
        family = ELEMENTWISE if kind in pointwise else kind
        regressor = Multiple(family, {**multiples, ELEMENTWISE: multiples["otherwise"]})
        kernels[kind] = KernelModel(kind, regressor, regressor, 0.0, 0.0)
    ones = np.ones((1, 1, 1), np.float32)
    return BoardCost(mode.grid, mode.chip, kernels, host, ones, np.ones(1, np.float32), 0.0, 0.0)


@dataclass(frozen=True)
class Compared:
    """One layer's latency as measured and as predicted by each method with what other layers teach."""

    layer: Layer
    predicted_ms: Mapping[str, float]


def compare(layers: Sequence[Layer]) -> list[Compared]:
    """Predict every layer by both methods from every second of the others."""
    position = {name: number for number, name in enumerate(dict.fromkeys((item.model, item.network.name) for item in layers))}
    compared = []
    for mode, half in product(MODES, (0, 1)):
        own = [item for item in layers if item.mode == mode]
        left_out = [item for item in own if position[item.model, item.network.name] % 2 == half]
        cost = board_cost(MODES[mode], *fit([item for item in own if item not in left_out]))
        for item in left_out:
            times: dict[str, float] = {
                method: float(surface(item.network, cost, method).latency_ms[0, 0, 0]) for method in METHODS
            }
            compared.append(Compared(item, times))
    return compared


def errors(compared: Sequence[Compared], method: str) -> tuple[float, float]:
    """The median relative error of a layer, up or down, and the relative error of all of them together."""
    ratios = [np.log(item.predicted_ms[method] / item.layer.latency_ms) for item in compared]
    total = sum(item.predicted_ms[method] for item in compared) / sum(item.layer.latency_ms for item in compared)
    return float(np.expm1(np.median(np.abs(ratios)))), float(total - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    compared = compare(read_layers(parser.parse_args().folder))
    print("Jetson AGX Orin, measured: median error of a layer, and of all layers together, in four power modes")
    print(f"{'network':14} {'batch':>5}  {'layers':>6}   {'timeline':>15}   {'sum':>15}")
    groups = sorted({(item.layer.batch, item.layer.model) for item in compared})
    for batch, model in [*groups, *((batch, "") for batch in sorted({batch for batch, _ in groups}))]:
        group = [item for item in compared if item.layer.batch == batch and model in ("", item.layer.model)]
        cells = ("{:8.0%} {:+6.0%}".format(*errors(group, method)) for method in METHODS)
        print(f"{model or 'all':14} {batch:5}  {len(group):6}   {'   '.join(cells)}")


if __name__ == "__main__":
    main()
