# SPDX-License-Identifier: Apache-2.0
"""How much longer kernels and calls take inside of networks than each by itself, and how much more kernels draw.

Parameters have left the caches, the host's calls share the memory with the kernels, and what kernels compute with is not what
they were measured with: three factors, of the host's time, the kernels' time, and their power above idle, are fitted to
networks that were measured as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...kernels.cost.board import BoardCost
from ...kernels.cost.model import surface
from .common_error import squared_parts
from .evaluation import NetworkMeasurement

_LEAST, _MOST = 0.5, 2.0  # beyond these it is something else that is wrong


@dataclass(frozen=True)
class Inside:
    """Factors inside of networks: of what calls take the host, what kernels take, and what they draw above idle."""

    host: float = 1.0
    time: float = 1.0
    power: float = 1.0


ALONE = Inside()


def fit_inside(cost: BoardCost, measured: Sequence[NetworkMeasurement]) -> Inside:
    """The factors by which networks' latency and energy are what was measured, in least squares of relative errors.

    Args:
        cost: made of kernels and calls as each was measured by itself.
        measured: networks as a whole; without any, nothing is corrected, and power is not where it was not measured.
    """
    from scipy.optimize import nnls

    terms, drawn, left = [], [], []
    bare = replace(cost, idle_mw=np.zeros_like(cost.idle_mw), host_active_mw=np.zeros_like(cost.host_active_mw))
    for network in {item.network.digest: item.network for item in measured}.values():
        own = [item for item in measured if item.network.digest == network.digest]
        latency_ms = surface(network, cost).latency_ms.ravel()
        host, compute, memory = latency_ms * np.sqrt(np.maximum(squared_parts(network, cost)[0], 0.0))
        parts = np.stack([host, compute + memory], axis=1)
        terms += [parts[item.index] / item.latency_ms[:, None] for item in own]
        dynamic_mj = surface(network, bare).energy_mj.ravel()
        host_mj = surface(network, replace(bare, host_active_mw=cost.host_active_mw)).energy_mj.ravel() - dynamic_mj
        for item in own:
            if item.energy_mj is None:
                continue
            at, idle_mj = item.index, cost.idle_mw.ravel()[item.index] * item.latency_ms / 1e3
            drawn.append(np.stack([host_mj[at], dynamic_mj[at]], axis=1) / item.energy_mj[:, None])
            left.append(1.0 - idle_mj / item.energy_mj)
    if not terms:
        return ALONE
    rows = np.concatenate(terms)
    of_host, of_time = (float(factor) for factor in np.clip(nnls(rows, np.ones(len(rows)))[0], _LEAST, _MOST))
    if not drawn:
        return Inside(of_host, of_time)
    of_calls, of_kernels = np.concatenate(drawn).T
    rest = np.concatenate(left) - of_host * of_calls
    of_power = float(np.clip(of_kernels @ rest / (of_kernels @ of_kernels) / of_time, _LEAST, _MOST))
    return Inside(of_host, of_time, of_power)
