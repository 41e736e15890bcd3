# SPDX-License-Identifier: Apache-2.0
"""Prediction of TensorRT's fusions by rules, without an engine.

1. A batch norm, or a constant scale or shift of channels, after a convolution is folded into its weights and a bias.
2. A convolution absorbs a sum with a tensor of its own shape, if only the sum reads it, then a relu, a clip or a leaky relu. Of
   two convolutions before a sum the last absorbs it.
3. Convolutions of one tensor that differ only in their filters are merged, if they have no sum and end alike; so are products
   of one tensor with weights.
4. In half precision, other convolutions, neither the image's nor grouped, absorb another activation, then a sum of their shape.
5. In 8 bits, a tensor is converted once. A convolution whose output is converted before it is added absorbs no sum. One with a
   sum reads the other operand and writes in 8 bits, if both are converted. An image's convolution with a relu absorbs the next
   pool.
6. A product absorbs the sum with its bias, then a relu or a clip; in half precision any activation. There two products around a
   softmax, with a scale or a mask between them, are one kernel of attention.
7. A mean over whole images is a pool.
8. Other pointwise work forms groups like PyTorch's, without concatenations. A norm of rows absorbs the group that it reads.
9. Concatenations are no layers; for copies see :class:`.ported_layer.CopyRewriter`.

Tactics chosen at build time are unknown: a product of one row may become a reduction, a deep convolution may leave its
activation to the next layer. The rules follow the Layer Fusion Catalog of TensorRT's documentation and published engines.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ..errors import ModelError
from ..fusion import FusionUnit, LaunchGraph, fuse_pointwise
from ..network import Network
from . import absorbing
from .absorbing import NORMS, PARALLEL
from .fused import calibrated, halved, launch
from .ported_layer import CONVOLUTIONS, CopyRewriter
from .program import RUNTIME

ENGINE_TYPES: Mapping[str, str] = {"engine": "float32", "engine-half": "float16", "engine-int8": "int8"}
"""Element types of engines, by their names for ``--as``."""


def engine_of(compiled: str) -> tuple[str, str]:
    """Name and element type of the engine of one of :data:`ENGINE_TYPES`; both empty for the framework."""
    return (RUNTIME.lower(), ENGINE_TYPES[compiled]) if compiled else ("", "")


_BETWEEN = frozenset(["mul", "div", "add", "where", "masked_fill", "mul_scalar", "div_scalar"])
_KEPT = frozenset(["cat"])


def as_engine(network: Network, dtype: str = "float32") -> Network:
    """Launches of the engine that TensorRT would build of an unfused network.

    Args:
        dtype: ``float32``, ``float16`` (``trtexec --fp16``; launches in 8 bits keep them) or ``int8`` (``trtexec --int8
            --fp16``).

    Raises:
        ModelError: it is compiled already, its reads are unknown, or a launch lacks members of its kind.
    """
    if network.runtime:
        raise ModelError(f"network {network.name!r:.80} is listed as {network.runtime} launches it already")
    graph = LaunchGraph(network)
    try:
        made = _fused(network, graph, half=dtype != "float32")
        return replace(made, calls=tuple(calibrated(made.launches, made.reads))) if dtype == "int8" else made
    except (LookupError, TypeError, ValueError) as error:  # lists may come from other programs
        raise ModelError(f"network {network.name!r:.80}: a launch lacks a member of its kind ({error!r:.80})") from error


def _fused(network: Network, graph: LaunchGraph, *, half: bool) -> Network:
    absorbing.quantize_once(graph)
    convolutions = [number for number in reversed(range(len(graph.launches))) if graph.launches[number].kind in CONVOLUTIONS]
    for number in convolutions:
        absorbing.take_in(graph, number)
        absorbing.stay_in_eight_bits(graph, number)
        absorbing.take_in_pool(graph, number)
    if half:
        for number in _of_kind(graph, "softmax"):
            _attend(graph, number)
    for number in _of_kind(graph, "matmul"):
        if len(graph.units[number].members) == 1:
            absorbing.take_in_bias(graph, number, half=half)
    absorbing.join_alike(graph)
    if half:
        for number in convolutions:
            absorbing.activate(graph, number)
    fuse_pointwise(graph, _KEPT)
    for number in _of_kind(graph, *NORMS):
        absorbing.norm_takes_in(graph, number)
    parallel = {number for number, unit in enumerate(graph.order()) if unit.kind == PARALLEL}
    made = graph.network(lambda unit: launch(graph, unit))
    copied = CopyRewriter(halved(made) if half else made.launches, made.reads, parallel, half=half)
    return replace(made, calls=tuple(copied.launches), reads=tuple(copied.reads), runtime=RUNTIME)


def _of_kind(graph: LaunchGraph, *kinds: str) -> list[int]:
    return [number for number, launch in enumerate(graph.launches) if launch.kind in kinds]


def _attend(graph: LaunchGraph, number: int) -> None:
    after = graph.only_reader(number)
    if after is None or after[1] != 0 or graph.launches[after[0]].kind != "matmul":
        return
    between = [number]
    first = graph.reads[number][0]
    while first >= 0 and graph.launches[first].kind in _BETWEEN and graph.only_reader(first):
        between.append(first)
        first = next((writer for writer in graph.reads[first] if writer >= 0), -1)
    if first < 0 or graph.launches[first].kind != "matmul" or not graph.only_reader(first):
        return
    unit = FusionUnit("attention")
    for member in (first, *between, after[0]):
        graph.merge(unit, graph.units[member])
