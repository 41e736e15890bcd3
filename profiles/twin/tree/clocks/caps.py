# SPDX-License-Identifier: Apache-2.0
"""nvpmodel's upper limit of the memory clock, and the monitor that counts how much of it is used."""

from __future__ import annotations

from collections.abc import Iterator

from ..attributes import Attribute, Link
from ..parsing import whole_number
from .emc import SimulatedMemoryClock


class IsoCap:
    """``emc_iso_cap`` of JetPack 4 and 5: any number is kept as it is, and zero means no limit."""

    def __init__(self, memory: SimulatedMemoryClock, path: str) -> None:
        self._memory = memory
        self._path = path

    def _set(self, text: str) -> float:
        return self._memory.set_cap(whole_number(text))

    def nodes(self) -> Iterator[tuple[str, Attribute | Link]]:
        yield self._path, Attribute(lambda: str(self._memory.cap), self._set, mode=0o660)


class ClockCap:
    """``nvpmodel_clk_cap`` of JetPack 6 and later: a limit is rounded to a rate of the memory before it is kept.

    Rounding is clamped by the present cap, so that this file alone never raises one, not even that of the firmware at boot
    (tiiuae/ghaf#2071). On a stock JetPack the power hinting service raises it.

    Args:
        boot_hz: the firmware's cap at boot where that service does not run, or None.
    """

    def __init__(self, memory: SimulatedMemoryClock, path: str, boot_hz: int | None) -> None:
        self._memory = memory
        self._path = path
        self._raised = boot_hz is None
        memory.cap = min(memory.cap or memory.clock.rates[-1], boot_hz or memory.clock.rates[-1])

    def _set(self, text: str) -> float:
        rounded = self._memory.clock.at_least(whole_number(text))
        return self._memory.set_cap(rounded if self._raised else min(rounded, self._memory.ceiling))

    def nodes(self) -> Iterator[tuple[str, Attribute | Link]]:
        yield self._path, Attribute(lambda: str(self._memory.cap), self._set, mode=0o664)


class ActivityMonitor:
    """``mc_all``: kHz of the memory clock in use."""

    def __init__(self, memory: SimulatedMemoryClock, path: str) -> None:
        self._memory = memory
        self._path = path

    def nodes(self) -> Iterator[tuple[str, Attribute | Link]]:
        yield self._path, Attribute(lambda: str(self._memory.activity_khz))
