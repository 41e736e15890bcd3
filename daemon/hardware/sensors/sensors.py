# SPDX-License-Identifier: Apache-2.0
"""Sensors of a board: power rails, temperatures, throttling, over-current events."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Protocol

from ....profiles.board import BoardDescription
from ..files import Files
from . import thermal
from .cooling import CoolingState, active, find_devices
from .hwmon import read_over_current
from .rails import Channel, energy_rails, find_channels, read_rails_mw


class SensorReader(Protocol):
    """Measurements of a board; silent sensors are absent."""

    @property
    def trips(self) -> tuple[thermal.TripPoint, ...]: ...

    @property
    def energy_rails(self) -> tuple[str, ...]: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    def rails_mw(self) -> Mapping[str, float]: ...

    def energy_mj(self) -> Mapping[str, float]:
        """Energy of every rail since its first reading, in mJ; empty if not accumulated."""
        ...

    def temperatures_mc(self) -> Mapping[str, int]: ...

    def throttled(self, *, now: bool = False) -> tuple[str, ...]:
        """Reasons why the board is slower than its clocks; for ``now`` by current temperatures, unless these are slow."""
        ...

    def cooling(self) -> tuple[CoolingState, ...]: ...

    def over_current(self) -> Mapping[str, int]: ...


class Sensors:
    def __init__(self, files: Files, description: BoardDescription) -> None:
        self.trips = thermal.read_trips(files)
        self._files = files
        self._description = description
        self._channels = find_channels(files, description)

    @property
    def energy_rails(self) -> tuple[str, ...]:
        return energy_rails(self._description, self._channels)

    @property
    def notes(self) -> tuple[str, ...]:
        return self.notes_of(self.rails_mw())

    def notes_of(self, read: Container[str]) -> tuple[str, ...]:
        missing, counted = self._missing(), self.energy_rails
        known = f"are the sum of {', '.join(counted)}" if not set(missing).intersection(counted) else "are unknown"
        absent = (f"power rails {', '.join(missing)} are not there: power and energy {known}",) if missing else ()
        failed = ", ".join(rail for rail in counted if rail not in read and rail not in missing)
        return (*absent, f"power rails {failed} cannot be read: power and energy are unknown") if failed else absent

    def channels(self) -> tuple[Channel, ...]:
        """Every measured rail; monitors whose drivers load late are looked for again."""
        if self._missing():
            self._channels = find_channels(self._files, self._description)
        return self._channels

    def rails_mw(self) -> dict[str, float]:
        return read_rails_mw(self._files, self.channels())

    def energy_mj(self) -> dict[str, float]:
        return {}

    def temperatures_mc(self) -> dict[str, int]:
        return thermal.read_temperatures_mc(self._files)

    def cooling(self) -> tuple[CoolingState, ...]:
        return active(tuple(state for device in find_devices(self._files) if (state := device.read(self._files))))

    def throttled(self, *, now: bool = True) -> tuple[str, ...]:
        return throttling_reasons(self.trips, self.temperatures_mc(), self.cooling())

    def over_current(self) -> dict[str, int]:
        return read_over_current(self._files)

    def _missing(self) -> list[str]:
        return sorted(set(self._description.energy_rails) - {channel.label for channel in self._channels})


def throttling_reasons(
    trips: tuple[thermal.TripPoint, ...], temperatures_mc: Mapping[str, int], cooling: tuple[CoolingState, ...]
) -> tuple[str, ...]:
    hot = thermal.reached(trips, temperatures_mc)
    reached = (f"{trip.zone} is past its {trip.kind} trip at {trip.temperature_mc / 1000:g} C" for trip in hot)
    return (*reached, *map(str, cooling))
