# SPDX-License-Identifier: Apache-2.0
"""Times of kernels in element types without measurements."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.cost.narrower import in_type, measured_type
from jetdvfs.kernels.network import PACKED_TYPES, KernelInvocation, tensor_bytes
from jetdvfs.tests.support.profiles.analytic import board, conv2d, matmul, network

M, N = 1, 4096


def product(dtype: str, m: int = M, n: int = N) -> KernelInvocation:
    """A product of m rows with a square matrix that is stored in an element type; activations have 2 bytes."""
    moved = tensor_bytes(n * n, dtype) + 2 * 2 * m * n
    params = {"m": m, "k": n, "n": n, "batch": 1, "bias": False}
    return KernelInvocation("matmul", "fc", ((m, n),), (m, n), dtype, params, 2 * m * n * n, moved)


def latency_ms(call: KernelInvocation, measured: tuple[str, ...] = ("float32", "float16")) -> NDArray[np.float64]:
    cost = board()
    kernels = {kind: replace(model, dtypes=measured) for kind, model in cost.kernels.items()}
    return surface(network(call), replace(cost, kernels=kernels)).latency_ms


@pytest.mark.parametrize(
    ("dtype", "measured", "expected"),
    [
        ("float16", ("float32",), "float32"),
        ("bfloat16", ("float32", "float16"), "float16"),
        ("q8_0", ("float32", "float16"), "float16"),
        ("int8", ("float32",), "float32"),
        ("qint8", ("int8", "float16"), "int8"),
        ("nvfp4", ("int8", "float32"), "float32"),
        ("float64", ("float32",), None),
        ("q4_K", ("int8",), None),
    ],
)
def test_the_measured_type_has_at_least_as_many_bits(dtype: str, measured: tuple[str, ...], expected: str | None) -> None:
    assert measured_type(dtype, measured) == expected


@pytest.mark.parametrize("dtype", [*sorted(PACKED_TYPES), "int8", "qint8", "quint8"])
@pytest.mark.parametrize("rows", [1, 512])
@pytest.mark.parametrize("measured", [("float32",), ("float32", "float16")])
def test_fewer_bits_are_not_slower_than_more_but_for_unpacking(dtype: str, rows: int, measured: tuple[str, ...]) -> None:
    wide, narrow = latency_ms(product("float16", rows), measured), latency_ms(product(dtype, rows), measured)
    assert (narrow <= wide * 1.05).all()


def test_a_product_of_one_row_takes_the_part_of_the_time_that_its_weights_are_of_the_bytes() -> None:
    wide, narrow = latency_ms(product("float16")), latency_ms(product("q8_0"))
    at_least = product("q8_0").bytes / product("float16").bytes
    memory_bound = narrow[0, -1, 0] / wide[0, -1, 0]
    assert at_least <= memory_bound < 1.02 * at_least


def test_unpacking_weighs_more_where_the_gpu_is_slow() -> None:
    ratio = latency_ms(product("q6_K")) / latency_ms(product("q8_0"))
    assert ratio[0, 0, -1] > 1.05 * ratio[0, -1, 0]


def test_a_prompt_is_multiplied_in_half_precision_whatever_its_weights_are() -> None:
    wide, narrow = latency_ms(product("float16", 512)), latency_ms(product("q4_K", 512))
    assert narrow[0, 0, -1] == pytest.approx(wide[0, 0, -1], rel=0.05)


def test_the_same_work_in_another_type_moves_other_bytes() -> None:
    assert in_type(product("q4_K"), "float16") == product("float16")
    assert in_type(replace(conv2d(), dtype="int8", bytes=100), "float16").bytes == 200
    assert in_type(matmul(), "float16").bytes == matmul().bytes // 2
