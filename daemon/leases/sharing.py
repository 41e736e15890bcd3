# SPDX-License-Identifier: Apache-2.0
"""Common clocks of all leases, independent of their order.

With one network at most, each axis gets the highest clock that any lease needs. Frames of several networks wait for each other:
one configuration then keeps all deadlines at the least energy, at or above the clocks of leases without a deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ...kernels.errors import GridError
from ...kernels.grid import FrequencyConfiguration
from ..errors import UsageError
from ..planning.lease_plan import GpuLoad, LeasePlan
from ..planning.limits import Limits
from .lease import Lease, combine

if TYPE_CHECKING:
    from .joint_choice import JointChoice


class SharedLatency(Struct, frozen=True):
    """Latency of a lease's frames on a shared GPU, including the wait for a frame of each other lease."""

    leases: tuple[str, ...]
    latency_ms: float
    limit_ms: float | None
    unmet: str = ""


Decided: TypeAlias = tuple[tuple[LeasePlan, ...], Limits, "JointChoice | None"]


class Arbiter:
    """Decides for the leases in force, and keeps the result until they or the limits change. For one thread."""

    def __init__(self) -> None:
        self._decided: Decided | None = None
        self._shared: tuple[tuple[LeasePlan, ...], FrequencyConfiguration, dict[str, SharedLatency]] | None = None

    def requested(self, leases: Sequence[Lease], limits: Callable[[], Limits]) -> FrequencyConfiguration:
        plans = tuple(lease.plan for lease in leases)
        joint = self._joint(leases, limits()) if len(sharers(leases)) > 1 else None
        if joint is None:
            return combine(plans)
        return combine([replace(plans[0], configuration=joint.configuration), *(n for n in plans if n.work is None)])

    def forget(self) -> None:
        self._decided = self._shared = None

    def shared_latencies(self, leases: Sequence[Lease], configuration: FrequencyConfiguration) -> dict[str, SharedLatency]:
        plans, known = tuple(lease.plan for lease in leases), self._shared
        if known is None or known[1] != configuration or not _same(known[0], plans):
            self._shared = known = (plans, configuration, self._shared_latencies(leases, configuration))
        return known[2]

    def _shared_latencies(self, leases: Sequence[Lease], configuration: FrequencyConfiguration) -> dict[str, SharedLatency]:
        works = sharers(leases)
        if len(works) < 2:
            return {}
        from .joint_choice import KEPT, shared_latency_ms  # only for applications that share the GPU

        asked = {one.id: replace(works[one.id], confidence=one.plan.confidence) for one in leases if one.id in works}
        try:
            found = shared_latency_ms(asked, configuration)
        except GridError:
            return {}
        shared_latencies = {}
        for name, latency_ms in found.items():
            others = [lease for lease in leases if lease.id in works and lease.id != name]
            shared = SharedLatency(tuple(other.id for other in others), latency_ms, works[name].limit_ms)
            if shared.limit_ms is not None and latency_ms > shared.limit_ms * KEPT:
                shared = replace(shared, unmet=_unmet(shared, others, configuration, self._decided))
            shared_latencies[name] = shared
        return shared_latencies

    def _joint(self, leases: Sequence[Lease], limits: Limits) -> JointChoice | None:
        decided, plans = self._decided, tuple(lease.plan for lease in leases)
        if decided is None or decided[1] != limits or not _same(decided[0], plans):
            self._decided = decided = (plans, limits, _decide(leases, limits))
            self._shared = None
        return decided[2]


def sharers(leases: Sequence[Lease]) -> Mapping[str, GpuLoad]:
    works = {lease.id: replace(lease.plan.work, process=lease.holder.pid) for lease in leases if lease.plan.work is not None}
    grids = {work.surface.grid for work in works.values()}
    return works if len(grids) == 1 else {}


def _same(ones: Sequence[LeasePlan], others: Sequence[LeasePlan]) -> bool:
    return len(ones) == len(others) and all(one is other for one, other in zip(ones, others, strict=True))


def _decide(leases: Sequence[Lease], limits: Limits) -> JointChoice | None:
    from .joint_choice import jointly

    works = sharers(leases)
    firm = [lease.plan for lease in leases if lease.id not in works or not works[lease.id].frugal]
    least = combine(firm) if firm else None
    cautious = list(works.values())
    asked = [replace(works[lease.id], confidence=lease.plan.confidence) for lease in leases if lease.id in works]
    same = all(one.confidence == other.confidence for one, other in zip(cautious, asked, strict=True))
    try:
        found = jointly(cautious, limits, least)
        return found if found.attained or same else jointly(asked, limits, least)
    except UsageError:  # the board offers nothing of the grid now
        return None


def _unmet(
    shared: SharedLatency, others: Sequence[Lease], configuration: FrequencyConfiguration, decided: Decided | None
) -> str:
    whose = " and ".join(other.label for other in others)
    text = f"latency up to {shared.latency_ms:.4g} ms, over {shared.limit_ms:.4g} ms, as its frames wait for those of {whose}"
    _, limits, joint = decided or ((), Limits(), None)
    if joint is None or joint.attained or joint.configuration != configuration:
        return f"{text} at the clocks in force"
    within = f" within {limits.budget}" if limits.budget else ""
    return f"{text}; no configuration{within} meets every target; the best attainable is {configuration}"
