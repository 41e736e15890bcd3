# SPDX-License-Identifier: Apache-2.0
"""Operations that TensorRT's convolutions, products and norms absorb from their surroundings."""

from __future__ import annotations

from collections.abc import Sequence

from ..fusion import FusionUnit, LaunchGraph, adds_like
from ..network import numel, written_type
from .ported_layer import CONVOLUTIONS

PARALLEL = "parallel"
"""Kind of a unit of several convolutions, or several products, of one tensor."""
POOLED = "conv2d_pool2d"
EIGHT_BITS = frozenset(["quint8", "qint8"])
NORMS = ("layer_norm", "rms_norm")

# By their name in an epilogue: a clip is a relu with an upper end.
ENDS = {"relu": "relu", "hardtanh": "hardtanh", "clamp": "hardtanh", "leaky_relu": "leaky_relu"}
SCALINGS = frozenset(["mul", "div", "add", "sub", "mul_scalar", "div_scalar", "add_scalar", "sub_scalar"])
_GENERIC = frozenset(["silu", "hardswish", "hardsigmoid", "sigmoid", "tanh", "gelu", "mish", "elu", "celu", "softplus"])
_QUANTIZE = "quantize_per_tensor"
_COLOURS = 4


def take_in(graph: LaunchGraph, number: int) -> None:
    convolution, unit = graph.launches[number], graph.units[number]
    last = number
    while (reader := graph.only_reader(last)) and _folds(graph, *reader, convolution.output):
        graph.merge(unit, graph.units[reader[0]])
        last = reader[0]
    for wanted in ("add", "end"):
        reader = graph.only_reader(last)
        if reader is None:
            return
        launch = graph.launches[reader[0]]
        sums = adds_like(launch, convolution) and written_type(convolution) not in EIGHT_BITS
        if (sums if wanted == "add" else launch.kind in ENDS) and len(graph.units[reader[0]].members) == 1:
            graph.merge(unit, graph.units[reader[0]])
            last = reader[0]


def _folds(graph: LaunchGraph, number: int, place: int, made: Sequence[int]) -> bool:
    launch = graph.launches[number]
    if launch.kind == "batch_norm":
        return place == 0
    if launch.kind not in SCALINGS or launch.output != tuple(made) or (place and launch.kind in ("div", "sub")):
        return False
    others = [at for at in range(len(launch.inputs)) if at != place]
    return all(graph.reads[number][at] < 0 and _per_channel(launch.inputs[at], made) for at in others)


def _per_channel(shape: Sequence[int], made: Sequence[int]) -> bool:
    return numel(shape) == 1 or (len(shape) >= len(made) - 1 and numel(shape) == shape[1 - len(made)] == made[1])


def activate(graph: LaunchGraph, number: int) -> None:
    unit = graph.units[number]
    if unit.kind == PARALLEL or graph.reads[number][0] < 0 or graph.launches[number].params.get("groups") != 1:
        return
    if any(graph.launches[member].kind not in {*CONVOLUTIONS, "batch_norm", *SCALINGS} for member in unit.members):
        return
    reader = graph.only_reader(unit.members[-1])
    if reader is None or graph.launches[reader[0]].kind not in _GENERIC:
        return
    graph.merge(unit, graph.units[reader[0]])
    reader = graph.only_reader(reader[0])
    if reader and adds_like(graph.launches[reader[0]], graph.launches[number]) and len(graph.units[reader[0]].members) == 1:
        graph.merge(unit, graph.units[reader[0]])


def quantize_once(graph: LaunchGraph) -> None:
    seen: dict[tuple[object, ...], FusionUnit] = {}
    for number, launch in enumerate(graph.launches):
        if launch.kind == _QUANTIZE and graph.reads[number][0] >= 0:
            first = seen.setdefault((graph.reads[number][0], launch.inputs, launch.dtype), graph.units[number])
            if first is not graph.units[number]:
                graph.merge(first, graph.units[number])


def stay_in_eight_bits(graph: LaunchGraph, number: int) -> None:
    """Let a convolution with a sum read the other operand and write in 8 bits, if both are converted."""
    unit = graph.units[number]
    sums = [member for member in unit.members if graph.launches[member].kind == "add"]
    if not sums or not _reads_eight_bits(graph, number):
        return
    other = next((writer for writer in graph.reads[sums[0]] if writer not in unit.members), -1)
    end = {graph.units[reader] for reader, _ in graph.readers[unit.members[-1]]}
    if other < 0 or graph.launches[other].kind != "dequantize" or not graph.only_reader(other) or len(end) != 1:
        return
    (last,) = end
    if last.kind == _QUANTIZE:
        graph.merge(unit, graph.units[other])
        graph.merge(unit, last)


def _reads_eight_bits(graph: LaunchGraph, number: int) -> bool:
    writer = graph.reads[number][0]
    return writer >= 0 and written_type(graph.launches[writer]) in EIGHT_BITS


def take_in_pool(graph: LaunchGraph, number: int) -> None:
    """Let an image's own 8-bit convolution, which ends in a relu, absorb the next pool."""
    unit, convolution = graph.units[number], graph.launches[number]
    reader = graph.only_reader(unit.members[-1])
    if reader is None or convolution.kind != "conv2d" or written_type(convolution) not in EIGHT_BITS:
        return
    few = convolution.inputs[0][1] <= _COLOURS and graph.launches[unit.members[-1]].kind == "relu"
    if few and graph.launches[reader[0]].kind == "max_pool2d" and len(graph.units[reader[0]].members) == 1:
        graph.merge(unit, graph.units[reader[0]])
        unit.kind = POOLED


def take_in_bias(graph: LaunchGraph, number: int, *, half: bool) -> None:
    """Let a product absorb sums with its bias or a number, which no launch writes, and then an activation."""
    unit, n = graph.units[number], graph.launches[number].output[-1]
    reader = _only_reader_of_rows(graph, number)
    while reader and graph.launches[reader[0]].kind in ("add", "add_scalar"):
        launch = graph.launches[reader[0]]
        others = [numel(shape) for shape, writer in zip(launch.inputs, graph.reads[reader[0]], strict=True) if writer < 0]
        if len(others) != len(launch.inputs) - 1 or any(size not in (1, n) for size in others):
            return
        graph.merge(unit, graph.units[reader[0]])
        reader = _only_reader_of_rows(graph, reader[0])
    ends = {*ENDS, *(_GENERIC if half else ())}
    if reader and graph.launches[reader[0]].kind in ends and len(graph.units[reader[0]].members) == 1:
        graph.merge(unit, graph.units[reader[0]])


def _only_reader_of_rows(graph: LaunchGraph, writer: int) -> tuple[int, int] | None:
    readers, made = graph.readers[writer], graph.launches[writer].output
    if len(readers) != 1:
        return None
    read = graph.launches[readers[0][0]].inputs[readers[0][1]]
    return readers[0] if numel(read) == numel(made) and read[-1:] == made[-1:] else None


def join_alike(graph: LaunchGraph) -> None:
    """Merge convolutions, or products with weights, that read one tensor in the same way and end alike."""
    alike: dict[tuple[object, ...], list[int]] = {}
    for number, launch in enumerate(graph.launches):
        way = _way(graph, number)
        behind = [graph.launches[member].kind for member in graph.units[number].members[1:]]
        ends = tuple(kind for kind in behind if kind != "batch_norm")
        if way and graph.units[number].members[0] == number and ("add" not in ends or launch.kind == "matmul"):
            alike.setdefault((graph.reads[number][0], launch.kind, way, launch.dtype, ends), []).append(number)
    for numbers in alike.values():
        for number in numbers[1:]:
            graph.units[numbers[0]].kind = PARALLEL
            graph.merge(graph.units[numbers[0]], graph.units[number])


def _way(graph: LaunchGraph, number: int) -> tuple[object, ...]:
    launch, reads = graph.launches[number], graph.reads[number]
    if launch.kind == "matmul":
        weighted = len(reads) == 1 or (len(reads) == 2 and reads[1] < 0 and len(launch.inputs[1]) == 2)
        return (launch.inputs[0], launch.params.get("k"), len(reads)) if weighted and reads[0] >= 0 else ()
    weight = launch.params.get("weight")
    if launch.kind not in CONVOLUTIONS or launch.params.get("groups") != 1 or "transpose" in launch.kind:
        return ()
    if not isinstance(weight, tuple) or reads[0] < 0 or not graph.passed_on(number, 0):
        return ()
    return (weight[1:], *(launch.params[name] for name in ("stride", "padding", "dilation")))


def norm_takes_in(graph: LaunchGraph, number: int) -> None:
    """Let a norm absorb pointwise work before it; results with other readers are also written."""
    unit, writer = graph.units[number], graph.reads[number][0]
    if writer < 0 or not graph.passed_on(number, 0) or len(unit.members) > 1:
        return
    before = graph.units[writer]
    sums = before.kind in ("add", "fused_pointwise") and before.members[-1] == writer
    if sums and graph.launches[writer].dtype == graph.launches[number].dtype and not graph.reaches(before, unit):
        graph.merge(unit, before)
