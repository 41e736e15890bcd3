# SPDX-License-Identifier: Apache-2.0
"""Temperatures and trip points of the thermal zones (Linux, Documentation/driver-api/thermal/sysfs-api.rst)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..files import Files

ZONES = "/sys/class/thermal/thermal_zone*"
# Range of a chip. The zone of a powered-off part reads -256000 on JetPack 5; later releases fail the read instead.
_COLDEST_MC, _HOTTEST_MC = -100_000, 300_000
_THROTTLING = ("passive", "hot")
_OF_DIE = re.compile("cpu|gpu|^tj|junction", re.IGNORECASE)


class ThermalZone(NamedTuple):
    name: str
    path: str

    def read_mc(self, files: Files) -> int | None:
        """Temperature in thousandths of a degree Celsius; None if unreadable or implausible."""
        value = files.find_int(self.path)
        return value if value is not None and _COLDEST_MC <= value <= _HOTTEST_MC else None


class TripPoint(NamedTuple):
    """A temperature in thousandths of a degree Celsius and its kind: ``passive``, ``active``, ``critical``."""

    zone: str
    kind: str
    temperature_mc: int


def find_zones(files: Files) -> tuple[ThermalZone, ...]:
    named = ((zone, files.find_text(f"{zone}/type")) for zone in files.glob(ZONES))
    return tuple(ThermalZone(name, f"{zone}/temp") for zone, name in named if name)


def read_temperatures_mc(files: Files) -> dict[str, int]:
    read = {zone.name: zone.read_mc(files) for zone in find_zones(files)}
    return {name: value for name, value in read.items() if value is not None}


def read_trips(files: Files) -> tuple[TripPoint, ...]:
    """Trip points of every zone."""
    return tuple(trip for zone in files.glob(ZONES) for trip in _trips(files, zone))


def reached(trips: tuple[TripPoint, ...], temperatures_mc: Mapping[str, int]) -> tuple[TripPoint, ...]:
    return tuple(
        trip for trip in trips if trip.kind in _THROTTLING and temperatures_mc.get(trip.zone, 0) >= trip.temperature_mc
    )


def hottest_mc(trips: tuple[TripPoint, ...], temperatures_mc: Mapping[str, int]) -> int | None:
    """The hottest zone that throttles, else of the CPU, the GPU and the junction.

    Other zones are of other chips, or no sensors: the power supply's always reads 50 or 100 C.
    """
    throttling = {trip.zone for trip in trips if trip.kind in _THROTTLING}
    of_die = {name for name in temperatures_mc if _OF_DIE.search(name)}
    for zones in (throttling, of_die):
        if read := [value for name, value in temperatures_mc.items() if name in zones]:
            return max(read)
    return None


def _trips(files: Files, zone: str) -> Iterator[TripPoint]:
    name = files.find_text(f"{zone}/type")
    for path in files.glob(f"{zone}/trip_point_*_temp"):
        kind, temperature = files.find_text(path.removesuffix("temp") + "type"), files.find_int(path)
        # Disabled trips read zero or below.
        if name and kind and temperature is not None and temperature > 0:
            yield TripPoint(name, kind, temperature)
