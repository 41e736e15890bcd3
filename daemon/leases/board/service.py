# SPDX-License-Identifier: Apache-2.0
"""The board and its leases, for the event loop."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from msgspec.structs import replace

from ....kernels.errors import KernelsError
from ....kernels.grid import FrequencyConfiguration, FrequencyGrid
from ...config import Config
from ...errors import DaemonError
from ...hardware.applied_setting import AppliedSetting
from ...hardware.baseline.baseline import RestoreReport
from ...hardware.hardware import Hardware
from ...planning.lease_plan import LeasePlan, Planner
from ...planning.limits import Limits
from ..controller import Controller
from ..lease import Holder, Lease
from .slowdown import EventCounters, SlowdownTracker
from .snapshot import BoardReading, ChangeCount, Snapshot, read_board
from .thread import ANSWER_S, BoardThread


class SharedWait:
    """One result for all waiting clients, up to ``longest_s`` from its start: a hanging board delays only the first."""

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._pending: asyncio.Future[Any] | None = None
        self._until_s = 0.0

    def begin(self, start: Callable[[], Future[Any]]) -> None:
        if self._pending is None or self._pending.done():
            self._pending = asyncio.wrap_future(start())
            self._pending.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._until_s = time.monotonic() + self._longest_s

    async def ended(self) -> None:
        left_s = self._until_s - time.monotonic()
        if self._pending is not None and left_s > 0:
            await asyncio.wait({self._pending}, timeout=left_s)


T = TypeVar("T")

FRESH_S = 1.0
_OLD_S = 1.5
WAIT_S = 0.8
_NEVER = float("-inf")


class BoardService:
    """Controller and board access on a separate thread; ``ended`` counts returned calls to the board's files.

    Methods that wait raise HardwareBusy if the board does not answer in time, and the controller's errors.
    """

    def __init__(
        self,
        hardware: Hardware,
        controller: Controller,
        events: EventCounters,
        writes: deque[tuple[str, str]],
        ended: Callable[[], int],
    ) -> None:
        self._hardware = hardware
        self._controller = controller
        self._events = events
        self._slowed = SlowdownTracker(self._slowing, time.monotonic)
        self._writes = writes
        self._reading = BoardReading(_NEVER, None, (), None, ())
        self._looking = SharedWait(WAIT_S)
        self._applied: AppliedSetting | None = None
        self._changes = ChangeCount()
        self._limits: Limits | DaemonError | KernelsError = DaemonError("the board has not been looked at yet")
        self.snapshot = Snapshot(self._reading, self._limits)
        self.thread = BoardThread(self._tend, lambda: controller.tend_in_s, self._publish, ended)

    async def hold(self, holder: Holder, plan: LeasePlan, reason: str) -> tuple[Lease, AppliedSetting]:
        """As :meth:`Controller.hold`; undone if the connection ends or the wait times out."""
        return await self.thread.run(
            self._changing(lambda: self._controller.hold(holder, plan, reason)),
            user=holder.uid,
            owner=holder.connection,
            undo=lambda granted: self._controller.release(granted[0]),
        )

    def follow_frames(self, lease: Lease) -> None:
        self.thread.submit(self._changing(self._controller.follow_frames), user=lease.holder.uid)

    async def preview(self, plan: LeasePlan, uid: int) -> FrequencyConfiguration:
        return await self.thread.run(lambda: self._controller.preview(plan), user=uid)

    async def replan(self, lease: Lease, planner: Planner, reason: str, *, asked: bool = False) -> Lease | None:
        """As :meth:`Controller.replan`; a change that comes too late is undone."""
        controller = self._controller

        def replan() -> tuple[Lease | None, Lease | None]:
            return controller.leases.by_id().get(lease.id), controller.replan(lease, planner, reason, asked=asked)

        def undo(both: tuple[Lease | None, Lease | None]) -> None:
            if asked and both[0] is not None:
                controller.keep(both[0])

        holder = lease.holder
        return (await self.thread.run(self._changing(replan), user=holder.uid, owner=holder.connection, undo=undo))[1]

    async def grid(self) -> FrequencyGrid:
        return await self.thread.run(self._hardware.grid)

    async def release(self, lease: Lease, uid: int, by: str = "") -> None:
        """As :meth:`Controller.release`; the lease ends even if HardwareBusy is raised."""
        await self.thread.run(self._changing(lambda: self._controller.release(lease, by)), user=uid, ends=True)

    def drop(self, holder: Holder) -> None:
        self.thread.forget(holder.connection)
        self.thread.submit(self._changing(lambda: self._controller.drop(holder.connection)), user=holder.uid, ends=True)

    async def restore(self, longest_s: float = ANSWER_S, by: str = "") -> tuple[int, RestoreReport]:
        def restore() -> tuple[int, RestoreReport]:
            return len(self._controller.leases), self._controller.restore(by)

        return await self.thread.run(self._changing(restore), ends=True, longest_s=longest_s)

    async def reconfigure(self, config: Config) -> tuple[str, ...]:
        """As :meth:`Controller.reconfigure`, applied even if HardwareBusy is raised; return unmet limits."""

        def reconfigure() -> tuple[str, ...]:
            self._controller.reconfigure(config)
            return self._controller.check_limits()

        return await self.thread.run(self._changing(reconfigure), ends=True)

    async def fresh(self) -> Snapshot:
        """The last snapshot, with a new reading if outdated and fast; ``look`` gives its age."""
        seen, asked_s = self.snapshot.reading, time.monotonic()
        age_s = float("inf") if seen.outdated else asked_s - seen.seen_s
        if age_s > FRESH_S:
            self._looking.begin(lambda: self.thread.submit(self.read).future)
            if age_s > _OLD_S:
                await self._looking.ended()
        snapshot = self.snapshot
        if snapshot.reading.seen_s >= asked_s:  # clocks set since the call began do not outdate it
            return replace(snapshot, reading=replace(snapshot.reading, outdated=False))
        return snapshot

    async def limits(self) -> Limits:
        """Permitted clocks now. Raises the error that keeps them unknown."""
        limits = (await self.fresh()).limits
        if isinstance(limits, Limits):
            return limits
        raise limits

    def read(self) -> None:
        self._reading = read_board(self._hardware, time.monotonic())
        try:
            self._limits = self._controller.limits()
        except (DaemonError, KernelsError) as error:
            self._limits = error
            self._reading = replace(self._reading, notes=(*self._reading.notes, f"no clocks can be planned: {error}"))
        if (offered := self._controller.last_offered) is not None:
            self._reading = replace(self._reading, caps=self._hardware.caps(offered))
        self._publish()

    def _changing(self, function: Callable[[], T]) -> Callable[[], T]:
        def change() -> T:
            try:
                return function()
            finally:
                self._reading = replace(self._reading, outdated=True)
                self.thread.when_at_rest(self._read_once)

        return change

    def _read_once(self) -> None:
        if self._reading.outdated and not self.thread.ending:
            self.read()

    def _tend(self) -> None:
        self._controller.tend()
        self._events.sample()
        self._slowed.sample()

    def _slowing(self) -> dict[str, str]:
        over_current = {f"over-current {name}": text for name, text in self._events.slowing.items()}
        hot = {
            f"heat ({text})": f"{text}: clocks are lowered until it is cooler" for text in self._hardware.sensors.throttled()
        }
        return hot | over_current

    def _publish(self) -> None:
        controller, budgets = self._controller, self._controller.budgets
        applied, before = controller.applied, self._applied
        if applied is not None and applied is not before and applied.writes:
            self._changes = ChangeCount(self._changes.count + 1, self._changes.total_ms + applied.elapsed_ms)
        self._applied = applied
        self.snapshot = Snapshot(
            reading=self._reading,
            limits=controller.last_limits or self._limits,
            leases=controller.leases.by_id(),
            ended=dict(controller.leases.ended),
            unmet_targets=dict(controller.targets.unmet_targets),
            shared_latencies=controller.targets.shared_latencies,
            budget=None if budgets is None else budgets.budget,
            ceiling_c=None if budgets is None else budgets.ceiling_c,
            supply=None if budgets is None else budgets.supply,
            applied=controller.applied,
            set_s=controller.changed_s,
            changes=self._changes,
            deviating=controller.troubles,
            floors=controller.floors,
            troubles=(*self._events.notes, *controller.troubles, *controller.notes),
            events=self._events.events,
            touched=self._hardware.touched,
            writes=tuple(self._writes),
            standby=controller.standby.leases,
            operator=controller.operator,
        )
