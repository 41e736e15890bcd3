# SPDX-License-Identifier: Apache-2.0
"""What a network's kernels add up to over the grid: where latency and energy go, and what errors make of them.

To first order, a kernel that runs a share s longer delays the inference by s times the time it spends on the critical path, and
costs that delay's idle energy besides its own. Launches of one kernel err together, distinct kernels apart, but for what they
err more because nothing like them was measured: in that all err together. Beyond that, whole networks and boards err in what
the host, computation and memory traffic take (:class:`Shares`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

BLOCK = 32
"""Kernels worked on together: their figures over the grid stay in the processor's second cache."""


@dataclass(frozen=True)
class Shares:
    """One number for each of the three things that latency and energy are spent on.

    Attributes:
        host: the host's time, where it is the bottleneck, and its energy.
        compute, memory: the kernels' time on the critical path, and their energy; the two terms of its roofline bound divide
            each kernel among them.
    """

    host: float = 0.0
    compute: float = 0.0
    memory: float = 0.0


NO_SHARES = Shares()
_RARELY = NormalDist().inv_cdf(0.95)


@dataclass(frozen=True)
class Group:
    """Kernels that are as uncertain as each other.

    Attributes:
        rows: which they are.
        time_sigma, power_sigma: standard deviations of log(measured / predicted) of one of them by itself.
        more_time_sigma, more_power_sigma: of what they err besides, together with all others that do.
    """

    rows: slice
    time_sigma: float
    power_sigma: float
    more_time_sigma: float = 0.0
    more_power_sigma: float = 0.0


@dataclass(frozen=True, eq=False)
class Totals:
    """Sums over a network's kernels, each of the grid's shape.

    Attributes:
        dynamic_mj: their energy above idle.
        path_ms, memory_ms: their time on the critical path, and the part of it that memory traffic takes.
        energy_mj, memory_mj: their energy above idle and the idle energy of their time on the path; the memory traffic's part.
        latency_variance, energy_variance: what their own errors make, in ms^2 and mJ^2.
        together_ms, together_mj, together_power_mj: by how much latency and energy exceed what is expected where all that err
            together take, and draw, as much more as in one case of twenty.
    """

    dynamic_mj: NDArray[np.float64]
    path_ms: NDArray[np.float64]
    memory_ms: NDArray[np.float64]
    energy_mj: NDArray[np.float64]
    memory_mj: NDArray[np.float64]
    latency_variance: NDArray[np.float64]
    energy_variance: NDArray[np.float64]
    together_ms: NDArray[np.float64]
    together_mj: NDArray[np.float64]
    together_power_mj: NDArray[np.float64]


def add_up(
    gpu_ms: NDArray[np.float32],
    dynamic_mw: NDArray[np.float32],
    memory_share: NDArray[np.float32],
    groups: Sequence[Group],
    order: NDArray[np.intp],
    critical: NDArray[np.int32],
    idle_mw: NDArray[np.float64],
) -> Totals:
    """Add up kernels.

    Args:
        gpu_ms, dynamic_mw: time and power above idle of each distinct kernel, ``(kernels, n_cpu, n_gpu, n_emc)``.
        memory_share: the part of each kernel that its memory traffic makes, ``(kernels, 1, n_gpu, n_emc)``.
        groups: all kernels, group by group.
        order: which kernel each launch is.
        critical: the first launch on the critical path, of the grid's shape.
        idle_mw: idle power, of the grid's shape.
    """
    kernels, shape, size = len(gpu_ms), idle_mw.shape, idle_mw.size
    launched = np.zeros((kernels, len(order) + 1), np.float32)
    launched[order, np.arange(len(order))] = 1
    # How many of a kernel's launches are at or after each launch: those lie on the path where that launch is the critical one.
    remaining = np.cumsum(launched[:, ::-1], axis=1)[:, ::-1]
    dynamic_mj, path_ms, memory_ms, memory_own, latency_variance, energy_variance = np.zeros((6, *shape))
    together_ms, together_mj, together_power_mj = np.zeros((3, *shape))
    idle_w = idle_mw / 1e3
    for group in groups:
        time_variance, power_variance = group.time_sigma**2, group.power_sigma**2
        for start in range(group.rows.start, group.rows.stop, BLOCK):
            block = slice(start, min(start + BLOCK, group.rows.stop))
            path = remaining[block].take(critical, axis=1)
            path *= gpu_ms[block]
            own = gpu_ms[block] * dynamic_mw[block]
            own *= remaining[block, :1, None, None] / np.float32(1e3)
            own_mj, on_path_ms = own.sum(axis=0), path.sum(axis=0)
            dynamic_mj += own_mj
            path_ms += on_path_ms
            longer, stronger = (np.expm1(_RARELY * sigma) for sigma in (group.more_time_sigma, group.more_power_sigma))
            together_ms += longer * on_path_ms
            together_mj += longer * (idle_w * on_path_ms + own_mj)
            together_power_mj += stronger * own_mj
            # Sums over kernels of path x path, (idle x path + own)^2 and own x own, the square taken apart.
            path_path, path_own, own_own = (
                np.einsum("kc,kc->c", one.reshape(len(one), size), two.reshape(len(two), size)).reshape(shape)
                for one, two in ((path, path), (path, own), (own, own))
            )
            latency_variance += time_variance * path_path
            energy_variance += time_variance * idle_w * (idle_w * path_path + 2 * path_own)
            energy_variance += (time_variance + power_variance) * own_own
            path *= memory_share[block]
            own *= memory_share[block]
            memory_ms += path.sum(axis=0)
            memory_own += own.sum(axis=0)
    return Totals(
        dynamic_mj=dynamic_mj,
        path_ms=path_ms,
        memory_ms=memory_ms,
        energy_mj=dynamic_mj + idle_w * path_ms,
        memory_mj=memory_own + idle_w * memory_ms,
        latency_variance=latency_variance,
        energy_variance=energy_variance,
        together_ms=together_ms,
        together_mj=together_mj,
        together_power_mj=together_power_mj,
    )


def together_variance(excess: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """The variance of log(measured / predicted) of a whole that exceeds what is expected by so much in one case of twenty.

    Errors of kernels that nobody measured are too large for the first order: where a part b of the whole is off by
    exp(sigma z), the whole is off by 1 + b (exp(sigma z) - 1).
    """
    variance: NDArray[np.float64] = (np.log1p(excess / whole) / _RARELY) ** 2
    return variance


def common_variance(
    shares: Shares, host: NDArray[np.float64], kernels: NDArray[np.float64], memory: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The variance that errors common to a network or board make of what its host, its kernels, and their traffic take."""
    variance: NDArray[np.float64] = (
        (shares.host * host) ** 2 + (shares.compute * (kernels - memory)) ** 2 + (shares.memory * memory) ** 2
    )
    return variance
