# SPDX-License-Identifier: Apache-2.0
"""Held leases in the light of their frames: targets that are missed are said at once, and plans that were wrong made again.

Policy. A lease whose frames miss its target is planned again at once, by its surface as all that was observed corrects it.
Where no configuration is predicted to meet the target, the best there is comes into force and is said. While throttling,
over-current or somebody else's hands slow the board down, nothing is learned and nothing is planned: that is said instead. A
lease that keeps its target is looked at after ten frames and then less and less often, and set otherwise only where that gains
more than a change of clocks is worth. Everything here happens on the event loop, because of a report; plans are made and set
elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...kernels.correction.observation import Observation
from ...kernels.errors import KernelsError
from ...kernels.grid import FrequencyConfiguration
from ...kernels.surface import Surface
from ..board.desk import Desk
from ..board.snapshot import Snapshot
from ..errors import DaemonError, TargetNotAttainable
from ..hardware.sensors.sampled import SampledSensors
from ..leases import Lease, Need
from ..planner import Limits
from ..planning.wishes import Wish
from ..sharing.arbiter import sharers
from ..sharing.observed import without_waiting
from ..system.journal import TARGET_KEPT, TARGET_MISSED, TROUBLE, fields
from .correcting import has
from .frames import Company, Setting
from .memory import Memory
from .missed import Missed, is_missed, typical, why
from .used import SHORTEST_S, energy_since_mj, used

log = logging.getLogger(__name__)

GAIN = 0.03
"""By how much what a target prefers must become lower for clocks to be changed that keep it."""
CAUTION = 0.9
"""With which probability a plan that was made again keeps the target, at least: one miss is enough."""
_COMPANY_S = 2.0
_FIRST_LOOK_FRAMES = 10
_FIRST_WAIT_S, _LONGEST_WAIT_S = 5.0, 300.0

Making = Callable[[Sequence[Observation], bool], Surface]
"""Makes a lease's surface, for the board as warm as it is, corrected by observations; cautiously or not."""


@dataclass
class Course:
    """How one lease with a target goes.

    Attributes:
        key: what its surface is known by.
        wish: what it was planned by last.
        make: makes its surface anew.
        missed: how it misses its target; None while it keeps it.
        late_before: how many frames were late when it was seen to keep it last.
        due_frames: it is not planned again before so many frames were reported.
        due_s, wait_s: when it is looked at next while it keeps its target, and how long after that.
        frugal: whether it was set otherwise for a gain, while it kept its target.
    """

    key: str
    wish: Wish
    make: Making
    missed: Missed | None = None
    late_before: int = 0
    due_frames: int = 0
    due_s: float = 0.0
    wait_s: float = _FIRST_WAIT_S
    frugal: bool = False
    planning: asyncio.Task[None] | None = None
    lease: Lease | None = None


class Learner:
    """For the event loop.

    Args:
        desk: the board and its leases.
        sensors: the board's.
        energy_rails: those whose sum is the board's power.
        memory: keeps what was observed when a lease ends.
    """

    def __init__(
        self,
        desk: Desk,
        sensors: SampledSensors,
        energy_rails: Sequence[str],
        memory: Memory,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._desk = desk
        self._sensors = sensors
        self._energy_rails = tuple(energy_rails)
        self._memory = memory
        self._monotonic = monotonic
        self._courses: dict[str, Course] = {}
        self._began_mj: dict[str, dict[str, float]] = {}

    def began(self, lease: Lease, course: Course | None) -> None:
        """A lease was granted, for a target with its course or for a configuration."""
        self._sensors.want()
        self._began_mj[lease.id] = self._sensors.energy_mj()
        self.follow(lease, course)

    def follow(self, lease: Lease, course: Course | None) -> None:
        """Let a lease go on from here by another course, or by none."""
        self._remember(self._courses.pop(lease.id, None))
        if course is not None:
            self._courses[lease.id] = replace(course, lease=lease)

    def ended(self) -> None:
        """Leases have ended, or will have in a moment: what was observed of those that are held no longer is kept."""
        held = self._desk.snapshot.leases
        for name in [name for name in self._courses if name not in held]:
            self._remember(self._courses.pop(name))
        self._began_mj = {name: began for name, began in self._began_mj.items() if name in held}

    def _remember(self, course: Course | None) -> None:
        if course is not None and course.lease is not None:
            self._memory.remember(course.key, course.lease.frames.observations(self._monotonic(), frozenset()))

    def energy_mj(self, lease: Lease) -> float | None:
        """What the board used since a lease began, by its energy rails; None where they are not read, or were too seldom."""
        if self._monotonic() - lease.since_s < SHORTEST_S:
            return None
        return energy_since_mj(self._began_mj.get(lease.id), self._sensors.energy_mj(), self._energy_rails)

    def used(self, lease: Lease) -> dict[str, Any]:
        """What a lease came to up to now: the ``Used`` of the interface."""
        return used(lease, self._monotonic(), self.energy_mj(lease))

    def wish(self, lease_id: str) -> Wish | None:
        """What a lease was planned by last; None for a configuration asked for by itself."""
        course = self._courses.get(lease_id)
        return course.wish if course else None

    def missed(self, lease_id: str) -> Missed | None:
        """How a lease misses its target; None while it keeps it."""
        course = self._courses.get(lease_id)
        return course.missed if course else None

    def report(self, lease: Lease, latencies_ms: Sequence[float]) -> None:
        """Take in a lease's frames, and do what follows from them."""
        snapshot, now_s = self._desk.snapshot, self._monotonic()
        frames, need = lease.frames, lease.need
        throttled = self._sensors.throttled()
        over_current = tuple(f"{e.event} {e.per_minute:.3g} a minute" for e in snapshot.events if e.per_minute)
        disturbed = bool(throttled or over_current or snapshot.deviating)
        setting = None
        if snapshot.applied is not None:
            setting = Setting(snapshot.applied.accepted, snapshot.set_s, disturbed)
        others = self._company(lease, snapshot, now_s)
        company = frozenset(other.need.network or other.holder.app for other in others)
        period_ms = 1e3 / need.fps if need.fps else None
        frames.report(latencies_ms, now_s, setting, company=company, limit_ms=need.limit_ms, period_ms=period_ms)
        frames.power(self._sensors.rails_sampled(), self._energy_rails if not others else ())
        course = self._courses.get(lease.id)
        if course is None or setting is None:
            return
        if frames.wants_power():
            self._sensors.want()
        missed = None if need.limit_ms is None else is_missed(tuple(frames.recent_ms), need.limit_ms, need.confidence)
        if missed and need.limit_ms is not None:
            predicted_ms = _predicted_ms(course.wish.surface, setting.configuration)
            observed_ms = typical(tuple(frames.recent_ms))
            reason = why(
                observed_ms,
                predicted_ms,
                throttled=throttled,
                over_current=over_current,
                deviating=snapshot.deviating,
                company=[other.label for other in others],
            )
            self._say_missed(lease, course, observed_ms, predicted_ms, reason)
            if not disturbed and frames.reported >= course.due_frames:
                self._plan(lease.id, course, company, reason)
            return
        if missed is False:
            self._say_kept(lease, course)
        if not disturbed and len(frames.recent_ms) >= _FIRST_LOOK_FRAMES and now_s >= course.due_s:
            course.due_s, course.wait_s = now_s + course.wait_s, min(2 * course.wait_s, _LONGEST_WAIT_S)
            self._plan(lease.id, course, company, None)

    def revise(self, lease_id: str, reason: str) -> None:
        """Plan a held lease again, because of something other than its frames."""
        lease, course = self._desk.snapshot.leases.get(lease_id), self._courses.get(lease_id)
        if lease is not None and course is not None:
            others = self._company(lease, self._desk.snapshot, self._monotonic())
            self._plan(lease_id, course, frozenset(other.need.network or other.holder.app for other in others), reason)

    def _company(self, lease: Lease, snapshot: Snapshot, now_s: float) -> list[Lease]:
        return [
            other
            for other in snapshot.leases.values()
            if other.id != lease.id and other.frames.last_s is not None and now_s - other.frames.last_s < _COMPANY_S
        ]

    def _say_missed(self, lease: Lease, course: Course, observed_ms: float, predicted_ms: float | None, reason: str) -> None:
        before, limit_ms = course.missed, lease.need.limit_ms or 0.0
        late = lease.frames.late - course.late_before
        if before is None and course.frugal:
            course.wait_s, course.frugal = _LONGEST_WAIT_S, False  # what was gained was lost again
        doing = lease.need.unmet or (before.doing if before else "")
        course.missed = Missed(lease.need.target, limit_ms, observed_ms, predicted_ms, late, reason, doing)
        if before is None or (before.reason != reason and before.doing != doing):
            extra = _about(lease, TARGET_MISSED, reason=reason, observed_ms=f"{observed_ms:.4g}", limit_ms=f"{limit_ms:.4g}")
            log.warning("%s: %s", lease.label, course.missed, extra=extra)

    def _say_kept(self, lease: Lease, course: Course) -> None:
        late, course.late_before = lease.frames.late - course.late_before, lease.frames.late
        missed, course.missed = course.missed, None
        if missed is not None:
            observed_ms = typical(tuple(lease.frames.recent_ms))
            text = f"{lease.need.target} is kept again: {observed_ms:.4g} ms observed, after {late} late frames"
            log.info("%s: %s", lease.label, text, extra=_about(lease, TARGET_KEPT, observed_ms=f"{observed_ms:.4g}"))

    def _plan(self, lease_id: str, course: Course, company: Company, reason: str | None) -> None:
        """Plan again in the background, unless that is under way; without a reason, where that gains enough."""
        if course.planning is None or course.planning.done():
            course.planning = asyncio.get_running_loop().create_task(self._plan_again(lease_id, course, company, reason))

    async def _plan_again(self, lease_id: str, course: Course, company: Company, reason: str | None) -> None:
        lease = self._desk.snapshot.leases.get(lease_id)
        if lease is None:
            return
        before, frugal = lease.need.configuration, reason is None
        try:
            seen = await self._seen(lease, course, company)
            wish = replace(course.wish, surface=await asyncio.to_thread(course.make, seen, course.missed is not None))
            if reason is None:
                reason = await asyncio.to_thread(_worth_while, wish, lease.need, self._desk.snapshot.limits)
                if reason is None:
                    return
            need = await self._desk.replan(lease, partial(best_need, wish), reason)
        except (DaemonError, KernelsError) as error:
            log.warning("%s keeps its plan: %s", lease.label, error, extra=_about(lease, TROUBLE, error=type(error).__name__))
            course.due_frames = 2 * lease.frames.reported
            return
        if need is None:
            return
        course.wish, course.due_s, course.frugal = wish, self._monotonic() + course.wait_s, frugal
        # The same clocks again: more frames must say more before they are planned for once more.
        course.due_frames = lease.frames.reported + (max(lease.frames.reported, 16) if need.configuration == before else 0)
        if course.missed is not None:
            unkept = self._desk.snapshot.unkept.get(lease_id)
            shared = unkept.reason if unkept is not None and lease_id in self._desk.snapshot.fares else ""
            course.missed = replace(course.missed, doing=need.unmet or shared or f"planned again: {need.configuration}")

    async def _seen(self, lease: Lease, course: Course, company: Company) -> list[Observation]:
        """What was observed of a lease's frames in this company; where they waited for frames that are known, without that."""
        now_s = self._monotonic()
        seen = lease.frames.observations(now_s, company)
        others = self._company(lease, self._desk.snapshot, now_s)
        known = list(sharers(others).values())
        if not company or len(known) < len(others):
            return seen
        alone = lease.frames.observations(now_s, frozenset())
        if not others:
            return alone
        surface = await asyncio.to_thread(course.make, alone, course.missed is not None)
        own = replace(course.wish.work, surface=surface, process=lease.holder.pid)
        return await asyncio.to_thread(without_waiting, seen, alone, own, known)


def best_need(wish: Wish, limits: Limits) -> Need:
    """What a lease needs within limits, with :data:`CAUTION` where that leaves anything; where nothing is predicted to meet its
    target at all, the configuration that comes closest.
    """
    again = partial(best_need, wish)
    for confidence in (max(wish.confidence or 0.0, CAUTION), wish.confidence):
        with contextlib.suppress(TargetNotAttainable):
            need = replace(wish, confidence=confidence).need(limits)
            return replace(need, again=again, confidence=wish.confidence, missed=wish.missed)
    return replace(wish.closest(limits), again=again)


def _predicted_ms(surface: Surface, configuration: FrequencyConfiguration) -> float | None:
    return float(surface.latency_ms[surface.grid.index(configuration)]) if has(surface, configuration) else None


def _worth_while(wish: Wish, held: Need, limits: object) -> str | None:
    """Why a lease that keeps its target is better planned again; None where it is not."""
    if not isinstance(limits, Limits):
        return None
    if (unkept := wish.missed(held.configuration)) is not None:
        return f"by what was observed, {unkept}"
    need = best_need(wish, limits)
    if need.unmet:
        return None
    gain = wish.gain(held.configuration, need.configuration)
    return f"by what was observed, {gain:.0%} is gained" if gain >= GAIN else None


def _about(lease: Lease, kind: str, **more: Any) -> dict[str, str]:
    values = {"lease": lease.id, "app": lease.holder.app, "pid": lease.holder.pid, "target": lease.need.target, **more}
    return fields(kind, configuration=",".join(map(str, lease.need.configuration)), **values)
