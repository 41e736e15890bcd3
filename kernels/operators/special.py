# SPDX-License-Identifier: Apache-2.0
"""Operators of particular back ends: cuDNN's fused convolutions, and those that never run on a Jetson's GPU."""

from __future__ import annotations

from typing import Any

from ..errors import UnsupportedOperator
from ..recorder import Recorder
from ..values import Tensor
from .convolution import convolve
from .pointwise import add, unary
from .registry import operator


@operator("cudnn_convolution_relu")
def convolution_relu(
    run: Recorder, self: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    """One kernel in cuDNN; written down as what was fused."""
    return unary(run, "relu", convolve(run, self, weight, bias, stride, padding, dilation, groups))


@operator("cudnn_convolution_add_relu")
def convolution_add_relu(
    run: Recorder,
    self: Tensor,
    weight: Tensor,
    z: Tensor,
    alpha: Any,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Tensor:
    out = convolve(run, self, weight, bias, stride, padding, dilation, groups)
    return unary(run, "relu", add(run, out, z))


def _elsewhere(why: str, *names: str) -> None:
    for name in names:

        @operator(name)
        def rule(run: Recorder, *_: Any, name: str = name, **__: Any) -> None:
            raise UnsupportedOperator(f"operator {name if '::' in name else f'aten::{name}'} {why}")


_QUANTIZED = (
    "conv1d",
    "conv1d_relu",
    "conv2d",
    "conv2d_relu",
    "conv3d",
    "linear",
    "linear_relu",
    "linear_dynamic",
    "add",
    "add_relu",
    "linear_prepack",
    "conv1d_prepack",
    "conv2d_prepack",
    "conv3d_prepack",
    "embedding_bag_prepack",
    "make_quantized_cell_params_dynamic",
)
_elsewhere(
    "belongs to an 8-bit quantised model, which PyTorch runs on the CPU alone: decompose the model before quantisation",
    "quantize_per_tensor",
    "quantize_per_tensor_dynamic",
    "quantize_per_channel",
    "dequantize",
    *(f"quantized::{name}" for name in _QUANTIZED),
)
_elsewhere(
    "comes from optimize_for_inference on an x86 CPU: save the frozen model, or optimise it on the board",
    "to_mkldnn",
    "mkldnn_convolution",
    "_mkldnn_reshape",
    "prim::ConvertToMKLDNN",
)
