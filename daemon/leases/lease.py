# SPDX-License-Identifier: Apache-2.0
"""Leases in force, and the highest clocks that they need.

No lease is slowed down for another; one that saves energy may be *raised* by another, and reports so.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from ...kernels.grid import FrequencyConfiguration
from ..errors import LeaseEnded, LimitReached, NotPermitted, UsageError
from ..planning.lease_plan import LeasePlan
from .frames import FrameLog

_ENDED_KEPT = 256


class Holder(Struct, frozen=True):
    """Owner of a lease; if it ``yields``, its leases count only while no other is held."""

    connection: Hashable
    pid: int
    uid: int
    app: str
    yields: bool = False
    standby: bool = True


class Lease(Struct, frozen=True):
    """One lease; ``since_s`` is on the caller's monotonic clock, ``changes`` counts later requests."""

    id: str
    holder: Holder
    plan: LeasePlan
    reason: str
    since_s: float
    frames: FrameLog = field(default_factory=FrameLog)
    changes: int = 0

    @property
    def label(self) -> str:
        return f"lease {self.id} of {self.holder.app}"


class LeaseLimits(Struct, frozen=True):
    """Limits on leases; root has none of its own, and ``for_root`` of all, at most an eighth, are kept for it."""

    total: int = 64
    per_user: int = 16
    per_connection: int = 8
    for_root: int = 8


class LeaseBook:
    """Leases in force, with the last ended by another actor than the holder; never touches the board."""

    def __init__(self, limits: LeaseLimits | None = None) -> None:
        self._limits = limits or LeaseLimits()
        self._leases: dict[str, Lease] = {}
        self._count = 0
        self.ended: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._leases)

    def __iter__(self) -> Iterator[Lease]:
        return iter(tuple(self._leases.values()))

    def new(self, holder: Holder, plan: LeasePlan, reason: str, now_s: float) -> Lease:
        limits = self._limits
        here = sum(lease.holder.connection == holder.connection for lease in self._leases.values())
        own = sum(lease.holder.uid == holder.uid for lease in self._leases.values())
        total, most_of_one = limits.total, limits.total
        if holder.uid != 0:
            total -= min(limits.for_root, limits.total // 8)
            most_of_one = limits.per_user
        if len(self._leases) >= total or own >= most_of_one or here >= limits.per_connection:
            raise LimitReached(
                f"{len(self._leases)} leases are held, {own} of them by uid {holder.uid}, {here} by this connection; "
                f"at most {total}, {most_of_one} and {limits.per_connection}"
            )
        self._count += 1
        return Lease(str(self._count), holder, plan, reason, now_s)

    def add(self, lease: Lease) -> None:
        self._leases[lease.id] = lease

    def remove(self, lease: Lease, by: str = "") -> None:
        self._leases.pop(lease.id, None)
        if by:
            self.ended[lease.id] = by
            while len(self.ended) > _ENDED_KEPT:
                self.ended.popitem(last=False)

    def renew(self, lease: Lease, plan: LeasePlan, *, asked: bool = False) -> Lease:
        self._leases[lease.id] = renewed = replace(lease, plan=plan, changes=lease.changes + asked)
        return renewed

    def by_id(self) -> dict[str, Lease]:
        return dict(self._leases)

    def of(self, connection: Hashable) -> list[Lease]:
        return [lease for lease in self._leases.values() if lease.holder.connection == connection]


def find(leases: Mapping[str, Lease], lease_id: str, *, uid: int, ended: Mapping[str, str] | None = None) -> Lease:
    """The lease of this name, for a caller of this user; raises LeaseEnded if another actor than its holder ended it,
    UsageError or NotPermitted.
    """
    lease = leases.get(lease_id)
    if lease is None and ended and lease_id in ended:
        raise LeaseEnded(f"lease {lease_id} was ended by {ended[lease_id]}")
    if lease is None:
        held = ", ".join(leases) or "none"
        raise UsageError(f"lease {lease_id!r:.40} is not held; held: {held}")
    if uid not in (0, lease.holder.uid):
        raise NotPermitted(f"lease {lease_id} belongs to uid {lease.holder.uid}; only its holder or root may do that")
    return lease


def combine(plans: Sequence[LeasePlan]) -> FrequencyConfiguration:
    configurations = [plan.configuration for plan in plans]
    return FrequencyConfiguration(*(max(axis) for axis in zip(*configurations, strict=True)))


def raised_by(lease: Lease, leases: Iterable[Lease]) -> list[str]:
    own = [(axis, level) for axis, level in lease.plan.configuration._asdict().items() if axis not in lease.plan.governed]
    return [
        other.id
        for other in leases
        if other is not lease
        and not other.holder.yields
        and any(getattr(other.plan.configuration, axis) > level for axis, level in own)
    ]


def about(lease: Lease) -> dict[str, object]:
    holder = lease.holder
    return {"lease": lease.id, "app": holder.app, "pid": holder.pid, "uid": holder.uid, "target": lease.plan.target}
