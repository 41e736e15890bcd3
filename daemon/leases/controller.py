# SPDX-License-Identifier: Apache-2.0
"""Clocks for all leases together, and the baseline after the last one."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Hashable, Mapping

from ...kernels.grid import FrequencyConfiguration
from ...kernels.units import AXES
from ..config import Config
from ..errors import DaemonError, NotOffered, TargetNotAttainable
from ..hardware.applied_setting import AppliedSetting
from ..hardware.axes import in_words, listed
from ..hardware.baseline import LAST_TRY_S, RestoreReport
from ..hardware.offered_levels import OfferedLevels
from ..planning.lease_plan import LeasePlan, Planner
from ..planning.limits import BoardConstraints, ClockLimits, LeaseConstraints, Limits
from ..system.journal import (
    CLOCKS_SET,
    GIVEN_BACK,
    LEASE_BEGUN,
    LEASE_ENDED,
    PLANNED_AGAIN,
    TROUBLE,
    WOKEN,
    RepeatedLog,
    fields,
)
from .budgets.budgets import ASKED, PowerBudgets
from .default import DefaultClocks, operator
from .demand import LeaseProcesses
from .demand_floors import Floors, floors
from .drift import DriftMonitor
from .effective_leases import EffectiveLeases
from .lease import Holder, Lease, LeaseBook, LeaseLimits, about
from .permitted_clocks import BoardSetting, ClockSource, DemandSource, PermittedClocks
from .sharing import Arbiter
from .standby import StandbyWatch
from .unmet_targets import TargetMonitor

log = logging.getLogger(__name__)

_HELD_S, _QUIET_S, _IDLE_S = 0.5, 1.25, 3.0
_QUIET_AFTER_S = 10.0


class Controller:
    """Sets the board for all leases. For one thread; only the hardware blocks it.

    Args:
        slept: True if the machine slept since the last call.
        who_sets: processes that may have set an axis just now.
    """

    def __init__(
        self,
        board: ClockSource,
        config: Config,
        monotonic: Callable[[], float],
        demands: DemandSource | None = None,
        slept: Callable[[], bool] = lambda: False,
        budgets: PowerBudgets | None = None,
        who_sets: Callable[[str], tuple[str, ...]] = lambda axis: (),
    ) -> None:
        self.leases = LeaseBook(LeaseLimits(total=config.clients.leases))
        self.applied: AppliedSetting | None = None
        self.troubles: tuple[str, ...] = ()
        self.floors = Floors()
        self._arbiter = Arbiter()
        self._present = EffectiveLeases()
        self.standby = StandbyWatch(config.idle, board.gpu_load)
        self._parked: dict[str, LeasePlan] = {}
        self._unmet: dict[str, str] = {}
        self._default_due = isinstance(config.default, str)
        self._planned_within: Limits | None = None
        self._followed: Mapping[str, int] = {}
        self._left = ""
        self.changed_s = monotonic()
        self._said = RepeatedLog(log, monotonic)
        self.targets = TargetMonitor(self._arbiter, self._said)
        self._permitted = PermittedClocks(board, config, monotonic, self._said)
        self._floors_when_set: Mapping[str, int] = {}
        self._board = board
        self._config = config
        self._monotonic = monotonic
        self._demands = demands
        self.budgets = budgets
        self._watch = DriftMonitor(board, monotonic, slept, who_sets)

    @property
    def notes(self) -> tuple[str, ...]:
        blind = self._demands.notes if self._demands is not None and self._config.floors is not None else ()
        bounds = self.budgets.notes if self.budgets is not None else ()
        left = (self._left,) if self._left else ()
        return (*self._permitted.missed, *blind, *bounds, *self._present.notes, *self.targets.texts, *left)

    def check_limits(self) -> tuple[str, ...]:
        with contextlib.suppress(DaemonError):  # unreadable tables are reported at their use
            self._permitted.read()
        return self._permitted.missed

    def recover(self) -> RestoreReport:
        """Restore the baseline if an earlier process of this boot did not."""
        if not self._board.touched:
            return RestoreReport()
        report = self._restore()
        log.warning(
            "an earlier daemon ended without giving the board back: %d values restored, %d left as other programs set them",
            len(report.restored),
            len(report.left),
        )
        return report

    @property
    def tend_in_s(self) -> float:
        if not len(self.leases) and not self._board.touched:
            return _IDLE_S
        quiet = self.applied is not None and not self.troubles and self._monotonic() - self.changed_s > _QUIET_AFTER_S
        return _QUIET_S if quiet else _HELD_S

    def limits(self) -> Limits:
        self._permitted.read()
        self._keep_up()
        return self._limits()

    @property
    def operator(self) -> ClockLimits:
        return self._config.limits

    @property
    def last_offered(self) -> OfferedLevels | None:
        return self._permitted.last_offered

    @property
    def last_limits(self) -> Limits | None:
        return self._permitted.last_limits(self.floors)

    def _limits(self) -> Limits:
        return self._permitted.limits(self.floors)

    def hold(self, holder: Holder, plan: LeasePlan, reason: str) -> tuple[Lease, AppliedSetting]:
        """Grant a lease and set the board for all; plans within outdated limits are made anew.

        Raises:
            LimitReached: too many leases.
            TargetNotAttainable: no permitted configuration meets the target.
            UsageError: the configuration is not offered or permitted.
            HardwareRefused, HardwareBusy: the board refused; clocks are as before.
        """
        self._sample()
        offered = self._permitted.read()
        plan = self._admit(plan, holder)
        self._planned_within = self._planned_within or self._limits()
        lease = self.leases.new(holder, plan, reason, self._monotonic())
        self.leases.add(lease)
        try:
            needed = {clock: level for clock, level in plan.configuration._asdict().items() if clock not in plan.governed}
            raised = [one.reason for one in self.floors.floors if one.least > needed.get(one.clock, one.least)]
            applied = self._set("; ".join([f"{lease.label}: {reason or plan.target or 'configuration'}", *raised]), offered)
        except BaseException:
            self.leases.remove(lease)
            self._check_targets()
            raise
        self._check_targets()
        log.info(
            "%s, pid %d, holds %s (%s)",
            *(lease.label, holder.pid, plan.configuration, plan.target or "as asked"),
            extra=fields(LEASE_BEGUN, **about(lease), configuration=listed(plan.configuration), reason=reason),
        )
        return lease, applied

    def _follows_board(self, stuck: Mapping[str, int]) -> bool:
        before = self._requested()
        if not self._permitted.stick(stuck):
            return False
        self._plan_again()
        return self._requested() != before

    def _hold_default(self, text: str) -> None:
        clocks = DefaultClocks(text)
        try:
            self.hold(operator(), clocks.plan(self.limits()), clocks.reason)
        except (DaemonError, OSError) as error:
            self.troubles = (str(error),)
            self._said.say(logging.ERROR, str(error), fields(TROUBLE))
        else:
            self._default_due = False

    def preview(self, plan: LeasePlan) -> FrequencyConfiguration:
        """Clocks that :meth:`hold` would set for a lease alone; errors as there."""
        self._sample()
        self._permitted.read()
        needed = self._raised(self._admit(plan).configuration)
        return self._permitted.setting(needed, self.floors).configuration

    def _admit(self, plan: LeasePlan, holder: Holder | None = None) -> LeasePlan:
        """The plan as grantable now; without a holder, its battery and heat limits do not bind yet."""
        self._keep_up()
        if holder is not None:
            self._afford(holder, plan.constraints)
        elif self.budgets is not None:
            self.budgets.check(plan.constraints)
        if plan.planner is not None and plan.limits != (limits := self._limits()):
            plan = plan.within(limits, held=False)
        self._permitted.check(plan.configuration)
        return plan

    def replan(self, planned: Lease, planner: Planner, reason: str, *, asked: bool = False) -> Lease | None:
        """Plan a lease anew; None if it has ended or, unless ``asked`` for, changed since ``planned``.

        Raises:
            DaemonError: no plan, or the board refused it; the lease keeps its plan.
        """
        lease = self.leases.by_id().get(planned.id)
        if lease is None or not (asked or lease.changes == planned.changes):
            return None
        plan = planner.plan(self._limits())
        if self.budgets is not None and plan.constraints != lease.plan.constraints:
            self.budgets.check(plan.constraints)
        renewed = self.leases.renew(lease, plan, asked=asked)
        self._unmet.pop(lease.id, None)
        if plan.configuration != lease.plan.configuration or plan.unmet != lease.plan.unmet:
            text = f"{in_words(plan.configuration)}; {reason}{f'; {plan.unmet}' if plan.unmet else ''}"
            said = {**about(lease), "configuration": listed(plan.configuration), "reason": reason}
            log.info("%s is planned again: %s", lease.label, text, extra=fields(PLANNED_AGAIN, **said))
        try:
            if not self._setting().is_requested(self.applied):
                self._set(f"{lease.label}: {reason}")
        except (DaemonError, OSError):
            self.leases.add(lease)
            raise
        finally:
            self._check_targets()
        return renewed

    def keep(self, lease: Lease) -> None:
        """Undo :meth:`replan`."""
        self.leases.add(lease)
        self._follow(f"{lease.label} keeps its plan")

    def release(self, lease: Lease, by: str = "") -> None:
        """End a lease, ``by`` another actor than its holder if given, and set the board for the rest."""
        if lease.id not in self.leases.by_id():
            return
        self._end(lease, by)
        self._follow(f"{lease.label} ended")

    def drop(self, connection: Hashable) -> None:
        gone = self.leases.of(connection)
        for lease in gone:
            self.leases.remove(lease)
            log.info("%s ended with its connection", lease.label, extra=fields(LEASE_ENDED, **about(lease)))
        if gone:
            self._follow("a connection ended")

    def _end(self, lease: Lease, by: str) -> None:
        self.leases.remove(lease, by)
        whose = f" by {by}" if by else ""
        reason = f"ended{whose}"
        log.info("%s ended%s", lease.label, whose, extra=fields(LEASE_ENDED, **about(lease), reason=reason if by else None))

    def restore(self, by: str = "") -> RestoreReport:
        """End every lease and restore the baseline; ``by`` is empty if the daemon itself ends."""
        for lease in tuple(self.leases):
            self._end(lease, by)
        self._default_due = False
        self._check_targets()
        return self._restore(LAST_TRY_S)

    def reconfigure(self, config: Config) -> None:
        if config.default != self._config.default:
            for lease in (lease for lease in self.leases if lease.holder.yields):
                self.release(lease, "the configuration")
            self._default_due = isinstance(config.default, str)
        self._config = self._permitted.config = config
        self.standby.rules = config.idle
        if self._demands is not None and config.floors is not None:
            self._demands.rules = config.floors
        self.check_limits()
        self._keep_up()
        self._plan_again()
        if len(self.leases):
            self._follow("the configuration changed")

    def tend(self) -> None:
        """Check the clocks, and retry a failed restore; call it after ``tend_in_s``."""
        self._measure()
        self.follow_frames()
        if self._default_due and isinstance(self._config.default, str):
            self._hold_default(self._config.default)
        elif not len(self.leases):
            if self._board.touched:
                self._restore()
        elif self.applied is not None:
            self._keep_memory_clock(self.applied)
        self._check_targets()

    def _follow(self, reason: str) -> None:
        """Set the board for the remaining leases; no client waits, so ``status`` keeps the trouble."""
        self._afford()
        if not len(self.leases):
            self._restore()
            return
        try:
            self._set(reason)
        except (DaemonError, OSError) as error:
            self.troubles = (str(error),)
            extra = fields(TROUBLE, reason=reason, error=type(error).__name__)
            self._said.say(logging.ERROR, f"{reason}: {error}", extra)
        self._check_targets()

    def _check_targets(self) -> None:
        self.targets.update(self._counting(), self.applied, self.floors, self._unmet)

    def _counting(self) -> tuple[Lease, ...]:
        held, now_s = tuple(self.leases), self._monotonic()
        leases = tuple(lease for lease in held if not lease.holder.yields) or held
        if self.budgets is None or self.budgets.budget is None:
            return self._present.leases(leases, now_s, parked=self._parked)
        levels = None
        with contextlib.suppress(DaemonError):  # unreadable tables are reported at their use
            grid = self._permitted.allowed()
            levels = {axis: grid.levels(axis) for axis in AXES}
        capping = self.budgets.capping
        budget = str(self.budgets.budget)
        return self._present.leases(leases, now_s, budget=budget, capping=capping, levels=levels, parked=self._parked)

    def follow_frames(self) -> None:
        resting, back = self.standby.update(self.leases, self._monotonic())
        self._parked = {name: plan for name, plan in self._parked.items() if name in self.standby.parked}
        if resting and self._config.idle is not None:
            try:
                self._parked |= dict.fromkeys(
                    resting, DefaultClocks(self._config.idle.clocks, "idle.clocks").plan(self._limits())
                )
            except DaemonError as error:
                self._said.say(logging.WARNING, str(error), fields(TROUBLE))
        for names, why in ((resting, "standby, as no frames come"), (back, "out of standby")):
            if names:
                before = self.applied
                self._follow(f"{' and '.join(lease.label for lease in self.leases if lease.id in names)}: {why}")
                if names is back and self.applied is not None and self.applied is not before:
                    self.standby.was_left(back, self.applied.elapsed_ms)

    def _sample(self) -> None:
        if self._demands is not None and self._config.floors is not None:
            holders = frozenset(lease.holder.pid for lease in self.leases)
            self._demands.sample(LeaseProcesses(holders, all(lease.plan.paced for lease in self.leases)))

    def _measure(self) -> None:
        self._sample()
        if len(self.leases):
            self._keep_up()
        self._afford()

    def _keep_up(self) -> None:
        if self._demands is None or self._config.floors is None:
            found = Floors()
        else:
            try:
                allowed = self._permitted.allowed()
            except DaemonError:
                return  # reported at the next use of the grid
            found = floors(self._demands.demand(), allowed, self._config.floors, leader=self._board.leader)
        before, self.floors = self.floors, found
        if before.levels == found.levels:
            return
        for reason in found.reasons or ("nothing is kept up for other work any more",):
            log.info("%s", reason)
        self._plan_again()

    def _afford(self, holder: Holder | None = None, constraints: BoardConstraints | None = None) -> None:
        if self.budgets is None:
            return
        asking = [LeaseConstraints(lease.id, lease.label, lease.holder.uid, lease.plan.constraints) for lease in self.leases]
        if holder is not None and constraints is not None:
            self.budgets.check(constraints)
            asking.append(LeaseConstraints(ASKED, holder.app, holder.uid, constraints))
        if self.budgets.update(self._config.ceiling_c if asking else None, asking):
            self._permitted.budget = self.budgets.budget
            self._plan_again()

    def _plan_again(self) -> None:
        self._unmet = {}
        with contextlib.suppress(DaemonError):  # unreadable tables are reported at their use
            self._planned_within = self._limits()
        for lease in self.leases:
            if lease.plan.planner is None:
                continue
            try:
                self.leases.renew(lease, lease.plan.within(self._limits(), held=True))
            except TargetNotAttainable as error:
                self._unmet[lease.id] = str(error)
            except DaemonError as error:
                self._said.say(logging.WARNING, f"{lease.label} keeps its plan: {error}", fields(TROUBLE, **about(lease)))

    def _keep_memory_clock(self, applied: AppliedSetting) -> None:
        try:
            if self._board.keep_memory():
                log.warning("the memory clock is locked: the kernel no longer keeps it where it was")
            if not self._watch.is_hot and self._limits() != self._planned_within:
                self._plan_again()
            requested = self._requested()
            outdated = applied.differs(requested, self._governed()) or self._floors_when_set != self.floors.levels
            texts, again = self._watch.check(
                applied, requested, outdated, lambda: not self._setting_anew().is_requested(applied)
            )
            if self._watch.woken:
                self._wake(texts)
            moved = bool(self._watch.stuck) and self._watch.stuck != self._followed
            if self._permitted.unstick(moved=moved):
                self._plan_again()
            self._followed = self._watch.stuck
            if moved and self._follows_board(self._watch.stuck):
                self._set("planned again for the clocks that the board keeps")
                return
            if unsaved := self._board.keep_baseline():
                texts = (*texts, unsaved)
            for text in set(texts).difference(self.troubles):
                if text != self._watch.countdown:
                    self._said.say(logging.WARNING, text, fields(TROUBLE))
            if again:
                reasons = texts or self.floors.reasons or (self.budgets.reasons if self.budgets is not None else ())
                self._set("; ".join(reasons) or "limits or demand of other work changed")
                return
        except DaemonError as error:
            texts = (str(error),)
        # Notes on clocks that the board did not accept persist.
        self.troubles = texts if applied.accepted == applied.requested else tuple(dict.fromkeys((*applied.notes, *texts)))

    def _wake(self, texts: tuple[str, ...]) -> None:
        self.changed_s = self._monotonic()
        if self.budgets is not None:
            self.budgets.wake()
        found = "; ".join(texts) or "every clock is as it was set"
        log.info("the machine has slept, and all was looked at again: %s", found, extra=fields(WOKEN, reason=found))

    def _set(self, reason: str, offered: OfferedLevels | None = None) -> AppliedSetting:
        offered = self._permitted.read() if offered is None else offered
        setting, self._floors_when_set, self.changed_s = self._setting(), self.floors.levels, self._monotonic()
        try:
            applied = self._board.apply(setting.configuration, reason, setting.clusters, offered, setting.governed)
        except NotOffered:  # any more
            offered = self._permitted.read()
            setting = self._setting()
            applied = self._board.apply(setting.configuration, reason, setting.clusters, offered, setting.governed)
        self.applied, self.changed_s, self._left = applied, self._monotonic(), ""
        self.troubles = () if applied.verified else applied.notes
        said = fields(CLOCKS_SET, configuration=listed(applied.accepted), verified=applied.verified, reason=reason)
        log.info("%s, for %s", in_words(applied.accepted), reason, extra=said)
        for note in applied.notes:
            self._said.say(logging.WARNING, note, fields(TROUBLE, reason=reason))
        return applied

    def _restore(self, longest_s: float = 0.0) -> RestoreReport:
        self._arbiter.forget()
        self._permitted.unstick(moved=True)
        self._planned_within, self._followed = None, {}
        self.applied, self.floors = None, Floors()
        try:
            report = self._board.restore(longest_s)
        except (DaemonError, OSError) as error:
            report = RestoreReport(failed=(str(error),))
        self.troubles = tuple(f"not given back yet: {text}" for text in report.failed)
        for text in report.notes:
            self._said.say(logging.WARNING, text, fields(TROUBLE))
        for text in self.troubles:
            self._said.say(logging.ERROR, text, fields(TROUBLE))
        for text in report.left:
            self._said.say(logging.INFO, text, fields(GIVEN_BACK))
        if report.left and not report.failed:
            self._left = f"left to other programs, which have set them since the last lease began: {', '.join(report.clocks)}"
            log.warning("clocks restored; %s", self._left, extra=fields(GIVEN_BACK, reason="; ".join(report.left)))
        elif report.restored and not report.failed:
            log.info("every clock is back at its baseline", extra=fields(GIVEN_BACK))
        return report

    def _requested(self) -> FrequencyConfiguration:
        needed = self._arbiter.requested(self._counting(), lambda: self.last_limits or self._limits())
        return self._raised(needed)

    def _raised(self, needed: FrequencyConfiguration) -> FrequencyConfiguration:
        """A configuration raised to other work's demand; governors raise their axes themselves."""
        left = self._governed()
        floors = (0 if axis in left else self.floors.least(axis) for axis in AXES)
        return FrequencyConfiguration(*map(max, needed, floors))

    def _governed(self) -> frozenset[str]:
        left = [lease.plan.governed for lease in self._counting()]
        return frozenset.intersection(*left) if left else frozenset()

    def _setting_anew(self) -> BoardSetting:
        self._permitted.read()
        return self._setting()

    def _setting(self) -> BoardSetting:
        return self._permitted.setting(self._requested(), self.floors, self._governed())
