# SPDX-License-Identifier: Apache-2.0
"""Errors of whole networks and boards beyond their kernels'."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ....kernels.cost.board import BoardCost
from ....kernels.cost.model import KernelCosts, assemble, kernel_costs
from ....kernels.cost.totals import BottleneckShares
from ....kernels.execution import check_execution
from ....kernels.network import Network

_NOTHING = 1e-9
_SOURCES = BottleneckShares.__struct_fields__


class ObservedErrors(Struct, frozen=True):
    """A network's errors at n configurations.

    Attributes:
        error: log(measured / predicted), (n,).
        kernels: variance explained by the kernels' own errors, (n,).
        parts: squared shares of host, computation and memory traffic, (3, n).
    """

    error: NDArray[np.float64]
    kernels: NDArray[np.float64]
    parts: NDArray[np.float64]


def squared_parts(
    network: Network, cost: BoardCost, costs: KernelCosts | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Squared shares of host, computation and memory traffic in latency and energy, each ``(3, configurations)``."""
    costs, way = costs or kernel_costs(network, cost), check_execution(None, network)
    bare = assemble(network, cost, costs, "timeline", way)
    latency, energy = [], []
    for source in _SOURCES:
        # Where only this source errs, and by all it is, the sigma is its part.
        shares = BottleneckShares(**{source: 1.0})
        alone = assemble(network, replace(cost, latency_shares=shares, energy_shares=shares), costs, "timeline", way)
        latency.append((alone.latency_sigma**2 - bare.latency_sigma**2).ravel())
        energy.append((alone.energy_sigma**2 - bare.energy_sigma**2).ravel())
    return np.array(latency), np.array(energy)


def fit_shares(observations: Sequence[ObservedErrors]) -> BottleneckShares:
    """Non-negative least-squares shares that, with kernel errors, explain squared errors."""
    from scipy.optimize import nnls

    weights = [1 / np.sqrt(len(one.error)) for one in observations]
    parts = np.concatenate([one.parts.T * weight for one, weight in zip(observations, weights, strict=True)])
    parts[:, np.abs(parts).max(axis=0) < _NOTHING] = 0.0  # parts without cost are unknown
    excess = np.concatenate([(one.error**2 - one.kernels) * weight for one, weight in zip(observations, weights, strict=True)])
    return BottleneckShares(*(float(share) for share in np.sqrt(nnls(parts, excess)[0])))
