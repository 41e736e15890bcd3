# SPDX-License-Identifier: Apache-2.0
"""The core: leases in, clocks out, and the board given back when nobody holds any."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Hashable, Mapping

from ...kernels.grid import FrequencyConfiguration
from ...kernels.units import AXES
from ..config import Config
from ..errors import DaemonError, NotOffered, TargetNotAttainable
from ..hardware.applied import Applied
from ..hardware.axes import in_words, listed
from ..hardware.baseline import RestoreReport
from ..hardware.offered import Offered
from ..planning.lease_plan import LeasePlan, Planner
from ..planning.limits import BoardConstraints, ClockLimits, LeaseConstraints, Limits
from ..system.journal import CLOCKS_SET, GIVEN_BACK, LEASE_BEGUN, LEASE_ENDED, PLANNED_AGAIN, TROUBLE, WOKEN, Repeated, fields
from .budgets.budgets import ASKED, Budgets
from .default import DefaultClocks, operator
from .demand.demand import Leased
from .demand.floors import Floors, floors
from .drift import Watch
from .lease import Holder, Lease, LeaseLimits, Leases, about
from .permitted import Board, BoardSetting, Demands, Permitted
from .present import Present
from .sharing.arbiter import Arbiter
from .standby import StandbyWatch
from .unmet_targets import Judge

log = logging.getLogger(__name__)

_HELD_S, _QUIET_S, _IDLE_S = 0.5, 1.25, 3.0
_QUIET_AFTER_S = 10.0
_LAST_TRY_S = 1.0
"""For how long it is tried to give the board back where nobody may try again: when the daemon ends, or a person asks for it."""


class Controller:
    """Keeps the board at what the leases need together. For one thread; it waits for nobody but the hardware.

    Args:
        demands: measures what other work needs; without it, no clock is kept up for any.
        slept: whether the machine has slept since this was asked last.
        budgets: knows what the board may draw; without it, anything.
        who_sets: names the processes that may have set an axis just now.

    Attributes:
        leases: those in force.
        applied: what the last setting in force came to, or None while nothing is held.
        troubles: what went wrong and still stands.
        floors: what is kept up for other work.
        changed_s: when the board was set last.
        judged: how leases fare.
        standby: which of them are in standby.
    """

    def __init__(
        self,
        board: Board,
        config: Config,
        monotonic: Callable[[], float],
        demands: Demands | None = None,
        slept: Callable[[], bool] = lambda: False,
        budgets: Budgets | None = None,
        who_sets: Callable[[str], tuple[str, ...]] = lambda axis: (),
    ) -> None:
        self.leases = Leases(LeaseLimits(total=config.clients.leases))
        self.applied: Applied | None = None
        self.troubles: tuple[str, ...] = ()
        self.floors = Floors()
        self._arbiter = Arbiter()
        self._present = Present()
        self.standby = StandbyWatch(config.idle, board.gpu_load)
        self._parked: dict[str, LeasePlan] = {}
        self._unmet: dict[str, str] = {}
        self._default_due = isinstance(config.default, str)
        self._planned_within: Limits | None = None
        self._followed: Mapping[str, int] = {}
        self._left = ""
        self.changed_s = monotonic()
        self._said = Repeated(log, monotonic)
        self.judged = Judge(self._arbiter, self._said)
        self._permitted = Permitted(board, config, monotonic, self._said)
        self._floors_when_set: Mapping[str, int] = {}
        self._board = board
        self._config = config
        self._monotonic = monotonic
        self._demands = demands
        self.budgets = budgets
        self._watch = Watch(board, monotonic, slept, who_sets)

    @property
    def notes(self) -> tuple[str, ...]:
        """What stands although nothing went wrong: limits that no level fits, targets that are not kept, demand that cannot be
        seen."""
        blind = self._demands.notes if self._demands is not None and self._config.floors is not None else ()
        bounds = self.budgets.notes if self.budgets is not None else ()
        left = (self._left,) if self._left else ()
        return (*self._permitted.missed, *blind, *bounds, *self._present.notes, *self.judged.texts, *left)

    def check_limits(self) -> tuple[str, ...]:
        """The operator's limits that no level of the board meets now, one line each; they stay in :attr:`notes`."""
        with contextlib.suppress(DaemonError):  # a table that cannot be read is said by whoever needs it
            self._permitted.look()
        return self._permitted.missed

    def recover(self) -> RestoreReport:
        """Give back what an earlier process of this boot still held when it ended without doing so."""
        if not self._board.touched:
            return RestoreReport()
        report = self._give_back()
        log.warning(
            "an earlier daemon ended without giving the board back: %d values restored, %d left as others set them",
            len(report.restored),
            len(report.left),
        )
        return report

    @property
    def tend_in_s(self) -> float:
        """When to :meth:`tend` next: seldom while nothing is held, and less often while all stays as it was set."""
        if not len(self.leases) and not self._board.touched:
            return _IDLE_S
        quiet = self.applied is not None and not self.troubles and self._monotonic() - self.changed_s > _QUIET_AFTER_S
        return _QUIET_S if quiet else _HELD_S

    def limits(self) -> Limits:
        """The clocks that may be planned for now: what the board offers, the operator allows, and other work needs.

        Raises:
            HardwareBusy, HardwareRefused: the board's tables cannot be read.
        """
        self._permitted.look()
        self._keep_up()
        return self._limits()

    @property
    def operator(self) -> ClockLimits:
        """The bounds of the configuration in force."""
        return self._config.limits

    @property
    def last_offered(self) -> Offered | None:
        """The levels that the board was seen to offer last; None if that was never seen."""
        return self._permitted.last_offered

    @property
    def last_limits(self) -> Limits | None:
        """The same by what the board was seen to offer last; None where that was never seen."""
        return self._permitted.last_limits(self.floors)

    def _limits(self) -> Limits:
        return self._permitted.limits(self.floors)

    def hold(self, holder: Holder, plan: LeasePlan, reason: str) -> tuple[Lease, Applied]:
        """Grant a lease and set the board for all of them together.

        What was planned within other limits than those in force is planned anew.

        Raises:
            LimitReached: there are too many leases.
            TargetNotAttainable: within the limits in force no configuration meets the target.
            UsageError: the configuration is not offered, or outside the operator's limits.
            HardwareRefused, HardwareBusy: the board did not take it; it stands as it did before, without the lease.
        """
        self._sample()
        offered = self._permitted.look()
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
            self._judge()
            raise
        self._judge()
        log.info(
            "%s, pid %d, holds %s (%s)",
            *(lease.label, holder.pid, plan.configuration, plan.target or "as asked"),
            extra=fields(LEASE_BEGUN, **about(lease), configuration=listed(plan.configuration), reason=reason),
        )
        return lease, applied

    def _follows_board(self, stuck: Mapping[str, int]) -> bool:
        """Plan again for clocks that the board keeps whatever is requested; True if others are needed then.

        Args:
            stuck: the level of each such axis.
        """
        before = self._wish()
        if not self._permitted.stick(stuck):
            return False
        self._plan_again()
        return self._wish() != before

    def _hold_default(self, text: str) -> None:
        """Hold the operator's default clocks, which give way to every other lease; tried again if the board refuses them."""
        clocks = DefaultClocks(text)
        try:
            self.hold(operator(), clocks.plan(self.limits()), clocks.reason)
        except (DaemonError, OSError) as error:
            self.troubles = (str(error),)
            self._said.say(logging.ERROR, str(error), fields(TROUBLE))
        else:
            self._default_due = False

    def preview(self, plan: LeasePlan) -> FrequencyConfiguration:
        """The clocks that :meth:`hold` would set for a lease alone, with the demand of other work; grants and sets nothing.

        Raises:
            TargetNotAttainable, UsageError, HardwareRefused, HardwareBusy: as for :meth:`hold`.
        """
        self._sample()
        self._permitted.look()
        needed = self._raised(self._admit(plan).configuration)
        return self._permitted.setting(needed, self.floors).configuration

    def _admit(self, plan: LeasePlan, holder: Holder | None = None) -> LeasePlan:
        """The need as it can be granted now; without a holder, its own wishes for battery and heat bound nothing yet."""
        self._keep_up()
        if holder is not None:
            self._afford(holder, plan.constraints)
        elif self.budgets is not None:
            self.budgets.check(plan.constraints)
        if plan.planner is not None and plan.limits != (limits := self._limits()):
            plan = plan.within(limits, held=False)
        self._permitted.check(plan.configuration)
        return plan

    def replan(self, lease_id: str, planner: Planner, reason: str) -> LeasePlan | None:
        """Plan a lease anew: the one way in which what was learned of it comes into force.

        Returns:
            Its plan now; None if it has ended.

        Raises:
            DaemonError: there is no plan, or the board did not take it; the lease keeps its plan.
        """
        lease = self.leases.by_id().get(lease_id)
        if lease is None:
            return None
        plan = planner.plan(self._limits())
        if self.budgets is not None and plan.constraints != lease.plan.constraints:
            self.budgets.check(plan.constraints)
        self.leases.renew(lease, plan)
        self._unmet.pop(lease_id, None)
        if plan.configuration != lease.plan.configuration or plan.unmet != lease.plan.unmet:
            text = f"{in_words(plan.configuration)}; {reason}{f'; {plan.unmet}' if plan.unmet else ''}"
            said = {**about(lease), "configuration": listed(plan.configuration), "reason": reason}
            log.info("%s is planned again: %s", lease.label, text, extra=fields(PLANNED_AGAIN, **said))
        try:
            if not self._setting().is_requested(self.applied):
                self._set(f"{lease.label}: {reason}")
        except (DaemonError, OSError):
            self.leases.renew(lease, lease.plan)
            raise
        finally:
            self._judge()
        return plan

    def release(self, lease: Lease, by: str = "") -> None:
        """End a lease: what the others need together comes into force, or the baseline when it was the last.

        One that has ended already stays so.

        Args:
            by: who ends it, if not its holder.
        """
        if lease.id not in self.leases.by_id():
            return
        self._end(lease, by)
        self._follow(f"{lease.label} ended")

    def drop(self, connection: Hashable) -> None:
        """End every lease of a connection that is gone."""
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

    def give_back(self, by: str = "") -> RestoreReport:
        """End every lease and restore the baseline.

        Args:
            by: who asks for it; empty if the daemon itself ends.
        """
        for lease in tuple(self.leases):
            self._end(lease, by)
        self._default_due = False
        self._judge()
        return self._give_back(_LAST_TRY_S)

    def reconfigure(self, config: Config) -> None:
        """Take over the operator's new limits; leases granted already are bound by them from now on."""
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
        """Look after what is set, and try again what could not be given back; to be called after ``tend_in_s``."""
        self._measure()
        self.follow_frames()
        if self._default_due and isinstance(self._config.default, str):
            self._hold_default(self._config.default)
        elif not len(self.leases):
            if self._board.touched:
                self._give_back()
        elif self.applied is not None:
            self._look_after(self.applied)
        self._judge()

    def _follow(self, reason: str) -> None:
        """Bring the board to what is left of the leases; trouble is kept for ``status``, for there is nobody to tell."""
        self._afford()
        if not len(self.leases):
            self._give_back()
            return
        try:
            self._set(reason)
        except (DaemonError, OSError) as error:
            self.troubles = (str(error),)
            extra = fields(TROUBLE, reason=reason, error=type(error).__name__)
            self._said.say(logging.ERROR, f"{reason}: {error}", extra)
        self._judge()

    def _judge(self) -> None:
        self.judged.look(self._counting(), self.applied, self.floors, self._unmet)

    def _counting(self) -> tuple[Lease, ...]:
        """The leases as they count now."""
        held, now_s = tuple(self.leases), self._monotonic()
        leases = tuple(lease for lease in held if not lease.holder.yields) or held
        if self.budgets is None or self.budgets.budget is None:
            return self._present.leases(leases, now_s, parked=self._parked)
        levels = None
        with contextlib.suppress(DaemonError):  # tables that cannot be read are reported by who needs them
            grid = self._permitted.allowed()
            levels = {axis: grid.levels(axis) for axis in AXES}
        capping = self.budgets.capping
        budget = str(self.budgets.budget)
        return self._present.leases(leases, now_s, budget=budget, capping=capping, levels=levels, parked=self._parked)

    def follow_frames(self) -> None:
        """Lower the clocks of leases whose frames have stopped, and bring back those of leases whose frames come again."""
        resting, back = self.standby.look(self.leases, self._monotonic())
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
            self._demands.sample(Leased(holders, all(lease.plan.paced for lease in self.leases)))

    def _measure(self) -> None:
        self._sample()
        if len(self.leases):
            self._keep_up()
        self._afford()

    def _keep_up(self) -> None:
        """Find what must be kept up for other work, and where that has changed, plan again for the leases."""
        if self._demands is None or self._config.floors is None:
            found = Floors()
        else:
            try:
                allowed = self._permitted.allowed()
            except DaemonError:
                return  # said by whoever needs the grid next
            found = floors(self._demands.demand(), allowed, self._config.floors, leader=self._board.leader)
        before, self.floors = self.floors, found
        if before.levels == found.levels:
            return
        for reason in found.reasons or ("nothing is kept up for other work any more",):
            log.info("%s", reason)
        self._plan_again()

    def _afford(self, holder: Holder | None = None, asked: BoardConstraints | None = None) -> None:
        """Find what the board may draw, also with what a lease asks that is to be granted; plan again where that has changed.

        Raises:
            UsageError: what is asked cannot be watched.
        """
        if self.budgets is None:
            return
        asking = [LeaseConstraints(lease.id, lease.label, lease.holder.uid, lease.plan.constraints) for lease in self.leases]
        if holder is not None and asked is not None:
            self.budgets.check(asked)
            asking.append(LeaseConstraints(ASKED, holder.app, holder.uid, asked))
        if self.budgets.look(self._config.ceiling_c if asking else None, asking):
            self._permitted.budget = self.budgets.budget
            self._plan_again()

    def _plan_again(self) -> None:
        """Plan every lease again within the limits in force."""
        self._unmet = {}
        with contextlib.suppress(DaemonError):  # tables that cannot be read are said by whoever needs them
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

    def _look_after(self, applied: Applied) -> None:
        try:
            if self._board.keep_memory():
                log.warning("the memory clock is locked: the kernel no longer keeps it where it was")
            if not self._watch.is_hot and self._limits() != self._planned_within:
                self._plan_again()
            wish = self._wish()
            outdated = applied.differs(wish, self._governed()) or self._floors_when_set != self.floors.levels
            texts, again = self._watch.look(applied, wish, outdated, lambda: not self._setting_anew().is_requested(applied))
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
                reasons = texts or self.floors.reasons or (self.budgets.told if self.budgets is not None else ())
                self._set("; ".join(reasons) or "what others allow or need has changed")
                return
        except DaemonError as error:
            texts = (str(error),)
        # What the board did not accept in the first place still stands.
        self.troubles = texts if applied.accepted == applied.requested else tuple(dict.fromkeys((*applied.notes, *texts)))

    def _wake(self, texts: tuple[str, ...]) -> None:
        """The machine has slept: what was known of it from before counts as old."""
        self.changed_s = self._monotonic()
        if self.budgets is not None:
            self.budgets.wake()
        found = "; ".join(texts) or "every clock stands as it was set"
        log.info("the machine has slept, and all was looked at again: %s", found, extra=fields(WOKEN, reason=found))

    def _set(self, reason: str, offered: Offered | None = None) -> Applied:
        """Set the board for all leases.

        Args:
            offered: the last look at the board, if it was for this change.
        """
        offered = self._permitted.look() if offered is None else offered
        setting, self._floors_when_set, self.changed_s = self._setting(), self.floors.levels, self._monotonic()
        try:
            applied = self._board.apply(setting.configuration, reason, setting.clusters, offered, setting.governed)
        except NotOffered:  # any more
            offered = self._permitted.look()
            setting = self._setting()
            applied = self._board.apply(setting.configuration, reason, setting.clusters, offered, setting.governed)
        self.applied, self.changed_s, self._left = applied, self._monotonic(), ""
        self.troubles = () if applied.verified else applied.notes
        said = fields(CLOCKS_SET, configuration=listed(applied.accepted), verified=applied.verified, reason=reason)
        log.info("%s, for %s", in_words(applied.accepted), reason, extra=said)
        for note in applied.notes:
            self._said.say(logging.WARNING, note, fields(TROUBLE, reason=reason))
        return applied

    def _give_back(self, longest_s: float = 0.0) -> RestoreReport:
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
            self._left = f"left to others, who have set them since the last lease began: {', '.join(report.clocks)}"
            log.warning("the board is given back; %s", self._left, extra=fields(GIVEN_BACK, reason="; ".join(report.left)))
        elif report.restored and not report.failed:
            log.info("the board is as it was found", extra=fields(GIVEN_BACK))
        return report

    def _wish(self) -> FrequencyConfiguration:
        """What the leases and other work need together."""
        needed = self._arbiter.wish(self._counting(), lambda: self.last_limits or self._limits())
        return self._raised(needed)

    def _raised(self, needed: FrequencyConfiguration) -> FrequencyConfiguration:
        """A configuration with the demand of other work, which governors see to by themselves."""
        left = self._governed()
        floors = (0 if axis in left else self.floors.least(axis) for axis in AXES)
        return FrequencyConfiguration(*map(max, needed, floors))

    def _governed(self) -> frozenset[str]:
        """The axes that every lease leaves to their governors."""
        left = [lease.plan.governed for lease in self._counting()]
        return frozenset.intersection(*left) if left else frozenset()

    def _setting_anew(self) -> BoardSetting:
        self._permitted.look()
        return self._setting()

    def _setting(self) -> BoardSetting:
        return self._permitted.setting(self._wish(), self.floors, self._governed())
