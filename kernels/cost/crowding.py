# SPDX-License-Identifier: Apache-2.0
"""The host and the GPU share the memory: while a network runs, its kernels have the memory of a slower clock.

What the host takes is proportional to its own clock. Kernels were measured with the host at rest, at every memory clock, so
what they take and draw at the clock that is left is known already.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LEAST_LEFT = 0.25
"""However fast the host is, the GPU gets so much of the memory."""
_WIDE = 4.0  # over so much of the clock, what single kernels' models err evens out


def crowd(figures: NDArray[np.float32], crowding: float, cpu_mhz: NDArray[np.float32], emc_mhz: NDArray[np.float32]) -> None:
    """Replace positive figures of kernels by themselves by those in a network, in place.

    Between levels the logarithm is a straight line over that of the memory clock; below the lowest, times go on as they come
    from above, but not faster than transfers do.

    Args:
        figures: times or powers, shape ``(n, n_cpu, n_gpu, n_emc)``.
        crowding: the memory clocks that the host takes for each of the CPU's.
    """
    if not crowding or len(emc_mhz) < 2:
        return
    logarithm, clocks = np.log(figures), np.log(emc_mhz)
    wide = min(int(np.searchsorted(emc_mhz, _WIDE * emc_mhz[0])), len(emc_mhz) - 1)
    slope = np.clip((logarithm[..., 0] - logarithm[..., wide]) / (clocks[wide] - clocks[0]), -1.0, 1.0)
    every = np.arange(len(cpu_mhz))
    for level, mhz in enumerate(emc_mhz):
        left = np.log(np.maximum(mhz - crowding * cpu_mhz, LEAST_LEFT * mhz))
        beyond = np.maximum(clocks[0] - left, 0.0)[:, None]
        left = np.maximum(left, clocks[0])
        below = np.clip(np.searchsorted(clocks, left) - 1, 0, len(clocks) - 2)
        share = ((left - clocks[below]) / (clocks[below + 1] - clocks[below]))[:, None, None]
        low, high = logarithm[:, every, :, below], logarithm[:, every, :, below + 1]
        between = (low + np.float32(share) * (high - low)).swapaxes(0, 1)
        figures[..., level] = np.exp(between + np.float32(beyond) * slope)
