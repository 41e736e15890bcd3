# SPDX-License-Identifier: Apache-2.0
"""Normalisation."""

from __future__ import annotations

from typing import Any

from ...errors import ShapeError, UnsupportedOperator
from ...network import ParamValue
from ..layout import contiguous, laid_out, of_layout, preserved, show, view_of
from ..recorder import Recorder
from ..registry import operator
from ..values import Tensor


@operator("batch_norm", "native_batch_norm")
def batch_norm(
    recorder: Recorder,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Batch normalisation with running statistics; batch statistics mean training mode."""
    if training and running_mean is not None:
        raise UnsupportedOperator("batch_norm in training mode: save the model after calling its eval()")
    channels = input.shape[1] if input.rank > 1 else 0
    for name, tensor in (("weight", weight), ("bias", bias), ("running_mean", running_mean), ("running_var", running_var)):
        if tensor is not None and tensor.shape != (channels,):
            raise ShapeError(f"batch_norm with {name} of shape {show(tensor.shape)} on an input of shape {show(input.shape)}")
    if input.rank > 2 and weight is not None and running_mean is not None and input.dtype != "bfloat16":
        input = laid_out(recorder, input, input.is_channels_last())  # for cuDNN (Normalization.cpp)
    output = recorder.tensor(input.shape, input.dtype, preserved(input))
    return recorder.launch(
        "batch_norm",
        [input],
        output,
        {"affine": weight is not None, **of_layout(input)},
        (weight, bias, running_mean, running_var),
    )


@operator("layer_norm")
def layer_norm(
    recorder: Recorder,
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    sizes = tuple(normalized_shape)
    if not sizes or input.shape[-len(sizes) :] != sizes:
        raise ShapeError(f"layer_norm over {show(sizes)} on an input of shape {show(input.shape)}")
    params: dict[str, ParamValue] = {"normalized_shape": sizes, "affine": weight is not None}
    input = contiguous(recorder, input)  # on CUDA (layer_norm_kernel.cu)
    return recorder.launch("layer_norm", [input], recorder.tensor(input.shape, input.dtype), params, (weight, bias))


@operator("group_norm")
def group_norm(
    recorder: Recorder,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    if input.rank < 2 or num_groups < 1 or input.shape[1] % num_groups:
        raise ShapeError(f"group_norm in {num_groups} groups on an input of shape {show(input.shape)}")
    params = {"groups": num_groups, "affine": weight is not None}
    input = contiguous(recorder, input)  # in any layout (group_norm.cpp)
    return recorder.launch("group_norm", [input], recorder.tensor(input.shape, input.dtype), params, (weight, bias))


@operator("instance_norm")
def instance_norm(
    recorder: Recorder,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Batch normalisation with the batch's images as channels, as in ATen."""
    if input.rank < 3:
        raise ShapeError(f"instance_norm on an input of shape {show(input.shape)}")
    images, channels = input.shape[:2]
    parameters = []
    for parameter in (weight, bias, running_mean, running_var):
        if parameter is not None:
            parameter = recorder.launch("repeat", [parameter], recorder.tensor((images * channels,), parameter.dtype))
        parameters.append(parameter)
    flat = view_of(recorder, contiguous(recorder, input), (1, images * channels, *input.shape[2:]), None, "view")
    output = recorder.tensor(flat.shape, flat.dtype)
    recorder.launch("batch_norm", [flat], output, {"affine": weight is not None}, parameters)
    return view_of(recorder, output, input.shape, None, "view")


@operator("_weight_norm")
def weight_norm(recorder: Recorder, v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """Weight computed from direction and norm at each use."""
    return recorder.launch(
        "_weight_norm_interface", [contiguous(recorder, v), contiguous(recorder, g)], recorder.tensor(v.shape, v.dtype)
    )


@operator("rms_norm")
def rms_norm(
    recorder: Recorder, input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    params: dict[str, ParamValue] = {"normalized_shape": tuple(normalized_shape), "affine": weight is not None}
    return recorder.launch("rms_norm", [input], recorder.tensor(input.shape, input.dtype), params, (weight,))
