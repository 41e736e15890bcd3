# SPDX-License-Identifier: Apache-2.0
"""The baseline: the board's clocks before the first write, and their restoration.

A file is restored only while it holds a value from the journal of our writes, so that clocks set by another program stay.
Values are journalled before they are written: after a crash, the next process knows its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set

from msgspec import Struct, field
from msgspec.structs import replace

from ....profiles.timing import Clock
from ...errors import DaemonError, HardwareBusy, HardwareRefused
from ..clocks.domain import ClockDomain, Write, clamp, write_each
from ..files import Files, rate_in
from ..sensors import thermal
from ..sensors.cooling import find_devices
from .record import BaselineEntry, BaselineRecord, Marker
from .store import BaselineStore

_CLOCKS = {"emc": "memory clock", "gpu": "GPU clock"}
# Immediate retries, and the wait before the first; each wait is twice the last.
_TRIES = 3
_PAUSE_S = 0.004
# Time for which the kernel may go on raising limits after the heat.
_COOLS_S = 60.0


class RestoreReport(Struct, frozen=True):
    """Values restored and left, refusals, ``clocks`` left as other programs set them, and ``notes``."""

    restored: tuple[Write, ...] = ()
    left: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    clocks: tuple[str, ...] = ()


class _RestoreWork(Struct):
    plans: list[tuple[Write, ...]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @property
    def writes(self) -> list[Write]:
        return [write for plan in self.plans for write in plan]


class Baseline:
    """Values found in every writable file, and the journal of writes.

    Args:
        record: an earlier process's record, or a new one; stored with the first change.
        held: other held domains, and the board's description.
    """

    def __init__(self, files: Files, clock: Clock, store: BaselineStore, record: BaselineRecord, held: Marker) -> None:
        self.unsaved = ""
        self._files = files
        self._clock = clock
        self._store = store
        self._record = record
        self._confirmed = dict(record.journal)
        self._held = held
        self._marked: Marker | None = None
        self._hot_s = -_COOLS_S

    def note_heat(self) -> None:
        self._hot_s = self._clock.monotonic()

    @property
    def used(self) -> bool:
        return bool(self._record.journal)

    def include(
        self, domains: Iterable[ClockDomain], limits: Callable[[ClockDomain], tuple[int, int] | None]
    ) -> dict[str, str | None]:
        """Record the values of further domains' files; return the values just read.

        While heat hides a limit, the power mode's (``limits``) is the baseline; None if heat lowers none.
        """
        known = self._record.domains
        new = tuple(domain for domain in domains if domain not in known)
        known = tuple(one for one in known if not any(set(one.paths) <= set(other.paths) for other in new))
        values, read = dict(self._record.values), dict[str, str | None]()
        for domain in new:
            low, high = limits(domain) or ("", "")
            by_mode = {domain.low: str(low), domain.high: str(high)}
            for path in domain.paths:
                read[path] = text = self._settled(domain, path)
                if text is not None:
                    limit = by_mode.get(path, "")
                    values.setdefault(path, limit if self._cut_by_heat(domain, path, text, (limit,)) else text)
        self._record = replace(self._record, domains=(*known, *new), values=values)
        return read

    def intend(self, writes: Iterable[Write], read: Mapping[str, str | None] | None = None) -> dict[str, str]:
        """Journal the values about to be written, ours from now on; return the files' earlier values, some just ``read``.

        A value that another program set since becomes the one to restore. After an error (an unknown value, or a full disk)
        nothing may be set.
        """
        before = self._record
        values, journal, confirmed = dict(before.values), dict(before.journal), dict(before.journal)
        taken = dict(before.taken)
        held: dict[str, str] = {}
        for path, value in writes:
            domain = self._domain(path)
            entry = journal.get(path, BaselineEntry((), False))
            current = (read or {}).get(path) or self._settled(domain, path)
            hidden = current is not None and self._cut_by_heat(domain, path, current, (values.get(path, ""),))
            if current is not None and not hidden and not self._is_ours(domain, path, current):
                # Our values stay ours: a file may read differently for a while without a write.
                values[path] = current
                if before.journal and before.values.get(path, current) != current:
                    self._take_over(domain, path, current, values, taken)
            elif current is None and path not in values and not _follows_mode(domain, path):
                raise HardwareBusy(f"{path}: its value is unknown; no clock was changed")
            if current is None:
                current = entry.values[-1] if entry.values else values.get(path)
            if current is not None:
                held[path] = current
            journal[path] = BaselineEntry((*entry.values, value), entry.confirmed)
        intended = replace(before, values=values, journal=journal, taken=taken, generation=before.generation + 1)
        try:
            self._store_record(intended)
        except HardwareRefused as error:
            raise HardwareRefused(f"{error}; no clock was changed") from error
        self._record, self._confirmed = intended, confirmed
        return held

    def confirm(self, writes: Iterable[Write]) -> None:
        """Journal the completed writes and their read-back; if that fails, the intended values on disk suffice."""
        journal = dict(self._confirmed)
        for path, value in writes:
            domain = self._domain(path)
            current = self._files.find_text(path)
            differs = current not in (None, value) and (_follows_mode(domain, path) or self._makes_sense(domain, path, current))
            journal[path] = BaselineEntry((value, str(current)) if differs else (value,), True)
        self._record = replace(self._record, journal=journal, generation=self._record.generation + 1)
        self._confirmed = journal
        self.save()

    def save(self) -> None:
        try:
            self._store_record(self._record)
        except HardwareRefused as error:
            self.unsaved = f"{error}; the stored baseline predates the last change"

    def keep(self) -> None:
        if self.unsaved or not self._store.intact:
            self.save()

    def others(self, path: str) -> str:
        """The file's value before ours, or its current one."""
        current, values = self._files.read_text(path), self._record.values
        return values[path] if path in values and self._is_ours(self._domain(path), path, current) else current

    def restore(
        self, *, dry_run: bool = False, longest_s: float = 0.0, only: Collection[ClockDomain] | None = None
    ) -> RestoreReport:
        """Restore the files that still hold our values, or only the clocks ``only``, in an order that is safe at every step.

        A value that did not take is rewritten for ``longest_s``. A refusal does not stop the other files.
        """
        which = self._record.domains if only is None else tuple(only)
        ours = {path for domain in which for path in domain.paths}
        if only is not None and ours.isdisjoint(self._record.journal):
            return RestoreReport()
        given: dict[str, str] = {}
        refused: dict[str, str] = {}
        restored: list[Write] = []
        deadline, pause_s, tries = self._clock.monotonic() + longest_s, _PAUSE_S, 0
        work = self._remaining(given, ours)
        while not dry_run and (work.plans or work.failed):
            if tries >= _TRIES and self._clock.monotonic() >= deadline:
                break
            if tries:
                self._clock.sleep(pause_s)
                pause_s *= 2
            tries += 1
            for plan in work.plans:
                done, failed = write_each(self._files, plan)
                restored += done
                given.update(done)
                refused.update(zip((write.path for write in plan if write not in done), failed, strict=True))
            work = self._remaining(given, ours, refused)
        if dry_run:
            return RestoreReport(tuple(work.writes), tuple(work.left), tuple(work.failed))
        work.left += self._left_alone(work.left) if only is None else ()
        failed = work.failed + [refused.get(write.path) or self._not_accepted(write) for write in work.writes]
        if not failed:
            journal = {path: entry for path, entry in self._record.journal.items() if path not in ours}
            taken = {path: text for path, text in self._record.taken.items() if path not in ours}
            self._record, self._confirmed = replace(self._record, journal=journal, taken=taken), dict(journal)
            if journal:
                self.save()
        paths = {text.partition(": ")[0] for text in work.left}
        domains = [domain.name for domain in self._record.domains if paths.intersection(domain.paths)]
        clocks = tuple(dict.fromkeys(_CLOCKS.get(name, "CPU clock") for name in domains))
        return RestoreReport(tuple(dict.fromkeys(restored)), tuple(work.left), tuple(dict.fromkeys(failed)), clocks=clocks)

    def _left_alone(self, known: Sequence[str]) -> list[str]:
        found, told, record = dict(self._record.taken), {text.partition(": ")[0] for text in known}, self._record
        for domain in record.domains:
            for path in sorted(filter(None, {domain.low, domain.high} & record.values.keys() - record.journal.keys())):
                before, now = record.values[path], self._settled(domain, path)
                if now not in (None, before) and not self._cut_by_heat(domain, path, str(now), (before,)):
                    found[path] = str(now)
        still = (path for path, value in found.items() if path not in told and self._files.find_text(path) == value)
        return [f"{path}: left at {found[path]}, which another program set" for path in still]

    def _not_accepted(self, write: Write) -> str:
        """Error for a value that did not take: a cap of the memory clock may fall and not rise again."""
        now = self._files.find_text(write.path)
        return f"{write.path}: stays at {now}, though {write.value} was written"

    def _remaining(self, given: dict[str, str], ours: Set[str], refused: Collection[str] = ()) -> _RestoreWork:
        work = _RestoreWork()
        for domain in (one for one in self._record.domains if not ours.isdisjoint(one.paths)):
            seen: dict[str, str | None] = {}
            touch = self._still_ours(domain, given, work, seen)
            try:
                strict = domain.low in refused and not self._is_hot()
                plan = domain.restore(self._files, self._record.values, touch, strict=strict, current=seen)
            except DaemonError as error:
                work.failed.append(str(error))
                continue
            if plan:
                work.plans.append(plan)
        return work

    def _still_ours(
        self, domain: ClockDomain, given: dict[str, str], work: _RestoreWork, values: dict[str, str | None]
    ) -> set[str]:
        touch: set[str] = set()
        theirs: set[str] = set()
        setpoint_counts = self._setpoint_counts(domain, values)
        for path in domain.paths:
            if path not in self._record.journal or (path == domain.setpoint and not setpoint_counts):
                continue
            try:
                values[path] = current = self._read(domain, path, given, values.get(path))
            except DaemonError as error:
                # A setpoint is missing while another mode is in force.
                if not _follows_mode(domain, path):
                    work.failed.append(str(error))
                continue
            found = self._record.values.get(path)
            if current in (found, given.get(path)):
                continue
            # A restored setpoint beyond a limit reads as the limit; ours may read the same until then.
            own = (domain, path, current, (given.get(path, ""),))
            if path in given and (self._cut_by_heat(*own) or self._reads_as(*own)):
                continue
            if self._is_ours(domain, path, current):
                touch.add(path)
            elif found is not None and (
                self._reads_as(domain, path, current, (found,)) or self._cut_by_heat(domain, path, current, (found,))
            ):
                continue
            elif not _follows_mode(domain, path) or (
                self._record.journal[path].confirmed and self._holds_setpoint(path, current)
            ):
                theirs.add(path)
                work.left.append(f"{path}: left at {current}, which another program set")
        if domain.setpoint in theirs:
            # Another program uses our mode for its own clock, and would lose that clock without it.
            return set()
        mode = domain.mode
        if (
            mode is not None
            and mode.path in self._record.journal
            and mode.path not in touch
            and mode.path not in self._record.taken
        ):
            # Without our mode a governor or the firmware moves the setpoint.
            touch.discard(domain.setpoint or "")
        return touch

    def _take_over(self, domain: ClockDomain, path: str, current: str, values: dict[str, str], taken: dict[str, str]) -> None:
        """Note a value that another program set; with a frequency, its lock too."""
        mode = domain.mode if _follows_mode(domain, path) else None
        if mode is None:
            taken[path] = current
        elif mode.value.isdecimal() and self._holds_setpoint(path, current) and self._files.find_text(mode.path) == mode.value:
            taken |= {path: current, mode.path: mode.value}
            values[mode.path] = mode.value

    def _holds_setpoint(self, path: str, current: str) -> bool:
        """True if a setpoint holds a frequency that a program can have set, not a word or a misread value."""
        return rate_in(current) is not None and self._files.find_text(path) == current

    def _setpoint_counts(self, domain: ClockDomain, values: dict[str, str | None]) -> bool:
        """True if a setpoint holds a request: under another mode, a governor or the firmware moves it."""
        if domain.mode is None or domain.early:
            return True
        values[domain.mode.path] = mode = self._files.find_text(domain.mode.path)
        return mode == domain.mode.value

    def _read(self, domain: ClockDomain, path: str, given: dict[str, str], value: str | None) -> str:
        """A file's value, read now or before; another program's is read twice."""
        current = self._files.read_text(path) if value is None else value
        if current in (self._record.values.get(path), given.get(path)) or self._is_ours(domain, path, current):
            return current
        if _follows_mode(domain, path):
            return current
        if self._files.read_text(path) != current or not self._makes_sense(domain, path, current):
            raise HardwareBusy(f"{path}: holds {current[:40]!r}, an impossible value")
        return current

    def _settled(self, domain: ClockDomain, path: str) -> str | None:
        current = self._files.find_text(path)
        if current is None or _follows_mode(domain, path) or self._is_ours(domain, path, current):
            return current
        if self._files.find_text(path) == current and self._makes_sense(domain, path, current):
            return current
        return None

    def _makes_sense(self, domain: ClockDomain, path: str, text: str | None) -> bool:
        return text is not None and domain.could_hold(self._files, path, text)

    def _domain(self, path: str) -> ClockDomain:
        return next(domain for domain in self._record.domains if path in domain.paths)

    def _is_ours(self, domain: ClockDomain, path: str, current: str) -> bool:
        entry = self._record.journal.get(path)
        if entry is None:
            return False
        if current in entry.values:
            return True
        if self._cut_by_heat(domain, path, current, entry.values):
            return True
        # A limit moved since then cuts the value that our setpoint reads back; the setpoint is still ours.
        return self._reads_as(domain, path, current, entry.values)

    def _reads_as(self, domain: ClockDomain, path: str, current: str, values: Sequence[str]) -> bool:
        """True if a setpoint holding one of these values may read like this, cut by the current limits."""
        if path != domain.setpoint or not current.isdecimal():
            return False
        bounds = domain.bounds(self._files)
        return int(current) in {clamp(int(value), bounds) for value in values if value.isdecimal()}

    def _cut_by_heat(self, domain: ClockDomain, path: str, current: str, values: Sequence[str]) -> bool:
        """True if a limit reads lower than one of these values because the kernel throttles: it is no other program's.

        For a while after a trip, a lower limit equal to the upper one counts as pressed down by it.
        """
        if path not in (domain.low, domain.high) or not current.isdecimal():
            return False
        lowered = any(value.isdecimal() and int(value) > int(current) for value in values)
        return lowered and (self._is_hot() or (path == domain.low and current == self._files.find_text(domain.high or "")))

    def _is_hot(self) -> bool:
        if thermal.reached(thermal.read_trips(self._files), thermal.read_temperatures_mc(self._files)) or any(
            (state := device.read(self._files)) is not None and state.state > 0 for device in find_devices(self._files)
        ):
            self.note_heat()
        return self._clock.monotonic() - self._hot_s < _COOLS_S

    def _store_record(self, record: BaselineRecord) -> None:
        self.unsaved = self._store.save(record)
        names = dict.fromkeys((*self._held.domains, *(domain.name for domain in record.domains)))
        marker = replace(self._held, boot_id=record.boot_id, domains=tuple(names))
        if marker != self._marked or not self._store.marked:
            self._store.mark(marker)
            self._marked = marker


def _follows_mode(domain: ClockDomain, path: str) -> bool:
    """True if a file is a setpoint that holds a frequency in one mode only."""
    return path == domain.setpoint and domain.mode is not None
