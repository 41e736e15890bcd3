# SPDX-License-Identifier: Apache-2.0
"""Short lists of launches, as listed and as run, for tests of the judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from jetdvfs.kernels.boundary import Boundary
from jetdvfs.kernels.network import KernelInvocation, Network, TensorSpec
from jetdvfs.tests.zoo.comparison import Dispatched

PICTURE = (1, 8, 4, 4)


def launch(kind: str, *, output: tuple[int, ...] = PICTURE, flops: int = 0, **params: Any) -> KernelInvocation:
    return KernelInvocation(kind, "", (PICTURE,), output, "float32", params, flops, 1024)


CONV = launch("conv2d", flops=4096, bias=False)
BIASED = launch("conv2d", flops=4096, bias=True)
ATTENTION = msgspec.structs.replace(launch("attention", flops=64), inputs=((2, 3, 4), (2, 5, 4), (2, 5, 4)))
NORM, RELU, CLONE = launch("batch_norm"), launch("relu"), launch("clone")


def listed(*launches: KernelInvocation, end: str = "") -> Network:
    boundary = Boundary(end, "somewhere", "its result is data") if end else None
    reads = tuple((place - 1,) for place in range(len(launches)))
    return Network("made up", (TensorSpec(PICTURE),), launches, boundary, reads)


def ran(*launches: KernelInvocation, sorts: Sequence[str] = (), looks: Sequence[tuple[int, str]] = ()) -> Dispatched:
    before = tuple(place - 1 for place in range(len(launches)))
    return Dispatched(launches, tuple(looks), tuple(sorts) or ("",) * len(launches), sources=before)


def within(kind: str, *inputs: tuple[int, ...], output: tuple[int, ...] = PICTURE, **params: Any) -> KernelInvocation:
    return msgspec.structs.replace(launch(kind, output=output, **params), inputs=inputs)
