# SPDX-License-Identifier: Apache-2.0
"""The optimised view of a network: the launches left by the passes of PyTorch's JIT, before fusion.

A TorchScript file runs optimised from its second or third run on (torch/csrc/jit/runtime/profiling_graph_executor_impl.cpp).
These passes remove launches:

* dead code: launches that no result needs, directly or through memory they write. Branches not taken, other repetitions of a
  loop and the size of a tensor count as needs, as in the JIT;
* common subexpressions: the same operator with the same arguments;
* constant propagation: work on constants of the code;
* peephole: adding 0 and multiplying by 1, if the integer is a constant;
* ``cat`` within ``cat`` along one dimension, if nothing else reads the inner one: one ``cat`` of all parts.

Memory written again is left alone, and so are two results, or a result and an input, that would share memory. ``addmm`` becomes
a product and a sum (decompose_ops.cpp), in the front end. The batching of several ``mm`` (batch_mm.cpp) is not followed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from .network import DTYPE_BYTES, Call, KernelInvocation, Network, Shape, numel


class DataFlow(Struct, frozen=True):
    """Dependencies of a network's launches.

    Attributes:
        results: launches whose results are the network's, or remain otherwise.
        together: for each launch, the first of those needed as a whole: of an operator's call, or of its repetitions in a loop.
        needs: for these first ones, the launches whose results they take.
        before: for launches that write into memory, its earlier writers.
        either: if one of the first launches is needed, so are the second ones.
        same: replacement of each replaced launch; -1 for an input or a constant.
        joinable: for each ``cat`` that may become part of another one, the properties both must share.
    """

    results: Collection[int]
    together: Sequence[int]
    needs: Mapping[int, Sequence[int]]
    before: Mapping[int, Sequence[int]]
    either: Sequence[tuple[Collection[int], Collection[int]]]
    same: Mapping[int, int]
    joinable: Mapping[int, object]


def optimize(network: Network, flow: DataFlow) -> Network:
    """The network without the launches that the JIT removes. If its list ends early, all that leads there is needed."""
    launches = list(network.launches)
    reads = [tuple(_standing(writer, flow.same) for writer in writers) for writers in network.reads]
    kept = _needed(flow) if network.boundary is None else {place for place in range(len(launches)) if place not in flow.same}
    _join_nested(launches, reads, kept, flow)
    number = {old: new for new, old in enumerate(sorted(kept))}
    calls: list[Call] = []
    place = 0
    for call in network.calls:
        if isinstance(call, KernelInvocation):
            if place in kept:
                calls.append(launches[place])
            place += 1
        else:
            calls.append(call)
    left = tuple(tuple(number.get(writer, -1) for writer in reads[old]) for old in sorted(kept))
    operators = tuple(network.operators[old] for old in sorted(kept)) if network.operators else ()
    views = tuple(_views(network.views[old], reads[old]) for old in sorted(kept)) if network.views else ()
    return replace(network, calls=tuple(calls), reads=left, operators=operators, views=views, optimized=True)


def _views(views: tuple[int, ...], reads: tuple[int, ...]) -> tuple[int, ...]:
    return views if len(views) == len(reads) else (0,) * len(reads)  # of a cat that took in more


def _standing(launch: int, same: Mapping[int, int]) -> int:
    while launch in same:
        launch = same[launch]
    return launch


def _needed(flow: DataFlow) -> set[int]:
    # Visited launches are removed: a loop makes one call of a hundred thousand launches.
    calls: dict[int, list[int]] = {}
    for launch, first in enumerate(flow.together):
        calls.setdefault(first, []).append(launch)
    pairs = list(flow.either)
    others: dict[int, list[int]] = {}
    for number, (launches, _) in enumerate(pairs):
        for launch in launches:
            others.setdefault(launch, []).append(number)
    taken: set[int] = set()
    needed: set[int] = set()
    waiting = list(flow.results)
    while waiting:
        launch = waiting.pop()
        for number in others.pop(launch, ()):
            if number not in taken:
                taken.add(number)
                waiting += pairs[number][1]
        launch = _standing(launch, flow.same)
        if launch < 0 or launch in needed:
            continue
        needed.add(launch)
        first = flow.together[launch]
        if first in calls:
            waiting += [other for other in calls.pop(first) if other not in flow.same]
            waiting += flow.needs.get(first, ())
        waiting += flow.before.get(launch, ())
    return needed


def _join_nested(launches: list[KernelInvocation], reads: list[tuple[int, ...]], kept: set[int], flow: DataFlow) -> None:
    readers = Counter(writer for launch in kept for writer in reads[launch])
    apart = {*flow.results, *(writer for before in flow.before.values() for writer in before)}
    for number in sorted(kept):
        outer = launches[number]
        if outer.kind != "cat":
            continue
        inputs: list[Shape] = []
        writers: list[int] = []
        for shape, writer in zip(outer.inputs, reads[number], strict=True):
            inner = launches[writer] if writer in kept else None
            whole = inner is not None and inner.output == shape and inner.dtype == outer.dtype
            alike = writer in flow.joinable and flow.joinable[writer] == flow.joinable.get(number)
            if inner is None or not whole or not alike or readers[writer] != 1 or writer in apart:
                inputs.append(shape)
                writers.append(writer)
                continue
            inputs += inner.inputs
            writers += reads[writer]
            kept.discard(writer)
        if len(inputs) != len(outer.inputs):
            moved = (sum(map(numel, inputs)) + numel(outer.output)) * DTYPE_BYTES[outer.dtype]
            launches[number] = replace(outer, inputs=tuple(inputs), bytes=moved)
            reads[number] = tuple(writers)
