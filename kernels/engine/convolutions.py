# SPDX-License-Identifier: Apache-2.0
"""Convolutions of an engine: with what is fused to them, several of one tensor at once, and with a pool behind."""

from __future__ import annotations

from dataclasses import replace

from ..errors import ModelError
from ..kinds import KINDS, flops
from ..network import KernelInvocation, numel, tensor_bytes
from . import names
from .ported import Params, Ported, epilogue, operations, with_weights


def convolution(port: Ported) -> KernelInvocation:
    """A convolution; several of one tensor are one with all their filters.

    What it writes may be its part of a tensor that others write the rest of.
    """
    layer, image = port.layer, port.first()
    transposed = "deconv" in layer.type.lower()
    window, groups, filters = layer.sizes("Kernel"), layer.number("Groups", 1), layer.number("OutMaps")
    rank = len(image.shape) - 2
    if rank not in (1, 2, 3) or groups < 1 or filters < 1 or image.shape[1] % groups or filters % groups:
        raise ModelError(f"{filters} filters in {groups} groups do not fit an input of shape {list(image.shape)}")
    channels, written = image.shape[1], [tensor for tensor in layer.outputs if len(tensor.shape) == len(image.shape)]
    if sum(tensor.shape[1] for tensor in written) < filters or len(window) < rank or written[0].shape[0] != image.shape[0]:
        raise ModelError(f"{filters} filters of {list(window)} do not make {list(port.output.shape)} of {list(image.shape)}")
    out = (image.shape[0], filters, *written[0].shape[2:])
    kernel = window[-rank:]
    weight = (channels, filters // groups, *kernel) if transposed else (filters, channels // groups, *kernel)
    params: Params = {"weight": weight, "bias": bool(layer.number("HasBias") or layer.weights("Bias")[0])}
    for name, member in (("stride", "Stride"), ("padding", "PrePadding"), ("dilation", "Dilation")):
        params[name] = layer.sizes(member)[-rank:]
    params["groups"] = groups
    residual = any(tensor.shape == out for tensor in port.inputs[1:])
    ends = _expression(port) or epilogue(layer, layer.text("Activation").upper(), residual)
    kind = f"conv_transpose{rank}d" if transposed else f"conv{rank}d"
    work = flops(kind, [image.shape], out, params) + names.work_of(ends, numel(out))
    fused = "_".join((kind, *ends))
    if ends and fused not in KINDS:
        params["epilogue"] = "+".join(ends)
        fused = kind
    made = with_weights(port, fused, params, work)
    elsewhere = sum(tensor.nbytes for tensor in layer.outputs) - tensor_bytes(numel(out), port.output.dtype)
    return replace(made, output=out, bytes=made.bytes - elsewhere)


def _expression(port: Ported) -> tuple[str, ...]:
    """What a kernel that was compiled for it does on its way out; a product with its sigmoid is silu."""
    listed = "+".join(operations(port.layer, "PointWiseExpressionOperations")).replace("sigmoid+mul", "silu")
    return tuple(listed.split("+")) if listed else ()


def convolution_and_pool(port: Ported) -> KernelInvocation:
    """A convolution that hands what it makes to a pool, and writes only that."""
    layer, image, out = port.layer, port.first(), port.output.shape
    kernel, window = layer.sizes("ConvKernel"), layer.sizes("PoolingWindowSize")
    steps, pads = layer.sizes("ConvStride"), layer.sizes("ConvPrePadding")
    groups, filters = layer.number("ConvGroups", 1), layer.number("ConvOutMaps")
    if len(image.shape) != 4 or not len(kernel) == len(steps) == len(pads) == 2 or groups < 1 or 0 in steps:
        raise ModelError(f"a convolution of {list(kernel)} with a pool does not fit an input of shape {list(image.shape)}")
    per_group = image.shape[1] // groups
    sides = [
        (size + 2 * pad - of) // step + 1 for size, pad, of, step in zip(image.shape[2:], pads, kernel, steps, strict=True)
    ]
    full = (image.shape[0], filters, *(max(side, 0) for side in sides))
    params: Params = {"weight": (filters, per_group, *kernel), "stride": steps, "padding": pads, "groups": groups}
    ends = epilogue(layer, layer.text("ConvActivation").upper(), residual=False)
    work = flops("conv2d", [image.shape], full, params) + names.work_of(ends, numel(full)) + numel(out) * numel(window)
    params |= {"epilogue": "+".join((*ends, "pool2d")), "kernel_size": window, "pooled_from": full}
    return with_weights(port, "conv2d_pool2d", params, work, "Conv")
