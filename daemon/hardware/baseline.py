# SPDX-License-Identifier: Apache-2.0
"""The board as it was found: on disk before the first write, and the way back to it.

Beside the values that were found stands a journal of what was written since. A file is restored only while it holds
what the journal says is ours, so that a clock that somebody else set in between stays as they set it. Intended values
are journalled before they are written: whatever the moment at which the process dies, the next one knows what is its
own. A baseline counts for one boot only; clocks do not survive a reboot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import DaemonError, HardwareRefused
from .baseline_file import BaselineEntry, BaselineRecord, load_record, remove_record, save_record
from .clocks.domain import ClockDomain, Write, clamp, write_each
from .files import Files
from .sensors import thermal

BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True)
class RestoreReport:
    """What a restore did: what it wrote, what it left because somebody else had set it, what refused and why."""

    restored: tuple[Write, ...] = ()
    left: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class Baseline:
    """The values found in every file that may be written, and the journal of what was.

    Use :meth:`take` or :meth:`load`.
    """

    def __init__(
        self,
        files: Files,
        boot_id: str,
        domains: Sequence[ClockDomain],
        values: Mapping[str, str],
        journal: Mapping[str, BaselineEntry],
    ) -> None:
        self._files = files
        self._boot_id = boot_id
        self._domains = tuple(domains)
        self._values = dict(values)
        self._journal = dict(journal)
        self._confirmed_journal = dict(journal)
        self._path: Path | None = None

    @classmethod
    def take(cls, files: Files, domains: Sequence[ClockDomain]) -> Baseline:
        """Note what every file of these domains holds now; call :meth:`save` before writing to any.

        Raises:
            HardwareBusy: the boot's id cannot be read.
        """
        values = {path: text for d in domains for path in d.paths if (text := files.find_text(path)) is not None}
        return cls(files, files.read_text(BOOT_ID), domains, values, {})

    @classmethod
    def load(cls, files: Files, path: Path) -> Baseline | None:
        """The baseline that an earlier process of this boot left behind, or None; one of another boot is removed.

        Raises:
            BaselineDamaged: the file cannot be understood; the text says how to go on.
        """
        record = load_record(path)
        if record is None:
            return None
        baseline = cls(files, record.boot_id, record.domains, record.values, record.journal)
        baseline._path = path
        if baseline._boot_id != files.read_text(BOOT_ID):
            baseline.discard()
            return None
        return baseline

    def save(self, path: Path) -> None:
        """Write the baseline to disk in one step, and keep its journal there from now on.

        Raises:
            HardwareRefused: the file cannot be written; nothing may be set then.
        """
        self._path = path
        save_record(path, BaselineRecord(self._boot_id, self._domains, self._values, self._journal))

    def include(self, domains: Iterable[ClockDomain]) -> None:
        """Cover domains that appeared after the baseline was taken."""
        new = tuple(domain for domain in domains if domain not in self._domains)
        self._domains += new
        for path in (path for domain in new for path in domain.paths):
            if (text := self._files.find_text(path)) is not None:
                self._values.setdefault(path, text)

    def intend(self, writes: Iterable[Write]) -> dict[str, str]:
        """Journal the values about to be written; they count as ours from now on.

        Where a file holds what others set since, that is what will be given back.

        Returns:
            What the files hold now, those that can be read.

        Raises:
            HardwareRefused: the journal cannot be written; nothing may be set then.
        """
        self._confirmed_journal = dict(self._journal)
        held: dict[str, str] = {}
        for path, value in writes:
            entry = self._journal.get(path, BaselineEntry((), False))
            current = self._files.find_text(path)
            if current is not None:
                held[path] = current
                if not self._is_ours(path, current):
                    self._values[path] = current
                    self._confirmed_journal.pop(path, None)
                    entry = BaselineEntry((), False)
            self._journal[path] = BaselineEntry((*entry.values, value), entry.confirmed)
        self._store()
        return held

    def confirm(self, writes: Iterable[Write]) -> None:
        """Journal that these of the intended writes were made, and what they read back as; the others were not."""
        journal = dict(self._confirmed_journal)
        for path, value in writes:
            current = self._files.find_text(path)
            journal[path] = BaselineEntry((value,) if current in (None, value) else (value, str(current)), True)
        self._journal = self._confirmed_journal = journal
        self._store()

    def others(self, path: str) -> str:
        """The file's value as others left it: the one found, if what is there now is ours, else the one there now.

        Raises:
            HardwareBusy, HardwareRefused: it cannot be read.
        """
        current = self._files.read_text(path)
        return self._values[path] if path in self._values and self._is_ours(path, current) else current

    def restore(self, *, dry_run: bool = False) -> RestoreReport:
        """Give the board back: every file that still holds what is ours, in an order that is safe at every step.

        A file that refuses does not keep the others from being restored. Unless one did, the baseline is gone from disk
        afterwards; calling again then does nothing, and tries again where one refused. A dry run only reports.
        """
        restored: list[Write] = []
        left: list[str] = []
        failed: list[str] = []
        for domain in self._domains:
            try:
                plan = domain.give_back(self._files, self._values, self._still_ours(domain, left, failed))
                done, refused = (plan, ()) if dry_run else write_each(self._files, plan)
            except DaemonError as error:
                failed.append(str(error))
                continue
            restored += done
            failed += refused
            failed += [] if dry_run else self._not_taken(domain, done)
        if not failed and not dry_run:
            self._journal, self._confirmed_journal = {}, {}
            self.discard()
        return RestoreReport(tuple(restored), tuple(left), tuple(failed))

    def _not_taken(self, domain: ClockDomain, done: Iterable[Write]) -> list[str]:
        """Values that were written back, and not taken: a cap of the memory clock may fall and yet not rise again."""
        if domain.mode is not None:
            return []
        held = [(write, self._files.find_text(write.path)) for write in done if write.path == domain.setpoint]
        return [
            f"{path}: stays at {now}, though {value} was written" for (path, value), now in held if now not in (None, value)
        ]

    def discard(self) -> None:
        """Remove the baseline from disk."""
        if self._path is not None:
            remove_record(self._path)

    def _still_ours(self, domain: ClockDomain, left: list[str], failed: list[str]) -> set[str]:
        """The files of a domain to restore; notes in ``left`` what somebody else has set, in ``failed`` what is not seen."""
        touch, theirs = set(), set()
        for path in domain.paths:
            if path not in self._journal:
                continue
            try:
                current: str | None = self._files.read_text(path)
            except DaemonError as error:
                current = None
                # A setpoint is not there while another mode is in force.
                if path != domain.setpoint:
                    failed.append(str(error))
            if current is None or current == self._values.get(path):
                continue
            if self._is_ours(path, current):
                touch.add(path)
            elif path != domain.setpoint or (self._journal[path].confirmed and current.isdigit()):
                theirs.add(path)
                left.append(f"{path}: left at {current}, which somebody else has set")
        if domain.setpoint in theirs:
            # Somebody uses the mode we chose for a clock of their own: taking the mode away would take that clock away.
            return set()
        if domain.mode is not None and domain.mode.path in self._journal and domain.mode.path not in touch:
            # Without our mode the setpoint is nobody's: a governor or the firmware moves it.
            touch.discard(domain.setpoint or "")
        return touch

    def _is_ours(self, path: str, current: str) -> bool:
        entry = self._journal.get(path)
        if entry is None:
            return False
        if current in entry.values:
            return True
        if self._cut_by_heat(path, current, entry):
            return True
        domain = next((d for d in self._domains if d.setpoint == path), None)
        if domain is None or not current.isdigit():
            return False
        # A limit that was moved since cuts what our setpoint reads back as, without the setpoint being anybody else's.
        bounds = domain.bounds(self._files)
        return int(current) in {clamp(int(value), bounds) for value in entry.values if value.isdigit()}

    def _cut_by_heat(self, path: str, current: str, entry: BaselineEntry) -> bool:
        """Whether a limit of ours reads lower than we wrote it because the kernel throttles, not because of anybody.

        Thermal limits are apart from the one a file takes; taken for somebody's, they would outlast the heat.
        """
        if not current.isdigit() or not any(path in (domain.low, domain.high) for domain in self._domains):
            return False
        lowered = any(value.isdigit() and int(value) > int(current) for value in entry.values)
        return lowered and bool(thermal.reached(thermal.read_trips(self._files), thermal.read_temperatures_mc(self._files)))

    def _store(self) -> None:
        if self._path is None:
            raise HardwareRefused("the baseline is not on disk; no clock was set")
        self.save(self._path)
