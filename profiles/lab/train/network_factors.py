# SPDX-License-Identifier: Apache-2.0
"""Time and power of kernels and calls within networks, relative to each alone.

Inside a network, parameters have left the caches, host and kernels share the memory, and operands differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from ....kernels.cost.board import BoardCost
from ....kernels.cost.execution import host_times
from ....kernels.cost.host import EAGER, NO_TIME, HostModel, handing
from ....kernels.cost.model import KernelCosts, assemble, kernel_costs, used_memory
from ....kernels.execution import check_execution
from ....kernels.network import Network
from ....kernels.surface import Surface
from ...adapt.network_errors import NetworkMeasurement
from .common_error import squared_parts

_LEAST, _MOST = 0.5, 2.0  # beyond these it is something else that is wrong
_MOST_WAITING, _MOST_TRAFFIC = 1.0, 1.0
_ONE_EACH: Mapping[str, float] = MappingProxyType({})


class NetworkFactors(Struct, frozen=True):
    """Factors within networks of host and kernel time and power; memory waits.

    Attributes:
        host_us: times of the host by name in its model, of each inference and of starting a graph, if graphs were measured.
    """

    host: float = 1.0
    time: float = 1.0
    power: float = 1.0
    waiting: float = 0.0
    host_traffic: float = 0.0
    host_us: Mapping[str, float] = field(default_factory=dict)


class GraphMeasurement(Struct, frozen=True):
    """A network measured as a CUDA graph at n configurations.

    Attributes:
        latency_ms: from its start by the host, (n,).
        gpu_ms, energy_mj: of one replay among several, (n,); no energy without measured power.
    """

    network: Network
    index: NDArray[np.int64]
    latency_ms: NDArray[np.float64]
    gpu_ms: NDArray[np.float64]
    energy_mj: NDArray[np.float64] | None = None


ALONE = NetworkFactors()


def fit_inside(
    cost: BoardCost,
    measured: Sequence[NetworkMeasurement],
    graphs: Sequence[GraphMeasurement] = (),
    own_memory: bool = False,
    events: Mapping[str, float] = _ONE_EACH,
) -> NetworkFactors:
    """Factors by networks' latency and energy, in least squares of relative errors; 1 without networks, or power.

    Graphs have no host in their GPU time and energy, and alone determine the factors of kernels. With ``own_memory`` of the
    GPU, host and kernels do not wait for each other's traffic. ``events`` are the GPU events of a kernel by
    :func:`~jetdvfs.kernels.cost.host.issue_key` (default 1).
    """
    from scipy.optimize import nnls

    if not measured:
        return ALONE
    networks = {item.network.digest: item.network for item in measured}
    of_kernels = {digest: kernel_costs(network, cost) for digest, network in networks.items()}

    def played(network: Network, one: BoardCost) -> Surface:
        return assemble(network, one, of_kernels[network.digest], "timeline", check_execution(None, network))

    terms = []
    for network in networks.values():
        parts = _parts_ms(network, cost, of_kernels[network.digest])
        terms += [parts[item.index] / item.latency_ms[:, None] for item in _of(network, measured)]
    rows, ones = np.concatenate(terms), np.ones(sum(map(len, terms)))
    if own_memory:
        rows = rows * [1.0, 0.0, 1.0, 0.0]
    if graphs:
        in_graph, host_us = _of_graphs(graphs, of_kernels, events)
        ones, rows = ones - in_graph * rows[:, 2], rows * [1.0, 1.0, 0.0, 1.0]
        each = [1 / item.latency_ms for network in networks.values() for item in _of(network, measured)]
        free, busy, _, moving, once_ms = map(float, nnls(np.column_stack([rows, np.concatenate(each)]), ones)[0])
        of_time, host_us = in_graph, {**host_us, EAGER: 1e3 * once_ms}
    else:
        (free, busy, of_time, moving), host_us = map(float, nnls(rows, ones)[0]), {}
    of_host, of_time = (float(factor) for factor in np.clip((free, of_time), _LEAST, _MOST))
    waiting, traffic = min(busy / of_host, _MOST_WAITING), min(moving / of_host, _MOST_TRAFFIC)
    drawn, left = _shares_of_graphs(cost, graphs, of_kernels)
    bare = replace(
        cost,
        host=cost.host.scaled(of_host),
        host_traffic=traffic / of_time,  # kernels' own times have no factor yet
        idle_mw=np.zeros_like(cost.idle_mw),
        host_active_mw=np.zeros_like(cost.host_active_mw),
    )
    calls = replace(bare, waiting=waiting, host_active_mw=cost.host_active_mw)
    for network in () if drawn else networks.values():
        dynamic_mj = played(network, bare).energy_mj.ravel()
        host_mj = played(network, calls).energy_mj.ravel() - dynamic_mj
        for item in _of(network, measured):
            if item.energy_mj is None:
                continue
            at, idle_mj = item.index, cost.idle_mw.ravel()[item.index] * item.latency_ms / 1e3
            drawn.append(dynamic_mj[at] / item.energy_mj)
            left.append(1.0 - (idle_mj + host_mj[at]) / item.energy_mj)
    if not drawn:
        return NetworkFactors(of_host, of_time, waiting=waiting, host_traffic=traffic, host_us=host_us)
    by_kernels, rest = np.concatenate(drawn), np.concatenate(left)
    of_power = float(np.clip(by_kernels @ rest / (by_kernels @ by_kernels) / of_time, _LEAST, _MOST))
    return NetworkFactors(of_host, of_time, of_power, waiting, traffic, host_us)


def _of_graphs(
    graphs: Sequence[GraphMeasurement], of_kernels: Mapping[str, KernelCosts], events: Mapping[str, float]
) -> tuple[float, dict[str, float]]:
    """Factor of kernels in graphs, and the host's times of starting one in us, in least squares of relative errors."""
    from scipy.optimize import nnls

    predicted_ms = [_added_ms(of_kernels[one.network.digest])[one.index] for one in graphs]
    share = np.concatenate([each / one.gpu_ms for each, one in zip(predicted_ms, graphs, strict=True)])
    counts = {handing("graph"): 1.0, **{f"{handing('graph')}.{name}": count for name, count in events.items()}}
    counting, clocks = HostModel({}, NO_TIME).with_us(counts), np.ones(1, np.float32)
    terms = []
    for one in graphs:
        handed = counting.handed_us("graph", one.network.launches, clocks, clocks)[-1, 0, 0]
        terms.append(np.stack([np.ones(len(one.index)), np.full(len(one.index), handed)], 1))
    latency_ms = np.concatenate([one.latency_ms for one in graphs])
    beside = np.maximum(latency_ms - np.concatenate([one.gpu_ms for one in graphs]), 0.0)
    start_ms, event_ms = map(float, nnls(np.concatenate(terms) / latency_ms[:, None], beside / latency_ms)[0])
    host_us = {"graph": 1e3 * start_ms, **{name: 1e3 * event_ms * count for name, count in counts.items()}}
    return float(share.sum() / (share @ share)), host_us


def _shares_of_graphs(
    cost: BoardCost, graphs: Sequence[GraphMeasurement], of_kernels: Mapping[str, KernelCosts]
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """Parts of each graph's energy: that predicted of its kernels, and that above idle power."""
    drawn, left = [], []
    for one in graphs:
        if one.energy_mj is None:
            continue
        costs = of_kernels[one.network.digest]
        dynamic_mj = np.einsum("k,kcge,kcge->cge", np.bincount(costs.order), costs.gpu_ms, costs.dynamic_mw).ravel() / 1e3
        drawn.append(dynamic_mj[one.index] / one.energy_mj)
        left.append(1.0 - cost.idle_mw.ravel()[one.index] * one.gpu_ms / 1e3 / one.energy_mj)
    return drawn, left


def _added_ms(costs: KernelCosts) -> NDArray[np.float64]:
    """Sum of a network's kernel times in ms, (configurations,)."""
    launches = np.bincount(costs.order).astype(np.float64)
    return np.asarray(np.einsum("k,kcge->cge", launches, costs.gpu_ms.astype(np.float64)).ravel())


def _parts_ms(network: Network, cost: BoardCost, costs: KernelCosts) -> NDArray[np.float64]:
    """Latency by host, host per ``waiting``, kernels, kernels per ``host_traffic``, (configurations, 4)."""
    way, use = check_execution(None, network), used_memory(costs, cost)
    latency_ms = assemble(network, cost, costs, "timeline", way).latency_ms.ravel()
    host, compute, memory = latency_ms * np.sqrt(np.maximum(squared_parts(network, cost, costs)[0], 0.0))
    kernels = compute + memory
    taken_ms = host_times(network, replace(cost, host_traffic=1.0), way, use).taken_ms
    used, taken = (np.broadcast_to(each[:, None, :], cost.grid.shape).ravel() for each in (use, taken_ms))
    return np.stack([host, host * used, kernels, taken * kernels / latency_ms], axis=1)


def _of(network: Network, measured: Sequence[NetworkMeasurement]) -> list[NetworkMeasurement]:
    return [item for item in measured if item.network.digest == network.digest]
