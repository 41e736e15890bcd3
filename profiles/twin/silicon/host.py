# SPDX-License-Identifier: Apache-2.0
"""What issuing work costs the simulated board's CPU: the framework's interpreter, its dispatcher, the library and the driver.

Each call costs CPU cycles, misses in memory, and a little that depends on no clock. Calls that launch several kernels, gather
many tensors or carry many sizes cost more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....kernels.network import Call, KernelInvocation
from .chip import Array, Chip, Clocks
from .voltage import Variation

# Microseconds on an AGX Xavier at 2265.6 MHz and 2133 MHz memory, everything included; other hosts are so many times slower.
_CALL_US = {
    "conv2d": 41.0,
    "conv_transpose2d": 47.0,
    "batch_norm": 19.5,
    "matmul": 26.0,
    "relu": 10.5,
    "hardtanh": 13.0,
    "add": 14.0,
    "mul": 14.0,
    "cat": 48.0,
    "stack": 48.0,
    "clone": 36.0,
    "max_pool2d": 17.0,
    "avg_pool2d": 16.0,
    "adaptive_avg_pool2d": 19.0,
    "mean": 26.0,
    "sum": 26.0,
    "softmax": 19.0,
    "layer_norm": 28.0,
    "attention": 90.0,
    "view": 12.0,
    "reshape": 13.0,
    "transpose": 11.0,
    "permute": 12.0,
    "t": 7.0,
    "split": 40.0,
    "chunk": 40.0,
    "flatten": 8.0,
    "dropout": 4.0,
}
_LAUNCH_US = 16.0  # a launch of a kind without an entry
_HOST_ONLY_US = 8.0
_DEPTHWISE_US = 27.0  # not a library call
_EXTRA_LAUNCH_US = 5.0  # driver work of each launch after the first
_TENSOR_US = 5.0  # each tensor gathered by a concatenation


def call_us(call: Call, launches: float) -> float:
    """Issue time of one call at the reference clocks, in microseconds; ``launches`` is how many kernels it starts."""
    if not isinstance(call, KernelInvocation):
        return _CALL_US.get(call.name, _HOST_ONLY_US)
    base = _CALL_US.get(call.kind, _LAUNCH_US)
    if call.kind in ("cat", "stack"):
        base += _TENSOR_US * len(call.inputs)
    elif call.kind == "conv2d":
        weight, groups = call.params["weight"], call.params["groups"]
        assert isinstance(weight, (tuple, list)) and isinstance(groups, int)
        if groups > 1 and weight[1] == 1:
            base = _DEPTHWISE_US
    return base + _EXTRA_LAUNCH_US * max(launches - 1.0, 0.0)


def clock_factor(clocks: Clocks, chip: Chip, node: Variation) -> Array:
    """How much longer issue work takes than the listed costs."""
    host = chip.host
    memory = 0.45 + 0.55 * host.reference_emc_hz / clocks.emc_hz  # half of a miss is analogue and fabric time
    # Slow cores hide part of a miss behind their own cycles.
    hidden = np.minimum(1.0, 0.55 + 0.45 * clocks.cpu_hz / host.reference_cpu_hz)
    cycles = host.cycles * host.reference_cpu_hz / clocks.cpu_hz
    return np.asarray(node.issue * host.scale * (cycles + host.misses * memory * hidden + host.fixed))


def issue_us(calls: Sequence[Call], launches: Sequence[float]) -> Array:
    """Issue times of calls at the reference clocks, shape ``(len(calls),)``, in microseconds."""
    return np.array([call_us(call, count) for call, count in zip(calls, launches, strict=True)], np.float64)
