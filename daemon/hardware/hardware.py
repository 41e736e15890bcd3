# SPDX-License-Identifier: Apache-2.0
"""One board: its levels, its sensors, and the one way to change its clocks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...kernels.grid import FrequencyConfiguration, FrequencyGrid
from ...kernels.text import valid_instead
from ...profiles.board import BoardDescription, ModeSet, PowerMode
from ...profiles.timing import Clock
from ..errors import DaemonError, HardwareHangs, HardwareRefused, NotOffered, UsageError
from .applied_setting import AppliedSetting, outcome
from .axes import TITLES, Axes, megahertz, title
from .baseline import BaselineKeeper, RestoreReport
from .baseline.record import Marker
from .clocks import gpu
from .clocks.domain import ClockDomain, Write
from .clocks.driver import Clusters, OthersValue, Reading, effective
from .clocks.emc import EmcClock
from .files import Files
from .identity import BoardIdentity, described_boards, identify, read_identity
from .offered_levels import (
    Cap,
    OfferedLevels,
    find_caps,
    fixed_level,
    fixed_levels,
    mode_limits,
    moved_limits,
    offered_levels_of,
    read_offered,
)
from .power_modes import UNITS_MASK, RunningModes
from .sensors.engines import EngineClocks
from .sensors.hwmon import Fan, read_fan
from .sensors.sensors import SensorReader, Sensors
from .setter import ClockChange, Setter
from .transition import Transition

if TYPE_CHECKING:
    from .baseline.held_clocks import HeldClocksReport

LOCKED = "memory clock is locked by another program"


class Hardware:
    """A board's clocks, rails and temperatures. Use :meth:`probe`.

    Methods that read clocks raise HardwareBusy or HardwareRefused if a table or limit cannot be read.
    """

    def __init__(
        self,
        files: Files,
        clock: Clock,
        description: BoardDescription,
        identity: BoardIdentity,
        baseline: Path | None,
        state_dir: Path | None = None,
        leave: Collection[str] = (),
        clusters: Clusters | None = None,
        sensing: Callable[[BoardDescription], SensorReader] | None = None,
    ) -> None:
        self.description = description
        self.identity = identity
        self.sensors: SensorReader = Sensors(files, description) if sensing is None else sensing(description)
        self._files = files
        self._clock = clock
        self._modes = RunningModes(files, description, identity)
        self._axes = Axes(files, description, leave, clusters or Clusters())
        self._engines = EngineClocks(files)
        self._locks_found: frozenset[str] = frozenset()
        self._keeper: BaselineKeeper | None = None
        if baseline is not None:
            self._keeper = BaselineKeeper(files, clock, baseline, state_dir, description.name, self.stock)

    @classmethod
    def probe(
        cls,
        files: Files,
        clock: Clock,
        *,
        boards: Sequence[BoardDescription] | None = None,
        board: str | None = None,
        baseline: Path | None = None,
        state_dir: Path | None = None,
        leave: Collection[str] = (),
        clusters: Clusters | None = None,
        sensing: Callable[[BoardDescription], SensorReader] | None = None,
    ) -> Hardware:
        """Identify the board and find its controllable clocks.

        Args:
            board: name of a description, instead of the device tree's.
            baseline: folder of the baseline, needed to set clocks.
            state_dir: folder that outlasts the baseline's, to show its removal.
            leave: axes (``emc_hz``) that the operator excludes from control.

        Raises:
            HardwareBusy: the device tree does not answer.
            InputError, UsageError: no description fits, or has that name.
        """
        if board is None:
            identity, description = identify(files, clock, boards)
        else:
            identity = read_identity(files)
            named = {item.name: item for item in (described_boards() if boards is None else boards)}
            if board not in named:
                raise UsageError(f"board {board!r} is not described{valid_instead(board, list(named))}")
            description = named[board]
        hardware = cls(files, clock, description, identity, baseline, state_dir, leave, clusters, sensing)
        if hardware._keeper is not None:
            with contextlib.suppress(DaemonError):  # reported in its notes; tried again before anything is set
                hardware._keeper.recall()
        return hardware

    @property
    def notes(self) -> tuple[str, ...]:
        like, board = self.description.like, self.description.name
        notes = [f"{board} is not described: its files are read as those of {like}, and nothing is predicted"] if like else []
        for name, fixed in self._axes.fixed.items():
            where = f" is {'fixed' if fixed.seen else 'taken to be'} at {megahertz(name, self._fixed_level(name))}"
            notes.append(f"{title(name)}{'' if fixed.waits else where}: {fixed.reason}")
        notes += [note for driver in self._axes.drivers.values() for note in driver.notes]
        notes += [*self._axes.firmware_notes(), *(self._keeper.notes if self._keeper else ())]
        notes += [self.mode_note] if self.mode_note else []
        if not self.touched and any(reading.mode == "locked" for reading in self._readings("emc_hz")):
            others = "jetson_clocks, or a process that died with the lock"
            daemon = "" if self._keeper else "a running jetdvfsd, "
            notes.append(f"{LOCKED}: by {daemon}{others}")
        notes += self._files.hanging
        notes += [*self.sensors.notes, *(f"throttled: {reason}" for reason in self.sensors.throttled())]
        return tuple(notes)

    def moved_limits(self) -> tuple[str, ...]:
        """Limits moved since the power mode set them; while clocks are held, some may be ours."""
        self._axes.probe_again()
        return tuple(
            moved_limits(self._files, ((title(name), driver) for name, driver in self._axes.drivers.items()), self.mode())
        )

    def closed_files(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for name, driver in self._axes.drivers.items():
            there = (path for domain in driver.domains for path in domain.paths if self._files.exists(path))
            found[name] = tuple(path for path in there if not self._files.may_write(path))
        return found

    def paths(self, axis: str) -> tuple[str, ...]:
        driver = self._axes.drivers.get(axis)
        return () if driver is None else tuple(path for domain in driver.domains for path in domain.paths)

    @property
    def touched(self) -> bool:
        return self._keeper is not None and self._keeper.touched

    def grid(self) -> FrequencyGrid:
        return self.offered().grid

    def offered(self) -> OfferedLevels:
        with self._files.together("offered"):
            self._axes.probe_again()
            return read_offered(self._axes, self.description, self.mode(), self._others)

    def seen(self) -> tuple[FrequencyGrid, tuple[str, ...]]:
        self._axes.probe_again()
        failed: list[str] = []
        return read_offered(self._axes, self.description, self.mode(), self._others, failed).grid, tuple(failed)

    def caps(self, offered: OfferedLevels) -> tuple[Cap, ...]:
        return tuple(find_caps(offered, self.description, self._axes.fixed))

    @property
    def leader(self) -> str | None:
        return self._axes.leader

    def levels(self, axis: str) -> tuple[int, ...]:
        if axis in self._axes.fixed:
            return fixed_levels(self._axes, self.description, axis, self.mode())
        return offered_levels_of(self._axes.drivers[axis], self.mode(), self._others)

    def read(self) -> dict[str, tuple[Reading, ...]]:
        """Readings of every controlled clock, by axis or cluster set apart; one per domain."""
        with self._files.together("readings"):
            self._axes.probe_again()
            return {name: driver.read() for name, driver in self._axes.drivers.items()}

    def current(self, readings: Mapping[str, tuple[Reading, ...]] | None = None) -> FrequencyConfiguration:
        levels = {name: self._fixed_level(name) for name in self._axes.fixed}
        for name, found in (self.read() if readings is None else readings).items():
            if name in TITLES:
                levels[name] = min(effective(reading) for reading in found)
        return FrequencyConfiguration(**levels)

    def unmeasured(self, readings: Mapping[str, tuple[Reading, ...]]) -> dict[str, str]:
        """Unmeasured clocks, by axis: ``unknown``, ``at most``, or ``not measured``."""
        found = {name: "not measured" for name, fixed in self._axes.fixed.items() if not fixed.seen}
        for name, several in readings.items():
            if name in TITLES and any(one.effective is None for one in several):
                capped = any(one.mode == "cap" for one in several)
                known = all(one.accepted for one in several)
                found[name] = "at most" if capped else "not measured" if known else "unknown"
        return found

    def memory_hz(self) -> int:
        if "emc_hz" in self._axes.fixed:
            return self._fixed_level("emc_hz")
        return next((effective(reading) for reading in self._readings("emc_hz")), 0)

    def gpu_load(self) -> float | None:
        driver = self._axes.drivers.get("gpu_hz")
        return driver.load() if isinstance(driver, gpu.GpuClock) else None

    def throttled(self) -> tuple[str, ...]:
        reasons = self.sensors.throttled(now=True)
        if reasons and self._keeper is not None and self._keeper.baseline is not None:
            self._keeper.baseline.note_heat()
        return reasons

    def fan(self) -> Fan | None:
        return read_fan(self._files)

    def engines(self) -> dict[str, int]:
        return self._engines.read()

    def mode(self) -> PowerMode | None:
        return self._modes.active()

    def masks(self, mode: PowerMode | None) -> Mapping[str, int] | None:
        """Masks of GPU parts that are off: the driver fixes units at their first use (nvgpu, sysfs.c); None if unknown."""
        driver = self._axes.drivers.get("gpu_hz")
        path = f"{driver.path}/device/{UNITS_MASK}" if isinstance(driver, gpu.GpuClock) else ""
        units = self._files.find_int(path) if path else None
        if units is None:
            return None if mode is None else mode.masks
        return {**(mode.masks if mode else {}), UNITS_MASK: units}

    @property
    def mode_note(self) -> str:
        return self._modes.note

    @property
    def modes(self) -> ModeSet | None:
        return self._modes.modes

    def transition_ms(self) -> dict[str, float]:
        return {name: driver.transition_ms for name, driver in self._axes.drivers.items()}

    def apply(
        self,
        configuration: FrequencyConfiguration,
        reason: str,
        clusters: Mapping[str, int] | None = None,
        offered: OfferedLevels | None = None,
        governed: Collection[str] = (),
    ) -> AppliedSetting:
        """Set the clocks, wait (bounded) until they obey, and return the outcome, not ``verified`` if the firmware cuts a
        clock.

        Args:
            clusters: clocks in kHz of CPU clusters set apart, by cpufreq policy; the lowest by default.
            offered: last result of :meth:`offered`; read now by default.
            governed: axes that are not set; previously set ones return to their governors.

        Raises:
            NotOffered: a frequency is not offered; nothing was written.
            HardwareRefused, HardwareBusy: a file refused; the text says if all writes could be undone.
        """
        started = self._clock.monotonic()
        offered = self.offered() if offered is None else offered
        levels, apart = offered.levels, offered.clusters
        wanted = {**configuration._asdict(), **{name: (clusters or {}).get(name, apart[name][0]) for name in apart}}
        left = {name: one for name, one in self._axes.drivers.items() if (name if name in TITLES else "cpu_khz") in governed}
        for name, level in wanted.items():
            if level not in levels[name]:
                why = f" ({self._axes.fixed[name].reason})" if name in self._axes.fixed else ""
                raise NotOffered(
                    f"{title(name)} {name}={level} is not offered now; valid: {', '.join(map(str, levels[name]))}{why}"
                )
        keeper = self._writable()
        with self._files.together("change"):
            baseline, read = keeper.ready(self._axes.domains, partial(self._limits_by_mode, offered))
            fresh = not baseline.used
            if fresh:
                self._locks_found = self._memory_locks()
            try:
                drivers = [driver for name, driver in self._axes.drivers.items() if name not in left]
                transition = Transition(self._files, self._clock, drivers, wanted, levels, read)
                before = baseline.intend(transition.planned, read)
            except DaemonError:
                if fresh:
                    keeper.abandon()
                raise
        try:
            seen = transition.carry_out()
        except DaemonError as error:
            failed = transition.undo(before)
            if fresh and not failed:
                failed = list(keeper.restore().failed)
            else:
                baseline.confirm(transition.done)
            raise type(error)(f"{error}; {_what_was_undone(transition.done, failed)}") from error
        baseline.confirm(transition.done)
        back = baseline.restore(only=[domain for driver in left.values() for domain in driver.domains])
        for name, driver in left.items():
            if isinstance(driver, EmcClock):
                driver.kept_hz = None
            if name in TITLES:
                wanted[name] = min(map(effective, driver.read()))
            else:
                del wanted[name]
        elapsed_ms = 1000 * (self._clock.monotonic() - started)
        return outcome(
            wanted,
            seen,
            self.throttled,
            reason=reason,
            writes=(*transition.done, *back.restored),
            elapsed_ms=elapsed_ms,
            waiting=tuple(name for name, fixed in self._axes.fixed.items() if fixed.waits and name not in governed),
            governed=frozenset(governed),
            failed=back.failed,
        )

    def keep_memory(self) -> bool:
        """Lock the memory clock if the kernel no longer keeps its level; return True if so."""
        memory, baseline = self._axes.memory, self._keeper.baseline if self._keeper else None
        if memory is None or memory.kept_hz is None or baseline is None:
            return False
        if all(reading.accepted is not None for reading in memory.read()):
            return False
        step = ClockChange(memory, memory.kept_hz, (), memory.plan(memory.kept_hz, self._files))
        memory.kept_hz = None
        setter = Setter(self._files, self._clock)
        baseline.intend(step.writes)
        try:
            setter.set(step)
        finally:
            baseline.confirm(setter.done)
        return True

    def keep_baseline(self) -> str:
        return self._keeper.keep() if self._keeper else ""

    def restore(self, longest_s: float = 0.0) -> RestoreReport:
        """Restore the board's baseline, retrying for ``longest_s``.

        If the baseline is lost, clocks that look held get the kernel's governors, the mode's limits and no lock.
        """
        before = self.touched
        report = self._keeper.restore(longest_s=longest_s) if self._keeper else RestoreReport()
        if self.touched or self._axes.memory is None:
            return report
        self._axes.memory.kept_hz = None
        locks = self._memory_locks().difference(self._locks_found) if before else frozenset()
        if not locks or TITLES["emc_hz"] in report.clocks:
            return report
        # Another program took a lock, so that limits no longer hold the clock.
        left = (f"{path}: left at 1, which another program set" for path in sorted(locks))
        return replace(report, left=(*report.left, *left), clocks=(TITLES["emc_hz"], *report.clocks))

    def _memory_locks(self) -> frozenset[str]:
        memory = self._axes.memory
        switches = () if memory is None else memory.past_limits
        return frozenset(one.path for one in switches if self._files.find_text(one.path) == one.value)

    def stock(self, held: Marker) -> HeldClocksReport:
        from .baseline.held_clocks import stock  # only for a lost baseline

        self._axes.probe_again()
        found = stock(self._files, self._axes.drivers.values(), self.mode(), self.description, held.domains)
        seen = {domain.name for domain in self._axes.domains}
        found.unread += [f"{name}: was held, and is not there to be looked at" for name in held.domains if name not in seen]
        return found

    def unlock_memory(self, *, dry_run: bool = False) -> tuple[Write, ...]:
        """End any program's lock of the memory clock, as one that a dead process left; return the writes made."""
        self._axes.probe_again()
        writes = self._axes.memory.unlock() if self._axes.memory else ()
        for write in () if dry_run else writes:
            self._files.write_text(write.path, write.value)
        return writes

    def _fixed_level(self, axis: str) -> int:
        return fixed_level(self._axes, self.description, axis, self.mode())

    def _readings(self, axis: str) -> tuple[Reading, ...]:
        try:
            return self._axes.drivers[axis].read() if axis in self._axes.drivers else ()
        except HardwareHangs:
            return ()

    @property
    def _others(self) -> OthersValue:
        return self._keeper.baseline.others if self._keeper and self._keeper.baseline else self._files.read_text

    def _limits_by_mode(self, offered: OfferedLevels, domain: ClockDomain) -> tuple[int, int] | None:
        for axis, driver in self._axes.drivers.items():
            if domain in driver.domains and axis != "emc_hz" and axis in offered.tables:
                return mode_limits(axis, offered.tables[axis], offered.mode)
        return None

    def _writable(self) -> BaselineKeeper:
        if self._keeper is None:
            raise HardwareRefused("nothing was named that keeps the baseline; no clock was changed")
        return self._keeper


def _what_was_undone(written: Sequence[Write], failed: Sequence[str]) -> str:
    if failed:
        return f"not everything could be put back: {'; '.join(failed)}"
    return "all clocks were put back" if written else "nothing was changed"
