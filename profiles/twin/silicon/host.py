# SPDX-License-Identifier: Apache-2.0
"""Issue cost on the simulated CPU: cycles, memory misses and a constant per call, and more for many kernels,
tensors or sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from ....kernels.network import Call, KernelInvocation
from .chip import Array, Chip, Clocks
from .kinds import HOST_US, SiliconKind
from .passes import Variation

# As :attr:`~.kinds.SiliconKind.call_us`: calls that launch nothing.
_HOST_ONLY_US = {
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
_OTHER_HOST_ONLY_US = 8.0
_OTHER_LAUNCH_US = 16.0  # a launch of a kind that has no figure of its own
_EXTRA_LAUNCH_US = 5.0  # driver work of each launch after the first
# Assumed, for every CPU: half of a miss is analogue and fabric time, and slow cores hide part of it behind their own cycles.
_MISS_FABRIC = 0.45
_MISS_SEEN, _MISS_HIDDEN = 0.55, 0.45


Rows: TypeAlias = Callable[[str], SiliconKind]


def call_us(call: Call, launches: float, rows: Rows) -> float:
    """Issue time in us of one call with ``launches`` at the reference clocks."""
    if not isinstance(call, KernelInvocation):
        return HOST_US.get(call.name, _HOST_ONLY_US.get(call.name, _OTHER_HOST_ONLY_US))
    kind = rows(call.kind)
    listed = kind.call_us if kind.call_us is not None else _HOST_ONLY_US.get(call.kind, _OTHER_LAUNCH_US)
    base = listed + kind.tensor_us * len(call.inputs)
    if kind.depthwise_us is not None:
        weight, groups = call.params["weight"], call.params["groups"]
        assert isinstance(weight, (tuple, list)) and isinstance(groups, int)
        if groups > 1 and weight[1] == 1:
            base = kind.depthwise_us
    return base + _EXTRA_LAUNCH_US * max(launches - 1.0, 0.0)


def clock_factor(clocks: Clocks, chip: Chip, node: Variation) -> Array:
    """Factor on issue time relative to the reference clocks."""
    host = chip.host
    memory = _MISS_FABRIC + (1.0 - _MISS_FABRIC) * host.reference_emc_hz / clocks.emc_hz
    hidden = np.minimum(1.0, _MISS_SEEN + _MISS_HIDDEN * clocks.cpu_hz / host.reference_cpu_hz)
    cycles = host.cycles * host.reference_cpu_hz / clocks.cpu_hz
    return np.asarray(node.issue * host.scale * (cycles + host.misses * memory * hidden + host.fixed))


def issue_us(calls: Sequence[Call], launches: Sequence[float], rows: Rows) -> Array:
    """Issue times in us at the reference clocks, shape ``(len(calls),)``."""
    return np.array([call_us(call, count, rows) for call, count in zip(calls, launches, strict=True)], np.float64)
