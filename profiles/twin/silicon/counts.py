# SPDX-License-Identifier: Apache-2.0
"""What the simulated kernels read off invocations, as columns, and what few threads and part-filled rounds cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from ....kernels.network import DTYPE_BYTES, KernelInvocation
from .chip import Array, Chip

WARP = 32.0  # threads that execute together, on every NVIDIA GPU
VECTOR = 4  # elements that a load takes at once where everything is aligned: 16 bytes of single precision
BLOCK, SMALL_BLOCK = 512.0, 256.0  # threads in a block of a plain kernel, and of one that needs more registers
# How the bandwidth rises with the threads that ask for it: from the least, to nearly all with some times a tenth of what fits.
_LEAST_BANDWIDTH, _MOST_BANDWIDTH, _HALF_COVERED = 0.06, 1.06, 0.10
_MANY_ROUNDS, _WORST_TAIL = 12, 1.9  # after so many rounds of blocks the last does not show; it never costs more


def column(invocations: Sequence[KernelInvocation], value: Callable[[KernelInvocation], float]) -> Array:
    return np.fromiter(map(value, invocations), np.float64, len(invocations))


def number(call: KernelInvocation, name: str, default: float) -> float:
    value = call.params.get(name, default)
    return float(value) if isinstance(value, (int, float)) else default


def element(call: KernelInvocation) -> int:
    return DTYPE_BYTES[call.dtype]


def rates(chip: Chip, calls: Sequence[KernelInvocation]) -> Array:
    """Multiply-adds per lane and cycle in products, and the energy of such a cycle, shape ``(2, len(calls))``."""
    found = [chip.rate(call.dtype) for call in calls]
    return np.array([[rate.matrix for rate in found], [rate.energy for rate in found]], np.float64)


def read_elements(call: KernelInvocation) -> float:
    """Elements read, a broadcast operand once."""
    return float(sum(prod(shape) for shape in call.inputs))


def utilisation(chip: Chip, threads: Array) -> Array:
    """How much of the bandwidth so many threads can ask for: few threads cannot cover the latency."""
    return np.asarray(
        np.minimum(
            1.0,
            _LEAST_BANDWIDTH + _MOST_BANDWIDTH * threads / (threads + _HALF_COVERED * (chip.sm_count * chip.sm_threads)),
        )
    )


def tail(chip: Chip, blocks: Array, resident: float) -> Array:
    """Blocks run in rounds; the last round may leave SMs idle."""
    slots = chip.sm_count * resident
    rounds = np.ceil(blocks / slots)
    return np.asarray(np.where(rounds > _MANY_ROUNDS, 1.0, rounds * slots / np.maximum(blocks, 1.0)).clip(1.0, _WORST_TAIL))
