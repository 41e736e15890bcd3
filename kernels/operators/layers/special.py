# SPDX-License-Identifier: Apache-2.0
"""Operators of particular back ends: cuDNN's fused convolutions, and those that never run on a Jetson's GPU."""

from __future__ import annotations

from typing import Any

from ...errors import UnsupportedOperator
from ..elementwise import unary
from ..pointwise import add
from ..recorder import Recorder
from ..registry import operator
from ..values import Tensor
from .convolution import convolve


@operator("cudnn_convolution_relu")
def convolution_relu(
    recorder: Recorder, self: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    """One kernel in cuDNN; written down as what was fused."""
    return unary(recorder, "relu", convolve(recorder, self, weight, bias, stride, padding, dilation, groups))


@operator("cudnn_convolution_add_relu")
def convolution_add_relu(
    recorder: Recorder,
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
    out = convolve(recorder, self, weight, bias, stride, padding, dilation, groups)
    return unary(recorder, "relu", add(recorder, out, z))


def _elsewhere(why: str, *names: str) -> None:
    for name in names:

        @operator(name)
        def rule(recorder: Recorder, *_: Any, name: str = name, **__: Any) -> None:
            raise UnsupportedOperator(f"operator {name if '::' in name else f'aten::{name}'} {why}")


_elsewhere(
    "comes from optimize_for_inference on an x86 CPU: save the frozen model, or optimise it on the board",
    "to_mkldnn",
    "mkldnn_convolution",
    "_mkldnn_reshape",
    "prim::ConvertToMKLDNN",
)
