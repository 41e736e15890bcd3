# SPDX-License-Identifier: Apache-2.0
"""What each kind of kernel is to a simulated board, one row per kind: its work on the GPU, and what issuing it costs the host.

An account of its own: nothing here is taken from what the predictor knows of kinds (``kernels/kinds.py``). A kind without a row
is guessed to be arithmetic on elements, so that every network runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....kernels.network import KernelInvocation
from .algorithms.conv import convolution
from .algorithms.products import attention, matmul, transposed
from .chip import Chip
from .kernels import Family, adaptive_pool, batch_norm, cat, copy, pointwise, pool, reduce, rowwise
from .passes import Pass


@dataclass(frozen=True)
class SiliconKind:
    """One kind of kernel on a simulated board.

    Attributes:
        work: its passes on the GPU.
        call_us: what issuing it costs the host of an AGX Xavier at 2265.6 MHz and 2133 MHz memory, everything included; other
            hosts are so many times slower. None: as any launch.
        depthwise_us: the same of a depthwise one, where that is not a library call.
        tensor_us: what each tensor costs besides that it gathers.
    """

    work: Family
    call_us: float | None = None
    depthwise_us: float | None = None
    tensor_us: float = 0.0


KINDS: dict[str, SiliconKind] = {
    "conv2d": SiliconKind(convolution, 41.0, depthwise_us=27.0),
    "conv_transpose2d": SiliconKind(transposed, 47.0),
    "matmul": SiliconKind(matmul, 26.0),
    "attention": SiliconKind(attention, 90.0),
    "batch_norm": SiliconKind(batch_norm, 19.5),
    "layer_norm": SiliconKind(rowwise(2.0, 12.0), 28.0),
    "group_norm": SiliconKind(rowwise(2.0, 12.0)),
    "softmax": SiliconKind(rowwise(3.0, 24.0), 19.0),
    "log_softmax": SiliconKind(rowwise(3.0, 26.0)),
    "relu": SiliconKind(pointwise(1.0), 10.5),
    "hardtanh": SiliconKind(pointwise(2.0), 13.0),
    "add": SiliconKind(pointwise(2.0), 14.0),
    "mul": SiliconKind(pointwise(1.0), 14.0),
    "sub": SiliconKind(pointwise(2.0)),
    "div": SiliconKind(pointwise(8.0)),
    "pow": SiliconKind(pointwise(16.0)),
    "sqrt": SiliconKind(pointwise(8.0)),
    "exp": SiliconKind(pointwise(8.0)),
    "tanh": SiliconKind(pointwise(20.0)),
    "sigmoid": SiliconKind(pointwise(14.0)),
    "silu": SiliconKind(pointwise(16.0)),
    "gelu": SiliconKind(pointwise(22.0)),
    "hardswish": SiliconKind(pointwise(6.0)),
    "hardsigmoid": SiliconKind(pointwise(4.0)),
    "cat": SiliconKind(cat, 48.0, tensor_us=5.0),
    "stack": SiliconKind(cat, 48.0, tensor_us=5.0),
    "clone": SiliconKind(copy, 36.0),
    "max_pool2d": SiliconKind(pool, 17.0),
    "avg_pool2d": SiliconKind(pool, 16.0),
    "adaptive_avg_pool2d": SiliconKind(adaptive_pool, 19.0),
    "adaptive_max_pool2d": SiliconKind(adaptive_pool),
    "mean": SiliconKind(reduce, 26.0),
    "sum": SiliconKind(reduce, 26.0),
    "max": SiliconKind(reduce),
    "amax": SiliconKind(reduce),
    "argmax": SiliconKind(reduce),
}
"""Every kind that is known, by name. Whoever adds an operator of their own adds its row here."""

_GUESSED = SiliconKind(pointwise(6.0))


def kind_of(name: str) -> SiliconKind:
    """A kind's row, or the guess."""
    return KINDS.get(name, _GUESSED)


def passes(chip: Chip, kind: str, invocations: Sequence[KernelInvocation]) -> list[Pass]:
    """The passes of invocations of one kind."""
    result = kind_of(kind).work(chip, invocations)
    if not chip.library:
        return result
    factor = np.array([chip.work(kind, call.dtype) for call in invocations], np.float64)
    return [replace(one, cycles=one.cycles * factor, operations=one.operations * factor) for one in result]
