# SPDX-License-Identifier: Apache-2.0
"""How much longer kernels and calls take inside of networks than each by itself, and how much more kernels draw.

Parameters have left the caches, the host's calls share the memory with the kernels, and what kernels compute with is not what
they were measured with: what the host takes of the memory, how long it waits for it, and three factors, of the host's time, the
kernels' time and their power above idle, are fitted to networks that were measured as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...kernels.cost.board import BoardCost
from ...kernels.cost.crowding import crowd
from ...kernels.cost.execution import check_execution
from ...kernels.cost.model import KernelCosts, assemble, kernel_costs, used_memory
from ...kernels.kinds import ELEMENTWISE, served_by
from ...kernels.network import Network
from ...kernels.surface import Surface
from ..device import MeasuredDevice
from ..measuring.measurements import Measurements
from .common_error import squared_parts
from .evaluation import NetworkMeasurement
from .host_fit import clocks_mhz
from .kernel_models import in_stream

_LEAST, _MOST = 0.5, 2.0  # beyond these it is something else that is wrong
_MOST_WAITING = 1.0
_CROWDINGS = (
    *(0.0, 0.0025, 0.005, 0.0075, 0.01, 0.0125, 0.015, 0.0175, 0.02, 0.0225, 0.025, 0.03, 0.035, 0.04, 0.045, 0.05),
    *(0.06, 0.07, 0.08, 0.09, 0.1, 0.12),
)
_LEAST_BYTES = 8 << 20  # more than second-level caches hold
_FAST = 0.5  # of the highest GPU clock
_LEAST_ROWS = 8
_USED = 0.75  # most of them move as much as can be moved


@dataclass(frozen=True)
class Inside:
    """Factors inside of networks: of what calls take the host, what kernels take, and what they draw above idle; and what the
    host takes of the memory and by how much longer it takes where kernels use all of it
    (:attr:`~jetdvfs.kernels.cost.board.BoardCost.crowding`, ``waiting``)."""

    host: float = 1.0
    time: float = 1.0
    power: float = 1.0
    crowding: float = 0.0
    waiting: float = 0.0


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
        parts = _parts_ms(network, cost, of_kernels[network.digest])
        terms += [parts[item.index] / item.latency_ms[:, None] for item in _of(network, measured)]
    rows = np.concatenate(terms)
    free, busy, of_time = map(float, nnls(rows, np.ones(len(rows)))[0])
    of_host, of_time = (float(factor) for factor in np.clip((free, of_time), _LEAST, _MOST))
    waiting = min(busy / of_host, _MOST_WAITING)
    drawn, left = [], []
    bare = replace(cost, idle_mw=np.zeros_like(cost.idle_mw), host_active_mw=np.zeros_like(cost.host_active_mw))
    calls = replace(bare, host=cost.host.scaled(of_host), waiting=waiting, host_active_mw=cost.host_active_mw)
    for network in networks.values():
        dynamic_mj = played(network, bare).energy_mj.ravel()
        host_mj = played(network, calls).energy_mj.ravel() - dynamic_mj
        for item in _of(network, measured):
            if item.energy_mj is None:
                continue
            at, idle_mj = item.index, cost.idle_mw.ravel()[item.index] * item.latency_ms / 1e3
            drawn.append(dynamic_mj[at] / item.energy_mj)
            left.append(1.0 - (idle_mj + host_mj[at]) / item.energy_mj)
    if not drawn:
        return Inside(of_host, of_time, crowding=crowding, waiting=waiting)
    by_kernels, rest = np.concatenate(drawn), np.concatenate(left)
    of_power = float(np.clip(by_kernels @ rest / (by_kernels @ by_kernels) / of_time, _LEAST, _MOST))
    return Inside(of_host, of_time, of_power, crowding, waiting)


def fit_emc_use(measurements: Measurements, board: MeasuredDevice) -> tuple[float, ...]:
    """How much of what its clock could move each memory clock moves, beside the highest; nothing where that was not measured at
    each, or a higher clock seems to move no more than a lower one.

    It is a quantile over pointwise kernels whose data no cache holds, at high GPU clocks.
    """
    moving = served_by(ELEMENTWISE)
    moved = np.array([call.bytes if call.kind in moving else 0 for call in measurements.invocations], np.float64)
    rows = measurements.tables["kernel_ms"]
    rows = in_stream(measurements, board, rows.where(moved[rows.what] >= _LEAST_BYTES))
    _, gpu_mhz, emc_mhz = clocks_mhz(rows.configuration, board.grid)
    _, gpu_levels, emc_levels = board.grid.levels_mhz()
    per_clock = moved[rows.what] / rows.value / emc_mhz
    use = []
    for level in np.asarray(emc_levels, np.float64):
        found = per_clock[(emc_mhz == level) & (gpu_mhz >= _FAST * float(gpu_levels[-1]))]
        if len(found) < _LEAST_ROWS:
            return ()
        use.append(float(np.quantile(found, _USED)))
    shares = np.round(np.array(use) / use[-1], 4)
    return tuple(shares.tolist()) if (np.diff(shares * emc_levels, prepend=0.0) > 0).all() else ()


def _fit_crowding(cost: BoardCost, networks: Iterable[Network], measured: Sequence[NetworkMeasurement]) -> float:
    """What explains networks' latencies best where each on each board has factors of its own for its host and for its kernels:
    boards' hosts differ, and models of kernels err."""
    from scipy.optimize import nnls

    cpu_mhz = cost.grid.levels_mhz()[0]
    alone = [(network, kernel_costs(network, cost), _of(network, measured)) for network in networks]

    def unexplained(crowding: float) -> float:
        left = 0.0
        for network, costs, items in alone:
            gpu_ms = costs.gpu_ms.copy()
            crowd(gpu_ms, crowding, cpu_mhz, cost.moved_mhz)
            parts = _parts_ms(network, cost, replace(costs, gpu_ms=gpu_ms))
            for item in items:
                left += nnls(parts[item.index] / item.latency_ms[:, None], np.ones(len(item.index)))[1] ** 2
        return left

    return min(_CROWDINGS, key=unexplained)


def _parts_ms(network: Network, cost: BoardCost, costs: KernelCosts) -> NDArray[np.float64]:
    """What of a network's latency is of the host, of the host for each unit of ``waiting``, and of its kernels,
    (configurations, 3)."""
    latency_ms = assemble(network, cost, costs, "timeline", check_execution(None, network)).latency_ms.ravel()
    host, compute, memory = latency_ms * np.sqrt(np.maximum(squared_parts(network, cost, costs)[0], 0.0))
    use = np.broadcast_to(used_memory(costs, cost)[:, None, :], cost.grid.shape).ravel()
    return np.stack([host, host * use, compute + memory], axis=1)


def _of(network: Network, measured: Sequence[NetworkMeasurement]) -> list[NetworkMeasurement]:
    return [item for item in measured if item.network.digest == network.digest]
