# SPDX-License-Identifier: Apache-2.0
"""Time and energy of one inference kernel by kernel, and the effect of a step of each clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ..execution import NO_OVERHEAD, Execution, FrameOverhead, check_execution
from ..grid import FrequencyConfiguration, FrequencyGrid
from ..network import KernelInvocation, Network
from ..surface import Guess, Prediction, Surface
from ..units import AXES, Method
from .board import BoardCost
from .execution import host_times, overhead_ms, parts
from .host import ONCE
from .model import KernelCosts, assemble, kernel_costs, on_host, used_memory
from .roofline import terms_ms

Limit: TypeAlias = Literal["compute", "memory", "launch"]

_Index: TypeAlias = tuple[int, int, int]


class KernelPart(Struct, frozen=True):
    """All launches of one distinct kernel in an inference.

    Attributes:
        waited_ms: idle GPU time before it, while the host had not issued it.
        energy_mj: its energy above idle.
        limit: ``launch`` if the GPU waits for it longer than it runs; else its roofline limit.
        roofline_share: that bound as a share of its time; above 1 if its model or the chip's rates are off.
    """

    kernel: KernelInvocation
    launches: int
    gpu_ms: float
    waited_ms: float
    energy_mj: float
    limit: Limit
    roofline_share: float
    modelled: bool
    guessed: str = ""


class HostPart(Struct, frozen=True):
    """All calls of one name, kernels and host-only calls: their number, and the host's issue time in ms."""

    name: str
    calls: int
    host_ms: float


class ClockStep(Struct, frozen=True):
    axis: str
    up: bool
    prediction: Prediction


class Explanation(Struct, frozen=True):
    """Breakdown of one configuration's prediction.

    Attributes:
        kernels: by descending latency (running and waited for).
        host: calls by descending time; also ``"inference"``, ``"beside"`` (frame overhead), and a start of ``"graph"`` or
            ``"engine"``.
        waited_ms: GPU time spent waiting for the host between the first call and the last kernel.
        host_ms: the host's working time, which overlaps with the GPU's.
        after_ms: latency after the last kernel, and the cost per inference.
    """

    prediction: Prediction
    method: Method
    kernels: tuple[KernelPart, ...]
    host: tuple[HostPart, ...]
    gpu_ms: float
    waited_ms: float
    host_ms: float
    after_ms: float
    idle_mj: float
    host_mj: float
    kernels_mj: float
    steps: tuple[ClockStep, ...]
    guessed: tuple[Guess, ...] = ()
    execution: str = "eager"
    execution_note: str = ""

    @property
    def limits_ms(self) -> dict[Limit, float]:
        """Latency due to each of the three limits, the largest first; GPU waits count as launch."""
        shares: dict[Limit, float] = {"compute": 0.0, "memory": 0.0, "launch": self.after_ms}
        for part in self.kernels:
            shares[part.limit] += part.gpu_ms
            shares["launch"] += part.waited_ms
        return dict(sorted(shares.items(), key=lambda item: -item[1]))

    @property
    def limit(self) -> Limit:
        return next(iter(self.limits_ms))


def explain(
    network: Network,
    cost: BoardCost,
    configuration: FrequencyConfiguration,
    method: Method = "timeline",
    *,
    execution: str | None = None,
    frame_overhead: FrameOverhead = NO_OVERHEAD,
) -> Explanation:
    """Break down the prediction of one configuration; arguments and errors as :func:`.model.surface`."""
    index = cost.grid.index(configuration)
    way = check_execution(execution, network)
    cost = cost.run_by(way)
    costs = kernel_costs(network, cost)
    surface = assemble(network, cost, costs, method, way, frame_overhead)
    at = surface.at(configuration)
    host: tuple[HostPart, ...] = ()
    waited_ms = np.zeros(len(costs.order))
    if method == "timeline":
        times = host_times(network, cost, way, used_memory(costs, cost), frame_overhead)
        costs = on_host(costs, times)
        host = _host_parts(network, cost, index, way, frame_overhead, float(times.slower[index[0], index[2]]))
        waited_ms = _waits_ms(times.issued_ms[:-1, index[0], index[2]], costs, index)
    host_ms = sum(part.host_ms for part in host)
    kernels = sorted(_kernel_parts(costs, cost, waited_ms, index), key=lambda part: part.gpu_ms + part.waited_ms, reverse=True)
    gpu_ms, kernels_mj = sum(part.gpu_ms for part in kernels), sum(part.energy_mj for part in kernels)
    return Explanation(
        prediction=at,
        method=method,
        kernels=tuple(kernels),
        host=host,
        gpu_ms=gpu_ms,
        waited_ms=float(waited_ms.sum()),
        host_ms=host_ms,
        after_ms=max(at.latency_ms - gpu_ms - float(waited_ms.sum()), 0.0),
        idle_mj=at.idle_mw * at.latency_ms / 1e3,
        host_mj=float(cost.host_active_mw[index[0]]) * host_ms / 1e3,
        kernels_mj=kernels_mj,
        steps=tuple(_steps(surface, cost.grid, index)),
        guessed=surface.guessed,
        execution=surface.execution,
        execution_note=surface.execution_note,
    )


def _clocks_mhz(cost: BoardCost, index: _Index) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    cpu, gpu, emc = (axis[level : level + 1] for axis, level in zip(cost.grid.levels_mhz(), index, strict=True))
    return cpu, gpu, emc


def _kernel_parts(costs: KernelCosts, cost: BoardCost, waited_ms: NDArray[np.float64], index: _Index) -> Iterator[KernelPart]:
    _, gpu_mhz, emc_mhz = _clocks_mhz(cost, index)
    compute_ms, memory_ms = terms_ms(costs.kernels, gpu_mhz[0], emc_mhz[0], cost.chip, cost.floor.tile)
    launches = np.bincount(costs.order)
    waits = np.bincount(costs.order, waited_ms)
    for model, run in costs.models:
        for row in range(run.start, run.stop):
            each_ms, dynamic_mw = float(costs.gpu_ms[row][index]), float(costs.dynamic_mw[row][index])
            gpu_ms = each_ms * int(launches[row])
            limit: Limit = "compute" if compute_ms[row] > memory_ms[row] else "memory"
            yield KernelPart(
                kernel=costs.kernels[row],
                launches=int(launches[row]),
                gpu_ms=gpu_ms,
                waited_ms=float(waits[row]),
                energy_mj=gpu_ms * dynamic_mw / 1e3,
                limit="launch" if waits[row] > gpu_ms else limit,
                roofline_share=float(max(compute_ms[row], memory_ms[row])) / each_ms,
                modelled=model is not None,
                guessed=costs.trust[row].guessed,
            )


def _waits_ms(issued_ms: NDArray[np.float64], costs: KernelCosts, index: _Index) -> NDArray[np.float64]:
    durations_ms = costs.gpu_ms[:, index[0], index[1], index[2]][costs.order]
    done_ms, waits = 0.0, []
    for ready_ms, duration_ms in zip(issued_ms, durations_ms, strict=True):
        waits.append(max(float(ready_ms) - done_ms, 0.0))
        done_ms += waits[-1] + float(duration_ms)
    return np.array(waits)


def _host_parts(
    network: Network, cost: BoardCost, index: _Index, execution: Execution, frame_overhead: FrameOverhead, slower: float
) -> tuple[HostPart, ...]:
    cpu_mhz, _, emc_mhz = _clocks_mhz(cost, index)
    found = {name: (calls, ms * slower) for name, (calls, ms) in parts(network, cost, execution, (index[0], index[2])).items()}
    once_ms = float(cost.host.once_us(cpu_mhz, emc_mhz, execution)[0, 0]) / 1e3
    if once_ms:
        found[ONCE] = 1, once_ms
    if frame_overhead != NO_OVERHEAD:
        found["beside"] = 1, float(overhead_ms(cost, frame_overhead)[index[0], index[2]])
    return tuple(HostPart(name, *found[name]) for name in sorted(found, key=lambda name: -found[name][1]))


def _steps(surface: Surface, grid: FrequencyGrid, index: _Index) -> Iterator[ClockStep]:
    for axis, name in enumerate(AXES):
        for up in (False, True):
            level = index[axis] + (1 if up else -1)
            if 0 <= level < grid.shape[axis]:
                yield ClockStep(name, up, surface.at(grid.configuration((*index[:axis], level, *index[axis + 1 :]))))
