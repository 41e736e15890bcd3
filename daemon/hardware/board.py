# SPDX-License-Identifier: Apache-2.0
"""One board: what it offers now, what it measures, and the one way to change its clocks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from ...kernels.grid import FrequencyConfiguration, FrequencyGrid
from ...profiles.board import BoardDescription, ModeSet, PowerMode
from ...profiles.timing import Clock
from ..errors import DaemonError, HardwareHangs, HardwareRefused, InputError, UsageError
from . import nvpmodel
from .applied import Applied, agrees, effective, obeyed, outcome
from .axes import TITLES, Axes, megahertz, title
from .baseline import Baseline, BaselineDamaged, RestoreReport
from .clocks import gpu
from .clocks.clusters import Clusters
from .clocks.domain import Driver, Reading, Write, write_each
from .files import Files
from .identity import Identity, described_boards, match_board, read_identity
from .limits import moved_limits
from .sensors.sensors import Sensors

_SHORTEST_WAIT_S = 0.1
_WAIT_TRANSITIONS = 10
_POLL_S = 0.002


class Hardware:
    """A board's clocks, rails and temperatures. Use :meth:`probe`.

    Attributes:
        description: the board's description.
        identity: what the running system says of itself.
        sensors: what it measures.
    """

    def __init__(
        self,
        files: Files,
        clock: Clock,
        description: BoardDescription,
        identity: Identity,
        baseline: Path | None,
        leave: Collection[str] = (),
        clusters: Clusters | None = None,
    ) -> None:
        self.description = description
        self.identity = identity
        self.sensors = Sensors(files, description)
        self._modes: ModeSet | None = None
        self._modes_note = ""
        self._damage: tuple[str, ...] = ()
        try:
            self._modes = nvpmodel.read_modes(files, description.cores)
        except InputError as error:
            self._modes_note = f"power modes are not known: {error}"
        self._files = files
        self._clock = clock
        self._baseline_path = baseline
        self._axes = Axes(files, description, leave, clusters or Clusters())
        self._baseline: Baseline | None = None
        self._kept_hz: int | None = None  # where the kernel keeps the memory by itself, unlocked

    @classmethod
    def probe(
        cls,
        files: Files,
        clock: Clock,
        *,
        boards: Sequence[BoardDescription] | None = None,
        board: str | None = None,
        baseline: Path | None = None,
        leave: Collection[str] = (),
        clusters: Clusters | None = None,
    ) -> Hardware:
        """Find out which board this is and what of it can be controlled.

        Args:
            boards: the descriptions to choose from; by default all that there are.
            board: a description's name, instead of what the device tree says.
            baseline: the file that keeps the board as it was found. Without one, nothing can be set. What an earlier
                process of this boot left there is taken over, to be given back by :meth:`restore`. A damaged one is set
                aside, a memory lock that it may have leaked is ended, and :attr:`notes` says so.
            leave: axes (``emc_hz``) that are not to be set, on the operator's wish.
            clusters: whether the CPU's clusters are set together, which they are by default.

        Raises:
            InputError: no description fits this machine.
            UsageError: there is no board of that name.
            HardwareRefused, HardwareBusy: the boot's id cannot be read, or a damaged baseline cannot be set aside.
        """
        choice = described_boards() if boards is None else tuple(boards)
        identity = read_identity(files)
        if board is None:
            description = match_board(identity, choice)
        else:
            named = {item.name: item for item in choice}
            if board not in named:
                raise UsageError(f"board {board!r} is not described; valid: {', '.join(named)}")
            description = named[board]
        hardware = cls(files, clock, description, identity, baseline, leave, clusters)
        if baseline is not None:
            try:
                hardware._baseline = Baseline.load(files, baseline)
            except BaselineDamaged as error:
                hardware._set_aside(baseline, error)
        return hardware

    @property
    def notes(self) -> tuple[str, ...]:
        """What cannot be controlled or measured, and why."""
        notes = [
            f"{title(name)} is fixed at {megahertz(name, self._fixed_level(name))}: {fixed.reason}"
            for name, fixed in self._axes.fixed.items()
        ]
        notes += [note for driver in self._axes.drivers.values() for note in driver.notes]
        notes += [*self._axes.firmware_notes(), *self._damage]
        notes += [self._modes_note] if self._modes_note else []
        if not self.touched and any(reading.mode == "locked" for reading in self._readings("emc_hz")):
            others = "jetson_clocks, or a process that died with the lock"
            daemon = "" if self._baseline_path else "a running jetdvfsd, "
            notes.append(f"memory clock is locked by somebody else: by {daemon}{others}")
        notes += self._files.hanging
        notes += [*self.sensors.notes, *(f"throttled: {reason}" for reason in self.throttled())]
        return tuple(notes)

    def moved_limits(self) -> tuple[str, ...]:
        """Limits that somebody has moved since the power mode set them; while anything is held, some may be ours.

        Raises:
            HardwareBusy, HardwareRefused: a clock's table cannot be read.
        """
        self._axes.look_again()
        return tuple(
            moved_limits(self._files, ((title(name), driver) for name, driver in self._axes.drivers.items()), self.mode())
        )

    @property
    def touched(self) -> bool:
        """Whether anything may stand otherwise than it was found."""
        return self._baseline is not None

    def grid(self) -> FrequencyGrid:
        """What the board, its mode and its firmware allow now; an axis that cannot be controlled has one level.

        Raises:
            HardwareBusy, HardwareRefused: a clock's table or limit cannot be read any more.
        """
        self._axes.look_again()
        return FrequencyGrid(**{name: self._levels(name) for name in TITLES})

    @property
    def leader(self) -> str | None:
        """The cpufreq policy that ``cpu_khz`` sets alone; None where it sets them all."""
        return self._axes.leader

    def clusters(self) -> dict[str, tuple[int, ...]]:
        """What the CPU clusters that are set apart offer now in kHz, by cpufreq policy.

        Raises:
            HardwareBusy, HardwareRefused: as for :meth:`grid`.
        """
        self._axes.look_again()
        return {name: self._levels(name) for name in self._axes.apart}

    def levels(self, axis: str) -> tuple[int, ...]:
        """What an axis, or a cluster that is set apart, offers now.

        Raises:
            HardwareBusy, HardwareRefused: as for :meth:`grid`.
        """
        return self._levels(axis)

    def read(self) -> dict[str, tuple[Reading, ...]]:
        """What every clock under control says of itself, by axis or cluster that is set apart; one reading per domain.

        Raises:
            HardwareHangs: a clock's files do not answer.
        """
        self._axes.look_again()
        return {name: self._read(driver) for name, driver in self._axes.drivers.items()}

    def current(self) -> FrequencyConfiguration:
        """The clocks as measured; where there is nothing to measure, as requested."""
        levels = {name: self._fixed_level(name) for name in self._axes.fixed}
        for name, readings in self.read().items():
            if name in TITLES:
                levels[name] = min(effective(reading) for reading in readings)
        return FrequencyConfiguration(**levels)

    def memory_hz(self) -> int:
        """The memory clock as measured, or else as requested; 0 where neither can be read."""
        readings = self._readings("emc_hz")
        return effective(readings[0]) if readings else self._fixed_level("emc_hz") if "emc_hz" in self._axes.fixed else 0

    def gpu_load(self) -> float | None:
        """How busy the GPU is, 0 to 1; None where that cannot be seen."""
        driver = self._axes.drivers.get("gpu_hz")
        return driver.load() if isinstance(driver, gpu.GpuClock) else None

    def rails_mw(self) -> dict[str, float]:
        """Power of every rail that can be read now, in mW."""
        return self.sensors.rails_mw()

    def temperatures_mc(self) -> dict[str, int]:
        """Temperature of every zone that can be read now, in thousandths of a degree Celsius."""
        return self.sensors.temperatures_mc()

    def throttled(self) -> tuple[str, ...]:
        """Why the board runs slower than its clocks say (see :meth:`Sensors.throttled`)."""
        return self.sensors.throttled()

    def mode(self) -> PowerMode | None:
        """The power mode in force, or None where the system does not say; its caps bound the grid."""
        return None if self._modes is None else nvpmodel.active_mode(self._files, self._modes)

    def transition_ms(self) -> dict[str, float]:
        """What one change of each clock under control costs, by axis."""
        return {name: driver.transition_ms for name, driver in self._axes.drivers.items()}

    def apply(self, configuration: FrequencyConfiguration, reason: str, clusters: Mapping[str, int] | None = None) -> Applied:
        """Set all three clocks, wait (bounded) until they obey, and say what became of the request.

        Where a file refuses, everything already written is put back and the error is raised. A clock that the firmware
        cuts down is no error: the answer is not ``verified`` and its notes say why.

        Args:
            reason: why; kept in the answer.
            clusters: for CPU clusters that are set apart, their clocks in kHz by cpufreq policy; the lowest by default.

        Raises:
            HardwareRefused, HardwareBusy: a frequency is not offered (nothing was written then), or a file refused; the
                text says which, and whether everything could be put back.
        """
        started = self._clock.monotonic()
        grid, apart = self.grid(), self.clusters()
        offered = {**{name: getattr(grid, name) for name in TITLES}, **apart}
        wanted = {**configuration._asdict(), **{name: (clusters or {}).get(name, levels[0]) for name, levels in apart.items()}}
        for name, level in wanted.items():
            if level not in offered[name]:
                why = f" ({self._axes.fixed[name].reason})" if name in self._axes.fixed else ""
                raise HardwareRefused(
                    f"{title(name)} {name}={level} is not offered now; valid: {', '.join(map(str, offered[name]))}{why}"
                )
        order, kept_before = self._order(wanted), self._kept_hz
        plans = [driver.plan(wanted[driver.axis]) for driver in order]
        intended = [write for plan in plans for write in plan]
        fresh = self._baseline is None
        baseline = self._ready_baseline()
        before = baseline.intend(intended)
        done: list[Write] = []
        seen: dict[str, tuple[Reading, ...]] = {}
        self._kept_hz = wanted["emc_hz"] if self._kernel_keeps(wanted, offered["emc_hz"]) else None
        if self._kept_hz is not None:
            # The kernel raises the memory when the CPU rises; only where that does not show must it be pinned.
            pairs = sorted(zip(order, plans, strict=True), key=lambda pair: pair[0].axis == "emc_hz")
            order, plans = [driver for driver, _ in pairs], [plan for _, plan in pairs]
        try:
            for driver, plan in zip(order, plans, strict=True):
                if driver.axis == "emc_hz" and self._kept_hz is not None:
                    seen["emc_hz"] = self._settle(driver, self._kept_hz)
                    if all(obeyed(reading, self._kept_hz) for reading in seen["emc_hz"]):
                        continue
                    self._kept_hz = None
                level, valid = wanted[driver.axis], offered[driver.axis]
                seen[driver.axis] = self._carry_out(driver, plan, level, valid, done)
                if any(reading.accepted != level for reading in seen[driver.axis]):
                    # Somebody wrote, or a node came and went, at the same moment; a limit gives the same answer again.
                    seen[driver.axis] = self._carry_out(driver, plan, level, valid, done)
        except DaemonError as error:
            self._kept_hz = kept_before
            put_back = self._roll_back(order, before, done, baseline, fresh)
            raise type(error)(f"{error}; {put_back}") from error
        baseline.confirm(done)
        elapsed_ms = 1000 * (self._clock.monotonic() - started)
        return outcome(wanted, seen, self.throttled, reason=reason, writes=tuple(done), elapsed_ms=elapsed_ms)

    def _carry_out(
        self, driver: Driver, plan: Sequence[Write], level: int, valid: tuple[int, ...], done: list[Write]
    ) -> tuple[Reading, ...]:
        """Make one clock's writes, adding each to ``done``, and wait until they show."""
        for write in plan:
            self._await(write.path)
            try:
                self._files.write_text(write.path, write.value, valid if write.value == str(level) else ())
            except HardwareHangs:
                done.append(write)  # it may yet take effect
                raise
            done.append(write)
        return self._settle(driver, level)

    def keep_memory(self) -> bool:
        """Lock the memory clock where the kernel was left to keep it at its level and no longer does; whether that was so.

        Raises:
            HardwareRefused, HardwareBusy: a file refused.
        """
        level, driver = self._kept_hz, self._axes.memory
        if level is None or driver is None or self._baseline is None:
            return False
        if all(reading.accepted is not None for reading in self._read(driver)):
            return False
        self._kept_hz = None
        plan, done = driver.plan(level), list[Write]()
        self._baseline.intend(plan)
        try:
            self._carry_out(driver, plan, level, (), done)
        finally:
            self._baseline.confirm(done)
        return True

    def restore(self) -> RestoreReport:
        """Give the board back as it was found, as :meth:`Baseline.restore` does; nothing to do is no error."""
        if self._baseline is None:
            return RestoreReport()
        report = self._baseline.restore()
        if not report.failed:
            self._baseline, self._kept_hz = None, None
        return report

    def unlock_memory(self, *, dry_run: bool = False) -> tuple[Write, ...]:
        """End a lock of the memory clock, whoever took it: by hand, for one that a dead process left behind.

        Returns:
            The writes made; none where the clock is not locked.

        Raises:
            HardwareRefused, HardwareBusy: a file refused.
        """
        writes = self._axes.memory.unlock() if self._axes.memory else ()
        for write in () if dry_run else writes:
            self._files.write_text(write.path, write.value)
        return writes

    def _set_aside(self, path: Path, error: BaselineDamaged) -> None:
        aside = path.with_name(path.name + ".damaged")
        try:
            path.replace(aside)
        except OSError as trouble:
            raise HardwareRefused(f"{error}; it cannot be set aside ({trouble.strerror})") from error
        self._damage = (f"{error} ({aside}): clocks that an earlier daemon set may still stand",)
        # A lock starves whoever needs the memory; to end one that was not ours does less harm than to leave one that was.
        try:
            ended = self.unlock_memory()
        except DaemonError as trouble:
            self._damage += (f"the memory clock may still be locked: {trouble}",)
        else:
            self._damage += ("the lock of the memory clock that it left was ended",) if ended else ()

    def _kernel_keeps(self, wanted: Mapping[str, int], offered: tuple[int, ...]) -> bool:
        memory = self._axes.memory
        return memory is not None and memory.kept_by_kernel(wanted["emc_hz"], wanted["cpu_khz"], offered)

    def _read(self, driver: Driver) -> tuple[Reading, ...]:
        readings, kept = driver.read(), self._kept_hz
        if driver.axis != "emc_hz" or kept is None:
            return readings
        return tuple(
            one._replace(accepted=kept) if one.accepted is None and one.effective and agrees(one.effective, kept) else one
            for one in readings
        )

    def _readings(self, axis: str) -> tuple[Reading, ...]:
        try:
            return self._read(self._axes.drivers[axis]) if axis in self._axes.drivers else ()
        except HardwareHangs:
            return ()

    def _levels(self, axis: str) -> tuple[int, ...]:
        if axis in self._axes.fixed:
            return (self._fixed_level(axis),)
        levels = self._axes.drivers[axis].levels(self._baseline.others if self._baseline else self._files.read_text)
        mode = self.mode()
        return levels if mode is None else nvpmodel.bound_levels(levels, getattr(mode, axis if axis in TITLES else "cpu_khz"))

    def _fixed_level(self, axis: str) -> int:
        """Where a clock that cannot be controlled is taken to be; unseen, at the highest level that the mode leaves it."""
        fixed, mode = self._axes.fixed[axis], self.mode()
        if fixed.seen or mode is None:
            return fixed.level
        return nvpmodel.bound_levels(getattr(self.description.grid, axis), getattr(mode, axis))[-1]

    def _ready_baseline(self) -> Baseline:
        if self._baseline_path is None:
            raise HardwareRefused("no file was named that keeps the baseline; no clock was set")
        domains = self._axes.domains
        if self._baseline is None:
            baseline = Baseline.take(self._files, domains)
            baseline.save(self._baseline_path)
            self._baseline = baseline
        self._baseline.include(domains)
        return self._baseline

    def _order(self, wanted: Mapping[str, int]) -> list[Driver]:
        """The memory clock rises before and falls after those whose traffic it carries, so that they never starve.

        Of the others, what falls goes before what rises, so that power never exceeds both ends of the transition.
        """
        now = {name: min(effective(reading) for reading in readings) for name, readings in self.read().items()}

        def turn(driver: Driver) -> int:
            rises = wanted[driver.axis] > now.get(driver.axis, 0)
            if driver.axis == "emc_hz":
                return 0 if rises else 3
            return 2 if rises else 1

        return sorted(self._axes.drivers.values(), key=turn)

    def _await(self, path: str) -> None:
        """Wait (bounded) for a file: devfreq makes its setpoint only once the governor that takes it has started."""
        deadline = self._clock.monotonic() + _SHORTEST_WAIT_S
        while not self._files.exists(path) and self._clock.monotonic() < deadline:
            self._clock.sleep(_POLL_S)

    def _settle(self, driver: Driver, level: int) -> tuple[Reading, ...]:
        deadline = self._clock.monotonic() + max(_SHORTEST_WAIT_S, _WAIT_TRANSITIONS * driver.transition_ms / 1000)
        while True:
            readings = self._read(driver)
            if all(obeyed(reading, level) for reading in readings) or self._clock.monotonic() >= deadline:
                return readings
            self._clock.sleep(_POLL_S)

    def _roll_back(
        self, order: list[Driver], before: dict[str, str], done: list[Write], baseline: Baseline, fresh: bool
    ) -> str:
        written = {write.path for write in done}
        failed = []
        for domain in (domain for driver in reversed(order) for domain in reversed(driver.domains)):
            try:
                made, refused = write_each(
                    self._files, domain.give_back(self._files, before, written.intersection(domain.paths))
                )
                done += made
                failed += refused
            except DaemonError as error:
                failed.append(str(error))
        if fresh and not failed:
            baseline.discard()
            self._baseline = None
        else:
            baseline.confirm(done)
        if failed:
            return f"not everything could be put back: {'; '.join(failed)}"
        return "all clocks were put back" if written else "nothing was changed"
