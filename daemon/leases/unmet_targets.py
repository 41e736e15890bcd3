# SPDX-License-Identifier: Apache-2.0
"""Targets that the clocks in force do not meet, and their causes."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from ..hardware.applied_setting import AppliedSetting
from ..system.journal import TROUBLE, RepeatedLog, fields
from .demand_floors import Floors
from .lease import Lease, about, raised_by
from .sharing import Arbiter, SharedLatency


class UnmetTarget(Struct, frozen=True):
    target: str
    reason: str
    leases: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.target} is not kept: {self.reason}"


def find_unmet_targets(
    leases: Collection[Lease],
    applied: AppliedSetting | None,
    floors: Floors,
    unmet: Mapping[str, str],
    shared_latencies: Mapping[str, SharedLatency],
) -> dict[str, UnmetTarget]:
    found = {}
    for lease in leases:
        missed = lease.plan.missed(applied.accepted) if applied is not None else None
        others = tuple(raised_by(lease, leases)) if missed else ()
        if text := unmet.get(lease.id, lease.plan.unmet):
            found[lease.id] = UnmetTarget(lease.plan.target, text, others)
        elif (shared := shared_latencies.get(lease.id)) is not None and shared.unmet:
            found[lease.id] = UnmetTarget(lease.plan.target, shared.unmet, shared.leases)
        elif missed:
            others = others or (shared.leases if shared is not None else ())
            found[lease.id] = UnmetTarget(lease.plan.target, f"{missed}, {_because(lease, leases, others, floors)}", others)
    return found


class TargetMonitor:
    def __init__(self, arbiter: Arbiter, repeated_log: RepeatedLog) -> None:
        self.unmet_targets: dict[str, UnmetTarget] = {}
        self.shared_latencies: dict[str, SharedLatency] = {}
        self.texts: tuple[str, ...] = ()
        self._arbiter = arbiter
        self._said = repeated_log

    def update(self, leases: Sequence[Lease], applied: AppliedSetting | None, floors: Floors, unmet: Mapping[str, str]) -> None:
        self.shared_latencies = self._arbiter.shared_latencies(leases, applied.accepted) if applied is not None else {}
        before, self.unmet_targets = (
            self.unmet_targets,
            find_unmet_targets(leases, applied, floors, unmet, self.shared_latencies),
        )
        messages = {
            lease.id: f"{lease.label}: {self.unmet_targets[lease.id]}" for lease in leases if lease.id in self.unmet_targets
        }
        self.texts = tuple(messages.values())
        for lease in leases:
            if lease.id in messages and self.unmet_targets[lease.id] != before.get(lease.id):
                self._said.say(logging.WARNING, messages[lease.id], fields(TROUBLE, **about(lease)))


def _because(lease: Lease, leases: Collection[Lease], others: Collection[str], floors: Floors) -> str:
    if others:
        return (
            f"at the clocks that {' and '.join(one.label for one in leases if one.id in others)} need{'s' * (len(others) == 1)}"
        )
    if floors.reasons and any(
        floor.least > getattr(lease.plan.configuration, floor.clock, floor.least) for floor in floors.floors
    ):
        return f"at the clocks kept up for other work ({'; '.join(floors.reasons)})"
    return "at the clocks that the board, its power mode and the operator's limits allow"
