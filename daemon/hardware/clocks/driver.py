# SPDX-License-Identifier: Apache-2.0
"""Interface of clock drivers, and readings of their clocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from msgspec import Struct

from ...errors import HardwareRefused
from ..files import Reader
from .domain import ClockDomain, Write

# A counter reads slightly below its set rate (EMC: 0.2%); neighbouring frequencies lie further apart.
_TOLERANCE = 0.02

OthersValue = Callable[[str], str]
"""Value of a limit that is not ours: from the baseline if the file holds ours, else from the file."""


class Reading(NamedTuple):
    """Reading of a clock domain, in the unit of its axis.

    Attributes:
        accepted: frequency that the kernel took as ours; None while a governor decides.
        effective: measured frequency; None if unmeasurable, 0 while power-gated.
    """

    accepted: int | None
    effective: int | None
    mode: str
    domain: str = ""


def whole_number(path: str, text: str) -> int:
    if not text.isdecimal():
        raise HardwareRefused(f"{path}: holds {text[:40]!r}, expected a whole number")
    return int(text)


def effective(reading: Reading) -> int:
    return reading.effective if reading.effective is not None else reading.accepted or 0


def obeyed(reading: Reading, level: int) -> bool:
    """True if a clock was accepted and runs; a power-gated one (0) runs as accepted when it wakes."""
    return reading.accepted == level and agrees(reading.effective, level)


def agrees(measured: int | None, level: int) -> bool:
    return not measured or abs(measured - level) <= _TOLERANCE * level


class Driver(Protocol):
    @property
    def axis(self) -> str: ...

    @property
    def transition_ms(self) -> float: ...

    @property
    def domains(self) -> tuple[ClockDomain, ...]: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    def stale(self) -> bool:
        """True if its files no longer match the system, as when a cluster went offline or came back."""
        ...

    def table(self) -> tuple[int, ...]:
        """Every listed frequency, ascending, regardless of limits."""
        ...

    def levels(self, table: tuple[int, ...], others: OthersValue) -> tuple[int, ...]:
        """Frequencies of the table within other programs' limits, ascending."""
        ...

    def read(self) -> tuple[Reading, ...]: ...

    def measured(self) -> tuple[int | None, ...]:
        """Measured frequency of each domain, in one read each; None if only a full reading can tell."""
        ...

    def plan(self, level: int, files: Reader) -> tuple[Write, ...]: ...


class Clusters(Struct, frozen=True):
    """Control of CPU clusters: together, or ``apart`` with ``cpu_khz`` for the ``leader``, by default the first with most
    cores.
    """

    apart: bool = False
    leader: str | None = None
