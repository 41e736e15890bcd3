# SPDX-License-Identifier: Apache-2.0
"""A board whose kernels cost what a formula says, on a small grid, and networks made by hand for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from jetdvfs.kernels.cost.board import BoardCost, KernelModel
from jetdvfs.kernels.cost.features import MODELLED_KINDS
from jetdvfs.kernels.cost.host import HostModel
from jetdvfs.kernels.grid import FrequencyGrid
from jetdvfs.kernels.kinds import flops
from jetdvfs.kernels.network import Call, HostOp, KernelInvocation, Network, TensorSpec, numel

GRID = FrequencyGrid(
    (500_000, 1_000_000, 2_000_000), (200_000_000, 400_000_000, 800_000_000, 1_000_000_000), (800_000_000, 1_600_000_000)
)

Formula = Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], Any]


@dataclass(frozen=True)
class Rates:
    """1000 operations per GPU cycle, 10 bytes per memory cycle: 1 GFLOP takes 1 ms at 1 GHz, 10 MB take 1 ms at 1 GHz."""

    flops_per_gpu_cycle: Mapping[str, float] = field(default_factory=lambda: {"float32": 1000.0, "float16": 2000.0})
    bytes_per_emc_cycle: float = 10.0


class Analytic:
    """A regression that is a formula of the clocks in MHz, the same for every kernel; it counts the rows it was asked for."""

    def __init__(self, formula: Formula) -> None:
        self.formula = formula
        self.rows = 0

    def sweep(self, features: NDArray[np.float32], levels: tuple[NDArray[np.float32], ...]) -> NDArray[np.float32]:
        assert np.isnan(features[:, -3:]).all() and np.isfinite(features[:, :-3]).all()
        self.rows += len(features)
        values = self.formula(*np.meshgrid(*levels, indexing="ij"))
        shape = (len(features), *(len(axis) for axis in levels))
        return np.ascontiguousarray(np.broadcast_to(np.float32(values), shape))


def dynamic_mw(cpu: NDArray[Any], gpu: NDArray[Any], emc: NDArray[Any]) -> NDArray[Any]:
    return np.log(10_000 * (gpu / 1000) ** 2 + 2_000 * emc / 1600)


def board(
    *,
    kinds: tuple[str, ...] = MODELLED_KINDS,
    slowdown: float = 2.0,
    host_us: tuple[float, float, float] = (0.0, 10_000.0, 0.0),
    once_us: float = 0.0,
    sigma: float = 0.0,
    common: float = 0.0,
    grid: FrequencyGrid = GRID,
) -> BoardCost:
    """Kernels take ``slowdown`` times their bound; the host takes ``a + b / cpu_mhz + c / emc_mhz`` us a call."""
    model = (Analytic(lambda cpu, gpu, emc: np.full(gpu.shape, np.log(slowdown))), Analytic(dynamic_mw))
    cpu, gpu, emc = np.meshgrid(*grid.levels_mhz(), indexing="ij")
    return BoardCost(
        grid=grid,
        chip=Rates(),
        kernels={kind: KernelModel(kind, *model, sigma, sigma) for kind in kinds},
        host=HostModel({"inference": (once_us, 0.0, 0.0, 0.0)}, (*host_us, 0.0)),
        idle_mw=(1000 + cpu / 10 + gpu / 2 + emc / 4).astype(np.float32),
        host_active_mw=grid.levels_mhz()[0].astype(np.float32),
        sigma_latency=common,
        sigma_energy=common,
    )


def relu(elements: int = 1 << 20, *, kind: str = "relu", dtype: str = "float32", scope: str = "act") -> KernelInvocation:
    """A pointwise kernel over that many elements."""
    return KernelInvocation(kind, scope, ((1, elements),), (1, elements), dtype, {}, elements, 8 * elements)


def matmul(n: int = 1000, *, scope: str = "fc") -> KernelInvocation:
    """A product of square matrices: 2 n^3 operations."""
    params = {"m": n, "k": n, "n": n, "batch": 1, "bias": True}
    return KernelInvocation("matmul", scope, ((n, n),), (n, n), "float32", params, 2 * n**3, 12 * n * n)


def conv2d(channels: int = 64, size: int = 56, *, groups: int = 1, scope: str = "conv") -> KernelInvocation:
    """A 3x3 convolution that keeps its input's shape."""
    shape, weight = (1, channels, size, size), (channels, channels // groups, 3, 3)
    params: dict[str, Any] = {
        "weight": weight, "bias": False, "stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": groups,
    }  # fmt: skip
    elements, taps = channels * size * size, weight[1] * 9
    return KernelInvocation(
        "conv2d", scope, (shape,), shape, "float32", params, 2 * elements * taps, 8 * elements + 4 * channels * taps
    )


def pointwise(channels: int = 64) -> KernelInvocation:
    """A 1x1 convolution that keeps its input's shape."""
    wide = conv2d(channels)
    weight, moved = (channels, channels, 1, 1), 4 * (2 * numel(wide.output) + channels * channels)
    return replace(wide, params={**wide.params, "weight": weight, "padding": (0, 0)}, flops=wide.flops // 9, bytes=moved)


def recurrent(
    kind: str = "lstm",
    *,
    steps: int = 50,
    batch: int = 2,
    width: int = 64,
    hidden: int = 128,
    layers: int = 1,
    directions: int = 1,
    projection: int = 0,
    batch_first: bool = False,
) -> KernelInvocation:
    """A recurrent layer as the front ends list it."""
    state = (layers * directions, batch, projection or hidden)
    many = (batch, steps) if batch_first else (steps, batch)
    inputs = ((*many, width), state, *([(layers * directions, batch, hidden)] if kind == "lstm" else []))
    params: dict[str, Any] = {"hidden": hidden, "layers": layers, "directions": directions, "bias": True}
    params |= {"projection": projection} if projection else {}
    output = (*many, directions * state[-1])
    work = flops(kind, inputs, output, params)
    moved = 4 * (sum(map(numel, (*inputs, output))) + work // (2 * steps * batch))
    return KernelInvocation(kind, "rnn", inputs, output, "float32", params, work, moved)


def view(name: str = "view") -> HostOp:
    return HostOp(name, "")


def network(*calls: Call, name: str = "handmade") -> Network:
    return Network(name, (TensorSpec((1, 3, 224, 224)),), calls)
