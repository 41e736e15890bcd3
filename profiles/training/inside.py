# SPDX-License-Identifier: Apache-2.0
"""How much longer kernels and calls take inside of networks than each by itself, and how much more kernels draw.

Parameters have left the caches, the host's calls share the memory with the kernels, and what kernels compute with is not what
they were measured with: what the host takes of the memory, and three factors, of the host's time, the kernels' time and their
power above idle, are fitted to networks that were measured as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...kernels.cost.board import BoardCost
from ...kernels.cost.crowding import crowd
from ...kernels.cost.execution import check_execution
from ...kernels.cost.model import assemble, kernel_costs
from ...kernels.network import Network
from ...kernels.surface import Surface
from .common_error import squared_parts
from .evaluation import NetworkMeasurement

_LEAST, _MOST = 0.5, 2.0  # beyond these it is something else that is wrong
_CROWDINGS = (0.0, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.07, 0.1)


@dataclass(frozen=True)
class Inside:
    """Factors inside of networks: of what calls take the host, what kernels take, and what they draw above idle; and what the
    host takes of the memory (:attr:`~jetdvfs.kernels.cost.board.BoardCost.crowding`)."""

    host: float = 1.0
    time: float = 1.0
    power: float = 1.0
    crowding: float = 0.0


ALONE = Inside()


def fit_inside(cost: BoardCost, measured: Sequence[NetworkMeasurement]) -> Inside:
    """The factors by which networks' latency and energy are what was measured, in least squares of relative errors.

    Args:
        cost: made of kernels and calls as each was measured by itself.
        measured: networks as a whole; without any, nothing is corrected, and power is not where it was not measured.
    """
    from scipy.optimize import nnls

    if not measured:
        return ALONE
    networks = {item.network.digest: item.network for item in measured}
    crowding = _fit_crowding(cost, networks.values(), measured)
    cost = replace(cost, crowding=crowding)
    of_kernels = {digest: kernel_costs(network, cost) for digest, network in networks.items()}

    def played(network: Network, one: BoardCost) -> Surface:
        return assemble(network, one, of_kernels[network.digest], "timeline", check_execution(None, network))

    terms = []
    for network in networks.values():
        latency_ms = played(network, cost).latency_ms.ravel()
        squares = squared_parts(network, cost, of_kernels[network.digest])[0]
        host, compute, memory = latency_ms * np.sqrt(np.maximum(squares, 0.0))
        parts = np.stack([host, compute + memory], axis=1)
        terms += [parts[item.index] / item.latency_ms[:, None] for item in _of(network, measured)]
    rows = np.concatenate(terms)
    of_host, of_time = (float(factor) for factor in np.clip(nnls(rows, np.ones(len(rows)))[0], _LEAST, _MOST))
    drawn, left = [], []
    bare = replace(cost, idle_mw=np.zeros_like(cost.idle_mw), host_active_mw=np.zeros_like(cost.host_active_mw))
    for network in networks.values():
        dynamic_mj = played(network, bare).energy_mj.ravel()
        host_mj = played(network, replace(bare, host_active_mw=cost.host_active_mw)).energy_mj.ravel() - dynamic_mj
        for item in _of(network, measured):
            if item.energy_mj is None:
                continue
            at, idle_mj = item.index, cost.idle_mw.ravel()[item.index] * item.latency_ms / 1e3
            drawn.append(np.stack([host_mj[at], dynamic_mj[at]], axis=1) / item.energy_mj[:, None])
            left.append(1.0 - idle_mj / item.energy_mj)
    if not drawn:
        return Inside(of_host, of_time, crowding=crowding)
    by_calls, by_kernels = np.concatenate(drawn).T
    rest = np.concatenate(left) - of_host * by_calls
    of_power = float(np.clip(by_kernels @ rest / (by_kernels @ by_kernels) / of_time, _LEAST, _MOST))
    return Inside(of_host, of_time, of_power, crowding)


def _fit_crowding(cost: BoardCost, networks: Iterable[Network], measured: Sequence[NetworkMeasurement]) -> float:
    """What makes networks' latencies most alike to those measured but for a factor of each network's own."""
    cpu_mhz, _, emc_mhz = cost.grid.levels_mhz()
    alone = [(network, kernel_costs(network, cost), _of(network, measured)) for network in networks]

    def uneven(crowding: float) -> float:
        errors = []
        for network, costs, items in alone:
            gpu_ms = costs.gpu_ms.copy()
            crowd(gpu_ms, crowding, cpu_mhz, emc_mhz)
            played = assemble(network, cost, replace(costs, gpu_ms=gpu_ms), "timeline", "eager").latency_ms.ravel()
            errors.append(np.log(np.concatenate([item.latency_ms / played[item.index] for item in items])).var())
        return float(np.mean(errors))

    return min(_CROWDINGS, key=uneven)


def _of(network: Network, measured: Sequence[NetworkMeasurement]) -> list[NetworkMeasurement]:
    return [item for item in measured if item.network.digest == network.digest]
