# SPDX-License-Identifier: Apache-2.0
"""The gate of version 2: is the simulated AGX Xavier as hard to predict, and hard in the same places, as real boards were?

Each row is one figure with the band it must lie in; the band stands around what real boards showed, wide enough for what a
smaller campaign and other random numbers change. Before any other recipe is tried on the silicon, all rows pass.

- *kinds*: the plain recipe of :mod:`jetdvfs.profiles.studies.difficulty`, all eight kinds of MIRAGE (SEC '21), Tables 4 and 5:
  predictions within 10%. Convolutions of the networks and random ones apart: the paper's are half and half.
- *networks*: its Table 6: the sum of the plain recipe's kernels beside the network's latency, over configurations.
- *sums*: its Table 1: kernels timed one by one, beside the network from end to end at top clocks.
- *boards*: its Figures 2 and 3: how far thirteen boards lie apart.
- *kernels*: the same models and features on kernels of two desktop GPUs (sitar-lab/NeuSight), measured beside simulated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ....kernels.grid import FrequencyConfiguration
from ....kernels.network import KernelInvocation, Network, ParamValue
from ...board import BoardDescription, load_board
from ...measuring.meters.simulated import TwinMeter
from ...measuring.sampling import Sampler, random_configurations
from ...twin.silicon.chip import Clocks
from ...twin.silicon.execution import execute
from ...twin.silicon.silicon import Silicon
from ..characterization import NODES
from ..characterization import measured as run_of
from ..difficulty import ALL_KINDS, PAPER_WITHIN_10, TEST_NODES, TRAINING_NODES, Part, measured, plain_features, trained
from ..table1 import PAPER, TOLERANCE
from .fit import numbers, product, read_rows

VERSION = 2
BOARD = "agx-xavier"
# Bands, low to high.
KIND_POINTS = 10.0  # around the paper's share, in points
APART = {"network shapes": (80.0, 98.5), "random shapes": (55.0, 85.0)}
TABLE_6 = {
    "mean, within 5%": (36.3, 20.0, 55.0),
    "mean, within 10%": (60.7, 42.0, 78.0),
    "resnet18, within 5%": (24.6, 0.0, 60.0),
}
OVER_100, SUM_POINTS = (5, 9), 9.0  # of ten networks; how far a network's sum may lie from the paper's in the mean, in points
POWER_APART = {"vgg16": (20.0, 12.0, 30.0), "shufflenet_v2_x1_0": (30.0, 18.0, 42.0)}
RUNTIME_QUANTILES = {0.75: (10.0, 3.0, 13.0), 0.9: (25.0, 6.0, 27.0)}
KERNELS = ("conv2d", "add", "matmul")
AS_HARD = (0.6, 1.6)  # the model's error on simulated kernels beside that on real ones
_FILES = {"conv2d": "conv.csv.gz", "add": "add.csv.gz", "matmul": "linear.csv.gz"}
_DEVICES = ("Tesla V100", "Tesla T4")
_SLOWEST_CPU = 5  # the paper leaves out the lowest CPU clocks, at which the host is all that counts
_LONGEST_S = 0.5  # a kernel of a desktop GPU that would take longer than that here is left out


@dataclass(frozen=True)
class Row:
    """One figure of the gate.

    Attributes:
        part: of the gate.
        name: what was measured.
        value: what the silicon gives.
        real: what real boards gave.
        low, high: the band that the value must lie in.
    """

    part: str
    name: str
    value: float
    real: float
    low: float
    high: float

    @property
    def passed(self) -> bool:
        return self.low <= self.value <= self.high


@dataclass(frozen=True)
class Effort:
    """How much the gate measures and trains.

    Attributes:
        samples: kernels of each kind on all boards together; convolutions are four times as many.
        configurations: at which networks are run.
        rounds: of boosting.
    """

    samples: int = 50_000
    configurations: int = 60
    rounds: int = 400
    threads: int = 2
    seed: int = 0


def rows(networks: Sequence[Network], effort: Effort, data: Path | None) -> Iterator[Row]:
    """Every row, as soon as it is there.

    Args:
        networks: MIRAGE's ten.
        data: a folder with measurements of desktop GPUs; without it, no kernels are compared with theirs.

    Raises:
        ComparisonDataError: the measurements are not in the folder.
    """
    board = load_board(BOARD)
    yield from sums(networks, board)
    yield from boards(networks, board)
    yield from kernels(effort, data)
    models = {}
    for kind in ALL_KINDS:
        found = KindModels(kind, networks, board, effort)
        models[kind] = found
        yield from found.rows()
    yield from table_6(networks, board, models, effort)


class KindModels:
    """The plain recipe's models of one kind, and how they do on boards left out."""

    def __init__(self, kind: str, networks: Sequence[Network], board: BoardDescription, effort: Effort) -> None:
        self.kind = kind
        each = (4 if kind == "conv2d" else 1) * effort.samples // (len(TRAINING_NODES) + len(TEST_NODES))
        real = each // 2 if kind == "conv2d" else 0
        parts: list[Part] = []
        for node in (*TRAINING_NODES, *TEST_NODES):
            sampler = Sampler(networks, seed=1000 * effort.seed + node)
            calls = sampler.draw(kind, real, real_share=1.0) + sampler.draw(kind, each - real)
            parts.append(measured(kind, calls, board, node, effort.seed, VERSION, real))
        self._testing = [part for part in parts if part.node in TEST_NODES]
        training = [part for part in parts if part.node in TRAINING_NODES]
        features = np.concatenate([part.features for part in training])
        self.predict = {
            target: trained(
                features, np.concatenate([part.labels[target] for part in training]), effort.rounds, effort.threads, effort.seed
            )
            for target in ("runtime", "power")
        }

    def rows(self) -> Iterator[Row]:
        features = np.concatenate([part.features for part in self._testing])
        real = np.concatenate([part.real for part in self._testing])
        for target, predict in self.predict.items():
            truth = np.concatenate([part.labels[target] for part in self._testing])
            near = np.abs(predict(features) / truth - 1.0) < 0.10
            paper = PAPER_WITHIN_10[self.kind][target]
            yield _around("kinds", f"{self.kind} {target}, % within 10%", _percent(near), paper, KIND_POINTS)
            if real.any() and target == "runtime":
                for (name, (low, high)), mine in zip(APART.items(), (real, ~real), strict=True):
                    yield Row("kinds", f"{self.kind} {target}, {name}, % within 10%", _percent(near[mine]), paper, low, high)


def table_6(
    networks: Sequence[Network], board: BoardDescription, models: Mapping[str, KindModels], effort: Effort
) -> Iterator[Row]:
    """Latency of networks on the boards left out, beside the sum of what is predicted of their kernels."""
    random = np.random.default_rng([effort.seed, 6])
    drawn = random_configurations(board.grid, 2 * effort.configurations, random)
    slowest = board.grid.cpu_khz[_SLOWEST_CPU]
    configurations = [one for one in drawn if one.cpu_khz >= slowest][: effort.configurations]
    within: dict[str, NDArray[np.float64]] = {}
    for network in networks:
        total = np.zeros(len(configurations))
        for kind, model in models.items():
            launches = [launch for launch in network.launches if launch.kind == kind]
            if launches:
                total += _predicted(model, launches, configurations)
        true = [
            TwinMeter(Silicon(node, board, version=VERSION), 6).network_latency_ms(network, configurations)
            for node in TEST_NODES
        ]
        errors = np.abs(np.concatenate([total / one - 1.0 for one in true]))
        within[network.name] = np.array([100.0 * np.mean(errors < limit) for limit in (0.05, 0.10)])
    mean = np.mean(list(within.values()), axis=0)
    values = {"mean, within 5%": mean[0], "mean, within 10%": mean[1], "resnet18, within 5%": within["resnet18"][0]}
    for name, (real, low, high) in TABLE_6.items():
        yield Row("networks", f"{name} (% of configurations)", float(values[name]), real, low, high)


def _predicted(
    model: KindModels, launches: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration]
) -> NDArray[np.float64]:
    pairs = [launch for launch in launches for _ in configurations]
    features = plain_features(model.kind, pairs, list(configurations) * len(launches))
    return np.asarray(model.predict["runtime"](features).reshape(len(launches), -1).sum(axis=0))


def sums(networks: Sequence[Network], board: BoardDescription) -> Iterator[Row]:
    """Kernels timed one by one beside the whole, at top clocks."""
    shares = {}
    for network in networks:
        run = run_of(network, board, version=VERSION)
        shares[network.name] = 100.0 * run.all_ms / run.time_ms
        paper = PAPER[network.name].time_ms
        yield _around("sums", f"{network.name}, ms", run.time_ms, paper, TOLERANCE * paper)
    over = sum(share > 100.0 for share in shares.values())
    real = sum(paper.all_kernels > 100.0 for paper in PAPER.values())
    yield Row("sums", "networks whose kernels take over 100% of them", over, real, *OVER_100)
    apart = np.mean([abs(share - PAPER[name].all_kernels) for name, share in shares.items()])
    yield Row("sums", "kernels' share of the network, points from the paper's", float(apart), 0.0, 0.0, SUM_POINTS)


def boards(networks: Sequence[Network], board: BoardDescription) -> Iterator[Row]:
    """How far the boards lie apart, at low, middle and top clocks."""
    found = {network.name: network for network in networks}
    clocks = Clocks.of([*_low_and_middle(board), board.grid.top])
    silicons = [Silicon(node, board, version=VERSION) for node in range(NODES)]
    for name, (real, low, high) in POWER_APART.items():
        runs = [(execute(found[name], silicon, clocks), silicon) for silicon in silicons]
        watts = np.array([
            np.sum([silicon.sensed(run.rail_energy_j)[rail] for rail in board.energy_rails], axis=0) / run.latency_s
            for run, silicon in runs
        ])  # fmt: skip
        range_ = 100.0 * np.max(np.ptp(watts, axis=0) / np.median(watts, axis=0))
        yield Row("boards", f"{name}, power, range in % of the median", float(range_), real, low, high)
    latency = np.array(
        [TwinMeter(silicon).network_latency_ms(found["shufflenet_v2_x1_0"], _three(board)) for silicon in silicons]
    )
    apart = 100.0 * np.abs(latency / np.median(latency, axis=0) - 1.0)
    for quantile, (real, low, high) in RUNTIME_QUANTILES.items():
        value = float(np.quantile(apart, quantile, axis=0).max())
        yield Row("boards", f"shufflenet_v2_x1_0, runtime, {quantile:.0%} quantile, % off the median", value, real, low, high)


def _low_and_middle(board: BoardDescription) -> list[FrequencyConfiguration]:
    grid = board.grid
    axes = (grid.cpu_khz, grid.gpu_hz, grid.emc_hz)
    return [FrequencyConfiguration(*(axis[int(share * (len(axis) - 1))] for axis in axes)) for share in (0.0, 0.5)]


def _three(board: BoardDescription) -> list[FrequencyConfiguration]:
    return [*_low_and_middle(board), board.grid.top]


def kernels(effort: Effort, data: Path | None) -> Iterator[Row]:
    """The mean error of the plain recipe's model on a fifth of the kernels, the rest of which it was trained on."""
    if data is None:
        return
    for kind in KERNELS:
        for device in _DEVICES:
            table = [row for row in read_rows(data, _FILES[kind]) if row["Device"].startswith(device)]
            calls = [_desktop(kind, row) for row in table]
            features = np.array([_features(call) for call in calls], np.float32)
            measured_ms = numbers(table, "latency_ms", _FILES[kind])
            silicon, clocks = Silicon(None, BOARD, version=VERSION), Clocks.of([load_board(BOARD).grid.top])
            simulated_ms = 1e3 * silicon.kernels(calls, clocks).seconds[:, 0]
            kept = simulated_ms < 1e3 * _LONGEST_S
            seen = _left_out(features, measured_ms, effort)
            ours = _left_out(features[kept], simulated_ms[kept], effort)
            low, high = (factor * seen for factor in AS_HARD)
            yield Row("kernels", f"{kind} with the shapes measured on {device}, mean error in %", ours, seen, low, high)


def _left_out(features: NDArray[np.float32], ms: NDArray[np.float64], effort: Effort) -> float:
    held = np.random.default_rng(effort.seed).random(len(ms)) < 0.2
    predict = trained(features[~held], ms[~held], effort.rounds, effort.threads, effort.seed)
    return float(100.0 * np.mean(np.abs(predict(features[held]) / ms[held] - 1.0)))


def _features(call: KernelInvocation) -> tuple[float, ...]:
    """Every size, the elements that go in and come out, and the multiply-adds; sizes by their logarithm."""
    counts = [float(call.params[name]) for name in ("m", "n", "k") if name in call.params]  # type: ignore[arg-type]
    elements = float(sum(map(prod, call.inputs)) + prod(call.output))
    work = prod(counts) if counts else elements
    if call.kind == "conv2d":
        weight = call.params["weight"]
        assert isinstance(weight, tuple)
        counts = [float(call.inputs[0][0]), *map(float, weight), float(call.inputs[0][2]), *map(float, call.output[2:])]
        work = float(prod(weight[1:]) * prod(call.output))
    return tuple(np.log([*counts, *(float(size) for size in call.output), elements, work]).tolist())


def _desktop(kind: str, row: Mapping[str, str]) -> KernelInvocation:
    if kind == "add":
        shape = (int(row["B"]), int(row["H"]))
        return KernelInvocation("add", "", (shape, shape), shape, "float32", {})
    if kind == "matmul":
        return product(int(row["M"]), int(row["K"]), int(row["N"]))
    batch, channels, filters, size, kernel, stride, padding = (
        int(row[name]) for name in ("B", "Input_Channel", "Output_Channel", "Input_Size", "Kernel_Size", "Stride", "Padding")
    )
    side = (size + 2 * padding - kernel) // stride + 1
    pair = {"stride": (stride, stride), "padding": (padding, padding), "dilation": (1, 1)}
    params: dict[str, ParamValue] = {"weight": (filters, channels, kernel, kernel), "bias": False, "groups": 1, **pair}
    return KernelInvocation("conv2d", "", ((batch, channels, size, size),), (batch, filters, side, side), "float32", params)


def _percent(near: NDArray[np.bool_]) -> float:
    return float(100.0 * np.mean(near))


def _around(part: str, name: str, value: float, real: float, by: float) -> Row:
    return Row(part, name, value, real, real - by, real + by)
