# SPDX-License-Identifier: Apache-2.0
"""``com.microsoft.nchwc``: operators on channels in blocks, which ONNX Runtime writes for the processor that it optimises for.

Channels are filled up to whole blocks; weights in such a file are so already, and say how many there are.
"""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError
from ..operators.layout import show
from ..operators.values import Tensor
from .call import NodeCall, onnx_operator
from .layers import average_pool, global_average_pool, global_max_pool, max_pool
from .vendor import fused_conv

_DOMAIN = "com.microsoft.nchwc"


@onnx_operator(f"{_DOMAIN}::Conv")
def conv(call: NodeCall) -> Any:
    x, weight = call.tensor(0), call.tensor(1)
    channels = weight.shape[1] * call.attribute("group", 1)
    if x.rank == 4 and x.shape[1] < channels:
        x = call.recorder.tensor((x.shape[0], channels, *x.shape[2:]), x.dtype)
    return fused_conv(NodeCall(call.recorder, call.node, [x, *call.inputs[1:]], call.version))


@onnx_operator(f"{_DOMAIN}::ReorderInput")
def reorder_input(call: NodeCall) -> Any:
    return call.aten("clone", call.tensor(0))


@onnx_operator(f"{_DOMAIN}::ReorderOutput")
def reorder_output(call: NodeCall) -> Any:
    """Back to whole channels, without those that filled up the last block; or with the channels last."""
    x: Tensor = call.tensor(0)
    channels = call.attribute("channels", 0)
    if x.rank != 4 or not 0 < channels <= x.shape[1]:
        raise ShapeError(f"operator {call.node.key} of {channels} channels on an input of shape {show(x.shape)}")
    made = call.aten("clone", call.aten("slice", x, 1, 0, channels))
    return call.aten("permute", made, [0, 2, 3, 1]) if call.attribute("channels_last", 0) else made


for _name, _rule in (
    ("MaxPool", max_pool),
    ("AveragePool", average_pool),
    ("GlobalMaxPool", global_max_pool),
    ("GlobalAveragePool", global_average_pool),
):
    onnx_operator(f"{_DOMAIN}::{_name}")(_rule)
