# SPDX-License-Identifier: Apache-2.0
"""ONNX operators that are layers: convolutions, products, pools, norms, attention, recurrence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ModelError, ShapeError
from ..network import numel
from ..operators.layers.pooling import pool
from ..operators.layout import broadcast, contiguous, dim_of, show
from ..operators.recorder import Recorder
from ..operators.values import Tensor
from .call import NodeCall, after_padding, as_aten, automatic, onnx_operator, paired


@onnx_operator("Conv")
def conv(call: NodeCall) -> Any:
    """A zero bias counts as none: newer exporters write one for every convolution without bias."""
    x, weight = call.tensor(0), call.tensor(1)
    rank = weight.rank - 2
    strides, dilations = call.attribute("strides", [1] * rank), call.attribute("dilations", [1] * rank)
    pads = automatic(call, x, weight.shape[2:], strides, dilations)
    x, padding = after_padding(call, x, pads, rank)
    return call.aten(f"conv{rank}d", x, weight, bias_of(call, 2), strides, padding, dilations, call.attribute("group", 1))


def bias_of(call: NodeCall, place: int) -> Tensor | None:
    bias = call.optional(place)
    return None if bias is not None and bias.value is not None and not any(bias.value) else bias


@onnx_operator("ConvTranspose")
def conv_transpose(call: NodeCall) -> Any:
    """One-sided padding, or an output shape's, becomes symmetric with an output padding for the rest."""
    x, weight = call.tensor(0), call.tensor(1)
    rank = weight.rank - 2
    ones = [1] * rank
    strides, gaps = call.attribute("strides", ones), call.attribute("dilations", ones)
    more, wanted = list(call.attribute("output_padding", [0] * rank)), call.attribute("output_shape")
    how, pads = call.attribute("auto_pad", "NOTSET"), list(call.attribute("pads", [0] * (2 * rank)))
    whole = [
        (size - 1) * step + gap * (width - 1) + 1 + extra
        for size, step, gap, width, extra in zip(x.shape[2:], strides, gaps, weight.shape[2:], more, strict=True)
    ]
    if wanted or how.startswith("SAME"):
        sizes = wanted[-rank:] if wanted else [size * step for size, step in zip(x.shape[2:], strides, strict=True)]
        excess = [total - size if wanted else max(total - size, 0) for total, size in zip(whole, sizes, strict=True)]
        starts = [size // 2 if how == "SAME_UPPER" else size - size // 2 for size in excess]
        pads = starts + [size - start for size, start in zip(excess, starts, strict=True)]
    elif how == "VALID":
        pads = [0] * (2 * rank)
    both = [start + end for start, end in paired(pads)]
    even = [(max(size, 0) + 1) // 2 for size in both]
    more = [extra + 2 * pad - size for extra, pad, size in zip(more, even, both, strict=True)]
    arguments = (strides, even, more, call.attribute("group", 1), gaps)
    return call.aten(f"conv_transpose{rank}d", x, weight, bias_of(call, 2), *arguments)


def flipped(recorder: Recorder, x: Tensor) -> Tensor:
    if x.rank != 2:
        raise ShapeError(f"a matrix was expected, not a tensor of shape {show(x.shape)}")
    return recorder.tensor(x.shape[::-1], x.dtype, x.strides[::-1], parameter=x.parameter, of=x)


def in_rows(call: NodeCall, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Operands of a ``Gemm`` as those of a linear layer."""
    left = flipped(call.recorder, left) if call.attribute("transA", 0) else left
    return left, right if call.attribute("transB", 0) else flipped(call.recorder, right)


@onnx_operator("Gemm")
def gemm(call: NodeCall) -> Any:
    return call.aten("linear", *in_rows(call, call.tensor(0), call.tensor(1)), call.optional(2))


as_aten("matmul", "MatMul", operands=2)


@onnx_operator("aten::linear")
def linear(call: NodeCall) -> Any:
    """Linear layer, or a product and a sum if the row is no bias."""
    x, matrix, row = (call.tensor(place) for place in range(3))
    if matrix.rank == 2 and row.shape == matrix.shape[1:]:
        return call.aten("linear", x, flipped(call.recorder, matrix), row)
    return call.aten("add", call.aten("matmul", x, matrix), row)


@onnx_operator("aten::baddbmm")
def product_and_sum(call: NodeCall) -> Any:
    left, right, added = (call.tensor(place) for place in range(3))
    shape = (*left.shape[:-1], right.shape[-1])
    if not left.rank == right.rank == 3 or left.shape[0] != right.shape[0] or broadcast([added.shape, shape]) != shape:
        return NotImplemented
    return call.aten("baddbmm", added, left, right)


def _spreads(shape: Sequence[int], wide: Sequence[int]) -> bool:
    return len(shape) <= len(wide) and all(size in (1, other) for size, other in zip(shape[::-1], wide[::-1], strict=False))


@onnx_operator("aten::attention")
def attention(call: NodeCall) -> Any:
    """Attention, if transposed and repeated keys and values fit the queries."""
    query, key, value = (call.tensor(place) for place in range(3))
    turned, values, *triangle = call.aside(call.attribute("turned", []))
    (*lead, length, depth), (*keys, depths, count) = query.shape, turned.shape
    shared, scores = bool(call.attribute("shared", 0)), (*lead, length, count)
    masks = [call.optional(3), *triangle]
    if (
        (depths, values.shape[-2]) != (depth, count)
        or call.attribute("axis", -1) not in (-1, len(scores) - 1)
        or not all(_spreads(part, lead) for part in (keys, values.shape[:-2]))
        or not all(mask is None or _spreads(mask.shape, scores) for mask in masks)
    ):
        return NotImplemented
    repeated = len(lead) == 2 and (lead[0], key.shape[1], count)
    if shared and (not repeated or key.shape != (*repeated, depth) or value.shape != (*repeated, values.shape[-1])):
        return NotImplemented
    order = call.attribute("perm")
    if order is not None:
        key = call.aten("permute", key, [*order[:-2], order[-1], order[-2]])
    if not shared and list(key.shape[:-2]) != keys:  # the exporter joined its reshape with the next
        key = call.aten("reshape", key, [*keys, count, depth])
    grouped = query.rank == key.rank == 4 and query.shape[1] != key.shape[1]
    causal, mask = bool(call.attribute("causal", 0)), None if call.attribute("unmasked", 0) else masks[0]
    return call.aten("scaled_dot_product_attention", query, key, value, mask, 0.0, causal, None, grouped)


@onnx_operator("aten::contiguous")
def make_contiguous(call: NodeCall) -> Tensor:
    x = call.tensor(0)
    if not call.attribute("assumed", 0) or x.is_contiguous():
        return contiguous(call.recorder, x)
    return call.recorder.launch("clone", [x], call.recorder.tensor(x.shape, x.dtype), {"assumed": True})


@onnx_operator("BatchNormalization")
def batch_norm(call: NodeCall) -> Any:
    x, scale, shift = (call.tensor(place) for place in range(3))
    if not call.attribute("training_mode", 0):
        return call.aten("batch_norm", x, scale, shift, call.tensor(3), call.tensor(4), False, 0.1, 1e-5)
    if not x.parameter:  # a weight may be standardised as it runs
        raise ModelError("BatchNormalization in training mode: export the model after calling its eval()")
    return call.aten("batch_norm", x, scale, shift, None, None, True, 0.1, 1e-5)


@onnx_operator("LayerNormalization", "RMSNormalization")
def layer_norm(call: NodeCall) -> Any:
    x = make_contiguous(call) if call.attribute("assumed", 0) else call.tensor(0)
    axis = call.attribute("axis", -1)
    sizes = list(x.shape[dim_of(x.rank, axis) :])
    if call.node.operator == "RMSNormalization":
        return call.aten("rms_norm", x, sizes, call.optional(1))
    made = call.aten("layer_norm", x, sizes, call.optional(1), call.optional(2))
    moments = (*x.shape[: x.rank - len(sizes)], *[1] * len(sizes))
    return (made, *(call.recorder.tensor(moments, "float32") for _ in call.node.outputs[1:]))


@onnx_operator("aten::layer_norm", "aten::rms_norm")
def norm_in_pieces(call: NodeCall) -> Any:
    """Norm over the last dimensions, with a scale and a shift of their sizes."""
    x, name = call.tensor(0), call.node.operator
    axes = call.integers("axes", 2 if name == "rms_norm" else len(call.inputs)) or []
    affine = [call.optional(place) for place in range(1, 2 if name == "rms_norm" else 3)]
    first = x.rank - len(axes)
    sizes = x.shape[first:]
    if not axes or sorted(dim_of(x.rank, axis) for axis in axes) != list(range(first, x.rank)):
        return NotImplemented
    if any(part is not None and part.shape != sizes for part in affine):
        return NotImplemented
    return call.aten(name, make_contiguous(call) if call.attribute("assumed", 0) else x, list(sizes), *affine)


@onnx_operator("InstanceNormalization")
def instance_norm(call: NodeCall) -> Any:
    return call.aten("instance_norm", *(call.tensor(place) for place in range(3)), None, None, True, 0.1, 1e-5)


@onnx_operator("aten::group_norm")
def group_norm_in_pieces(call: NodeCall) -> Any:
    """Group norm, if groups are normed per batch element with scalar scale and shift per channel."""
    x, groups = call.tensor(0), call.attribute("num_groups", 1)
    if x.rank < 2 or not x.numel or x.shape[1] % groups:
        return NotImplemented
    apart = (x.shape[0], groups, x.numel // (x.shape[0] * groups))
    for place, own, wanted in ((3, x.shape, apart), (4, apart, x.shape)):
        kept = [own[at] if size == 0 and at < len(own) else size for at, size in enumerate(call.integers("", place) or [])]
        if len(kept) != len(wanted) or any(size not in (-1, want) for size, want in zip(kept, wanted, strict=True)):
            return NotImplemented
    channels = (x.shape[1], *[1] * (x.rank - 2))
    if any(call.tensor(place).shape not in (channels, (1, *channels)) for place in (1, 2)):
        return NotImplemented
    return group_norm(call)


@onnx_operator("GroupNormalization")
def group_norm(call: NodeCall) -> Any:
    return call.aten("group_norm", call.tensor(0), call.attribute("num_groups", 1), call.optional(1), call.optional(2))


def _in_windows(call: NodeCall) -> tuple[Tensor, tuple[list[int], list[int], list[int], list[int], bool]]:
    """Input of a pool; its window, strides, padding and dilations; and True if the last window may exceed the end.

    With more padding on one side, the end gets as much as the last window needs that starts before it.
    """
    x, kernel = call.tensor(0), call.attribute("kernel_shape", [])
    strides, gaps = (call.attribute(name, [1] * len(kernel)) for name in ("strides", "dilations"))
    ceil, pads = bool(call.attribute("ceil_mode", 0)), automatic(call, x, kernel, strides, gaps)
    if ceil and pads[: len(kernel)] != pads[len(kernel) :]:
        ends = []
        for size, width, step, gap, (start, end) in zip(x.shape[2:], kernel, strides, gaps, paired(pads), strict=True):
            reach = gap * (width - 1) + 1
            last = min(-(-(size + start + end - reach) // step), (size + start - 1) // step)
            ends.append(max(last * step + reach - size - start, 0))
        ceil, pads = False, [*pads[: len(kernel)], *ends]
    x, padding = after_padding(call, x, pads, len(kernel))
    return x, (kernel, strides, padding, gaps, ceil)


@onnx_operator("MaxPool")
def max_pool(call: NodeCall) -> Any:
    x, windows = _in_windows(call)
    indices = "_with_indices" if len(call.node.outputs) > 1 else ""
    return call.aten(f"max_pool{len(windows[0])}d{indices}", x, *windows)


@onnx_operator("AveragePool")
def average_pool(call: NodeCall) -> Any:
    """Windows of one element are an exporter's form of adaptive pooling to the input size."""
    x, (kernel, strides, padding, gaps, ceil) = _in_windows(call)
    rank = len(kernel)
    if set(gaps) != {1}:  # PyTorch has no such pool
        return pool(call.recorder, f"avg_pool{rank}d", x, kernel, strides, padding, gaps, ceil, {"dilation": tuple(gaps)})
    if set(kernel) == {1} and set(strides) == {1} and not any(padding):
        return call.aten(f"adaptive_avg_pool{rank}d", x, list(x.shape[-rank:]))
    return call.aten(f"avg_pool{rank}d", x, kernel, strides, padding, ceil)


@onnx_operator("LpPool")
def norm_pool(call: NodeCall) -> Any:
    """As ``torch.nn.functional.lp_pool2d``: a pool of powers, and a root of its size."""
    power = call.attribute("p", 2)
    powers = [call.aten("pow", call.tensor(0), power), *call.inputs[1:]]
    made = average_pool(NodeCall(call.recorder, call.node, powers, call.version))
    made = call.aten("mul", call.aten("sign", made), call.aten("relu", call.aten("abs", made)))
    return call.aten("pow", call.aten("mul", made, numel(call.attribute("kernel_shape", []))), 1 / max(power, 1))


@onnx_operator("MaxUnpool")
def max_unpool(call: NodeCall) -> Any:
    x, kernel = call.tensor(0), call.attribute("kernel_shape", [])
    rank = len(kernel)
    steps, pads = call.attribute("strides", [1] * rank), paired(call.attribute("pads", [0] * (2 * rank)))
    sizes = [
        (size - 1) * step + width - sum(pad) for size, step, width, pad in zip(x.shape[2:], steps, kernel, pads, strict=True)
    ]
    return call.aten(f"max_unpool{rank}d", x, call.tensor(1), call.integers("", 2) or sizes)


@onnx_operator("GlobalAveragePool")
def global_average_pool(call: NodeCall) -> Any:
    x = call.tensor(0)
    return call.aten(f"adaptive_avg_pool{x.rank - 2}d", x, [1] * (x.rank - 2))


@onnx_operator("GlobalLpPool")
def global_norm_pool(call: NodeCall) -> Any:
    x = call.tensor(0)
    return call.aten("norm", x, call.attribute("p", 2), list(range(2, x.rank)), True)


@onnx_operator("GlobalMaxPool")
def global_max_pool(call: NodeCall) -> Any:
    x = call.tensor(0)
    return call.aten(f"adaptive_max_pool{x.rank - 2}d", x, [1] * (x.rank - 2))[0]


@onnx_operator("LSTM", "GRU", "RNN")
def recurrent(call: NodeCall) -> Any:
    """One layer, as in the file, which splits PyTorch's calls of several layers."""
    x, weight, recurrence = (call.tensor(place) for place in range(3))
    if x.rank != 3 or weight.rank != 3 or recurrence.rank != 3:
        raise ShapeError(f"operator {call.node.key} on an input of shape {show(x.shape)}")
    batch_first = call.attribute("layout", 0)
    if batch_first:
        x = call.aten("permute", x, [1, 0, 2])
    kind = call.node.operator.lower()
    directions, hidden = recurrence.shape[0], recurrence.shape[2]
    state = call.recorder.tensor((directions, x.shape[1], hidden), x.dtype)
    states = [state, state] if kind == "lstm" else [state]
    given = (weight, recurrence)
    weights = [call.recorder.tensor(one.shape[1:], one.dtype, parameter=True, of=one) for one in given] * directions
    biases = call.optional(3)
    if biases is not None:
        weights.append(call.recorder.tensor(biases.shape, x.dtype, parameter=True, of=biases))
    arguments = (weights, biases is not None, 1, 0.0, False, directions == 2, False)
    name = "rnn_tanh" if kind == "rnn" else kind
    out, *last = call.aten(name, x, states if kind == "lstm" else state, *arguments)
    # ONNX keeps the directions in a dimension of their own.
    split = call.aten("view", out, [x.shape[0], x.shape[1], directions, hidden])
    if batch_first:
        return (call.aten("permute", split, [1, 0, 2, 3]), *(call.aten("permute", part, [1, 0, 2]) for part in last))
    return (call.aten("permute", split, [0, 2, 1, 3]), *last)
