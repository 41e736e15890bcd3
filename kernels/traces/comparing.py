# SPDX-License-Identifier: Apache-2.0
"""A run that a profiler recorded beside the launches that a network lists: what is there, what is missing, what is besides."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from ..network import KernelInvocation, Network

Size = int | None
"""Elements of the largest of the tensors that a call reads first; None where the profiler did not record shapes."""


@dataclass(frozen=True)
class TracedCall:
    """One call that a profiler recorded, of a kind of this package's.

    Attributes:
        name: as the profiler calls it.
        kind: the kind of launch that it is.
        shapes: of the tensors that it reads, in its own order; None where that was not recorded.
        took_ms: how long it, or what it launched on a GPU, ran.
    """

    name: str
    kind: str
    shapes: tuple[tuple[int, ...], ...] | None
    took_ms: float


@dataclass(frozen=True)
class Comparison:
    """A recorded run beside a network's launches.

    Attributes:
        recorder: who recorded it, and where the times are from, for people.
        inferences: how many of the network it has.
        measured_ms: of each launch the time of one inference, by median (the first ones are often slower); None where it is
            missing. Of a node of several launches the first has the time of all, the others 0.
        others: what ran besides, by name: how often in one inference, and how long that took together, in ms.
    """

    recorder: str
    inferences: int
    measured_ms: tuple[float | None, ...]
    others: dict[str, tuple[float, float]]

    @property
    def missing(self) -> tuple[int, ...]:
        """The launches that the run does not have, by their places in the list."""
        return tuple(place for place, took in enumerate(self.measured_ms) if took is None)


def compare(network: Network, calls: Sequence[TracedCall], recorder: str) -> Comparison:
    """Match calls to launches of their kind that read as much, in the order of both.

    The profiler's order of what does not depend on each other need not be the list's, so only the order among equals counts.
    How many inferences were recorded is told by what most launches have.
    """
    sized = all(call.shapes is not None for call in calls)
    # Weights, of which the list says nothing here, stand behind what all launches of a kind read.
    arity = {kind: min(len(launch.inputs) for launch in network.launches if launch.kind == kind) for kind in network.kinds}
    wanted: dict[tuple[str, Size], list[int]] = defaultdict(list)
    for place, launch in enumerate(network.launches):
        wanted[launch.kind, _size(launch.inputs, arity[launch.kind]) if sized else None].append(place)
    found: dict[tuple[str, Size], list[TracedCall]] = defaultdict(list)
    for call in calls:
        found[call.kind, _size(call.shapes or (), arity.get(call.kind, 1)) if sized else None].append(call)
    ratios = [len(found[key]) / len(places) for key, places in wanted.items() if found[key]]
    inferences = max(round(median(ratios)), 1) if ratios else 0
    measured: list[list[float]] = [[] for _ in network.launches]
    others: dict[str, tuple[float, float]] = {}
    each = max(inferences, 1)
    for key, own in found.items():
        places = wanted.get(key, [])
        period, irregular = divmod(len(own), each)
        if irregular:
            period = min(period, len(places))
        for turn, call in enumerate(own):
            # Each inference has these calls in the same order.
            place = turn % period if turn < period * each else len(places)
            if place < len(places):
                measured[places[place]].append(call.took_ms)
            else:
                count, took_ms = others.get(call.name, (0.0, 0.0))
                others[call.name] = count + 1 / each, took_ms + call.took_ms / each
    return Comparison(recorder, inferences, tuple(median(took) if took else None for took in measured), others)


def compare_nodes(network: Network, nodes: Iterable[tuple[str, str, float]], recorder: str) -> Comparison:
    """Match a run's nodes to the launches that the list has of each.

    Args:
        network: its launches' scopes are names of nodes.
        nodes: what ran: the name of the node, of its operator, and how long it took in ms.
    """
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
    """Under which kinds a launch's time counts: its own, or where nodes were timed, those of all that its node launches."""
    if not nodes:
        return launches[place].kind
    scope = launches[place].scope
    return "+".join(launch.kind for launch in launches if launch.scope == scope)


def _size(shapes: Sequence[Sequence[int]], arity: int) -> int:
    return max((math.prod(shape) for shape in shapes[: max(arity, 1)]), default=0)
