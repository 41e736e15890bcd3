# SPDX-License-Identifier: Apache-2.0
"""Accounts of engines made from choices: layers of every family, with members that fit, that do not, and that are absurd."""

from __future__ import annotations

import json
from typing import Any

from jetdvfs.tests.fuzz.choices import Choices
from jetdvfs.tests.support.models.handmade_engine import HALF, convolution, layer, profile, small, tensor

TYPES = (
    "CaskConvolution", "CaskGemmConvolution", "CaskDeconvolutionV2", "ConvActPool", "CaskPooling", "FullyConnected", "gemm",
    "CaskGemmMatrixMultiply", "kgen", "mha", "PointWiseV2", "ElementWise", "Unary", "Activation", "Reduce", "Resize", "Scale",
    "SoftMaxV2", "Normalization", "Reformat", "Shuffle", "Concat", "Gather", "NoOp", "Constant", "Myelin", "PluginV2", "NMS",
    "CaskJitConv", "Odd",
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    0,
    1,
    2,
    3,
    8,
    64,
    -1,
    1 << 31,
    1 << 62,
    1 << 70,
    True,
    1.5,
    None,
    "a",
    [],
    [1, 1],
    [3, 3],
    [1 << 39, 1 << 39],
    {},
)
FORMS = (
    HALF,
    "Half",
    "Float",
    "Row major linear FP32",
    "Row major Int8 format",
    "FP8",
    "Bool",
    "N/A due to dynamic shapes",
    "",
    "?",
)
MEMBERS = (
    "Kernel", "Stride", "PrePadding", "Dilation", "OutMaps", "Groups", "Weights", "Bias", "Activation", "PoolingType",
    "WindowSize", "Operations", "ElementWiseOperation", "ReduceOperation", "ParameterType", "TacticName", "Name", "LayerType",
    "Inputs", "Outputs",
    "ConvKernel", "ConvStride", "ConvOutMaps", "ConvPrePadding", "PoolingWindowSize", "InterpolationMode", "HasBias", "HasReLU",
    "PointWiseExpressionOperations",
)  # fmt: skip
WORDS = ("RELU", "MAX", "AVERAGE", "SUM", "EXP", "kMAX", "nearest", "__myl_MulSumAdd_myl0_0", "_gemm_mha_v2", "Convolution", "")


def _tensor(choices: Choices) -> dict[str, Any]:
    sizes = [choices.of((1, 8, 3, 64, 16, 0, 1 << 20)) for _ in range(choices.below(6))]
    return tensor(choices.of(("x", "r", "a", "b", "y", "w")), *sizes, form=choices.of(FORMS) if choices.below(4) == 0 else HALF)


def _layer(choices: Choices) -> Any:
    inputs = [_tensor(choices) for _ in range(choices.below(4))] or [tensor("x", 1, 3, 64, 64)]
    made: dict[str, Any] = layer(choices.of(TYPES), inputs, _tensor(choices))
    if choices.below(2):
        image = tensor("x", 1, 3, 64, 64)
        made = convolution([image], tensor("y", 1, 8, 64, 64)) | (
            {"LayerType": choices.of(TYPES)} if choices.below(3) == 0 else {}
        )
    for _ in range(choices.below(4)):
        value: Any = choices.of(NUMBERS) if choices.below(2) else choices.of(WORDS)
        made[choices.of(MEMBERS)] = {"Type": choices.of(FORMS), "Count": value} if choices.below(4) == 0 else value
    return choices.of(("name only", 7, None)) if choices.below(32) == 0 else made


def engine(choices: Choices) -> bytes:
    """An account of an engine."""
    layers = small()[: choices.below(5)] + [_layer(choices) for _ in range(1 + choices.below(6))]
    made: dict[str, Any] = {"Layers": layers, "Bindings": ["x", "y"]}
    if choices.below(16) == 0:
        made["Bindings"] = choices.of(NUMBERS)
    text = json.dumps(made).encode()
    return text[: choices.below(65536) % max(len(text), 1)] if choices.below(16) == 0 else text


def times(choices: Choices) -> bytes:
    """A profile of an engine's layers."""
    rows = json.loads(profile([choices.of(("r", "a", "b", "y", "z")) for _ in range(choices.below(8))]))
    for _ in range(choices.below(3)):
        rows.insert(choices.below(len(rows) + 1), {choices.of(("name", "averageMs", "count")): choices.of(NUMBERS)})
    text = json.dumps(rows).encode()
    return text[: choices.below(4096)] if choices.below(8) == 0 else text
