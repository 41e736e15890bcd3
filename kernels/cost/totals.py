# SPDX-License-Identifier: Apache-2.0
"""Sums of a network's kernels over the grid, and the effect of errors on latency and energy.

To first order, a kernel slower by a share s delays the inference by s times its time on the critical path, at that delay's idle
energy and its own. Launches of one kernel err together, distinct kernels independently, but for the common error of kernels
unlike measured ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

BLOCK = 32
"""Kernels per block: their figures over the grid stay in the processor's second cache."""


class BottleneckShares(Struct, frozen=True):
    """One number for the host as the bottleneck, and for the kernels' critical path and energy by their roofline terms."""

    host: float = 0.0
    compute: float = 0.0
    memory: float = 0.0


NO_SHARES = BottleneckShares()
_RARELY = NormalDist().inv_cdf(0.95)


class UncertaintyGroup(Struct, frozen=True):
    """Kernels of equal uncertainty: deviations of log(measured / predicted), of each by itself and common to all of them."""

    rows: slice
    time_sigma: float
    power_sigma: float
    more_time_sigma: float = 0.0
    more_power_sigma: float = 0.0


class Totals(Struct, frozen=True, eq=False):
    """Sums over a network's kernels, each of the grid's shape.

    Attributes:
        dynamic_mj: their energy above idle.
        path_ms, memory_ms: their time on the critical path, and the memory traffic's part.
        energy_mj, memory_mj: ``dynamic_mj`` plus the idle energy of their path time; the memory traffic's part.
        latency_variance, energy_variance: due to their own errors, in ms^2 and mJ^2.
        together_ms, together_mj, together_power_mj: excess at one-in-twenty values of all common errors of time, and power.
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
    groups: Sequence[UncertaintyGroup],
    order: NDArray[np.intp],
    critical: NDArray[np.int32],
    idle_mw: NDArray[np.float64],
) -> Totals:
    """Add up kernels.

    Args:
        gpu_ms, dynamic_mw: time and power above idle of each distinct kernel, ``(kernels, n_cpu, n_gpu, n_emc)``.
        memory_share: memory traffic's part of each, ``(kernels, 1, n_gpu, n_emc)``.
        groups: all kernels, group by group.
        order: kernel of each launch.
        critical: first launch on the critical path, of the grid's shape.
    """
    kernels, shape, size = len(gpu_ms), idle_mw.shape, idle_mw.size
    launched = np.zeros((kernels, len(order) + 1), np.float32)
    launched[order, np.arange(len(order))] = 1
    # Number of a kernel's launches from each launch on: its launches on the path if that one is the critical one.
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
    """Variance of log(measured / predicted) of a whole with this excess in one case of twenty.

    Errors of unmeasured kernels exceed the first order: if a part b of the whole is off by exp(sigma z), the whole is off by 1
    + b (exp(sigma z) - 1).
    """
    variance: NDArray[np.float64] = (np.log1p(excess / whole) / _RARELY) ** 2
    return variance


def common_variance(
    shares: BottleneckShares, host: NDArray[np.float64], kernels: NDArray[np.float64], memory: NDArray[np.float64]
) -> NDArray[np.float64]:
    variance: NDArray[np.float64] = (
        (shares.host * host) ** 2 + (shares.compute * (kernels - memory)) ** 2 + (shares.memory * memory) ** 2
    )
    return variance
