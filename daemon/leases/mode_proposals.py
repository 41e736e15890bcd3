# SPDX-License-Identifier: Apache-2.0
"""Power modes proposed for held leases, found in the background after each plan."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from typing import TYPE_CHECKING, Any

from ...kernels.errors import KernelsError
from ...kernels.grid import FrequencyConfiguration
from ..errors import DaemonError, TargetNotAttainable
from ..planning.lease_plan import LeasePlan, PlanRequest
from ..planning.limits import ClockLimits
from .board.snapshot import BoardReading
from .lease import Lease

if TYPE_CHECKING:
    from ..planning.modes import ModeProposal

log = logging.getLogger(__name__)

_KEPT = 32


class ModeProposals:
    def __init__(self, reading: Callable[[], BoardReading], bounds: ClockLimits) -> None:
        self._reading = reading
        self._bounds = bounds
        self._made: OrderedDict[Hashable, ModeProposal | None] = OrderedDict()
        self._found: dict[str, tuple[LeasePlan, ModeProposal | None]] = {}
        self._finding: dict[str, asyncio.Task[None]] = {}

    async def of(self, request: PlanRequest, held: FrequencyConfiguration | None) -> ModeProposal | None:
        """Power mode proposed for a request; ``held`` is its configuration, None if none meets the target."""
        seen = self._reading()
        if seen.mode is None or seen.modes is None:
            return None
        asked = (request.surface, request.target, request.fps, request.confidence, seen.mode.id, held)
        if asked in self._made:
            self._made.move_to_end(asked)
            return self._made[asked]
        from ..planning.modes import propose  # not before a lease is held

        made = await asyncio.to_thread(propose, request, seen.modes, seen.mode, held, self._bounds)
        self._made[asked] = made
        while len(self._made) > _KEPT:
            self._made.popitem(last=False)
        return made

    async def with_proposal(self, error: TargetNotAttainable, request: PlanRequest) -> TargetNotAttainable:
        proposal = await self.of(request, None)
        return error if proposal is None else TargetNotAttainable(f"{error}; {proposal.note}")

    def follow(self, leases: Collection[Lease], request: Callable[[str], PlanRequest | None]) -> None:
        held = {lease.id for lease in leases}
        self._found = {name: found for name, found in self._found.items() if name in held}
        self._finding = {name: task for name, task in self._finding.items() if not task.done()}
        for lease in leases:
            known, asked = self._found.get(lease.id), request(lease.id)
            if asked is not None and lease.id not in self._finding and (known is None or known[0] is not lease.plan):
                self._finding[lease.id] = asyncio.get_running_loop().create_task(self._find(lease, asked))

    def of_lease(self, lease_id: str) -> dict[str, Any] | None:
        _, proposal = self._found.get(lease_id, (None, None))
        return None if proposal is None else proposal.to_json()

    async def _find(self, lease: Lease, request: PlanRequest) -> None:
        try:
            found = await self.of(request, None if lease.plan.unmet else lease.plan.configuration)
        except (DaemonError, KernelsError) as error:
            log.debug("%s: no power mode is proposed: %s", lease.label, error)
            found = None
        self._found[lease.id] = (lease.plan, found)
