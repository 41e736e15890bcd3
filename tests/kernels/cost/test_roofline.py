# SPDX-License-Identifier: Apache-2.0
"""Whole tiles of products in the roofline bound."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jetdvfs.kernels.cost.roofline import NO_FLOOR, LaunchFloor, bound_at_ms, least_latency_ms
from jetdvfs.kernels.network import KernelInvocation, ParamValue

# Bytes are as good as free, so that operations bind.
CHIP: Any = SimpleNamespace(flops_per_gpu_cycle={"float32": 100.0, "tf32": 100.0}, bytes_per_emc_cycle=1e12)


def product(m: ParamValue, n: ParamValue, kind: str = "matmul") -> KernelInvocation:
    params: dict[str, ParamValue] = {"m": m, "n": n, "k": 64, "batch": 3, "bias": False}
    return KernelInvocation(kind, "", ((3, 8, 64),), (3, 8, 8), "float32", params, flops=10**9, bytes=10**6)


CONVOLUTION = KernelInvocation("conv2d", "", ((2, 8, 8, 8),), (2, 8, 8, 8), "float32", flops=10**9, bytes=10**6)


def longer(call: KernelInvocation, tile: int) -> float:
    """By how much whole tiles lengthen a bound."""
    whole, part = (bound_at_ms([call], 1000, 1000, CHIP, floor)[0] for floor in (LaunchFloor(tile=tile), NO_FLOOR))
    return float(whole / part)


@pytest.mark.parametrize(
    ("call", "tile", "times"),
    [
        (product(128, 256), 128, 1.0),
        (product(197, 768), 128, 256 / 197),
        (product(197, 768), 64, 256 / 197),
        (product(1, 1000), 128, 128 * 1024 / 1000),
        (product(100, 8), 32, 128 * 32 / 800),
    ],
)
def test_a_product_takes_the_operations_of_its_whole_tiles(call: KernelInvocation, tile: int, times: float) -> None:
    assert longer(call, tile) == pytest.approx(times)
    assert longer(call, 1) == 1.0


OTHERS = [CONVOLUTION, product("many", 8), product(0, 8), product(8, 8, "softmax"), product(8, 8, "unknown")]


@pytest.mark.parametrize("call", OTHERS)
def test_other_kernels_have_no_tiles(call: KernelInvocation) -> None:
    assert longer(call, 128) == 1.0


def test_no_execution_is_bound_by_tiles() -> None:
    call = product(1, 1000)
    assert least_latency_ms([call], [1], 1000, 1000, CHIP) <= bound_at_ms([call], 1000, 1000, CHIP)[0]  # type: ignore[arg-type]
