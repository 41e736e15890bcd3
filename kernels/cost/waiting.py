# SPDX-License-Identifier: Apache-2.0
"""While a network's kernels use the memory, the host's calls wait for it: they were measured with the GPU at rest.

What the host itself takes of the memory goes with its calls, not with its clock. Where that is much beside what kernels move,
the host is what limits; otherwise it is not told apart from what else makes kernels slower inside of networks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


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
