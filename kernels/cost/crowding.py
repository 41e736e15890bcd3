# SPDX-License-Identifier: Apache-2.0
"""The host and the GPU share the memory: while a network runs, its kernels have the memory of a slower clock, and the host
waits where they use much of it.

What the host takes is proportional to its own clock. Kernels were measured with the host at rest, at every memory clock, so
that what they take and draw at the clock that is left is known already. Low memory clocks may be used worse than high ones
(the lowest of a TX2 moves half of what the next but one does by the clock), so clocks count as what they move. The host's calls
were measured with the GPU at rest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LEAST_LEFT = 0.25
"""However fast the host is, the GPU gets so much of the memory."""
_WIDE = 4.0  # over so much of the clock, what single kernels' models err evens out


def crowd(figures: NDArray[np.float32], crowding: float, cpu_mhz: NDArray[np.float32], moved_mhz: NDArray[np.float32]) -> None:
    """Replace positive figures of kernels by themselves by those in a network, in place.

    Between levels the logarithm is a straight line over that of the memory clock. Below the lowest, times go on as those do
    whose square is the sum of two, of what no memory clock changes and of transfers (networks on a TX2 are such sums, of powers
    between the second and the fourth); what falls with the clock goes on as it comes from above.

    Args:
        figures: times or powers, shape ``(n, n_cpu, n_gpu, n_emc)``.
        crowding: the memory clocks that the host takes for each of the CPU's.
        moved_mhz: the memory clocks by what they move (:attr:`.board.BoardCost.moved_mhz`), rising.
    """
    if not crowding or len(moved_mhz) < 2:
        return
    logarithm, clocks = np.log(figures), np.log(moved_mhz)
    wide = min(int(np.searchsorted(moved_mhz, _WIDE * moved_mhz[0])), len(moved_mhz) - 1)
    slower, rise = clocks[wide] - clocks[0], logarithm[..., 0] - logarithm[..., wide]
    of_memory = np.expm1(-2 * np.maximum(rise, 0.0)) / np.expm1(-2 * slower)
    slope = np.where(rise > 0, np.minimum(of_memory, 1.0), np.maximum(rise / slower, -1.0)).astype(np.float32)
    every = np.arange(len(cpu_mhz))
    for level, mhz in enumerate(moved_mhz):
        left = np.log(np.maximum(mhz - crowding * cpu_mhz, LEAST_LEFT * mhz))
        beyond = np.maximum(clocks[0] - left, 0.0)[:, None]
        left = np.maximum(left, clocks[0])
        below = np.clip(np.searchsorted(clocks, left) - 1, 0, len(clocks) - 2)
        share = ((left - clocks[below]) / (clocks[below + 1] - clocks[below]))[:, None, None]
        low, high = logarithm[:, every, :, below], logarithm[:, every, :, below + 1]
        between = (low + np.float32(share) * (high - low)).swapaxes(0, 1)
        figures[..., level] = np.exp(between + np.float32(beyond) * slope)


def memory_use(times: NDArray[np.intp], gpu_ms: NDArray[np.float32], memory_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much of the memory's bandwidth a network's kernels use while they run, from 0 to 1, shape ``(n_cpu, n_emc)``.

    It is the mean over the GPU's clocks: where the host is what limits, kernels move the same in the same time at each of them.
    It does not rise with the memory clock, so that no network gets slower by a faster memory.

    Args:
        times: how often each kernel is launched, shape ``(n,)``.
        gpu_ms: what each takes, shape ``(n, n_cpu, n_gpu, n_emc)``.
        memory_ms: what its traffic alone would take, of a shape that spreads to that of ``gpu_ms``.
    """
    moving, running = (np.einsum("k,kcge->cge", times, np.broadcast_to(each, gpu_ms.shape)) for each in (memory_ms, gpu_ms))
    use = np.minimum(moving / np.maximum(running, np.finfo(np.float32).tiny), 1.0).mean(axis=1)
    return np.asarray(np.maximum.accumulate(use[:, ::-1], axis=1)[:, ::-1], np.float64)
