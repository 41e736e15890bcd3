# SPDX-License-Identifier: Apache-2.0
"""What TensorRT would make of a network: its fusions as rules, for where no engine is at hand.

1. A batch norm behind a convolution is folded into its weights, which have a bias then.
2. A convolution takes in a sum with a tensor of its own shape, if the sum alone reads it, and then a relu, a clip or a leaky
   relu. Where a sum has two convolutions before it, the one that comes last takes it.
3. A product takes in the sum with its bias. Two products around a softmax, with a scale or a mask between them, are one kernel
   of attention.
4. A mean over whole images is a pool.
5. What is pointwise of the rest becomes groups, like those of PyTorch's fuser but for concatenations, which stay by themselves.
6. In half precision, an image that the application hands to a convolution is first copied into the layout that it is read in.

What tactics win is decided as an engine is built, and no file says it: a product of one row may become a reduction of Myelin's.
``tests/kernels/engine/test_fusing.py`` holds the rules, layer by layer, against engines built of ResNet-18 and MobileNetV2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..errors import ModelError
from ..kinds import KINDS, flops
from ..network import KernelInvocation, Network, ParamValue, numel, tensor_bytes
from ..rewriting.fusion import Graph, Unit, adds_like, fuse_pointwise
from . import names
from .program import RUNTIME

_CONVOLUTIONS = frozenset(f"conv{transposed}{rank}d" for transposed in ("", "_transpose") for rank in (1, 2, 3))
# By what they are on the way out of a convolution: a clip is a relu with an end there.
_ENDS = {"relu": "relu", "hardtanh": "hardtanh", "clamp": "hardtanh", "leaky_relu": "leaky_relu"}
_BETWEEN = frozenset(["mul", "div", "add", "where", "masked_fill"])
_KEPT = frozenset(["cat"])
_POOLS = ("kernel_size", "stride", "padding")


def as_engine(network: Network, *, half: bool = False) -> Network:
    """The launches of an engine that TensorRT would build of a network.

    Args:
        network: as its file has it, before any fusion.
        half: with half precision allowed (``trtexec --fp16``), which then is used throughout.

    Raises:
        ModelError: the network does not say which launch reads what another one wrote, or a runtime has compiled it already.
    """
    if network.runtime:
        raise ModelError(f"network {network.name!r:.80} is listed as {network.runtime} launches it already")
    graph = Graph(network)
    for number in reversed(range(len(graph.launches))):
        if graph.launches[number].kind in _CONVOLUTIONS:
            _take_in(graph, number)
    for number, launch in enumerate(graph.launches):
        if launch.kind == "softmax":
            _attend(graph, number)
    for number, launch in enumerate(graph.launches):
        if launch.kind == "matmul" and len(graph.units[number].members) == 1:
            _bias(graph, number)
    fuse_pointwise(graph, _KEPT)
    made = graph.network(lambda unit: _launch(graph, unit))
    launches = tuple(_halved(launch) for launch in made.launches) if half else made.launches
    reads = made.reads
    if half:
        copied = [number for number, launch in enumerate(launches) if _is_handed_an_image(launch, reads[number])]
        launches, reads = _with_copies(launches, reads, copied[:1])
    return replace(made, calls=launches, reads=reads, runtime=RUNTIME)


def _take_in(graph: Graph, number: int) -> None:
    """Fold a norm into a convolution, and let it take in a sum and what follows."""
    convolution, unit = graph.launches[number], graph.units[number]
    last = number
    for wanted in ("batch_norm", "add", "end"):
        reader = graph.only_reader(last)
        if reader is None:
            return
        launch = graph.launches[reader[0]]
        fits = {
            "batch_norm": launch.kind == "batch_norm" and reader[1] == 0,
            "add": adds_like(launch, convolution),
            "end": launch.kind in _ENDS,
        }[wanted]
        if fits and len(graph.units[reader[0]].members) == 1:
            graph.merge(unit, graph.units[reader[0]])
            last = reader[0]


def _attend(graph: Graph, number: int) -> None:
    """Join two products around a softmax."""
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
    unit = Unit("attention")
    for member in (first, *between, after[0]):
        graph.merge(unit, graph.units[member])


def _bias(graph: Graph, number: int) -> None:
    """Let a product take in the sum with its bias, which nothing launched writes."""
    reader = graph.only_reader(number)
    if reader is None or graph.launches[number].params.get("bias"):
        return
    launch, n = graph.launches[reader[0]], graph.launches[number].output[-1]
    others = [numel(shape) for shape, writer in zip(launch.inputs, graph.reads[reader[0]], strict=True) if writer < 0]
    if launch.kind == "add" and others == [n] and len(graph.units[reader[0]].members) == 1:
        graph.merge(graph.units[number], graph.units[reader[0]])


def _launch(graph: Graph, unit: Unit) -> tuple[KernelInvocation, list[int]]:
    """A unit's launch as TensorRT has it, and the writer of each of its inputs."""
    first = graph.launches[unit.members[0]]
    if first.kind in _CONVOLUTIONS:
        return _convolution(graph, unit)
    made, writers = graph.launch(unit)
    if unit.kind == "attention":
        params: dict[str, ParamValue] = {}
        return replace(made, kind="attention", params=params), writers
    if unit.kind == "matmul" and len(unit.members) > 1:
        sizes = [place for place, shape in enumerate(made.inputs) if place < len(first.inputs) or writers[place] >= 0]
        kept = replace(made, params={**first.params, "bias": True}, inputs=tuple(made.inputs[place] for place in sizes))
        return kept, [writers[place] for place in sizes]
    return (_pool(made) if len(unit.members) == 1 else made), writers


def _convolution(graph: Graph, unit: Unit) -> tuple[KernelInvocation, list[int]]:
    number = unit.members[0]
    first, rest = graph.launches[number], [graph.launches[member] for member in unit.members[1:]]
    inputs, writers = list(first.inputs), list(graph.reads[number])
    had = bool(first.params.get("bias"))
    bias = had or any(launch.kind == "batch_norm" for launch in rest)
    params: dict[str, ParamValue] = {**first.params, "bias": bias}
    moved = first.bytes + (tensor_bytes(first.output[1], first.dtype) if bias and not had else 0)
    ends = []
    for member, launch in zip(unit.members[1:], rest, strict=True):
        if launch.kind == "add":
            ends.append("add")
            other = next((writer for writer in graph.reads[member] if writer < 0 or graph.units[writer] is not unit), -1)
            inputs.append(first.output)
            writers.append(other)
            moved += tensor_bytes(numel(first.output), first.dtype)
        elif launch.kind in _ENDS:
            ends.append(_ENDS[launch.kind])
    work = flops(first.kind, [first.inputs[0]], first.output, params) + names.work_of(ends, numel(first.output))
    kind = "_".join((first.kind, *ends))
    if ends and kind not in KINDS:
        params["epilogue"], kind = "+".join(ends), first.kind
    scope = " + ".join(dict.fromkeys(launch.scope for launch in (first, *rest) if launch.scope))[:1000]
    made = KernelInvocation(kind, scope, tuple(inputs), first.output, first.dtype, params, work, moved)
    return made, writers


def _pool(launch: KernelInvocation) -> KernelInvocation:
    """A pool with what an engine says of it; a mean over whole images is one."""
    image, out = launch.inputs[0] if launch.inputs else (), launch.output
    rank = len(image) - 2
    whole = rank in (2, 3) and numel(out) == numel(image[:2])
    dims = launch.params.get("dim")
    over = launch.kind == "mean" and dims in (tuple(range(2, rank + 2)), tuple(range(-rank, 0)))
    if whole and (over or launch.kind == f"adaptive_avg_pool{rank}d"):
        params: dict[str, ParamValue] = {"kernel_size": image[2:], "stride": (1,) * rank, "padding": (0,) * rank}
        return replace(launch, kind=f"avg_pool{rank}d", output=(*image[:2], *(1,) * rank), params=params)
    if launch.kind in ("max_pool2d", "avg_pool2d", "max_pool3d", "avg_pool3d"):
        kept = {name: launch.params[name] for name in _POOLS if name in launch.params}
        return replace(launch, params=kept, flops=_pooled(launch, kept))
    return launch


def _pooled(launch: KernelInvocation, params: dict[str, ParamValue]) -> int:
    try:
        return flops(launch.kind, launch.inputs, launch.output, params)
    except (KeyError, TypeError, ValueError):
        return launch.flops


def _halved(launch: KernelInvocation) -> KernelInvocation:
    """A launch in half precision, if it works in single precision."""
    return replace(launch, dtype="float16", bytes=launch.bytes // 2) if launch.dtype == "float32" else launch


def _is_handed_an_image(launch: KernelInvocation, writers: tuple[int, ...]) -> bool:
    own = launch.kind.removesuffix("_relu").removesuffix("_add")
    return own in _CONVOLUTIONS and bool(writers) and writers[0] < 0


def _with_copies(
    launches: tuple[KernelInvocation, ...], reads: tuple[tuple[int, ...], ...], copied: list[int]
) -> tuple[tuple[KernelInvocation, ...], tuple[tuple[int, ...], ...]]:
    """The same with a copy of the first input before each of these launches."""
    listed: list[KernelInvocation] = []
    wrote: list[tuple[int, ...]] = []
    place: dict[int, int] = {}
    for number, launch in enumerate(launches):
        before = list(_moved(reads[number], place))
        if number in copied:
            image = launch.inputs[0]
            moved = 2 * tensor_bytes(numel(image), launch.dtype)
            listed.append(KernelInvocation("clone", "", (image,), image, launch.dtype, {}, 0, moved))
            wrote.append((-1,))
            before[0] = len(listed) - 1
        place[number] = len(listed)
        listed.append(launch)
        wrote.append(tuple(before))
    return tuple(listed), tuple(wrote)


def _moved(writers: tuple[int, ...], place: dict[int, int]) -> Iterator[int]:
    for writer in writers:
        yield place[writer] if writer >= 0 else -1
