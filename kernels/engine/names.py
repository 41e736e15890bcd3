# SPDX-License-Identifier: Apache-2.0
"""TensorRT's names, and the corresponding kinds of kernels.

A fused layer keeps its product's kind if no kind covers the fusion; ``epilogue`` then lists the fused kinds in order, joined by
``+``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..kinds import KINDS
from ..network import numel

#: Activations in a product's epilogue (``ActivationType`` of NvInfer.h, and the kernels' own), and in separate layers.
ACTIVATIONS: Mapping[str, str] = {
    "RELU": "relu", "CLIPPED_RELU": "hardtanh", "CLIP": "clamp", "LEAKY_RELU": "leaky_relu", "SIGMOID": "sigmoid",
    "TANH": "tanh", "ELU": "elu", "SELU": "elu", "CELU": "celu", "SOFTPLUS": "softplus", "HARD_SIGMOID": "hardsigmoid",
    "HARD_SWISH": "hardswish", "HARDSWISH": "hardswish", "SWISH": "silu", "SILU": "silu", "GELU": "gelu", "GELU_ERF": "gelu",
    "GELU_TANH": "gelu", "MISH": "mish", "THRESHOLDED_RELU": "threshold",
}  # fmt: skip
NO_ACTIVATION = ("", "NONE")

#: Operations of pointwise, unary, elementwise, reduction and Myelin layers, without decoration.
OPERATIONS: Mapping[str, str] = {
    "plus": "add", "add": "add", "sum": "add", "minus": "sub", "sub": "sub", "mul": "mul", "prod": "mul", "div": "div",
    "floordiv": "floor_divide", "max": "maximum", "min": "minimum", "pow": "pow", "exp": "exp", "log": "log", "sqrt": "sqrt",
    "rsqrt": "rsqrt", "rsqr": "rsqrt", "recip": "reciprocal", "reciprocal": "reciprocal", "abs": "abs", "neg": "neg",
    "sin": "sin", "cos": "cos", "tan": "tan", "sinh": "sinh", "cosh": "cosh", "asin": "asin", "acos": "acos", "atan": "atan",
    "ceil": "ceil", "floor": "floor", "floo": "floor", "round": "round", "erf": "erf", "sign": "sign", "not": "logical_not",
    "and": "logical_and", "or": "logical_or", "xor": "logical_xor", "equal": "eq", "equa": "eq", "greater": "gt",
    "grea": "gt", "less": "lt", "isinf": "isinf", "isnan": "isnan", "relu": "relu", "sigmoid": "sigmoid", "sigm": "sigmoid",
    "tanh": "tanh", "clip": "clamp", "leakyrelu": "leaky_relu", "elu": "elu", "gelu": "gelu", "swish": "silu", "silu": "silu",
    "hardsigmoid": "hardsigmoid", "softplus": "softplus", "cast": "to", "select": "where", "sele": "where",
}  # fmt: skip
REDUCTIONS: Mapping[str, str] = {
    "avg": "mean", "mean": "mean", "sum": "sum", "max": "amax", "min": "amin", "prod": "prod", "norm": "norm", "redu": "sum"
}  # fmt: skip
#: Words of Myelin's kernels for moved data.
_MOVES = frozenset(
    [
        "cast", "tran", "resh", "move", "slic", "conc", "rep", "repl", "unsq", "sque", "gath", "scat", "fill", "copy", "perm",
        "pad", "expa", "bcst", "tile", "spli", "iden", "cons", "sel",
    ]
)  # fmt: skip
_MYELIN = re.compile(r"__myl_([A-Z][A-Za-z]*)")
_WORD = re.compile(r"[A-Z][a-z]*")

#: Prefix and suffix of a layer type: the library, and the version of the implementation.
_DECORATION = re.compile(r"^(cask|cudnn|cublaslt|cublas|cutensor|cuda|tiled|generic|trt)|(v\d+|_v\d+)$")

#: Layers that launch nothing: planned away, done once at load time, or run by the host.
NOTHING = frozenset(
    ["noop", "constant", "shapecall", "signal", "wait", "trainstation", "trainstation1", "assertion", "identityshape"]
)
#: Layers that only move data, and their kinds.
MOVES: Mapping[str, str] = {
    "shuffle": "clone", "slice": "clone", "copy": "clone", "identity": "clone", "concatenation": "cat", "concat": "cat",
    "gather": "gather", "scatter": "scatter", "padding": "constant_pad_nd", "select": "where", "fill": "fill", "cast": "to",
    "squeeze": "clone", "unsqueeze": "clone", "topk": "topk", "onehot": "scatter", "reversesequence": "flip",
    "stridedslice": "clone", "raggedsoftmax": "softmax",
}  # fmt: skip
#: Layers with unknown work, and the reason.
OPAQUE: Mapping[str, str] = {
    "plugin": "its computation is not in the file",
    "pluginv2": "its computation is not in the file",
    "myelin": "a block that an older TensorRT compiled as one; TensorRT 10 lists its kernels",
    "dla": "it runs on the DLA, whose clock is none of those that are set",
    "nms": "how many boxes stay depends on the numbers in them",
    "nonzero": "how much comes out depends on the numbers that go in",
    "loop": "how often it repeats is not in the file",
    "condition": "which branch runs is not in the file",
    "conditional": "which branch runs is not in the file",
    "recurrence": "how often it repeats is not in the file",
    "rnn": "its gates and steps are not in the file",
}


def family(layer_type: str) -> str:
    """A layer's type without decoration: ``CaskGemmConvolution`` is a ``gemmconvolution``, ``PluginV2Ext`` a ``plugin``."""
    name = layer_type.lower()
    if name.startswith("plugin"):
        return "plugin"
    before = ""
    while name != before:
        before, name = name, _DECORATION.sub("", name)
    return re.sub(r"[^a-z0-9]", "", name)


def myelin_operations(text: str) -> tuple[str, ...]:
    found = _MYELIN.search(text)
    return tuple(_whole(word.lower()) for word in _WORD.findall(found[1])) if found else ()


def _whole(word: str) -> str:
    """An operation's full name if TensorRT truncated it after three letters: ``tra`` is ``tran``."""
    known = (*OPERATIONS, *REDUCTIONS, *_MOVES)
    return word if word in known or len(word) < 3 else min((name for name in known if name.startswith(word)), default=word)


def moves_only(operation: str) -> bool:
    return operation in _MOVES


def operations_of(kind: str, elements: int) -> int:
    """Operations of a pointwise kind on this number of elements; one each for an unknown kind."""
    row = KINDS.get(kind)
    shape = (elements,)
    return elements if row is None or row.flops is None else row.flops([shape, shape], shape, {})


def work_of(kinds: Sequence[str], elements: int) -> int:
    return sum(operations_of(kind, elements) for kind in kinds)


def largest(shapes: Sequence[tuple[int, ...]]) -> int:
    return max(map(numel, shapes), default=0)
