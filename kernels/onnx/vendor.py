# SPDX-License-Identifier: Apache-2.0
"""ONNX operators without a single PyTorch call, and those of other vendors' domains, as their parts.

Lists have PyTorch's launches, independent of a runtime's fusion.
"""

from __future__ import annotations

import math
from typing import Any

from ..errors import ShapeError, UnsupportedOperator
from ..network import PACKED_TYPES
from ..operators.layout import dim_of, show
from ..operators.values import Tensor
from .call import NodeCall, data_dependent, onnx_operator
from .layers import conv, gemm

_ACTIVATIONS = {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "LeakyRelu": "leaky_relu", "HardSigmoid": "hardsigmoid"}
_ACTIVATIONS |= {"Clip": "clamp", "HardSwish": "hardswish", "Swish": "silu", "Gelu": "gelu"}


@onnx_operator("LRN")
def local_response_norm(call: NodeCall) -> Any:
    """As ``torch.nn.functional.local_response_norm``: squares, averaged over windows of channels."""
    x, size = call.tensor(0), int(call.attribute("size", 1))
    if x.rank < 3 or size < 1:
        raise ShapeError(f"operator LRN over {size} channels of an input of shape {show(x.shape)}")
    squares = call.aten("mul", x, x)
    if x.rank == 3:
        padded = call.aten("constant_pad_nd", call.aten("unsqueeze", squares, 1), [0, 0, size // 2, (size - 1) // 2], 0)
        mean = call.aten("squeeze", call.aten("avg_pool2d", padded, [size, 1], [1, 1]), 1)
    else:
        apart = call.aten("view", squares, [x.shape[0], 1, x.shape[1], x.shape[2], -1])
        padded = call.aten("constant_pad_nd", apart, [0, 0, 0, 0, size // 2, (size - 1) // 2], 0)
        pooled = call.aten("avg_pool3d", padded, [size, 1, 1], [1, 1, 1])
        mean = call.aten("view", call.aten("squeeze", pooled, 1), list(x.shape))
    scale = call.aten("add", call.aten("mul", mean, 1e-4), 1.0)
    return call.aten("div", x, call.aten("pow", scale, 0.75))


@onnx_operator("RoiAlign")
def roi_align(call: NodeCall) -> Any:
    x, boxes = call.tensor(0), call.tensor(1)
    sizes = [int(call.attribute(name, 1)) for name in ("output_height", "output_width")]
    output = call.recorder.tensor((boxes.shape[0], x.shape[1], *sizes), x.dtype)
    return call.recorder.launch("roi_align", [x, boxes], output)


@onnx_operator("DeformConv")
def deform_conv(call: NodeCall) -> Any:
    x, weight, offset = (call.tensor(place) for place in range(3))
    if weight.rank != 4:
        raise UnsupportedOperator("operator DeformConv has a shape rule for images alone")
    pads = list(call.attribute("pads", [0] * 4))
    if pads[:2] != pads[2:]:
        raise UnsupportedOperator("operator DeformConv with padding on one side has no shape rule")
    mask = call.optional(4)
    placeholder = call.recorder.tensor((0,), x.dtype)
    options = [*call.attribute("strides", [1, 1]), *pads[:2], *call.attribute("dilations", [1, 1])]
    return call.aten(
        "torchvision::deform_conv2d", x, weight, offset, placeholder if mask is None else mask, call.optional(3), *options,
        call.attribute("group", 1), call.attribute("offset_group", 1), mask is not None,
    )  # fmt: skip


def _rotated(call: NodeCall, x: Tensor, cosine: Tensor, sine: Tensor, interleaved: bool) -> Tensor:
    """Rows of heads (batch, time, heads, width), rotated up to the table's width."""
    width = 2 * cosine.shape[-1]
    turned, rest = call.aten("slice", x, 3, 0, width), call.aten("slice", x, 3, width)
    cosine, sine = (call.aten("unsqueeze", table, 2) for table in (cosine, sine))
    if interleaved:
        one, other = (call.aten("slice", turned, 3, start, width, 2) for start in (0, 1))
    else:
        one, other = call.aten("chunk", turned, 2, -1)
    real = call.aten("sub", call.aten("mul", cosine, one), call.aten("mul", sine, other))
    imaginary = call.aten("add", call.aten("mul", sine, one), call.aten("mul", cosine, other))
    if interleaved:
        parts = [call.aten("unsqueeze", part, -1) for part in (real, imaginary)]
        made = call.aten("reshape", call.aten("cat", parts, -1), list(turned.shape))
    else:
        made = call.aten("cat", [real, imaginary], -1)
    joined: Tensor = call.aten("cat", [made, rest], -1)
    return joined


@onnx_operator("RotaryEmbedding")
def rotary_embedding(call: NodeCall) -> Any:
    """As ``torch.onnx.ops.rotary_embedding``."""
    x, cosine, sine, positions = call.tensor(0), call.tensor(1), call.tensor(2), call.optional(3)
    if positions is not None:
        cosine, sine = (call.aten("index", table, [positions]) for table in (cosine, sine))
    interleaved = bool(call.attribute("interleaved", 0))
    if x.rank == 4:
        return call.aten(
            "permute", _rotated(call, call.aten("permute", x, [0, 2, 1, 3]), cosine, sine, interleaved), [0, 2, 1, 3]
        )
    heads = call.attribute("num_heads", 0) or x.shape[-1] // (2 * cosine.shape[-1])
    apart = call.aten("reshape", x, [x.shape[0], x.shape[1], heads, -1])
    return call.aten("reshape", _rotated(call, apart, cosine, sine, interleaved), list(x.shape))


# com.microsoft: operators of onnxruntime's optimiser


@onnx_operator("SimplifiedLayerNormalization", "com.microsoft::SimplifiedLayerNormalization")
def simplified_layer_norm(call: NodeCall) -> Any:
    x = call.tensor(0)
    return call.aten("rms_norm", x, [x.shape[-1]], call.tensor(1))


@onnx_operator("com.microsoft::SkipLayerNormalization", "com.microsoft::SkipSimplifiedLayerNormalization")
def skip_layer_norm(call: NodeCall) -> Any:
    """Sum with an optional bias, then its norm; the sum is also an output."""
    simplified = "Simplified" in call.node.operator
    bias = call.optional(3 if simplified else 4)
    total = call.aten("add", call.tensor(0), call.tensor(1))
    if bias is not None:
        total = call.aten("add", total, bias)
    sizes = [total.shape[-1]]
    if simplified:
        return call.aten("rms_norm", total, sizes, call.tensor(2)), None, None, total
    return call.aten("layer_norm", total, sizes, call.tensor(2), call.optional(3)), None, None, total


@onnx_operator("com.microsoft::EmbedLayerNormalization", "com.microsoft::QEmbedLayerNormalization")
def embed_layer_norm(call: NodeCall) -> Any:
    """Embeddings of words, positions and segments, their sum, and its norm."""
    words = call.aten("embedding", call.tensor(2), call.tensor(0))
    places = call.aten("slice", call.tensor(3), 0, 0, call.tensor(0).shape[-1])
    total = call.aten("add", words, places)
    if call.given(1) and call.given(4):
        total = call.aten("add", total, call.aten("embedding", call.tensor(4), call.tensor(1)))
    if call.node.operator.startswith("Q"):  # the sum is made floating-point as it is made
        total = call.recorder.tensor(total.shape, "float32", of=total)
        weight, bias = (call.recorder.tensor(call.tensor(at).shape, "float32", parameter=True) for at in (5, 6))
    else:
        weight, bias = call.tensor(5), call.tensor(6)
    return call.aten("layer_norm", total, [total.shape[-1]], weight, bias), None, total


@onnx_operator("com.microsoft::FusedMatMul")
def fused_matmul(call: NodeCall) -> Any:
    """Product of transposed operands: first dimension behind the batch's, last two swapped."""
    left, right = (
        _batch_first(call, x) if call.attribute(f"transBatch{side}", 0) else x
        for side, x in (("A", call.tensor(0)), ("B", call.tensor(1)))
    )
    left = call.aten("transpose", left, -1, -2) if call.attribute("transA", 0) else left
    right = call.aten("transpose", right, -1, -2) if call.attribute("transB", 0) else right
    made = call.aten("matmul", left, right)
    factor = call.attribute("alpha", 1.0)
    return made if factor == 1 else call.aten("mul", made, factor)


def _batch_first(call: NodeCall, x: Tensor) -> Any:
    return call.aten("permute", x, [*range(1, x.rank - 1), 0, x.rank - 1])


def _activated(call: NodeCall, x: Tensor) -> Any:
    name = call.attribute("activation", "")
    if name and name not in _ACTIVATIONS:
        raise UnsupportedOperator(f"operator {call.node.key} with activation {name!r:.40} has no shape rule")
    return x if not name else call.aten(_ACTIVATIONS[name], x)


@onnx_operator("com.microsoft::FusedGemm")
def fused_gemm(call: NodeCall) -> Any:
    return _activated(call, gemm(call))


@onnx_operator("com.microsoft::FusedConv")
def fused_conv(call: NodeCall) -> Any:
    made = conv(call)
    if call.given(3):
        made = call.aten("add", made, call.tensor(3))
    return _activated(call, made)


@onnx_operator("com.microsoft::Gelu", "com.microsoft::FastGelu", "com.microsoft::BiasGelu")
def gelu(call: NodeCall) -> Any:
    x = call.tensor(0)
    return call.aten("gelu", call.aten("add", x, call.tensor(1)) if call.given(1) else x)


@onnx_operator("com.microsoft::QuickGelu")
def quick_gelu(call: NodeCall) -> Any:
    x = call.tensor(0)
    return call.aten("mul", x, call.aten("sigmoid", call.aten("mul", x, call.attribute("alpha", 1.702))))


@onnx_operator("com.microsoft::MatMulNBits")
def matmul_of_few_bits(call: NodeCall) -> Any:
    """Product with a packed matrix; its traffic is packed data with a scale per block."""
    x, packed, scales = (call.tensor(place) for place in range(3))
    inner, columns = int(call.attribute("K", 0)), int(call.attribute("N", 0))
    if not x.rank or x.shape[-1] != inner or columns < 1:
        raise ShapeError(f"operator MatMulNBits of {inner} rows and {columns} columns on an input of shape {show(x.shape)}")
    rows = x.numel // max(inner, 1)
    params = {"m": rows, "k": inner, "n": columns, "batch": 1, "bias": False, "weight_bits": int(call.attribute("bits", 4))}
    flat = call.aten("reshape", x, [rows, inner])
    output = call.recorder.tensor((rows, columns), x.dtype)
    zeros = call.optional(3)
    dtype = f"int{params['weight_bits']}"
    kept = (packed, scales, zeros)
    made = call.recorder.launch("matmul", [flat], output, params, kept, dtype=dtype if dtype in PACKED_TYPES else "")
    made = call.aten("view", made, [*x.shape[:-1], columns])
    return call.aten("add", made, call.tensor(5)) if call.given(5) else made


@onnx_operator("com.microsoft::GatherBlockQuantized")
def gather_few_bits(call: NodeCall) -> Any:
    """Rows of a packed table, with their scales, as floating-point numbers."""
    table, rows, scales = (call.tensor(place) for place in range(3))
    bits, place = int(call.attribute("bits", 4)), dim_of(table.rank, call.attribute("gather_axis", 0))
    packs = 8 // bits if table.dtype == "uint8" and bits else 1
    shape = [*table.shape[:-1], table.shape[-1] * packs]
    shape[place : place + 1] = rows.shape
    share = rows.numel / max(table.shape[place], 1)
    kept = [part for part in (table, scales, call.optional(3)) if part is not None]
    read = [call.recorder.tensor((math.ceil(part.nbytes * share),), "uint8") for part in kept]
    output = call.recorder.tensor(shape, scales.dtype)
    return call.recorder.launch("embedding", [rows], output, {"weight": table.shape}, read)


@onnx_operator("ai.onnx.ml::ZipMap")
def zip_map(call: NodeCall) -> Any:
    call.recorder.host("zip_map")
    return call.value(0)


# Plug-ins of TensorRT


def _plugin(what: str, *names: str) -> None:
    why = f"it is TensorRT's plug-in for {what}, no operator of ONNX; export the network without it, or accept its end"
    data_dependent(why, *names, *(f"TRT::{name}" for name in names))


_plugin(
    "non-maximum suppression",
    *("EfficientNMS_TRT", "EfficientNMSLandmark_TRT", "EfficientNMSX_TRT", "EfficientRotatedNMS_TRT"),
    *("BatchedNMS_TRT", "BatchedNMSDynamic_TRT", "NMS_TRT", "YoloLayer_TRT"),
)
_plugin("regions of interest", "ROIAlign_TRT", "CropAndResize", "PyramidROIAlign_TRT", "MultilevelCropAndResize_TRT")
