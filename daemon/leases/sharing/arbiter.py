# SPDX-License-Identifier: Apache-2.0
"""What the board is to be set to for all leases together.

Policy. Where at most one lease has a network, the board gets on each axis the highest clock that any lease needs. Where several
have, their frames wait for each other, and clocks at which each keeps its deadline alone are too low: then one configuration is
chosen at which all of them do, at the least energy, with no clock below what a lease needs that asks for a configuration or
prefers speed. Nobody is preferred, and the order in which leases came does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from ....kernels.errors import GridError
from ....kernels.grid import FrequencyConfiguration
from ...errors import UsageError
from ...planning.lease_plan import LeasePlan, Work
from ...planning.limits import Limits
from ..lease import Lease, combine

if TYPE_CHECKING:
    from .joint import Joint


@dataclass(frozen=True)
class SharedLatency:
    """How a lease's frames fare with those of others.

    Attributes:
        leases: the others.
        latency_ms: how long a frame takes at most with the wait for one of each of theirs.
        limit_ms: how long it may take; None for any time.
        unmet: why that is more than it may, and what is the best attainable; empty where it is not.
    """

    leases: tuple[str, ...]
    latency_ms: float
    limit_ms: float | None
    unmet: str = ""


Decided: TypeAlias = tuple[tuple[LeasePlan, ...], Limits, "Joint | None"]
"""For which needs and within what was decided, and what."""


class Arbiter:
    """Decides for the leases in force; what it found is kept until they, or the limits, are others. For one thread."""

    def __init__(self) -> None:
        self._decided: Decided | None = None
        self._fared: tuple[tuple[LeasePlan, ...], FrequencyConfiguration, dict[str, SharedLatency]] | None = None

    def wish(self, leases: Sequence[Lease], limits: Callable[[], Limits]) -> FrequencyConfiguration:
        """What the leases need together.

        Raises:
            DaemonError: the limits cannot be told.
        """
        plans = tuple(lease.plan for lease in leases)
        joint = self._joint(leases, limits()) if len(sharers(leases)) > 1 else None
        if joint is None:
            return combine(plans)
        return combine([replace(plans[0], configuration=joint.configuration), *(n for n in plans if n.work is None)])

    def forget(self) -> None:
        """Let go of what was found for leases that have ended."""
        self._decided = self._fared = None

    def fares(self, leases: Sequence[Lease], configuration: FrequencyConfiguration) -> dict[str, SharedLatency]:
        """How the frames of each fare at a configuration; of nobody where at most one lease has a network."""
        plans, fared = tuple(lease.plan for lease in leases), self._fared
        if fared is None or fared[1] != configuration or not _same(fared[0], plans):
            self._fared = fared = (plans, configuration, self._fares(leases, configuration))
        return fared[2]

    def _fares(self, leases: Sequence[Lease], configuration: FrequencyConfiguration) -> dict[str, SharedLatency]:
        works = sharers(leases)
        if len(works) < 2:
            return {}
        from .joint import KEPT, fare_ms  # only while applications share the GPU

        asked = {one.id: replace(works[one.id], confidence=one.plan.confidence) for one in leases if one.id in works}
        try:
            found = fare_ms(asked, configuration)
        except GridError:
            return {}
        fares = {}
        for name, latency_ms in found.items():
            others = [lease for lease in leases if lease.id in works and lease.id != name]
            fare = SharedLatency(tuple(other.id for other in others), latency_ms, works[name].limit_ms)
            if fare.limit_ms is not None and latency_ms > fare.limit_ms * KEPT:
                fare = replace(fare, unmet=_unmet(fare, others, configuration, self._decided))
            fares[name] = fare
        return fares

    def _joint(self, leases: Sequence[Lease], limits: Limits) -> Joint | None:
        decided, plans = self._decided, tuple(lease.plan for lease in leases)
        if decided is None or decided[1] != limits or not _same(decided[0], plans):
            self._decided = decided = (plans, limits, _decide(leases, limits))
            self._fared = None
        return decided[2]


def sharers(leases: Sequence[Lease]) -> Mapping[str, Work]:
    """What the frames of each lease ask of the GPU, where that is known and of one grid."""
    works = {lease.id: replace(lease.plan.work, process=lease.holder.pid) for lease in leases if lease.plan.work is not None}
    grids = {work.surface.grid for work in works.values()}
    return works if len(grids) == 1 else {}


def _same(ones: Sequence[LeasePlan], others: Sequence[LeasePlan]) -> bool:
    return len(ones) == len(others) and all(one is other for one, other in zip(ones, others, strict=True))


def _decide(leases: Sequence[Lease], limits: Limits) -> Joint | None:
    from .joint import jointly

    works = sharers(leases)
    firm = [lease.plan for lease in leases if lease.id not in works or not works[lease.id].frugal]
    least = combine(firm) if firm else None
    cautious = list(works.values())
    asked = [replace(works[lease.id], confidence=lease.plan.confidence) for lease in leases if lease.id in works]
    same = all(one.confidence == other.confidence for one, other in zip(cautious, asked, strict=True))
    try:
        found = jointly(cautious, limits, least)
        return found if found.attained or same else jointly(asked, limits, least)
    except UsageError:  # a grid of which the board offers nothing now
        return None


def _unmet(fare: SharedLatency, others: Sequence[Lease], configuration: FrequencyConfiguration, decided: Decided | None) -> str:
    whose = " and ".join(other.label for other in others)
    text = f"latency up to {fare.latency_ms:.4g} ms, over {fare.limit_ms:.4g} ms, as its frames wait for those of {whose}"
    _, limits, joint = decided or ((), Limits(), None)
    if joint is None or joint.attained or joint.configuration != configuration:
        return f"{text} at the clocks in force"
    within = f" within {limits.budget}" if limits.budget else ""
    return f"{text}; no configuration{within} meets what all ask for, and that is the best attainable, at {configuration}"
