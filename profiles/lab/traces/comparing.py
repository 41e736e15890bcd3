# SPDX-License-Identifier: Apache-2.0
"""Comparison of a profiled run with a network's launches."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import TypeVar

from msgspec import Struct, field

from ....kernels.kinds import KINDS
from ....kernels.network import KernelInvocation, Network

Size = int | None
"""Elements of the largest of a call's first inputs, if recorded."""
_Key = tuple[str, Size]
_AnyKey = TypeVar("_AnyKey")
_Shapes = tuple[str, tuple[tuple[int, ...], ...]]
_CAST = "to"
_FLOATS = frozenset(("float16", "bfloat16", "float32", "float64"))


class TracedCall(Struct, frozen=True):
    """Recorded call of a known kind.

    Attributes:
        shapes: of the tensors read, in order; None if not recorded.
        took_ms: its run time, or that of its GPU kernels.
        inner: calls within it that launches may represent, such as layout copies; included in its time.
        sure: False if the shapes may be of other tensors.
        direct: False for an inner call that other inner calls make: part of how an operator works, never a cast of autocast.
        types: floating-point types of the tensors read; empty if not recorded.
    """

    name: str
    kind: str
    shapes: tuple[tuple[int, ...], ...] | None
    took_ms: float
    inner: tuple[TracedCall, ...] = ()
    sure: bool = True
    types: tuple[str, ...] = ()
    direct: bool = True


class Comparison(Struct, frozen=True):
    """Comparison of a recorded run with a network's launches.

    Attributes:
        inferences: number recorded.
        measured_ms: per launch, median time of one inference; None if missing. A node's first launch has its whole time.
        others: further calls by name: count per inference, and total time, in ms.
        retyped: launches whose call reads other floating-point types, with these.
    """

    recorder: str
    inferences: int
    measured_ms: tuple[float | None, ...]
    others: dict[str, tuple[float, float]]
    retyped: dict[int, str] = field(default_factory=dict)

    @property
    def missing(self) -> tuple[int, ...]:
        return tuple(place for place, took in enumerate(self.measured_ms) if took is None)


def compare(network: Network, calls: Sequence[TracedCall], recorder: str) -> Comparison:
    """Match calls to launches of the same kind and read size, in order among equals: independent calls may be reordered.

    Unmatched launches are sought within other calls, then among calls with uncertain shapes.
    """
    sized = any(call.shapes is not None for call in calls)
    order = {id(call): place for place, call in enumerate(calls)}
    # Weights, which the list omits here, follow the inputs common to all launches of a kind.
    arity = {kind: min(len(launch.inputs) for launch in network.launches if launch.kind == kind) for kind in network.kinds}

    def key_of(kind: str, shapes: Sequence[Sequence[int]] | None) -> _Key:
        shapes = shapes and [shape for shape in shapes if shape]  # one element is recorded like a number
        if shapes and len(shapes) < 2 and f"{kind}_scalar" in KINDS:
            kind = f"{kind}_scalar"
        return kind, _size(shapes or (), arity.get(kind, 1)) if sized else None

    wanted: dict[_Key, list[int]] = defaultdict(list)
    for place, launch in enumerate(network.launches):
        wanted[key_of(launch.kind, launch.inputs)].append(place)
    found: dict[_Key, list[_NestedCall]] = defaultdict(list)
    unknown: list[_NestedCall] = []
    for call in calls:
        one = _NestedCall(call)
        (unknown if sized and call.shapes is None else found[key_of(call.kind, call.shapes)]).append(one)
    ratios = [len(found[key]) / len(places) for key, places in wanted.items() if found[key]]
    inferences = max(round(median(ratios)), 1) if ratios else 0
    matched: list[list[_NestedCall]] = [[] for _ in network.launches]
    left = _match(wanted, found, matched, inferences)

    def missing(key: Callable[[int], _Key]) -> dict[_Key, list[int]]:
        places: dict[_Key, list[int]] = defaultdict(list)
        for place, took in enumerate(matched):
            if not took:
                places[key(place)].append(place)
        return places

    within: dict[_Key, list[_NestedCall]] = defaultdict(list)
    for outer in [one for some in found.values() for one in some] + unknown:
        for inner in outer.call.inner:
            part = _NestedCall(inner, outer)
            if inner.shapes is None and sized:
                unknown.append(part)
            else:
                within[key_of(inner.kind, inner.shapes)].append(part)
    launches = network.launches
    rest = _match(missing(lambda place: key_of(launches[place].kind, launches[place].inputs)), within, matched, inferences)
    casts = [one for one in rest if one.call.kind == _CAST and one.call.direct and one.call.shapes and one.call.types]
    left = _match_operands(launches, left, matched, inferences)
    unsure: dict[_Key, list[_NestedCall]] = defaultdict(list)
    for one in sorted([one for one in left if not one.call.sure] + unknown, key=lambda one: order[id(one.outermost.call)]):
        unsure[one.call.kind, None].append(one)
    still = _match(missing(lambda place: (launches[place].kind, None)), unsure, matched, inferences)
    others: dict[str, tuple[float, float]] = {}
    each = max(inferences, 1)
    for one in [one for one in left if one.call.sure] + [one for one in still if one.outer is None] + casts:
        count, took_ms = others.get(one.call.name, (0.0, 0.0))
        others[one.call.name] = count + 1 / each, took_ms + one.took_ms / each
    measured = tuple(median(one.took_ms for one in took) if took else None for took in matched)
    retyped = {
        place: "+".join(took[0].call.types)
        for place, (launch, took) in enumerate(zip(launches, matched, strict=True))
        if took and took[0].call.types and launch.kind != _CAST
        if launch.dtype in _FLOATS and launch.dtype not in took[0].call.types
    }
    return Comparison(recorder, inferences, measured, others, retyped)


def _match_operands(
    launches: Sequence[KernelInvocation], left: Sequence[_NestedCall], matched: list[list[_NestedCall]], inferences: int
) -> list[_NestedCall]:
    """Match calls that read all inputs of a launch among other tensors: weights may come first."""
    found: dict[_Shapes, list[_NestedCall]] = defaultdict(list)
    rest = []
    for one in left:
        if one.call.sure and one.call.shapes:
            found[one.call.kind, one.call.shapes].append(one)
        else:
            rest.append(one)
    places: dict[_Shapes, list[int]] = defaultdict(list)
    for place, launch in enumerate(launches):
        if not matched[place] and launch.inputs:
            reads = Counter(launch.inputs)
            key = next((key for key in found if key[0] == launch.kind and reads <= Counter(key[1])), None)
            if key is not None:
                places[key].append(place)
    return rest + _match(places, found, matched, inferences)


class _NestedCall:
    def __init__(self, call: TracedCall, outer: _NestedCall | None = None) -> None:
        self.call, self.outer, self.took_ms = call, outer, call.took_ms

    @property
    def outermost(self) -> _NestedCall:
        return self.outer or self

    def counts_apart(self) -> None:
        if self.outer is not None:
            self.outer.took_ms = max(self.outer.took_ms - self.took_ms, 0.0)


def _match(
    expected: Mapping[_AnyKey, Sequence[int]],
    found: Mapping[_AnyKey, Sequence[_NestedCall]],
    matched: list[list[_NestedCall]],
    inferences: int,
) -> list[_NestedCall]:
    left = []
    each = max(inferences, 1)
    for key, own in found.items():
        places = expected.get(key, [])
        period, irregular = divmod(len(own), each)
        if irregular:
            period = min(period, len(places))
        for turn, one in enumerate(own):
            place = turn % period if turn < period * each else len(places)
            if place < len(places):
                matched[places[place]].append(one)
                one.counts_apart()
            else:
                left.append(one)
    return left


def compare_nodes(network: Network, nodes: Iterable[tuple[str, str, float]], recorder: str) -> Comparison:
    """Match nodes (name, operator, time in ms) to launches, whose scopes are node names."""
    launches: dict[str, list[int]] = defaultdict(list)
    for place, launch in enumerate(network.launches):
        launches[launch.scope].append(place)
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for name, operator, took_ms in nodes:
        times[name, operator].append(took_ms)
    inferences = round(median(len(each) for each in times.values())) if times else 0
    measured: list[float | None] = [None] * len(network.launches)
    others: dict[str, tuple[float, float]] = {}
    for (name, operator), each in times.items():
        per_inference_ms = median(each) * len(each) / inferences
        if places := launches.get(name):
            for place in places:
                measured[place] = 0.0
            measured[places[0]] = per_inference_ms
        else:
            count, before_ms = others.get(operator, (0.0, 0.0))
            others[operator] = count + len(each) / inferences, before_ms + per_inference_ms
    return Comparison(recorder, inferences, tuple(measured), others)


def label(launches: Sequence[KernelInvocation], place: int, nodes: bool) -> str:
    scope = launches[place].scope
    if not nodes or not scope:
        return launches[place].kind
    return "+".join(launch.kind for launch in launches if launch.scope == scope)


def _size(shapes: Sequence[Sequence[int]], arity: int) -> int:
    return max((math.prod(shape) for shape in shapes[:arity]), default=0)
