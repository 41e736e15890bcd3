# SPDX-License-Identifier: Apache-2.0
"""The optimised view of a network: what is left to launch once the passes of PyTorch's JIT have run, before anything is fused.

A TorchScript file runs optimised from its second or third time on, unless somebody turns that off
(torch/csrc/jit/runtime/profiling_graph_executor_impl.cpp). Of its passes these take launches away:

* dead code: launches that no result of the network needs, directly or by what they write into;
* common subexpressions: calls of the same operator with the same arguments;
* peephole: adding 0 and multiplying by 1, where the number stands in the code;
* nested ``cat`` along one dimension, where nothing else reads the inner one: one ``cat`` of all parts.

What is written into again is left alone, and so is what would make two results of the network, or a result and an input, the
same memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from .network import DTYPE_BYTES, Call, KernelInvocation, Network, Shape, numel


@dataclass(frozen=True)
class Flow:
    """What is known of a network's launches besides who reads what.

    Attributes:
        results: the launches whose results are the network's, or stay otherwise.
        together: for each launch, the first one of the operator call it belongs to; a call is needed as a whole.
        before: for launches that write into what others wrote before, who did.
        same: for launches that another one stands for, that one; -1 where an input does.
    """

    results: Collection[int]
    together: Sequence[int]
    before: Mapping[int, Sequence[int]]
    same: Mapping[int, int]


def optimize(network: Network, flow: Flow) -> Network:
    """The network without the launches that the JIT takes away. Where its list ends early, all that leads there is needed."""
    launches = list(network.launches)
    reads = [tuple(_standing(writer, flow.same) for writer in writers) for writers in network.reads]
    if network.boundary is None:
        kept = _needed(reads, flow)
    else:
        kept = {number for number in range(len(launches)) if number not in flow.same}
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
    return Network(network.name, network.inputs, tuple(calls), network.boundary, left)


def _standing(launch: int, same: Mapping[int, int]) -> int:
    """The launch that stands for another one in the end."""
    while launch in same:
        launch = same[launch]
    return launch


def _needed(reads: Sequence[Sequence[int]], flow: Flow) -> set[int]:
    calls: dict[int, list[int]] = {}
    for launch, first in enumerate(flow.together):
        calls.setdefault(first, []).append(launch)
    needed: set[int] = set()
    waiting = [_standing(launch, flow.same) for launch in flow.results]
    while waiting:
        launch = waiting.pop()
        if launch < 0 or launch in needed:
            continue
        needed.add(launch)
        waiting += [other for other in calls[flow.together[launch]] if other not in flow.same]
        waiting += reads[launch]
        waiting += [_standing(other, flow.same) for other in flow.before.get(launch, ())]
    return needed


def _join_nested(launches: list[KernelInvocation], reads: list[tuple[int, ...]], kept: set[int], flow: Flow) -> None:
    """Put the parts of an inner ``cat`` that nothing else reads into the outer one, in place."""
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
            whole = inner is not None and inner.kind == "cat" and inner.output == shape and inner.params == outer.params
            if inner is None or not whole or readers[writer] != 1 or writer in apart or inner.dtype != outer.dtype:
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
