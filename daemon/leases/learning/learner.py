# SPDX-License-Identifier: Apache-2.0
"""Learning from frames: report missed targets, and correct wrong plans.

A lease that misses its target is planned again at once, unless heat, over-current or deviating clocks slow the board. A lease
that keeps it is reviewed after ten frames, then ever less often, and changed only for a sufficient gain.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ....kernels.errors import KernelsError
from ....kernels.grid import FrequencyConfiguration
from ...errors import DaemonError
from ...hardware.axes import listed
from ...hardware.sensors.sampled import SampledSensors
from ...planning.lease_plan import Planner, PlanRequest, TrialPlanner, is_known
from ...planning.limits import Limits
from ...planning.thermal_state import ThermalState, ThermalTracker
from ...system.journal import FRAMES_DOUBTED, FRAMES_MISSING, TARGET_KEPT, TARGET_MISSED, TROUBLE, RepeatedLog, fields
from ..board.service import BoardService
from ..board.snapshot import Snapshot
from ..credible_range import CredibleRange, credible, doubt, has
from ..frames import ClockSetting, Company
from ..lease import Lease, about
from ..missed_targets import MissedTarget, is_missed, typical, why
from ..sharing import sharers
from .lease_energy import LeaseMeter, used
from .observation_store import ObservationStore
from .progress import FIRST_WAIT_S, INSISTS, LEAST_PATIENCE, LONGEST_WAIT_S, LeaseProgress
from .replanning import BestPlanner, TopmostPlanner, expected_ms, unforeseen, worth_trying, worth_while

if TYPE_CHECKING:
    from ....kernels.correction.observation import Observation
    from .unpredicted_program import UnpredictedProgram

log = logging.getLogger(__name__)

_COMPANY_S = 2.0
_FIRST_LOOK_FRAMES = 10
# Trial of a configuration: frames, power readings, and the longest wait for them.
_TRIED_FRAMES, _TRIED_POWERS, _TRIED_S = 5, 2, 5.0
_POWERS_WANTED = 3
TEND_S = 10.0
_NOBODY: Company = frozenset()
_CORRECTION = "....kernels.correction.correct"
_EXPLORED = "nothing else is worth trying"
SILENT_S = 10.0
"""Time without a frame after which an application with a target is notified."""
_SILENT = (
    "no frames reported for {silent_s:.0f} s: the target is not checked{clocks} (report frames with jetdvfs.qos or --metrics)"
)


class Learner:
    """Follows the frames of all leases; ``memory`` keeps those of ended ones. For the event loop."""

    def __init__(
        self,
        board: BoardService,
        sensors: SampledSensors,
        memory: ObservationStore,
        warmth: Callable[[], ThermalState | None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._board = board
        self._sensors = sensors
        self._memory = memory
        self._warmth = warmth
        self._settling = ThermalTracker()
        self._tending: asyncio.Task[None] | None = None
        self._loading: asyncio.Future[object] | None = None
        self._monotonic = monotonic
        self._said = RepeatedLog(log, monotonic)
        self._progress: dict[str, LeaseProgress] = {}
        self._meters: dict[str, LeaseMeter] = {}

    def prepare(self) -> None:
        if self._loading is None:
            # Loaded after the start to keep that short, but before a missed target needs it.
            self._loading = asyncio.get_running_loop().run_in_executor(None, import_module, _CORRECTION, __package__)

    def began(self, lease: Lease, progress: LeaseProgress | None) -> None:
        self._sensors.want()
        self._meters[lease.id] = LeaseMeter(self._monotonic())
        self.follow(lease, progress)
        if self._tending is None or self._tending.done():
            self._tending = asyncio.get_running_loop().create_task(self._tend())

    def follow(self, lease: Lease, progress: LeaseProgress | None) -> None:
        self._remember(self._progress.pop(lease.id, None))
        if progress is not None:
            self._progress[lease.id] = progress = replace(progress, lease=lease)
            self._planned(progress, lease.plan.configuration)

    def ended(self) -> None:
        held = self._board.snapshot.leases
        for name in [name for name in self._progress if name not in held]:
            self._remember(self._progress.pop(name))
        self._meters = {name: meter for name, meter in self._meters.items() if name in held}

    def _remember(self, progress: LeaseProgress | None) -> None:
        if progress is None or progress.lease is None:
            return
        lease, original = progress.lease, progress.original
        seen = lease.frames.observations(self._monotonic(), _NOBODY)
        if not progress.trusted:  # frames that their own lease insisted on count for no other
            seen = [
                one
                for one in seen
                if one.latency_ms is not None and credible(original, one.configuration).side(one.latency_ms) is None
            ]

        def predicted_ms(configuration: FrequencyConfiguration) -> float | None:
            return None if original is None else expected_ms(original, configuration)

        self._memory.remember(
            progress.key, seen, name=progress.request.network, app=lease.holder.app, predicted_ms=predicted_ms
        )

    def energy_mj(self, lease: Lease) -> float | None:
        measured = self._measured(lease)
        return None if measured is None else measured[0]

    def used(self, lease: Lease) -> dict[str, Any]:
        return used(lease, self._monotonic(), self._measured(lease), self._board.snapshot.applied)

    def _measured(self, lease: Lease) -> tuple[float, float] | None:
        meter = self._meters.get(lease.id)
        if meter is None:
            return None
        meter.take(self._sensors.metered(meter.began_s))
        return meter.measured(self._sensors.energy_rails)

    def request(self, lease_id: str) -> PlanRequest | None:
        progress = self._progress.get(lease_id)
        return progress.request if progress and is_known(progress.request.surface) else None

    def missed(self, lease_id: str) -> MissedTarget | None:
        progress = self._progress.get(lease_id)
        return progress.missed if progress else None

    def report(self, lease: Lease, latencies_ms: Sequence[float]) -> None:
        snapshot, now_s = self._board.snapshot, self._monotonic()
        frames, plan = lease.frames, lease.plan
        throttled = self._sensors.throttled()
        over_current = tuple(f"{e.event} {e.per_minute:.3g} a minute" for e in snapshot.events if e.per_minute)
        standby = snapshot.standby.get(lease.id)
        parked = standby is not None and standby.since_s is not None
        disturbed = bool(throttled or over_current or snapshot.deviating or parked)
        setting = None if (applied := snapshot.applied) is None else ClockSetting(applied.accepted, snapshot.set_s, disturbed)
        others = self._company(lease, snapshot, now_s)
        company = frozenset(other.plan.network or other.holder.app for other in others)
        period_ms = 1e3 / plan.fps if plan.fps else None
        progress = self._progress.get(lease.id)
        where = self._where(progress, setting, company)
        frames.report(latencies_ms, now_s, setting, company=company, limit_ms=plan.limit_ms, period_ms=period_ms, where=where)
        rails = self._sensors.energy_rails if not others else ()
        frames.power(self._sensors.rails_sampled(), rails, lambda: None if (now := self._warmth()) is None else now.die_c)
        if parked and latencies_ms:
            self._board.follow_frames(lease)
        if progress is None or setting is None or parked:
            return
        if latencies_ms:
            progress.silent = False
            self._check_frames(lease, progress, where, company, now_s)
        if progress.due_at != (setting.configuration, company):
            # Plans without effect there may have one here.
            progress.tries = progress.tries if progress.due_at and progress.due_at[1] == company else 0
            progress.due_frames, progress.due_at, progress.patience = 0, (setting.configuration, company), LEAST_PATIENCE
        if frames.powers < _POWERS_WANTED:
            self._sensors.want()
        missed = None if plan.limit_ms is None else is_missed(tuple(frames.recent_ms), plan.limit_ms, plan.confidence)
        if missed and plan.limit_ms is not None:
            predicted_ms = expected_ms(progress.request.surface, setting.configuration)
            observed_ms = typical(tuple(frames.recent_ms))
            reason = why(
                observed_ms,
                predicted_ms,
                throttled=throttled,
                over_current=over_current,
                deviating=snapshot.deviating,
                company=[other.label for other in others],
            )
            self._say_missed(lease, progress, observed_ms, predicted_ms, reason)
            if not disturbed and frames.reported >= progress.due_frames:
                self._plan(lease.id, progress, company, reason)
            return
        if missed is False:
            self._say_kept(lease, progress)
        if progress.doubt is not None:
            return  # doubted frames show no gain and no loss
        if not disturbed and not company and (factor := frames.shift()) != 1.0:
            progress.wait_s, reason = FIRST_WAIT_S, f"its frames take {factor:.3g} times as long as they did at the same clocks"
            self._plan(lease.id, progress, company, reason)
            return
        if progress.exploring:
            powers = _TRIED_POWERS if self._sensors.energy_rails and not others else 0
            told = frames.powers >= powers or now_s - setting.since_s >= _TRIED_S
            if not disturbed and told and len(frames.recent_ms) >= _TRIED_FRAMES and frames.reported >= progress.due_frames:
                self._plan(lease.id, progress, company, None)
            return
        if not disturbed and len(frames.recent_ms) >= _FIRST_LOOK_FRAMES and now_s >= progress.due_s:
            progress.due_s, progress.wait_s = now_s + progress.wait_s, min(2 * progress.wait_s, LONGEST_WAIT_S)
            self._plan(lease.id, progress, company, None)

    def _where(self, progress: LeaseProgress | None, setting: ClockSetting | None, company: Company) -> CredibleRange:
        if progress is None or progress.original is None or progress.trusted:
            return CredibleRange()
        configuration = None if setting is None or setting.disturbed else setting.configuration
        return credible(progress.original, configuration, alone=not company, accepted=progress.accepted)

    def _check_frames(
        self, lease: Lease, progress: LeaseProgress, where: CredibleRange, company: Company, now_s: float
    ) -> None:
        """Log once that frames do not count; accept persistent ones for their own lease."""
        found, doubts = lease.frames.doubts.found(), lease.frames.doubts
        if found is None:
            progress.doubt = None
            return
        if not company and not progress.accepted and doubts.insistent(now_s):
            progress.accepted, progress.doubt = True, None
            text = f"{doubts.frames} frames in a row take as long: this lease, and no other, is planned by them from now on"
            doubts.accept()
            log.info("%s: %s", lease.label, text, extra=_about(lease, FRAMES_DOUBTED, reason=text))
            return
        before, (side, observed_ms) = progress.doubt, found
        progress.doubt = doubt(side, observed_ms, where, doubts.frames, progress.request.network)
        if before is None or before.side != side:
            extra = _about(lease, FRAMES_DOUBTED, reason=progress.doubt.reason)
            log.warning("%s: its frames do not count: %s", lease.label, progress.doubt, extra=extra)

    def doubt(self, lease_id: str) -> dict[str, Any] | None:
        progress = self._progress.get(lease_id)
        return progress.doubt.to_json() if progress and progress.doubt else None

    def corrected(self, lease: Lease) -> dict[str, Any] | None:
        progress = self._progress.get(lease.id)
        if progress is None or (progress.remembered is None and not progress.corrected):
            return None
        before, own = progress.remembered, lease.frames.credible if progress.corrected else 0
        app = lease.holder.app if before is None or own else before.app
        return {"frames": own + (before.frames if before is not None else 0), "app": app}

    def silent(self, lease: Lease) -> str | None:
        progress = self._progress.get(lease.id)
        if progress is None:
            return None
        since_s = lease.since_s if lease.frames.last_s is None else lease.frames.last_s
        silent_s = self._monotonic() - since_s
        if silent_s < SILENT_S:
            return None
        clocks = "" if progress.unknown is None or not progress.exploring else ", and clocks stay at the highest"
        return _SILENT.format(silent_s=silent_s, clocks=clocks)

    def _say_silent(self) -> None:
        for name, progress in self._progress.items():
            lease = self._board.snapshot.leases.get(name)
            if lease is None or progress.silent or lease.frames.last_s is not None:
                continue
            if (text := self.silent(lease)) is not None:
                progress.silent = True
                log.info("%s: %s", lease.label, text, extra=_about(lease, FRAMES_MISSING, reason=text))

    async def _tend(self) -> None:
        while self._meters:
            await asyncio.sleep(TEND_S)
            self._say_silent()
            self._sensors.want()
            for meter in self._meters.values():
                meter.take(self._sensors.metered(meter.began_s))
            if (warmth := self._warmth()) is not None:
                self._rewarmed(warmth, self._monotonic())

    def _rewarmed(self, warmth: ThermalState, now_s: float) -> None:
        self._settling.see(now_s, warmth.die_c)
        for name, progress in self._progress.items():
            reason = None if progress.planned_c is None else self._settling.reason(progress.planned_s, progress.planned_c)
            if reason is not None and name in self._board.snapshot.leases:
                progress.planned_s, progress.planned_c = now_s, warmth.die_c
                lease = self._board.snapshot.leases[name]
                others = self._company(lease, self._board.snapshot, now_s)
                self._plan(name, progress, frozenset(other.plan.network or other.holder.app for other in others), reason)

    def _planned(self, progress: LeaseProgress, configuration: FrequencyConfiguration) -> None:
        surface, progress.planned_s = progress.request.surface, self._monotonic()
        settled_c = surface.temperature_c if has(surface, configuration) else None
        progress.planned_c = None if settled_c is None else float(settled_c[surface.grid.index(configuration)])

    def _company(self, lease: Lease, snapshot: Snapshot, now_s: float) -> list[Lease]:
        return [
            other
            for other in snapshot.leases.values()
            if other.id != lease.id and other.frames.last_s is not None and now_s - other.frames.last_s < _COMPANY_S
        ]

    def _say_missed(
        self, lease: Lease, progress: LeaseProgress, observed_ms: float, predicted_ms: float | None, reason: str
    ) -> None:
        before, limit_ms = progress.missed, lease.plan.limit_ms or 0.0
        late = lease.frames.late - progress.late_before
        if before is None and progress.frugal:
            progress.wait_s, progress.frugal = LONGEST_WAIT_S, False  # the gain was lost again
        doing = lease.plan.unmet or (before.doing if before else "")
        progress.missed = MissedTarget(lease.plan.target, limit_ms, observed_ms, predicted_ms, late, reason, doing)
        if before is None or (before.reason != reason and before.doing != doing):
            extra = _about(lease, TARGET_MISSED, reason=reason, observed_ms=f"{observed_ms:.4g}", limit_ms=f"{limit_ms:.4g}")
            log.warning("%s: %s", lease.label, progress.missed, extra=extra)

    def _say_kept(self, lease: Lease, progress: LeaseProgress) -> None:
        late, progress.late_before = lease.frames.late - progress.late_before, lease.frames.late
        missed, progress.missed = progress.missed, None
        if missed is not None:
            progress.due_frames, progress.tries, progress.patience = 0, 0, LEAST_PATIENCE
            observed_ms = typical(tuple(lease.frames.recent_ms))
            text = f"{lease.plan.target} is kept again: {observed_ms:.4g} ms observed, after {late} late frames"
            log.info("%s: %s", lease.label, text, extra=_about(lease, TARGET_KEPT, observed_ms=f"{observed_ms:.4g}"))

    def _plan(self, lease_id: str, progress: LeaseProgress, company: Company, reason: str | None) -> None:
        if progress.planning is None or progress.planning.done():
            progress.planning = asyncio.get_running_loop().create_task(self._plan_again(lease_id, progress, company, reason))

    async def _plan_again(self, lease_id: str, progress: LeaseProgress, company: Company, reason: str | None) -> None:
        lease = self._board.snapshot.leases.get(lease_id)
        if lease is None or progress.lease is None or lease.changes != progress.lease.changes:
            return
        before, frugal = lease.plan.configuration, reason is None
        try:
            if progress.missed is not None:
                at, observed_ms = self._board.snapshot.applied, progress.missed.observed_ms
                surface = progress.request.surface
                lease.frames.renew(1.0 if company or at is None else unforeseen(surface, at.accepted, observed_ms))
                progress.tries += 1
            seen = await self._seen(lease, progress, company)
            if progress.exploring and progress.unknown is not None:
                known = seen if company else await self._recall(lease, progress, progress.unknown, seen)
                renewed, request = await self._explore(lease, progress, known, reason)
            else:
                request = replace(
                    progress.request, surface=await asyncio.to_thread(progress.make, seen, progress.missed is not None)
                )
                if not is_known(request.surface):
                    return
                progress.corrected = bool(seen)
                tried = None
                again: Planner = BestPlanner(request, observed=bool(seen))
                if progress.doubt is not None and progress.missed is not None:
                    again = TopmostPlanner(request)  # no prediction explains the lateness
                if reason is None:
                    now = self._board.snapshot
                    shared_at = now.applied.accepted if company and now.applied else None
                    reason = await asyncio.to_thread(worth_while, request, lease.plan, now.limits, shared_at)
                    if reason is None:
                        if company:
                            return
                        configurations = {one.configuration for one in seen}
                        tried = await asyncio.to_thread(worth_trying, request, lease.plan, now.limits, configurations)
                        if tried is None:
                            return
                        trial, reason = tried
                        again = TrialPlanner(trial, now.limits, again)
                renewed = await self._board.replan(lease, again, reason)
                if tried is not None and renewed is not None and renewed.plan.configuration != before:
                    progress.wait_s = FIRST_WAIT_S
                if progress.missed is not None and progress.tries == INSISTS and lease_id in self._board.snapshot.unmet_targets:
                    renewed = await self._board.replan(lease, TopmostPlanner(request), reason)
                    progress.wait_s = LONGEST_WAIT_S
        except (DaemonError, KernelsError) as error:
            log.warning("%s keeps its plan: %s", lease.label, error, extra=_about(lease, TROUBLE, error=type(error).__name__))
            self._wait(lease, progress)
            return
        except Exception as error:  # a fault here is ours; the lease keeps its clocks
            text = f"{lease.label} keeps its plan: {type(error).__name__} while planning again"
            self._said.say(logging.ERROR, text, _about(lease, TROUBLE, error=type(error).__name__), kind=type(error).__name__)
            log.debug("%s", lease.label, exc_info=error)
            self._wait(lease, progress)
            return
        if renewed is None:
            return
        plan = renewed.plan
        progress.request, progress.due_s, progress.frugal = request, self._monotonic() + progress.wait_s, frugal
        if plan.configuration != before:
            self._planned(progress, plan.configuration)
        progress.due_frames = lease.frames.reported
        if plan.configuration == before:
            self._wait(lease, progress)
        if progress.missed is not None:
            unmet = self._board.snapshot.unmet_targets.get(lease_id)
            shared = unmet.reason if unmet is not None and lease_id in self._board.snapshot.shared_latencies else ""
            progress.missed = replace(progress.missed, doing=plan.unmet or shared or f"planned again: {plan.configuration}")

    def _wait(self, lease: Lease, progress: LeaseProgress) -> None:
        """Double the frames before the next plan after an ineffective one; not while the target is kept, to react at once."""
        if progress.missed is not None or progress.exploring:
            progress.due_frames = lease.frames.reported + progress.patience
            progress.patience *= 2

    async def _explore(
        self, lease: Lease, progress: LeaseProgress, observations: Sequence[Observation], missed: str | None
    ) -> tuple[Lease | None, PlanRequest]:
        from .unpredicted_program import ExploringPlanner

        limits, unknown = self._board.snapshot.limits, progress.unknown
        assert unknown is not None
        if not isinstance(limits, Limits):
            raise limits
        found, learned, why_next = await asyncio.to_thread(unknown.next, observations, limits)

        progress.exploring = bool(why_next)
        said = missed or f"its frames are not predicted: {why_next or _EXPLORED}"
        again = TrialPlanner(found, limits, ExploringPlanner(unknown, tuple(observations)))
        return await self._board.replan(lease, again, said), learned

    async def _recall(
        self, lease: Lease, progress: LeaseProgress, unknown: UnpredictedProgram, observations: Sequence[Observation]
    ) -> Sequence[Observation]:
        if not unknown.before or not observations:
            return observations
        progress.unknown = replace(unknown, before=())
        recalled = await asyncio.to_thread(unknown.recalled, observations)
        if not recalled:
            self._memory.forget(progress.key)
            return observations
        lease.frames.recall(recalled, self._monotonic())
        return lease.frames.observations(self._monotonic(), _NOBODY)

    async def _seen(self, lease: Lease, progress: LeaseProgress, company: Company) -> list[Observation]:
        now_s = self._monotonic()
        seen = lease.frames.observations(now_s, company)
        others = self._company(lease, self._board.snapshot, now_s)
        known = list(sharers(others).values())
        if not company or len(known) < len(others) or progress.unknown is not None:
            return seen
        alone = lease.frames.observations(now_s, _NOBODY)
        if not others:
            return alone
        from ..joint_choice import without_waiting  # only while applications share the GPU

        surface = await asyncio.to_thread(progress.make, alone, progress.missed is not None)
        own = replace(progress.request.work, surface=surface, process=lease.holder.pid)
        return await asyncio.to_thread(partial(without_waiting, all_its_own=progress.tries >= INSISTS), seen, alone, own, known)


def _about(lease: Lease, kind: str, **more: Any) -> dict[str, str]:
    return fields(kind, **about(lease), configuration=listed(lease.plan.configuration), **more)
