# SPDX-License-Identifier: Apache-2.0
"""A network as a timeline: the host issues calls in order, the GPU executes kernels in order.

``gpu_start[i] = max(host_done[i], gpu_done[i - 1])``, over the whole grid at once. Where the GPU is the bottleneck this is the
sum of the kernel times; where the host is, it is the host's time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Timeline:
    """How an inference went, over a grid.

    Attributes:
        latency_ms: from the first call to the end of host and GPU, shape ``(n_cpu, n_gpu, n_emc)``.
        critical: the first launch from which on the GPU never waited for the host; 0 where the GPU was the bottleneck from the
            start, the number of launches where the host finished last. Launches from there on lie on the critical path, before
            it the host's time does.
    """

    latency_ms: NDArray[np.floating[Any]]
    critical: NDArray[np.int32]


def play(host_ms: NDArray[np.float64], gpu_ms: NDArray[np.floating[Any]], order: NDArray[np.intp]) -> Timeline:
    """Play the recurrence.

    Args:
        host_ms: cumulative host time, shape ``(launches + 1, n_cpu, n_emc)``: row i when the host has issued launch i, the last
            row when it has made all its calls.
        gpu_ms: GPU time of each distinct kernel, shape ``(kernels, n_cpu, n_gpu, n_emc)``.
        order: which kernel each launch is, shape ``(launches,)``.

    Times are added in the type of ``gpu_ms``: in float32 a thousand launches lose a few millionths of the latency.
    """
    kernels, cpu, gpu, emc = gpu_ms.shape
    # The host's time has no GPU axis: with that axis first, the inner loops run over CPU x EMC without a break.
    durations = np.ascontiguousarray(gpu_ms.transpose(0, 2, 1, 3)).reshape(kernels, gpu, cpu * emc)
    issued = np.ascontiguousarray(host_ms, durations.dtype).reshape(len(order) + 1, cpu * emc)
    done = np.zeros((gpu, cpu * emc), durations.dtype)
    critical = np.zeros((gpu, cpu * emc), np.int32)
    waited = np.empty(done.shape, bool)
    for launch, kernel in enumerate(order):
        np.less(done, issued[launch], out=waited)
        np.maximum(done, issued[launch], out=done)
        np.copyto(critical, launch, where=waited)
        np.add(done, durations[kernel], out=done)
    np.less(done, issued[-1], out=waited)
    np.maximum(done, issued[-1], out=done)
    np.copyto(critical, len(order), where=waited)
    shape = (gpu, cpu, emc)
    return Timeline(
        np.ascontiguousarray(done.reshape(shape).transpose(1, 0, 2)),
        np.ascontiguousarray(critical.reshape(shape).transpose(1, 0, 2)),
    )
