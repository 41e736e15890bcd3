# SPDX-License-Identifier: Apache-2.0
"""The fused view of a network: the launches left by TorchScript's fusers on a CUDA device, of the file as it is saved.

1. cuDNN's fused convolutions, if ``torch.jit.optimize_for_inference`` wrote them into the file: ``conv2d_relu`` and
   ``conv2d_add_relu``. Neither an unfrozen file nor one of ``torch.jit.freeze`` has them.
2. The tensor-expression fuser (NNC) of the profiling executor (torch/csrc/jit/passes/tensorexpr_fuser.cpp). From the last
   operator backwards, each pointwise operator, inference batch norm or ``cat`` absorbs the operators of these kinds that write
   its inputs, and theirs in turn; a result with other readers is written as well. Adjacent independent groups are merged. A
   group spans no operator that runs in its middle, and at most 128 operands. Softmax, reductions and tensors of bytes, complex
   or quantised numbers stay out. The result is ``fused_pointwise``.

In-place operators (``relu_``, ``add_``) join no group, and no earlier reader of their memory moves behind them. Launches of
an operator made of several (``diff``) join none either. Casts to a tensor's own type belong to groups,
though they launch nothing; views end them (even ``unsqueeze`` and ``chunk``, which PyTorch takes in at times), and so does
``dropout`` in an unfrozen file. A result of the network is written only if nothing else reads it.

A list without operators, such as one made by hand, counts as frozen and optimised: every operator may join a group. A 2-D or
3-D convolution read by a ``relu`` alone becomes ``conv2d_relu``, and one that is only the first operand of an ``add`` read by a
``relu`` alone ``conv2d_add_relu`` (torch/csrc/jit/passes/frozen_conv_add_relu_fusion_cuda.cpp).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from .errors import ModelError
from .kinds import GATES, KINDS
from .network import (
    ABSORBED,
    Call,
    HostOp,
    KernelInvocation,
    Network,
    ParamValue,
    Shape,
    element_bytes,
    numel,
    tensor_bytes,
    written_type,
)

_MOST_FLOPS = 1 << 62  # of launches: more is not counted anywhere


def products_of(layer: KernelInvocation) -> tuple[tuple[KernelInvocation, int], ...]:
    """Matrix products of a recurrent layer, and how often each runs in sequence; empty for other kernels."""
    try:
        return _products(layer, GATES[layer.kind])
    except (KeyError, IndexError, ValueError):
        return ()


def _products(layer: KernelInvocation, gates: int) -> tuple[tuple[KernelInvocation, int], ...]:
    (*many, width), state = layer.inputs[0], layer.inputs[1]
    told = (layer.params[name] for name in ("hidden", "layers", "directions"))
    hidden, layers, directions = (size for size in told if isinstance(size, int))
    batch, out, bias = state[-2] if len(state) == 3 else 1, state[-1], bool(layer.params.get("bias"))
    if min(*many, width, batch, out, hidden, layers, directions) < 1:
        return ()
    steps = numel(many) // batch
    found = [
        (_product(layer, steps * batch, width, gates * hidden, bias), directions),
        (_product(layer, steps * batch, out * directions, gates * hidden, bias), directions * (layers - 1)),
        (_product(layer, batch, out, gates * hidden, bias), directions * steps * layers),
        (_product(layer, batch, hidden, out, False), directions * steps * layers if out != hidden else 0),
    ]
    if max(product.flops * times for product, times in found) > _MOST_FLOPS:
        return ()
    return tuple((product, times) for product, times in found if times)


def _product(layer: KernelInvocation, m: int, k: int, n: int, bias: bool) -> KernelInvocation:
    moved = round(element_bytes(layer.dtype) * (m * k + k * n + m * n + bias * n))
    params = {"m": m, "k": k, "n": n, "batch": 1, "bias": bias}
    return KernelInvocation("matmul", layer.scope, ((m, k),), (m, n), layer.dtype, params, 2 * m * k * n, moved)


POINTWISE_GROUP = "fused_pointwise"
_UNFUSIBLE_TYPES = frozenset({"uint8", "complex64", "complex128", "quint8", "qint8", "qint32"})
_MOST_OPERANDS = 128
_CUDNN = ("cudnn_convolution_relu", "cudnn_convolution_add_relu")
#: Operators by other names than their kinds'.
_OTHER_SPELLINGS = {"_native_batch_norm_legit_no_training": "batch_norm"}


class FusionUnit(Struct, eq=False):
    kind: str
    members: list[int] = field(default_factory=list)


def fuse(network: Network) -> Network:
    """The network with its launches fused; raises ModelError.

    A fused launch has the FLOPs of its members, their bytes without those passed between them, and their common scope. Of a
    convolution it has the parameters; of a pointwise group, ``kinds`` (its members', joined by ``+``) and ``outputs`` (number
    of results written).
    """
    if network.runtime:
        raise ModelError(
            f"network {network.name!r:.80} is listed as {network.runtime} launches it: nothing is left for PyTorch to fuse"
        )
    graph = LaunchGraph(network)
    if len(network.operators) == len(network.views) == len(graph.launches):
        graph.follow(network.operators, network.views)
    _fuse_convolutions(graph)
    fuse_pointwise(graph)
    return graph.network()


class LaunchGraph:
    def __init__(self, network: Network) -> None:
        if network.launches and not network.reads:
            raise ModelError(
                f"network {network.name!r} does not name the writers of its launches' inputs ('reads'), so nothing can be "
                "fused; decompose the model's file again"
            )
        self._network = network
        self.launches = network.launches
        self.reads = network.reads
        self.readers: list[list[tuple[int, int]]] = [[] for _ in self.launches]
        for reader, writers in enumerate(self.reads):
            for place, writer in enumerate(writers):
                if writer >= 0:
                    self.readers[writer].append((reader, place))
        self.units = [FusionUnit(launch.kind, [number]) for number, launch in enumerate(self.launches)]
        self.merged: set[FusionUnit] = set()
        self.operators: Sequence[str] = ()
        self.views: Sequence[Sequence[int]] = ()
        self.apart: frozenset[int] = frozenset()
        self._overwriters: dict[int, list[int]] = {}
        self._read_before: dict[int, tuple[int, ...]] = {}

    def follow(self, operators: Sequence[str], views: Sequence[Sequence[int]]) -> None:
        """Take operators and views into account: those that join no group, those in groups, and those that overwrite memory."""
        self.operators, self.views = operators, views
        self.apart = frozenset(
            number
            for number, (name, launch) in enumerate(zip(self.operators, self.launches, strict=True))
            if name and _OTHER_SPELLINGS.get(name, name) != launch.kind.removesuffix("_scalar")
        )
        for number, (name, writers) in enumerate(zip(self.operators, self.reads, strict=True)):
            if name.endswith("_") and writers and writers[0] >= 0:
                for reader in {reader for reader, _ in self.readers[writers[0]] if reader < number}:
                    self._overwriters.setdefault(reader, []).append(number)
                    self._read_before[number] = (*self._read_before.get(number, ()), reader)
        for number, unit in enumerate(self.units):
            if any(view & ABSORBED for view in views[number]) and _joins(self, unit, ()):  # PyTorch's group of it and the view
                unit.kind = POINTWISE_GROUP

    def passed_on(self, reader: int, place: int) -> bool:
        """True if an input is its writer's output, or a view that fuses."""
        if self.views and self.views[reader][place]:
            return self.views[reader][place] == ABSORBED
        return self.launches[reader].inputs[place] == self.launches[self.reads[reader][place]].output

    def only_reader(self, writer: int) -> tuple[int, int] | None:
        """The only launch that reads a result, and the input's place; None if it is read otherwise."""
        readers = self.readers[writer]
        return readers[0] if len(readers) == 1 and self.passed_on(*readers[0]) else None

    def merge(self, unit: FusionUnit, other: FusionUnit) -> None:
        for number in other.members:
            self.units[number] = unit
        unit.members = sorted(unit.members + other.members)
        self.merged.discard(other)
        self.merged.add(unit)

    def reaches(self, start: FusionUnit, goal: FusionUnit) -> bool:
        """True if the goal needs a third unit's work on the start's results, or sees these through a view."""
        horizon = self._horizon(goal.members[-1])
        waiting, seen = [start], {start}
        while waiting:
            unit = waiting.pop()
            for writer in unit.members:
                reading = [(reader, unit is start and self.passed_on(reader, place)) for reader, place in self.readers[writer]]
                for reader, direct in (*reading, *((other, False) for other in self._overwriters.get(writer, ()))):
                    then = self.units[reader]
                    if then is goal and not direct:
                        return True
                    if then is not goal and then not in seen and then.members[0] < horizon:
                        seen.add(then)
                        waiting.append(then)
        return False

    def _horizon(self, last: int) -> int:
        """A launch from which on nothing leads back to ``last``, even by way of a group."""
        horizon, before = last, -1
        while horizon > before:
            before = horizon
            horizon = max([horizon, *(unit.members[-1] for unit in self.merged if unit.members[0] < horizon)])
        return horizon

    def network(self, launch: Callable[[FusionUnit], tuple[KernelInvocation, list[int]]] | None = None) -> Network:
        """The network of the units, each as early as its inputs allow; ``launch`` makes a unit's launch, by default
        :meth:`launch`.
        """
        order = self.order()
        number = {id(unit): position for position, unit in enumerate(order)}
        before: dict[int, list[HostOp]] = {}
        passed = 0
        for call in self._network.calls:
            if isinstance(call, KernelInvocation):
                passed += 1
            else:
                before.setdefault(passed, []).append(call)
        calls: list[Call] = []
        reads = []
        for unit in order:
            for member in unit.members:
                calls += before.get(member, ())
            made, places = (launch or self.launch)(unit)
            calls.append(made)
            reads.append(tuple(-1 if writer < 0 else number[id(self.units[writer])] for writer in places))
        calls += before.get(len(self.launches), ())
        return replace(self._network, calls=tuple(calls), reads=tuple(reads))

    def order(self) -> list[FusionUnit]:
        units = list({id(unit): unit for unit in self.units}.values())
        needed = {id(unit): set(self._sources(unit)) for unit in units}
        users: dict[int, list[FusionUnit]] = {}
        for unit in units:
            for source in needed[id(unit)]:
                users.setdefault(source, []).append(unit)
        ready = [(unit.members[-1], unit) for unit in units if not needed[id(unit)]]
        heapq.heapify(ready)
        order = []
        while ready:
            _, unit = heapq.heappop(ready)
            order.append(unit)
            for user in users.get(id(unit), ()):
                needed[id(user)].discard(id(unit))
                if not needed[id(user)]:
                    heapq.heappush(ready, (user.members[-1], user))
        return order

    def _sources(self, unit: FusionUnit) -> Iterator[int]:
        for member in unit.members:
            for writer in (*self.reads[member], *self._read_before.get(member, ())):
                if writer >= 0 and self.units[writer] is not unit:
                    yield id(self.units[writer])

    def launch(self, unit: FusionUnit) -> tuple[KernelInvocation, list[int]]:
        if len(unit.members) == 1:
            return self.launches[unit.members[0]], list(self.reads[unit.members[0]])
        members = [self.launches[number] for number in unit.members]
        inputs: list[Shape] = []
        writers: list[int] = []
        moved = sum(launch.bytes for launch in members)
        known: set[tuple[int, Shape]] = set()
        for number, launch in zip(unit.members, members, strict=True):
            for writer, shape in zip(self.reads[number], launch.inputs, strict=True):
                if writer >= 0 and (self.units[writer] is unit or (writer, shape) in known):
                    moved -= tensor_bytes(numel(shape), self.launches[writer].dtype)
                else:
                    known.add((writer, shape))
                    inputs.append(shape)
                    writers.append(writer)
        outputs = 0
        for number, launch in zip(unit.members, members, strict=True):
            if self.readers[number] and all(self.units[reader] is unit for reader, _ in self.readers[number]):
                moved -= tensor_bytes(numel(launch.output), launch.dtype)
            else:
                outputs += 1
        kinds = "+".join(launch.kind for launch in members)
        params: dict[str, ParamValue] = {"kinds": kinds, "outputs": outputs}
        scope = _common_scope([launch.scope for launch in members])
        if unit.kind != POINTWISE_GROUP:
            params, scope = dict(members[0].params), members[0].scope
        made = KernelInvocation(
            kind=unit.kind,
            scope=scope,
            inputs=tuple(inputs),
            output=members[-1].output,
            dtype=members[-1].dtype,
            params=params,
            flops=sum(launch.flops for launch in members),
            bytes=moved,
        )
        return made, writers


def _fuse_convolutions(graph: LaunchGraph) -> None:
    made = {row.members: row.name for row in KINDS.values() if row.members}
    convolutions = {members[0] for members in made}
    for number, launch in enumerate(graph.launches):
        if launch.kind not in convolutions or (graph.operators and graph.operators[number] not in _CUDNN):
            continue
        chain = [number]
        reader = graph.only_reader(number)
        if reader and reader[1] == 0 and adds_like(graph.launches[reader[0]], launch):
            chain.append(reader[0])
            reader = graph.only_reader(reader[0])
        if reader:
            chain.append(reader[0])
        kind = made.get(tuple(graph.launches[member].kind for member in chain))
        if kind is not None:
            unit = FusionUnit(kind)
            for member in chain:
                graph.merge(unit, graph.units[member])


def adds_like(launch: KernelInvocation, convolution: KernelInvocation) -> bool:
    return launch.kind == "add" and set(launch.inputs) == {convolution.output} and launch.dtype == written_type(convolution)


def fuse_pointwise(graph: LaunchGraph, kept: Collection[str] = ()) -> None:
    for number in reversed(range(len(graph.launches))):
        unit = graph.units[number]
        while _joins(graph, unit, kept) and (source := _next_source(graph, unit, kept)) is not None:
            unit.kind = POINTWISE_GROUP
            graph.merge(unit, source)
    previous = None
    for group in [unit for unit in graph.order() if unit.kind == POINTWISE_GROUP]:
        if previous and _few_operands(graph, previous, group) and _independent(graph, previous, group):
            graph.merge(previous, group)
        else:
            previous = group


def _joins(graph: LaunchGraph, unit: FusionUnit, kept: Collection[str]) -> bool:
    if unit.kind == POINTWISE_GROUP:
        return True
    if len(unit.members) > 1 or unit.kind in kept:
        return False
    launch = graph.launches[unit.members[0]]
    row = KINDS.get(unit.kind)
    if row is None or not row.fusible or launch.dtype in _UNFUSIBLE_TYPES or unit.members[0] in graph.apart:
        return False
    types = {graph.launches[writer].dtype for writer in graph.reads[unit.members[0]] if writer >= 0}
    return not types & _UNFUSIBLE_TYPES


def _next_source(graph: LaunchGraph, unit: FusionUnit, kept: Collection[str]) -> FusionUnit | None:
    writers = {
        writer
        for member in unit.members
        for place, writer in enumerate(graph.reads[member])
        if writer >= 0 and graph.units[writer] is not unit and graph.passed_on(member, place)
    }
    for writer in sorted(writers, reverse=True):
        source = graph.units[writer]
        if _joins(graph, source, kept) and _few_operands(graph, unit, source) and not graph.reaches(source, unit):
            return source
    return None


def _few_operands(graph: LaunchGraph, first: FusionUnit, second: FusionUnit) -> bool:
    operands = sum(len(graph.launches[member].inputs) + 1 for unit in (first, second) for member in unit.members)
    return operands <= _MOST_OPERANDS


def _independent(graph: LaunchGraph, first: FusionUnit, second: FusionUnit) -> bool:
    for writer, reader in ((first, second), (second, first)):
        if any(graph.units[number] is writer for member in reader.members for number in graph.reads[member] if number >= 0):
            return False
        if graph.reaches(writer, reader):
            return False
    return True


def _common_scope(scopes: Sequence[str]) -> str:
    common = []
    for parts in zip(*(scope.split(".") for scope in scopes), strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return ".".join(common)
