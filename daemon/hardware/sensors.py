# SPDX-License-Identifier: Apache-2.0
"""What a board measures: power rails, temperatures, throttling, over-current events, the fan. Nothing is written."""

from __future__ import annotations

from ...profiles.board import BoardDescription
from . import rails, thermal
from .bounded import Bounded
from .fan import Fan, read_fan
from .files import Files
from .throttling import read_over_current


class Sensors:
    """The sensors of one board. Readings are bounded in time: what hangs reads as nothing, and :attr:`notes` says so.

    Attributes:
        rails: the power rails.
        trips: the temperatures at which the kernel does something, of every zone.
    """

    def __init__(self, files: Files, description: BoardDescription) -> None:
        self.rails = rails.probe(files, description)
        self.trips = thermal.read_trips(files)
        self._files = files
        self._description = description
        self._read_rails: Bounded[dict[str, float]] = Bounded(lambda: self.rails.read_mw(), {})
        self._read_temperatures: Bounded[dict[str, int]] = Bounded(lambda: thermal.read_temperatures_mc(files), {})

    @property
    def notes(self) -> tuple[str, ...]:
        """What cannot be measured, and why."""
        hanging = {"power rails": self._read_rails.hangs, "temperatures": self._read_temperatures.hangs}
        notes = [f"{what} do not answer: a sensor hangs" for what, hangs in hanging.items() if hangs]
        if missing := self._missing():
            notes.append(f"power rails {', '.join(missing)} are not there: energy cannot be observed")
        return tuple(notes)

    def rails_mw(self) -> dict[str, float]:
        """Power of every rail that can be read now, in mW; monitors whose drivers load late are looked for again."""
        if self._missing():
            self.rails = rails.probe(self._files, self._description)
        return self._read_rails()

    def temperatures_mc(self) -> dict[str, int]:
        """Temperature of every zone that can be read now, in thousandths of a degree Celsius."""
        return self._read_temperatures()

    def throttled(self) -> tuple[str, ...]:
        """Why the board runs slower than its clocks say, as far as it can be seen; empty while nothing is known."""
        hot = thermal.reached(self.trips, self.temperatures_mc())
        return tuple(f"{trip.zone} is past its {trip.kind} trip at {trip.temperature_mc / 1000:g} C" for trip in hot)

    def over_current(self) -> dict[str, int]:
        """Over-current events since boot, by name; empty where nothing counts them."""
        return read_over_current(self._files)

    def fan(self) -> Fan | None:
        """How hard the fan is driven and how fast it turns; None where there is none."""
        return read_fan(self._files)

    def _missing(self) -> list[str]:
        return sorted(set(self.rails.energy_rails) - {channel.label for channel in self.rails.channels})
