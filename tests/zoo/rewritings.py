# SPDX-License-Identifier: Apache-2.0
"""What exporters of ONNX rewrite, as tables: other names, calls written out and put together, why a call may be left out."""

from __future__ import annotations

from collections.abc import Sequence

from jetdvfs.kernels.network import KernelInvocation, numel

Key = tuple[str, int]

#: Kinds that are compared by their operations; none of them may differ.
WORK = ("conv", "matmul", "attention", "lstm", "gru", "rnn", "deform_conv")
SORTS = {
    "constant": "constants folded",
    "repeated": "repeated calls merged",
    "idle": "idle calls left out",
    "unused": "unused calls left out",
    "layout": "copies left out",
    "widened": "conversions left out",
    "joined": "cat within cat joined",
}
#: What PyTorch calls, and other names that the same work has in a file, on as many elements.
NAMES: dict[str, Sequence[str]] = {
    "index": ["embedding", "gather"],
    "index_select": ["index", "embedding"],
    "embedding": ["index"],
    "gather": ["index"],
    "max": ["amax", "argmax"],
    "min": ["amax", "argmax"],
    "stack": ["cat"],
    "roll": ["cat"],
    "cat": ["roll"],
    "clamp": ["clamp_min", "maximum", "minimum", "hardtanh"],
    "clamp_min": ["clamp", "maximum", "relu"],
    "clamp_max": ["clamp", "minimum"],
    "hardtanh": ["clamp"],
    "where": ["masked_fill"],
    "masked_fill": ["where"],
    **{name: [other for other in ("zeros", "ones", "full") if other != name] for name in ("zeros", "ones", "full", "fill")},
    "rsub": ["sub"],
    "div": ["floor_divide"],
}
#: Names that stand for at most as many calls as the file has nodes of these operators: of the largest numbers and their places,
#: which PyTorch makes in one call, a file has what is used.
NODES = {"amax": ("ReduceMax", "ReduceMin"), "argmax": ("ArgMax", "ArgMin")}
#: One call, and what it is written as; all on as many elements as it returns, or on four times as many.
FORMS: dict[str, Sequence[Sequence[str]]] = {
    "rsqrt": [["sqrt", "reciprocal"], ["sqrt", "div"]],
    "glu": [["sigmoid", "mul"]],
    "pixel_unshuffle": [["clone"]],
    "pixel_shuffle": [["clone"]],
    "silu": [["sigmoid", "mul"]],
    "gelu": [
        ["mul"] * 3 + ["pow", "add", "tanh", "add", "mul"],
        ["mul", "mul", "div", "erf", "add"],
        ["mul"] * 3 + ["erf", "add"],
    ],
    "group_norm": [["batch_norm", "mul", "add"]],
    "gru_cell": [["add"] * 4 + ["sub"] + ["sigmoid"] * 2 + ["mul"] * 2 + ["tanh"]],
    "lstm_cell": [["add*4"] + ["sigmoid"] * 3 + ["mul"] * 3 + ["add"] + ["tanh"] * 2],
    "rnn_cell": [["add", "tanh"], ["add", "relu"]],
    "repeat": [["clone"]],
    "addcmul": [["mul", "add"], ["mul", "mul", "add"]],
    "remainder": [["floor_divide", "mul", "sub"], ["mul", "sub"]],
    "im2col": [["constant_pad_nd", "index", "index", "clone"]],
}
#: What stands beside a call in a file: the guard of ``softplus`` for what is large already; what ``scatter_reduce`` is
#: scattered over first where it does not look at what was there, one above the largest of all or what is above all numbers.
GUARDS: dict[str, Sequence[Sequence[str | Key]]] = {
    "softplus": [["gt", "where"]],
    "scatter_reduce": [["scatter_reduce", ("amax", 1), ("add", 1)], ["scatter_reduce"]],
}


def key_of(launch: KernelInvocation) -> Key:
    if is_work(launch.kind):
        return launch.kind, launch.flops
    return launch.kind, numel(launch.output)


def plain(key: Key) -> Key:
    """Beside a number or beside a tensor of one: in a file both are tensors."""
    return key[0].removesuffix("_scalar"), key[1]


def is_work(kind: str) -> bool:
    return kind.startswith(WORK) and not kind.endswith("_cell")
