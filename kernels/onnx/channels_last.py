# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's operators on images with channels last, as ONNX operators on a view.

They occur in optimised models for CUDA with ``prefer_nhwc`` (``com.ms.internal.nhwc``), for half precision and for eight bits
(``Nhwc...`` of ``com.microsoft``, and ``channels_last`` of its quantised operators).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ShapeError
from ..operators.layout import show
from ..operators.values import Tensor
from . import layers, quantized, shapes
from .call import NodeCall, as_aten, onnx_operator
from .layers import average_pool, global_average_pool, global_max_pool, max_pool
from .vendor import fused_conv

_INTERNAL = "com.ms.internal.nhwc"
_ADDED, _QUANTIZED_WEIGHT = 3, 3


def with_channels_first(rule: Callable[[NodeCall], Any], call: NodeCall, *more: int) -> Any:
    """Apply a rule with channels first, and move them back. Raises ShapeError."""
    inputs = list(call.inputs)
    for place in (0, *(place for place in more if call.given(place))):
        x = call.tensor(place)
        if x.rank < 3:
            raise ShapeError(f"operator {call.node.key} on an input of shape {show(x.shape)}: expected pixels and channels")
        inputs[place] = call.aten("permute", x, [0, x.rank - 1, *range(1, x.rank - 1)])
    made = rule(NodeCall(call.recorder, call.node, inputs, call.version))
    outputs = made if isinstance(made, (tuple, list)) else (made,)
    moved = [call.aten("permute", y, [0, *range(2, y.rank), 1]) if isinstance(y, Tensor) else y for y in outputs]
    return moved if isinstance(made, (tuple, list)) else moved[0]


def _convolution(rule: Callable[[NodeCall], Any], weight_place: int = 1) -> Callable[[NodeCall], Any]:
    """Rule of a convolution with weights in its image's layout: the runtime packs them at load time.

    In the file they are as in ONNX, or have channels last from an execution provider.
    """

    def packed(call: NodeCall) -> Any:
        x, weight = call.tensor(0), call.tensor(weight_place)
        if weight.rank != x.rank or x.rank < 3:
            raise ShapeError(f"operator {call.node.key} with a weight of shape {show(weight.shape)} on {show(x.shape)}")
        channels = x.shape[1] // max(call.attribute("group", 1), 1)
        filters, *window = weight.shape
        if window[0] != channels == window[-1]:
            window = [window[-1], *window[:-1]]
        there = call.recorder.tensor((filters, *window[1:], window[0]), weight.dtype, of=weight)
        given = list(call.inputs)
        given[weight_place] = call.aten("permute", there, [0, weight.rank - 1, *range(1, weight.rank - 1)])
        return rule(NodeCall(call.recorder, call.node, given, call.version))

    return packed


def _moved(rule: Callable[[NodeCall], Any], *spellings: str, also: Sequence[int] = ()) -> None:
    @onnx_operator(*spellings)
    def on_channels_last(call: NodeCall) -> Any:
        return with_channels_first(rule, call, *also)


_moved(_convolution(layers.conv), "com.microsoft::NhwcConv")
_moved(_convolution(fused_conv), "com.microsoft::NhwcFusedConv", also=[_ADDED])
_moved(layers.max_pool, "com.microsoft::NhwcMaxPool", f"{_INTERNAL}::MaxPool")
for _name, _rule in (
    ("Conv", _convolution(fused_conv)),
    ("ConvTranspose", layers.conv_transpose),
    ("BatchNormalization", layers.batch_norm),
    ("InstanceNormalization", layers.instance_norm),
    ("AveragePool", layers.average_pool),
    ("GlobalAveragePool", layers.global_average_pool),
    ("GlobalMaxPool", layers.global_max_pool),
    ("DepthToSpace", shapes.depth_to_space),
    ("SpaceToDepth", shapes.space_to_depth),
    ("GridSample", shapes.grid_sample),
    ("QLinearConv", _convolution(quantized.convolution, _QUANTIZED_WEIGHT)),
):
    _moved(_rule, f"{_INTERNAL}::{_name}")


def _told(rule: Callable[[NodeCall], Any], spelling: str, last: Callable[[NodeCall], Any] | None = None) -> None:
    @onnx_operator(spelling)
    def on_channels_where_it_says(call: NodeCall) -> Any:
        return with_channels_first(last or rule, call) if call.attribute("channels_last", 0) else rule(call)


_told(quantized.convolution, "com.microsoft::QLinearConv", _convolution(quantized.convolution, _QUANTIZED_WEIGHT))
_told(quantized.average_pool, "com.microsoft::QLinearAveragePool")
_told(global_average_pool, "com.microsoft::QLinearGlobalAveragePool")
_moved(quantized.average_pool, f"{_INTERNAL}::QLinearAveragePool")


_DOMAIN = "com.microsoft.nchwc"


@onnx_operator(f"{_DOMAIN}::Conv")
def conv(call: NodeCall) -> Any:
    x, weight = call.tensor(0), call.tensor(1)
    channels = weight.shape[1] * call.attribute("group", 1)
    if x.rank == 4 and x.shape[1] < channels:
        x = call.recorder.tensor((x.shape[0], channels, *x.shape[2:]), x.dtype)
    return fused_conv(NodeCall(call.recorder, call.node, [x, *call.inputs[1:]], call.version))


as_aten("clone", f"{_DOMAIN}::ReorderInput")


@onnx_operator(f"{_DOMAIN}::ReorderOutput")
def reorder_output(call: NodeCall) -> Any:
    """Back to whole channels, without those that filled the last block; or with channels last."""
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
