# SPDX-License-Identifier: Apache-2.0
"""What a board measures: power rails, temperatures, throttling, over-current events, the fan. Nothing is written."""

from __future__ import annotations

from ....profiles.board import BoardDescription
from ..files import Files
from . import thermal
from .fan import Fan, read_fan
from .rails import find_channels, read_rails_mw
from .throttling import read_over_current


class Sensors:
    """The sensors of one board; what does not answer reads as nothing.

    Attributes:
        trips: the temperatures at which the kernel does something, of every zone.
    """

    def __init__(self, files: Files, description: BoardDescription) -> None:
        self.trips = thermal.read_trips(files)
        self._files = files
        self._description = description
        self._channels = find_channels(files, description)

    @property
    def notes(self) -> tuple[str, ...]:
        """What cannot be measured, and why."""
        missing = self._missing()
        return (f"power rails {', '.join(missing)} are not there: energy cannot be observed",) if missing else ()

    def rails_mw(self) -> dict[str, float]:
        """Power of every rail that can be read now, in mW; monitors whose drivers load late are looked for again."""
        if self._missing():
            self._channels = find_channels(self._files, self._description)
        return read_rails_mw(self._files, self._channels)

    def temperatures_mc(self) -> dict[str, int]:
        """Temperature of every zone that can be read now, in thousandths of a degree Celsius."""
        return thermal.read_temperatures_mc(self._files)

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
        return sorted(set(self._description.energy_rails) - {channel.label for channel in self._channels})
