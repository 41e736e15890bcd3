# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's operators on images whose channels come last launch what those of ONNX launch."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import ShapeError
from jetdvfs.kernels.inputs import parse_input
from jetdvfs.kernels.network import KernelInvocation
from jetdvfs.tests.support.models.handmade_onnx import declared, graph, model, node, tensor

WEIGHTS = "bc"
WINDOW: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
INTERNAL, MICROSOFT = "com.ms.internal.nhwc", "com.microsoft"


def launched(made: bytes, *inputs: str) -> list[KernelInvocation]:
    names = "abcd"[: len(inputs)]
    sizes = [[int(size) for size in text.split("x")] for text in inputs]
    weights = [
        tensor(name, shape, bytes(4 * math.prod(shape))) for name, shape in zip(names, sizes, strict=True) if name in WEIGHTS
    ]
    declarations = [declared(name, shape) for name, shape in zip(names, sizes, strict=True) if name not in WEIGHTS]
    given = [parse_input(text) for name, text in zip(names, inputs, strict=True) if name not in WEIGHTS]
    return list(decompose(io.BytesIO(model(graph([made], declarations, ["y"], weights))), given).launches)


def told(launches: list[KernelInvocation], **layout: bool) -> list[tuple[Any, ...]]:
    return [(call.kind, call.inputs, call.output, {**call.params, **layout}, call.flops, call.bytes) for call in launches]


@pytest.mark.parametrize("domain", [MICROSOFT, INTERNAL])
def test_a_convolution(domain: str) -> None:
    name = "NhwcConv" if domain == MICROSOFT else "Conv"
    plain = launched(node("Conv", ["a", "b"], ["y"], **WINDOW), "1x8x16x12", "4x8x3x3")
    last = launched(node(name, ["a", "b"], ["y"], domain=domain, **WINDOW), "1x16x12x8", "4x8x3x3")
    assert told(last) == told(plain, channels_last=True) and last[0].output == (1, 4, 16, 12)


def test_a_convolution_whose_weights_have_their_channels_last() -> None:
    plain = launched(node("Conv", ["a", "b"], ["y"], group=2, **WINDOW), "1x8x16x12", "4x4x3x3")
    last = launched(node("NhwcConv", ["a", "b"], ["y"], domain=MICROSOFT, group=2, **WINDOW), "1x16x12x8", "4x3x3x4")
    assert told(last) == told(plain, channels_last=True)


def test_a_convolution_with_a_sum_and_an_activation() -> None:
    names = ["a", "b", "c", "d"]
    last = launched(
        node("NhwcFusedConv", names, ["y"], domain=MICROSOFT, activation="Relu", **WINDOW),
        "1x16x12x8", "4x8x3x3", "4", "1x16x12x4",
    )  # fmt: skip
    assert [call.kind for call in last] == ["conv2d", "add", "relu"]
    assert last[1].inputs == ((1, 4, 16, 12),) * 2


@pytest.mark.parametrize(("domain", "name"), [(MICROSOFT, "NhwcMaxPool"), (INTERNAL, "MaxPool"), (INTERNAL, "AveragePool")])
def test_pools(domain: str, name: str) -> None:
    plain = launched(node(name.removeprefix("Nhwc"), ["a"], ["y"], kernel_shape=[2, 2], strides=[2, 2]), "1x8x16x12")
    last = launched(node(name, ["a"], ["y"], domain=domain, kernel_shape=[2, 2], strides=[2, 2]), "1x16x12x8")
    assert told(last) == told(plain, channels_last=True)


def test_a_quantised_pool_says_where_its_channels_are() -> None:
    names, sizes = ["a", "b", "c", "b", "c"], ("1", "1")
    for said, shape in ((0, "1x8x16x12"), (1, "1x16x12x8")):
        (pool,) = launched(node("QLinearGlobalAveragePool", names, ["y"], domain=MICROSOFT, channels_last=said), shape, *sizes)
        assert pool.output == (1, 8, 1, 1) and pool.flops == 8 * 16 * 12


def test_rows_have_no_pixels() -> None:
    with pytest.raises(ShapeError, match="expected pixels and channels"):
        launched(node("GlobalAveragePool", ["a"], ["y"], domain=INTERNAL), "1x8")
