# SPDX-License-Identifier: Apache-2.0
"""Accounts of engines as TensorRT writes them, put together by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

HALF = "Channel major FP16 format where channel % 8 == 0"


def tensor(name: str, *shape: int, form: str = HALF) -> dict[str, Any]:
    return {"Name": name, "Location": "Device", "Dimensions": list(shape), "Format/Datatype": form}


def layer(kind: str, inputs: Sequence[dict[str, Any]], output: dict[str, Any], name: str = "", **said: Any) -> dict[str, Any]:
    return {"Name": name or output["Name"], "LayerType": kind, "Inputs": list(inputs), "Outputs": [output], **said}


def convolution(inputs: Sequence[dict[str, Any]], output: dict[str, Any], kernel: int = 3, **said: Any) -> dict[str, Any]:
    """One that keeps the image's size, in half precision, with all filters over all channels."""
    filters, channels = output["Dimensions"][1], inputs[0]["Dimensions"][1]
    window = [kernel, kernel]
    members = {
        "ParameterType": "Convolution", "Kernel": window, "PrePadding": [kernel // 2] * 2, "PostPadding": [kernel // 2] * 2,
        "Stride": [1, 1], "Dilation": [1, 1], "OutMaps": filters, "Groups": 1, "Activation": "NONE",
        "Weights": {"Type": "Half", "Count": filters * channels * kernel**2}, "Bias": {"Type": "Half", "Count": filters},
        "HasBias": 1, "HasReLU": 0,
    }  # fmt: skip
    return layer("CaskConvolution", inputs, output, **{**members, **said})


def account(layers: Sequence[Any], *bindings: str) -> bytes:
    return json.dumps({"Layers": list(layers), "Bindings": list(bindings)}).encode()


def small() -> list[dict[str, Any]]:
    """A residual block on 1x8x16x16, then a pool: what goes in is ``x``, what comes out ``y``."""
    image = [tensor(name, 1, 8, 16, 16) for name in ("r", "a", "b")]
    return [
        layer("Reformat", [tensor("x", 1, 8, 16, 16, form="Row major linear FP32")], image[0], Origin="REFORMAT"),
        convolution([image[0]], image[1], Activation="RELU", HasReLU=1),
        convolution([image[1], image[0]], image[2], Activation="RELU", HasReLU=1),
        layer(
            "CaskPooling", [image[2]], tensor("y", 1, 8, 8, 8), ParameterType="Pooling", PoolingType="MAX",
            WindowSize=[2, 2], Stride=[2, 2], PrePadding=[0, 0],
        ),
        layer("NoOp", [tensor("y", 1, 8, 8, 8)], tensor("z", 1, 8, 64)),
    ]  # fmt: skip


def profile(names: Sequence[str]) -> bytes:
    """What ``trtexec --exportProfile`` writes: each layer takes a tenth of a millisecond more than the one before."""
    rows = [{"name": name, "timeMs": 10.0, "averageMs": 0.1 * place, "percentage": 1.0} for place, name in enumerate(names, 1)]
    return json.dumps([{"count": 100}, *rows]).encode()
