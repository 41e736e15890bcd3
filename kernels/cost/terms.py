# SPDX-License-Identifier: Apache-2.0
"""What a network's latency is made of, for its correction: what computing, traffic and the host would take alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..surface import Terms
from .board import BoardCost

# Boards of one kind differ by more than nothing, whatever their bundle has seen of it.
LEAST_SIGMA = 0.03


def terms(
    launches: NDArray[np.intp],
    gpu_ms: NDArray[np.float32],
    memory_share: NDArray[np.float32],
    host_ms: NDArray[np.float64],
    cost: BoardCost,
    own_sigma: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> Terms:
    """The terms of a network.

    Args:
        launches: how often each distinct kernel is launched.
        gpu_ms: its time over the grid, and ``memory_share``, the part of that which its traffic makes.
        host_ms: what issuing everything takes, of a shape that spreads over the grid.
        cost: its shares are the spread of each term's rate.
        own_sigma: of latency and energy over the grid, what is uncertain besides.
    """
    times = launches.astype(np.float32)
    whole_ms = np.einsum("k,kcge->cge", times, gpu_ms)
    memory_ms = np.einsum("k,kcge,kge->cge", times, gpu_ms, memory_share[:, 0])
    latency, energy = (float(sigma.mean()) for sigma in own_sigma)
    shares, power = cost.latency_shares, cost.energy_shares
    return Terms(
        compute_ms=np.maximum(whole_ms - memory_ms, np.float32(0)),
        memory_ms=memory_ms,
        host_ms=np.broadcast_to(host_ms, whole_ms.shape).astype(np.float32),
        compute_sigma=max(shares.compute, LEAST_SIGMA),
        memory_sigma=max(shares.memory, LEAST_SIGMA),
        host_sigma=max(shares.host, LEAST_SIGMA),
        all_sigma=max(latency, LEAST_SIGMA),
        idle_sigma=max(power.host, energy, LEAST_SIGMA),
        dynamic_sigma=max(power.compute, energy, LEAST_SIGMA),
    )
