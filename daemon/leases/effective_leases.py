# SPDX-License-Identifier: Apache-2.0
"""Leases as they count now.

After :data:`SILENT_S` without frames, a lease is no load for other leases; under a budget, also before its first frame. A lease
in standby has the clocks of standby.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ..planning.lease_plan import LeasePlan
from .budgets.budget_scaling import BudgetScaling
from .lease import Lease

SILENT_S = 60.0


class EffectiveLeases:
    """Makes the counting leases, unchanged ones identical; ``notes`` name lowered configurations. For one thread."""

    def __init__(self) -> None:
        self.notes: tuple[str, ...] = ()
        self._made: dict[str, tuple[LeasePlan, LeasePlan]] = {}

    def leases(
        self,
        leases: Sequence[Lease],
        now_s: float,
        *,
        budget: str = "",
        capping: BudgetScaling | None = None,
        levels: Mapping[str, Sequence[int]] | None = None,
        parked: Mapping[str, LeasePlan] | None = None,
    ) -> tuple[Lease, ...]:
        """Leases as they count under a budget in words; ``parked`` are clocks of leases in standby."""
        found, made, notes = [], {}, []
        for lease in leases:
            plan, idle = lease.plan, lease.plan.work is not None and idles(lease, now_s, budgeted=bool(budget))
            configuration = plan.configuration
            changed = plan if plan.idle == idle else replace(plan, idle=idle)
            if parked and lease.id in parked:
                resting = parked[lease.id]
                changed = replace(plan, idle=True, parked=True, configuration=resting.configuration, governed=resting.governed)
            elif plan.planner is None and capping is not None and levels is not None:
                configuration = capping.cap(configuration, levels)
                changed = changed if configuration == plan.configuration else replace(changed, configuration=configuration)
            if changed is plan:
                found.append(lease)
                continue
            before = self._made.get(lease.id)
            made[lease.id] = before if before is not None and before[0] is plan and before[1] == changed else (plan, changed)
            found.append(replace(lease, plan=made[lease.id][1]))
            if configuration != plan.configuration:
                notes.append(f"{lease.label}: lowered to {configuration}, as the board may draw {budget}")
        self._made, self.notes = made, tuple(notes)
        return tuple(found)


def idles(lease: Lease, now_s: float, *, budgeted: bool) -> bool:
    if lease.frames.last_s is None:
        return budgeted or now_s - lease.since_s > SILENT_S
    return now_s - lease.frames.last_s > SILENT_S
