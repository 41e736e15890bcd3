# SPDX-License-Identifier: Apache-2.0
"""The memory controller's clock through the BPMP firmware's debugfs node: a rate under a lock.

While the lock is held the firmware ignores what cameras, displays and the bandwidth manager ask for, and the lock
outlives the process that took it. Rates that are asked for are rounded up to one the memory is trained for.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...profiles.board import BoardDescription
from ..errors import HardwareRefused
from .domain import ClockDomain, OthersValue, Reading, Write, clamp
from .files import Files

DRIVER = "bpmp"


@dataclass(frozen=True)
class EmcClock:
    """The EMC clock of Tegra186 and later."""

    files: Files
    path: str
    tables: str
    domain: ClockDomain
    described_hz: tuple[int, ...]
    transition_ms: float
    axis: str = "emc_hz"

    @property
    def domains(self) -> tuple[ClockDomain, ...]:
        return (self.domain,)

    def levels(self, others: OthersValue) -> tuple[int, ...]:
        """The frequencies in Hz that the memory is trained for, between the firmware's limits and below the mode's cap."""
        # The firmware names its tables by their rate in kHz.
        trained = {1000 * int(name) for name in self.files.list_names(self.tables) if name.isdigit()} or set(self.described_hz)
        bounds = self.domain.bounds(self.files)
        offered = tuple(sorted(level for level in trained if clamp(level, bounds) == level))
        if not offered:
            raise HardwareRefused(f"{self.path}: no trained rate within its limits {bounds}; trained: {sorted(trained)}")
        return offered

    def read(self) -> tuple[Reading, ...]:
        """One reading; ``rate`` is the firmware's bookkeeping, ``pto_counter`` a measurement of the clock."""
        lock, accepted = self.domain.request(self.files)
        measured = self.files.find_int(f"{self.path}/pto_counter")
        if measured is None and accepted is None:
            measured = self.files.find_int(f"{self.path}/rate")
        return (Reading(accepted, measured, {"0": "unlocked", "1": "locked"}.get(lock or "", "unknown")),)

    def plan(self, level: int) -> tuple[Write, ...]:
        return self.domain.plan(self.files, level)


def probe(files: Files, description: BoardDescription) -> EmcClock:
    """Find the firmware's node.

    Raises:
        HardwareBusy: it cannot be seen: no root, debugfs not mounted, or a locked-down kernel.
        HardwareRefused: the board's memory clock is steered by something else.
    """
    section = description.section("emc")
    if section["driver"] != DRIVER:
        raise HardwareRefused(f"board {description.name}: no driver for emc driver {section['driver']!r}; there is: {DRIVER}")
    path = str(section["bpmp"])
    files.read_int(f"{path}/mrq_rate_locked"), files.read_int(f"{path}/rate")
    domain = ClockDomain(
        "emc",
        Write(f"{path}/mrq_rate_locked", "1"),
        f"{path}/rate",
        companions=(Write(f"{path}/state", "1"),) if files.exists(f"{path}/state") else (),
        floors=(f"{path}/min_rate",),
        ceilings=(f"{path}/max_rate", str(section["cap"])),
    )
    return EmcClock(files, path, str(section["tables"]), domain, description.grid.emc_hz, float(section["transition_ms"]))


def observe(files: Files, description: BoardDescription) -> int | None:
    """The memory clock in Hz without any control over it, or None where it cannot be seen."""
    return files.find_int(f"{description.section('emc').get('bpmp')}/rate")
