# SPDX-License-Identifier: Apache-2.0
"""Host cost of each execution (:mod:`jetdvfs.kernels.execution`)."""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ..execution import NO_OVERHEAD, Execution, FrameOverhead
from ..network import KernelInvocation, Network
from .board import BoardCost
from .narrower import EIGHT_BITS

_START_SIGMA = 0.7  # of an unmeasured start: off by a factor of two


class HostTimes(Struct, frozen=True, eq=False):
    """Host times of one inference.

    Attributes:
        issued_ms: when it has issued each launch, and in the last row all calls, ``(launches + 1, n_cpu, n_emc)``.
        once_ms: further sequential time per inference, ``(n_cpu, n_emc)``.
        variance: in ms^2, of the unmeasured parts, ``(n_cpu, n_emc)``.
        slower: time of its calls relative to an idle GPU, part of ``issued_ms``, ``(n_cpu, n_emc)``.
        taken_ms: slowdown of all kernels by its use of the memory, ``(n_cpu, n_emc)``.
    """

    issued_ms: NDArray[np.float64]
    once_ms: NDArray[np.float64]
    variance: NDArray[np.float64]
    slower: NDArray[np.float64]
    taken_ms: NDArray[np.float64]


def memory_use(times: NDArray[np.intp], gpu_ms: NDArray[np.float32], memory_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share (0 to 1) of the memory's bandwidth that a network's running kernels use, shape ``(n_cpu, n_emc)``.

    It is the mean over GPU clocks, and never rises with the memory clock, so that a faster memory slows no network.

    Args:
        times: launches of each kernel, shape ``(n,)``.
        gpu_ms: time of each, shape ``(n, n_cpu, n_gpu, n_emc)``.
        memory_ms: time of its traffic alone.
    """
    moving, running = (np.einsum("k,kcge->cge", times, np.broadcast_to(each, gpu_ms.shape)) for each in (memory_ms, gpu_ms))
    use = np.minimum(moving / np.maximum(running, np.finfo(np.float32).tiny), 1.0).mean(axis=1)
    return np.asarray(np.maximum.accumulate(use[:, ::-1], axis=1)[:, ::-1], np.float64)


def host_times(
    network: Network,
    cost: BoardCost,
    execution: Execution,
    use: NDArray[np.float64],
    frame_overhead: FrameOverhead = NO_OVERHEAD,
) -> HostTimes:
    """Host times of one inference at every CPU and memory clock, for the kernels' memory use."""
    cpu_mhz, _, emc_mhz = cost.grid.levels_mhz()
    once_us = cost.host.once_us(cpu_mhz, emc_mhz, execution)
    launches = [index for index, call in enumerate(network.calls) if isinstance(call, KernelInvocation)]
    if execution == "eager":
        issued_us = cost.host.elapsed_us(network.calls, [*launches, -1], cpu_mhz, emc_mhz)
        variance = np.zeros(once_us.shape)
    else:
        start_us = cost.host.start_us(execution, cpu_mhz, emc_mhz)
        handed_us = cost.host.handed_us(execution, network.launches, cpu_mhz, emc_mhz)
        if execution == "graph":  # handed over whole before its first kernel runs
            handed_us[:] = handed_us[-1]
        issued_us = start_us + handed_us
        known = cost.host.knows(execution)
        variance = np.zeros(once_us.shape) if known else (_START_SIGMA * start_us / 1e3) ** 2
    slower = 1.0 + cost.waiting * use
    # Calls move the same bytes at all clocks, and occupy a slower memory for longer.
    moving_us = cost.host_traffic * issued_us[-1, -1, -1] * (emc_mhz[-1].astype(np.float64) / emc_mhz)
    return HostTimes(
        issued_ms=issued_us / 1e3 * slower,
        once_ms=once_us / 1e3 + overhead_ms(cost, frame_overhead),
        variance=variance * slower**2,
        slower=slower,
        taken_ms=np.minimum.accumulate(moving_us / 1e3 * use, axis=0),  # a faster host makes no kernel slower
    )


def overhead_ms(cost: BoardCost, frame_overhead: FrameOverhead) -> NDArray[np.float64]:
    cpu_mhz, _, emc_mhz = (axis.astype(np.float64) for axis in cost.grid.levels_mhz())
    moved_ms = 2 * frame_overhead.copied_bytes / cost.chip.bytes_per_emc_cycle / (emc_mhz * 1e3)
    ms: NDArray[np.float64] = frame_overhead.host_ms * (cpu_mhz[-1] / cpu_mhz)[:, None] + moved_ms[None, :]
    return ms


def execution_note(network: Network, cost: BoardCost, execution: Execution) -> str:
    notes = []
    if cost.gpu_share is None:
        notes.append("the part of the GPU that the power mode leaves on is unknown: predicted for all of it")
    elif cost.gpu_share < 1:
        notes.append(
            f"the power mode leaves {cost.gpu_share:.0%} of the GPU on, and all of it was measured: computation is taken to "
            "last longer by as much, for the same energy above idle"
        )
    if execution != "eager" and not cost.host.knows(execution):
        cpu_mhz, _, emc_mhz = cost.grid.levels_mhz()
        what = "a graph" if execution == "graph" else "an engine"
        start_us = float(cost.host.start_us(execution, cpu_mhz, emc_mhz)[-1, -1])
        notes.append(
            f"the host's cost of starting {what} was not measured on this board: "
            f"it is taken to be as much as one call, {start_us:.0f} us at the top clocks, within a factor of two"
        )
    if execution == "engine" and not network.runtime:
        notes.append("an engine fuses more than the launches listed here, which are PyTorch's")
    if execution == "eager" and network.runtime:
        notes.append(f"launches of {network.runtime:.40}: the host is taken to issue them one by one as under PyTorch")
    unmeasured = execution == "engine" and cost.engines is not None and "int8" not in cost.engines.rates
    if unmeasured and (narrow := sorted({kernel.dtype for kernel in network.launches} & EIGHT_BITS)):
        notes.append(f"no engine in {narrow[0]} was measured: TensorRT builds none on chips without instructions for it")
    return "; ".join(notes)


def parts(network: Network, cost: BoardCost, execution: Execution, at: tuple[int, int]) -> dict[str, tuple[int, float]]:
    cpu_mhz, _, emc_mhz = cost.grid.levels_mhz()
    cpu, emc = cpu_mhz[at[0] : at[0] + 1], emc_mhz[at[1] : at[1] + 1]
    if execution != "eager":
        us = cost.host.start_us(execution, cpu, emc) + cost.host.handed_us(execution, network.launches, cpu, emc)[-1]
        return {execution: (1, float(us[0, 0]) / 1e3)}
    found: dict[str, tuple[int, float]] = {}
    for call, us in zip(network.calls, cost.host.issue_us(network.calls, cpu, emc)[:, 0, 0], strict=True):
        name = call.kind if isinstance(call, KernelInvocation) else call.name
        calls, ms = found.get(name, (0, 0.0))
        found[name] = calls + 1, math.fsum((ms, float(us) / 1e3))
    return found
