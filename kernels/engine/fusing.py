# SPDX-License-Identifier: Apache-2.0
"""What TensorRT would make of a network: its fusions as rules, for where no engine is at hand.

1. A batch norm behind a convolution is folded into its weights, which have a bias then.
2. A convolution takes in a sum with a tensor of its own shape, if the sum alone reads it, and then a relu, a clip or a leaky
   relu. Where a sum has two convolutions before it, the one that comes last takes it.
3. Convolutions of one tensor that differ in nothing but their filters are one, if they have no sum and end alike.
4. In half precision, any other convolution that is neither the image's nor one in groups takes in an activation of another kind
   (the developer guide's generic activation), and a sum of its own shape behind that.
5. A product takes in the sum with its bias, and then a relu. Two products around a softmax, with a scale or a mask between
   them, are one kernel of attention.
6. A mean over whole images is a pool.
7. What is pointwise of the rest becomes groups, like those of PyTorch's fuser but for concatenations.
8. Concatenations are no layers; what is copied for them and otherwise: :mod:`.copies`.

What tactics win is decided as an engine is built, and no file says it: a product of one row may become a reduction of Myelin's,
a deep convolution may leave its activation to the next layer. ``tests/kernels/engine/test_fusing.py`` holds the rules, layer by
layer, against engines built of ResNet-18 and MobileNetV2, and against what was published of AlexNet's and YOLO's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..errors import ModelError
from ..kinds import KINDS, flops
from ..network import KernelInvocation, Network, ParamValue, numel, tensor_bytes
from ..rewriting.fusion import Graph, Unit, adds_like, fuse_pointwise
from . import names
from .copies import CONVOLUTIONS, Copying
from .program import RUNTIME

# By what they are on the way out of a convolution: a clip is a relu with an end there.
_ENDS = {"relu": "relu", "hardtanh": "hardtanh", "clamp": "hardtanh", "leaky_relu": "leaky_relu"}
_GENERIC = frozenset(["silu", "hardswish", "hardsigmoid", "sigmoid", "tanh", "gelu", "mish", "elu", "celu", "softplus"])
_PARALLEL = "parallel"
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
        if graph.launches[number].kind in CONVOLUTIONS:
            _take_in(graph, number)
    _join_convolutions(graph)
    if half:
        for number in reversed(range(len(graph.launches))):
            if graph.launches[number].kind in CONVOLUTIONS:
                _activate(graph, number)
    for number, launch in enumerate(graph.launches):
        if launch.kind == "softmax":
            _attend(graph, number)
    for number, launch in enumerate(graph.launches):
        if launch.kind == "matmul" and len(graph.units[number].members) == 1:
            _bias(graph, number)
    fuse_pointwise(graph, _KEPT)
    parallel = {number for number, unit in enumerate(graph.order()) if unit.kind == _PARALLEL}
    made = graph.network(lambda unit: _launch(graph, unit))
    launches = [_halved(launch) for launch in made.launches] if half else made.launches
    copied = Copying(launches, made.reads, parallel, half=half)
    return replace(made, calls=tuple(copied.launches), reads=tuple(copied.reads), runtime=RUNTIME)


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


def _join_convolutions(graph: Graph) -> None:
    """Make one of the convolutions that read the same tensor in the same way and end alike."""
    alike: dict[tuple[object, ...], list[int]] = {}
    for number, launch in enumerate(graph.launches):
        if launch.kind not in CONVOLUTIONS or launch.params.get("groups") != 1 or "transpose" in launch.kind:
            continue
        behind = [graph.launches[member].kind for member in graph.units[number].members[1:]]
        ends = tuple(kind for kind in behind if kind != "batch_norm")
        weight, source = launch.params["weight"], graph.reads[number][0]
        if "add" not in ends and isinstance(weight, tuple) and source >= 0 and graph.passed_on(number, 0):
            window = (weight[1:], *(launch.params[name] for name in ("stride", "padding", "dilation")))
            alike.setdefault((source, launch.kind, window, launch.dtype, ends), []).append(number)
    for numbers in alike.values():
        for number in numbers[1:]:
            graph.units[numbers[0]].kind = _PARALLEL
            graph.merge(graph.units[numbers[0]], graph.units[number])


def _activate(graph: Graph, number: int) -> None:
    """Let a convolution take in an activation, and a sum behind that."""
    unit = graph.units[number]
    if unit.kind == _PARALLEL or graph.reads[number][0] < 0 or graph.launches[number].params.get("groups") != 1:
        return
    if any(graph.launches[member].kind not in (*CONVOLUTIONS, "batch_norm") for member in unit.members):
        return
    reader = graph.only_reader(unit.members[-1])
    if reader is None or graph.launches[reader[0]].kind not in _GENERIC:
        return
    graph.merge(unit, graph.units[reader[0]])
    reader = graph.only_reader(reader[0])
    if reader and adds_like(graph.launches[reader[0]], graph.launches[number]) and len(graph.units[reader[0]].members) == 1:
        graph.merge(unit, graph.units[reader[0]])


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
    """Let a product take in the sum with its bias, which nothing launched writes, and a relu."""
    reader = graph.only_reader(number)
    if reader and not graph.launches[number].params.get("bias"):
        launch, n = graph.launches[reader[0]], graph.launches[number].output[-1]
        others = [numel(shape) for shape, writer in zip(launch.inputs, graph.reads[reader[0]], strict=True) if writer < 0]
        if launch.kind == "add" and others == [n] and len(graph.units[reader[0]].members) == 1:
            graph.merge(graph.units[number], graph.units[reader[0]])
            reader = graph.only_reader(reader[0])
    if reader and graph.launches[reader[0]].kind == "relu" and len(graph.units[reader[0]].members) == 1:
        graph.merge(graph.units[number], graph.units[reader[0]])


def _launch(graph: Graph, unit: Unit) -> tuple[KernelInvocation, list[int]]:
    """A unit's launch as TensorRT has it, and the writer of each of its inputs."""
    first = graph.launches[unit.members[0]]
    if unit.kind == _PARALLEL:
        return _parallel(graph, unit)
    if first.kind in CONVOLUTIONS:
        return _convolution(graph, unit.members)
    made, writers = graph.launch(unit)
    params: dict[str, ParamValue] = {}
    if unit.kind == "attention":
        return replace(made, kind="attention", params=params), writers
    if unit.kind == "matmul" and len(unit.members) > 1:
        sizes = [place for place, shape in enumerate(made.inputs) if place < len(first.inputs) or writers[place] >= 0]
        behind = [graph.launches[member].kind for member in unit.members[1:]]
        params = {**first.params, "bias": "add" in behind or bool(first.params.get("bias"))}
        params |= {"epilogue": "relu"} if "relu" in behind else {}
        kept = replace(made, params=params, inputs=tuple(made.inputs[place] for place in sizes))
        return kept, [writers[place] for place in sizes]
    return (_pool(made) if len(unit.members) == 1 else made), writers


def _parallel(graph: Graph, unit: Unit) -> tuple[KernelInvocation, list[int]]:
    """Several convolutions as one: their filters side by side."""
    branches: list[list[int]] = []
    for member in unit.members:
        if graph.launches[member].kind in CONVOLUTIONS:
            branches.append([member])
        else:
            next(branch for branch in branches if graph.reads[member][0] in branch).append(member)
    made = [_convolution(graph, branch) for branch in branches]
    launches, writers = [launch for launch, _ in made], made[0][1]
    first, filters = launches[0], sum(launch.output[1] for launch in launches)
    weight = first.params["weight"]
    params = {**first.params, "weight": (filters, *(weight[1:] if isinstance(weight, tuple) else ()))}
    params["bias"] = any(launch.params.get("bias") for launch in launches)
    once = tensor_bytes(numel(first.inputs[0]), first.dtype) * (len(launches) - 1)
    joined = replace(
        first,
        scope=" || ".join(launch.scope for launch in launches)[:1000],
        output=(first.output[0], filters, *first.output[2:]),
        params=params,
        flops=sum(launch.flops for launch in launches),
        bytes=sum(launch.bytes for launch in launches) - once,
    )
    return joined, writers


def _convolution(graph: Graph, members: Sequence[int]) -> tuple[KernelInvocation, list[int]]:
    number = members[0]
    first, rest = graph.launches[number], [graph.launches[member] for member in members[1:]]
    inputs, writers = list(first.inputs), list(graph.reads[number])
    had = bool(first.params.get("bias"))
    bias = had or any(launch.kind == "batch_norm" for launch in rest)
    params: dict[str, ParamValue] = {**first.params, "bias": bias}
    moved = first.bytes + (tensor_bytes(first.output[1], first.dtype) if bias and not had else 0)
    ends = []
    for member, launch in zip(members[1:], rest, strict=True):
        if launch.kind == "add":
            ends.append("add")
            other = next((writer for writer in graph.reads[member] if writer not in members), -1)
            inputs.append(first.output)
            writers.append(other)
            moved += tensor_bytes(numel(first.output), first.dtype)
        elif launch.kind != "batch_norm":
            ends.append(_ENDS.get(launch.kind, launch.kind))
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
