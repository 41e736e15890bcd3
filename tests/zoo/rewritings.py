# SPDX-License-Identifier: Apache-2.0
"""What exporters of ONNX rewrite, as tables: other names, calls written out and put together, why a call may be left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from jetdvfs.kernels.network import KernelInvocation, numel
from jetdvfs.kernels.operators.layout import broadcast

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
    "bitwise_and": ["logical_and"],
}
#: Names that stand for at most as many calls as the file has nodes of these operators: of the largest numbers and their places,
#: which PyTorch makes in one call, a file has what is used.
NODES = {"amax": ("ReduceMax", "ReduceMin"), "argmax": ("ArgMax", "ArgMin")}
#: One call, and what it is written as; all on as many elements as it returns, or on four times as many.
FORMS: dict[str, Sequence[Sequence[str]]] = {
    "rsqrt": [["sqrt", "reciprocal"], ["sqrt", "div"]],
    "expm1": [["exp", "sub"]],
    "log10": [["log", "div"]],
    "log2": [["log", "div"]],
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


def in_pieces(parts: Counter[Key], attention: KernelInvocation) -> Counter[Key] | None:
    """Of the parts two products and a softmax that do what an attention does."""
    query, key, _ = attention.inputs
    soft = ("softmax", numel(query[:-1]) * key[-2])
    for first in [part for part in parts if part[0] == "matmul"]:
        needed = Counter([first, ("matmul", attention.flops - first[1]), soft])
        if needed <= parts:
            return needed
    return None


def places_of(launch: KernelInvocation) -> Counter[Key]:
    """What a file may compute the places of an index by several tensors with."""
    several = launch.inputs[1:] if launch.kind == "index" else ()
    if len(several) < 2:
        return Counter()
    sizes = {numel(shape) for shape in several} | {numel(broadcast(several))}
    return Counter({(kind, size): (len(several) - 1) for size in sizes for kind in ("add", "mul")})


def is_whole(launch: KernelInvocation) -> bool:
    """Whether its results are whole numbers."""
    return "int" in launch.dtype


def window(size: int, made: int) -> tuple[int, bool]:
    """The widest window of an adaptive pool along one dimension, and whether others are shorter (``torch._decomp``)."""
    rest = size % made
    ragged = bool(rest and made % rest)
    return size // made + bool(rest) + ragged, ragged


def pooled(launch: KernelInvocation) -> Counter[Key]:
    """What an adaptive mean is written as."""
    sides = list(zip(launch.inputs[0][-2:], launch.output[-2:], strict=True))
    elements, widths = numel(launch.output), [window(size, made) for size, made in sides]
    picked, masks = elements * widths[0][0] * widths[1][0], sum(ragged for _, ragged in widths)
    if not any(size % made for size, made in sides):
        return Counter({("avg_pool2d", elements): 1})
    if not masks:
        return Counter({("index", picked): 1, ("mean", elements): 1})
    needed = Counter({("index", picked): 1, ("add", elements): picked // elements - 1, ("div", elements): 1})
    return needed + Counter({("masked_fill", picked): masks})


def steps_of(layer: KernelInvocation, activation: str) -> tuple[Counter[Key], Counter[Key]]:
    """What a plain recurrent layer is written as, and what may stand beside it (first products, turns, joints).

    Of ``t`` steps: of each a sum and an activation; products of what comes in at once, of the state one by one.
    """
    sizes = [layer.params[name] for name in ("hidden", "layers", "directions")]
    hidden, layers, directions = (size for size in sizes if isinstance(size, int))
    rows, stack, width = numel(layer.inputs[0][:-1]), layers * directions, layer.inputs[0][-1]
    batch = layer.inputs[1][-2] if len(layer.inputs[1]) > 2 else 1
    steps, state = rows // batch, ("matmul", 2 * batch * hidden * hidden)
    needed = Counter({(kind, batch * hidden): steps * stack for kind in ("add", activation)})
    needed[state] += (steps - 1) * stack
    needed["matmul", 2 * rows * width * hidden] += directions
    needed["matmul", 2 * rows * directions * hidden * hidden] += directions * (layers - 1)
    besides = Counter({state: stack, ("cat", rows * hidden): stack, ("cat", rows * hidden * directions): layers})
    for size in (rows * width, rows * hidden):
        besides["flip", size] += layers * (directions - 1)
    return +needed, besides


def with_bias(launches: Sequence[KernelInvocation]) -> Counter[Key]:
    return Counter(key_of(launch) for launch in launches if launch.kind == "matmul" and launch.params.get("bias"))


def takes_bias(launch: KernelInvocation) -> bool:
    return launch.kind.startswith(("conv", "matmul"))


def biased(launches: Sequence[KernelInvocation], size: int) -> int:
    """How many convolutions and products of so many results have a bias."""
    return sum(takes_bias(launch) and numel(launch.output) == size and bool(launch.params.get("bias")) for launch in launches)
