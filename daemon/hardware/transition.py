# SPDX-License-Identifier: Apache-2.0
"""A change of the board's clocks: planned, made in a safe order, read back, and undone if refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...profiles.timing import Clock
from ..errors import DaemonError
from .clocks.domain import Write, write_each
from .clocks.driver import Driver, Reading, effective, obeyed
from .clocks.emc import EmcClock
from .files import CachedReader, Files
from .setter import ClockChange, Setter


class Transition:
    """One change from the current clocks to the wanted level of each axis or cluster, among its levels ``offered``.

    Construction only reads files; it raises HardwareBusy or HardwareRefused.
    """

    def __init__(
        self,
        files: Files,
        clock: Clock,
        drivers: Iterable[Driver],
        requested: Mapping[str, int],
        offered: Mapping[str, tuple[int, ...]],
        read: Mapping[str, str | None],
    ) -> None:
        self._files = files
        self._wanted = requested
        self._offered = offered
        self._read = CachedReader(files, read)
        self._setter = Setter(files, clock)
        self._steps = [
            ClockChange(driver, requested[driver.axis], offered[driver.axis], driver.plan(requested[driver.axis], self._read))
            for driver in _in_turn(drivers, requested)
        ]

    @property
    def planned(self) -> tuple[Write, ...]:
        return tuple(write for step in self._steps for write in step.writes)

    @property
    def done(self) -> tuple[Write, ...]:
        return tuple(self._setter.done)

    def carry_out(self) -> dict[str, tuple[Reading, ...]]:
        """Make the change; return every clock's readings.

        Raises:
            HardwareRefused, HardwareBusy: a file refused; :meth:`undo` reverts the writes made until then.
        """
        memory = next((step.driver for step in self._steps if isinstance(step.driver, EmcClock)), None)
        kept_before = memory.kept_hz if memory else None
        wanted, offered = self._wanted, self._offered
        if memory and memory.trust_kernel(wanted["emc_hz"], wanted["cpu_khz"], offered["emc_hz"], self._read):
            # The kernel raises the memory with the CPU: wait for that first.
            self._steps.sort(key=lambda step: step.driver is memory)
        try:
            return {step.driver.axis: self._set(step) for step in self._steps}
        except DaemonError:
            if memory:
                memory.kept_hz = kept_before
            raise

    def undo(self, before: Mapping[str, str]) -> list[str]:
        """Undo the writes in reverse, to the values ``before``; return the errors."""
        written = {write.path for write in self._setter.done}
        failed = []
        for domain in (domain for step in reversed(self._steps) for domain in reversed(step.driver.domains)):
            try:
                plan = domain.restore(self._files, before, written.intersection(domain.paths))
            except DaemonError as error:
                failed.append(str(error))
                continue
            made, refused = write_each(self._files, plan)
            self._setter.done += made
            failed += refused
        return failed

    def _set(self, step: ClockChange) -> tuple[Reading, ...]:
        driver = step.driver
        if isinstance(driver, EmcClock) and driver.kept_hz is not None:
            readings = self._setter.settle(step)
            if all(obeyed(reading, step.level) for reading in readings):
                return readings
            driver.kept_hz = None
        readings = self._setter.set(step)
        if any(reading.accepted != step.level for reading in readings):
            # A write or a vanishing node interfered; a limit gives the same answer again.
            readings = self._setter.set(step)
        return readings


def _in_turn(drivers: Iterable[Driver], requested: Mapping[str, int]) -> list[Driver]:
    """Order in which the memory clock rises before and falls after the clocks whose traffic it carries.

    Otherwise falling clocks go first, so that power never exceeds both ends of the transition.
    """

    def turn(driver: Driver) -> int:
        found = driver.measured()
        rates = [rate for rate in found if rate is not None]
        if len(rates) < len(found) or not found:  # only the request is known for some domain
            rates = [effective(reading) for reading in driver.read()]
        lowest = min(rates, default=0)
        rises = requested[driver.axis] > lowest
        if driver.axis == "emc_hz":
            return 0 if rises else 3
        return 2 if rises else 1

    return sorted(drivers, key=turn)
