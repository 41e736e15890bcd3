# SPDX-License-Identifier: Apache-2.0
"""Operators of particular back ends: cuDNN's fused convolutions, and those that never run on a Jetson's GPU."""

from __future__ import annotations

from typing import Any

from ...errors import UnsupportedOperator
from ..elements.pointwise import add, unary
from ..recorder import Recorder
from ..registry import operator
from ..values import Tensor
from .convolution import convolve


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


_elsewhere(
    "comes from optimize_for_inference on an x86 CPU: save the frozen model, or optimise it on the board",
    "to_mkldnn",
    "mkldnn_convolution",
    "_mkldnn_reshape",
    "prim::ConvertToMKLDNN",
)


def why_missing(name: str) -> str:
    """What to say of an operator without a rule."""
    base = name.rpartition("::")[2]
    if name.startswith(("quantized::", "_quantized::")) or base.startswith(
        ("quantize_", "quantized_", "dequantize", "fbgemm_")
    ):
        return (
            "belongs to an 8-bit quantised model (or one packed for a CPU), which PyTorch runs on the CPU alone: "
            "decompose the model before quantisation"
        )
    return "has no shape rule"
