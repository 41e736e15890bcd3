# SPDX-License-Identifier: Apache-2.0
"""Baseline of one process: left by an earlier process of this boot, its own, or none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ....profiles.timing import Clock
from ...errors import DaemonError, HardwareRefused
from ..clocks.domain import ClockDomain
from ..files import Files
from ..identity import read_identity
from .baseline import Baseline, RestoreReport
from .record import BaselineEntry, BaselineRecord, Marker, read_boot_id
from .store import BaselineStore, StoredBaseline

if TYPE_CHECKING:
    from .held_clocks import HeldClocksReport

LAST_TRY_S = 1.0
"""Time of retries of a last restore, when the daemon ends or at a client's call."""
LOST = "how the board was found is lost"


class BaselineKeeper:
    """Keeps the baseline of one board.

    If HardwareBusy or HardwareRefused is raised, nothing may be set.

    Args:
        state_dir: outlasts the folder's removal, and shows it.
        stock: for a lost baseline, returns the clocks that look held and their defaults.

    Attributes:
        lost: reasons why the baseline of held clocks is unknown.
    """

    def __init__(
        self,
        files: Files,
        clock: Clock,
        folder: Path,
        state_dir: Path | None,
        board: str,
        stock: Callable[[Marker], HeldClocksReport],
    ) -> None:
        self.baseline: Baseline | None = None
        self.lost: tuple[str, ...] = ()
        self.notes: tuple[str, ...] = ()
        self._files = files
        self._clock = clock
        self._store = BaselineStore(folder, state_dir)
        self._board = board
        self._stock = stock
        self._boot_id = ""
        self._machine: tuple[str, str] | None = None
        self._marker = Marker("", board)

    @property
    def touched(self) -> bool:
        unknown = not self._boot_id and not self._store.empty
        return self.baseline is not None or bool(self.lost) or unknown

    def recall(self) -> None:
        if self._boot_id:
            return
        try:
            kept = self._read_stored()
        except DaemonError as error:
            self.notes = (f"no clock can be set: {error}",)
            raise
        if self.lost:
            with contextlib.suppress(HardwareRefused):
                self._store.mark(self._marker)  # before the evidence of held clocks is set aside
        said = self._store.tidy(kept)
        self.notes = tuple(f"{line}; the other copy is used" if self.baseline else line for line in said)
        if self.baseline is not None and (kept.damaged or not self._store.intact):
            self.baseline.save()

    def ready(
        self, domains: Sequence[ClockDomain], limits: Callable[[ClockDomain], tuple[int, int] | None]
    ) -> tuple[Baseline, dict[str, str | None]]:
        try:
            self._forget_earlier_boot()
            self.recall()
        except DaemonError as error:
            raise type(error)(f"{error}; no clock was changed") from error
        if self.lost and self.baseline is None:
            self.restore()
        if self.baseline is None:
            self.baseline = self._baseline(self._record((), {}, {}))
        return self.baseline, self.baseline.include(domains, limits)

    def abandon(self) -> None:
        """Forget a baseline without writes; its remains on disk are harmless."""
        self.baseline = None
        with contextlib.suppress(HardwareRefused):
            self._store.remove(marker=not self.lost)

    def restore(self, *, dry_run: bool = False, longest_s: float = 0.0) -> RestoreReport:
        if not self.touched:
            return RestoreReport()
        with contextlib.suppress(DaemonError):  # unreadable: the same boot is assumed
            self._forget_earlier_boot()
        try:
            if not dry_run:
                self.recall()
            elif not self._boot_id:
                self._read_stored()
        except DaemonError as error:
            return RestoreReport(failed=(str(error),))
        report = RestoreReport()
        if self.baseline is not None:
            report = self.baseline.restore(dry_run=dry_run, longest_s=longest_s)
        unread: list[str] = []
        if self.lost and not report.failed:
            # Also after a lease in between: its baseline may be of held clocks.
            found = self._stock(self._marker)
            unread = found.unread
            report = _together(report, self._by_itself(found, dry_run=dry_run, longest_s=longest_s))
        if dry_run:
            return replace(report, failed=(*report.failed, *unread))
        return replace(report, failed=tuple(report.failed or self._end(unread)))

    def keep(self) -> str:
        if self.baseline is None:
            return ""
        self.baseline.keep()
        return self.baseline.unsaved

    def _forget_earlier_boot(self) -> None:
        """Forget a baseline of an earlier boot."""
        if self._boot_id and read_boot_id(self._files) != self._boot_id:
            self._boot_id, self.baseline, self.lost = "", None, ()

    def _read_stored(self) -> StoredBaseline:
        boot_id = read_boot_id(self._files)
        if self._machine is None or self._machine[0] != boot_id:
            self._machine = boot_id, _machine(self._files)  # constant while the board is up
        kept = self._store.read(boot_id)
        record = kept.record
        self.lost = kept.lost if record is None else record.lost
        self._marker = kept.marker or Marker(boot_id, self._board)
        if record is not None and self._elsewhere(record):
            self.lost = (f"{self._store.folder}: is of another machine, {record.machine}",)
            record = None
        self._boot_id = boot_id
        self.baseline = None if record is None else self._baseline(record)
        return kept

    def _elsewhere(self, record: BaselineRecord) -> bool:
        """True if a baseline is another machine's and none of its files exist here."""
        other = record.machine not in ("", self._machine[1] if self._machine else "")
        return other and not any(self._files.exists(path) for domain in record.domains for path in domain.paths)

    def _by_itself(self, found: HeldClocksReport, *, dry_run: bool, longest_s: float) -> RestoreReport:
        why = f"{LOST}: {'; '.join(self.lost)}"
        if not found.domains:
            self.baseline = None
            known = found.unread or any(note.startswith(why) for note in self.notes)
            return self._said(why) if known else self._said(f"{why}; no clock looks as if it were held")
        journal = {path: BaselineEntry((text,), True) for path, text in found.held.items()}
        baseline = self._baseline(self._record(tuple(found.domains), found.values, journal))
        if not dry_run:
            self.baseline = baseline
            baseline.save()
        names = ", ".join(domain.name for domain in found.domains)
        said = self._said(
            f"{why}; clocks that look held ({names}) get the kernel's governor, the power mode's limits and no lock"
        )
        return _together(said, baseline.restore(dry_run=dry_run, longest_s=longest_s))

    def _said(self, note: str) -> RestoreReport:
        if note in self.notes:
            return RestoreReport()
        self.notes = (*self.notes, note)
        return RestoreReport(notes=(note,))

    def _end(self, unread: Sequence[str]) -> Sequence[str]:
        try:
            self._store.remove(marker=not unread)
        except HardwareRefused as error:
            return (f"{error}; the clocks are as they were found",)
        self.baseline = None
        if not unread:
            self.lost, self._marker = (), replace(self._marker, domains=())
        return unread

    def _record(
        self, domains: tuple[ClockDomain, ...], values: dict[str, str], journal: dict[str, BaselineEntry]
    ) -> BaselineRecord:
        machine = self._machine[1] if self._machine else ""
        return BaselineRecord(self._boot_id, domains, values, journal, machine, lost=self.lost)

    def _baseline(self, record: BaselineRecord) -> Baseline:
        return Baseline(self._files, self._clock, self._store, record, self._marker)


def _together(first: RestoreReport, second: RestoreReport) -> RestoreReport:
    return RestoreReport(
        (*first.restored, *second.restored),
        (*first.left, *second.left),
        (*first.failed, *second.failed),
        (*first.notes, *second.notes),
        (*first.clocks, *second.clocks),
    )


def _machine(files: Files) -> str:
    identity = read_identity(files)
    return " ".join(filter(None, (identity.model, *identity.compatible)))
