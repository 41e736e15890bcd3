# SPDX-License-Identifier: Apache-2.0
"""Floating-point operations and memory traffic of one kernel invocation, from its shapes and parameters.

Convolutions and matrix products count as ``torch.utils.flop_counter`` counts them (a multiply-add is two operations); the other
kinds count what their textbook definition does to each element, so that arithmetic intensity means the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .network import ParamValue, Shape, numel

#: Operations per output element of pointwise and normalising kinds; the transcendental ones count as PyTorch's kernels do them.
PER_ELEMENT: Mapping[str, int] = {
    "batch_norm": 2,
    "layer_norm": 8,
    "group_norm": 8,
    "instance_norm": 8,
    "rms_norm": 5,
    "softmax": 5,
    "log_softmax": 5,
    "sigmoid": 4,
    "silu": 5,
    "gelu": 8,
    "tanh": 6,
    "elu": 4,
    "mish": 10,
    "softplus": 6,
    "hardswish": 4,
    "hardsigmoid": 3,
    "hardtanh": 2,
    "exp": 4,
    "log": 4,
    "sqrt": 1,
    "rsqrt": 2,
    "pow": 4,
    "addcmul": 3,
    "lerp": 3,
}

#: Kinds that only move data.
MOVES: frozenset[str] = frozenset(
    (
        "cat",
        "clone",
        "copy",
        "stack",
        "index_select",
        "gather",
        "embedding",
        "pad",
        "constant_pad_nd",
        "reflection_pad2d",
        "replication_pad2d",
        "roll",
        "flip",
        "fill",
        "zeros",
        "ones",
        "full",
        "arange",
        "empty",
        "index",
        "repeat",
        "masked_fill",
        "where",
        "to",
        "pixel_shuffle",
        "pixel_unshuffle",
        "channel_shuffle",
        "tril",
        "triu",
        "scatter",
        "index_put",
        "upsample_nearest1d",
        "upsample_nearest2d",
        "upsample_nearest3d",
        "im2col",
        "col2im",
        "repeat_interleave",
        "sort",
        "topk",
        "nonzero",
        "unique",
    )
)

REDUCTIONS: frozenset[str] = frozenset(
    (
        "mean",
        "sum",
        "amax",
        "amin",
        "max",
        "min",
        "argmax",
        "argmin",
        "prod",
        "norm",
        "var",
        "std",
        "cumsum",
        "any",
        "all",
        "logsumexp",
    )
)


def _sizes(value: ParamValue) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else ()


def _integer(value: ParamValue) -> int:
    return value if isinstance(value, int) else 0


def flops(kind: str, inputs: Sequence[Shape], output: Shape, params: Mapping[str, ParamValue]) -> int:
    """Operations of one invocation."""
    if kind.startswith("conv_transpose"):
        return 2 * numel(inputs[0]) * numel(_sizes(params["weight"])[1:]) if inputs else 0
    if kind.startswith("conv"):
        return 2 * numel(output) * numel(_sizes(params["weight"])[1:])
    if kind == "matmul":
        return 2 * _integer(params["m"]) * _integer(params["k"]) * _integer(params["n"]) * _integer(params["batch"])
    if kind == "attention":
        query, key, value = inputs[:3]
        return 2 * numel(query) * key[-2] + 2 * numel(query[:-1]) * numel(value[-2:])
    if kind in ("lstm", "gru", "rnn"):
        return _recurrent(kind, inputs[0], params)
    if kind in MOVES:
        return 0
    if kind in REDUCTIONS:
        return numel(inputs[0]) if inputs else 0
    if kind.startswith(("max_pool", "avg_pool")):
        return numel(output) * numel(_sizes(params["kernel_size"]))
    if kind.startswith("adaptive_"):
        return numel(inputs[0])
    if kind.startswith("upsample_bilinear"):
        return 11 * numel(output)
    if kind.startswith("upsample_bicubic"):
        return 60 * numel(output)
    return PER_ELEMENT.get(kind, 1) * numel(output)


def _recurrent(kind: str, sequence: Shape, params: Mapping[str, ParamValue]) -> int:
    """The matrix products of every gate, layer, direction and step."""
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[kind]
    hidden, layers, directions = (_integer(params[name]) for name in ("hidden", "layers", "directions"))
    state = _integer(params.get("projection", hidden))
    widths = [sequence[-1]] + [state * directions] * (layers - 1)
    projection = hidden * state if "projection" in params else 0
    steps = numel(sequence[:-1])
    return 2 * steps * directions * sum(gates * hidden * (width + state) + projection for width in widths)
