# SPDX-License-Identifier: Apache-2.0
"""What every driver of a clock offers, and what the clock it drives says of itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ...errors import HardwareRefused
from ..files import Reader
from .domain import ClockDomain, Write

# A counter reads a little below the rate it was set to (EMC: 0.2%); neighbouring frequencies lie further apart.
_TOLERANCE = 0.02

OthersValue = Callable[[str], str]
"""A limit as others left it: what the baseline holds where the value is ours, what the file holds otherwise."""


class Reading(NamedTuple):
    """What a clock domain says of itself, in the unit of its axis.

    Attributes:
        accepted: the fixed frequency that the kernel took as ours; None while a governor decides.
        effective: the measured frequency; None where it cannot be measured, 0 while the unit is power-gated.
        mode: the governor or lock in force.
        domain: whose reading it is, where there are several.
    """

    accepted: int | None
    effective: int | None
    mode: str
    domain: str = ""


def whole_number(path: str, text: str) -> int:
    """The number that a file holds.

    Raises:
        HardwareRefused: it holds none.
    """
    if not text.isdecimal():
        raise HardwareRefused(f"{path}: holds {text[:40]!r}, expected a whole number")
    return int(text)


def effective(reading: Reading) -> int:
    """What a clock runs at; as accepted where there is nothing to measure."""
    return reading.effective if reading.effective is not None else reading.accepted or 0


def obeyed(reading: Reading, level: int) -> bool:
    """Whether a clock was accepted and runs; a power-gated one (0) runs as accepted when it wakes."""
    return reading.accepted == level and agrees(reading.effective, level)


def agrees(measured: int | None, level: int) -> bool:
    """Whether a measurement is that of a clock set to ``level``, as far as it can be told."""
    return not measured or abs(measured - level) <= _TOLERANCE * level


class Driver(Protocol):
    """One axis of the board's grid: knows paths and rules."""

    @property
    def axis(self) -> str:
        """The field of a configuration that it sets, ``cpu_khz``, ``gpu_hz`` or ``emc_hz``; or the policy of a CPU cluster."""
        ...

    @property
    def transition_ms(self) -> float:
        """What one change costs, as the board's description says."""
        ...

    @property
    def domains(self) -> tuple[ClockDomain, ...]: ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What this way to the clock cannot do."""
        ...

    def stale(self) -> bool:
        """Whether its files are not those of the running system any more: a cluster went offline, or came back."""
        ...

    def table(self) -> tuple[int, ...]:
        """Every frequency that the running system lists, rising, whatever the limits."""
        ...

    def levels(self, table: tuple[int, ...], others: OthersValue) -> tuple[int, ...]:
        """The frequencies of the table that the running system offers within everybody else's limits, rising."""
        ...

    def read(self) -> tuple[Reading, ...]:
        """One reading per domain."""
        ...

    def measured(self) -> tuple[int | None, ...]:
        """The measured frequency of each domain alone, in one read each; None where a full reading is needed to tell."""
        ...

    def plan(self, level: int, files: Reader) -> tuple[Write, ...]:
        """The writes that set every domain to ``level``, in order, by how its files stand."""
        ...
