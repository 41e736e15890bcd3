# SPDX-License-Identifier: Apache-2.0
"""Temperatures and trip points of the thermal zones (Linux, Documentation/driver-api/thermal/sysfs-api.rst)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..files import Files

ZONES = "/sys/class/thermal/thermal_zone*"
# What the zone of a powered-off part reads on JetPack 5; later releases fail the read instead.
POWERED_OFF_MC = -256000


class Trip(NamedTuple):
    """A temperature in thousandths of a degree Celsius at which something happens: ``passive``, ``active``, ``critical``."""

    zone: str
    kind: str
    temperature_mc: int


def read_temperatures_mc(files: Files) -> dict[str, int]:
    """Temperature of every zone that can be read now, in thousandths of a degree Celsius, by the zone's type."""
    temperatures = {}
    for zone in files.glob(ZONES):
        name, value = files.find_text(f"{zone}/type"), files.find_int(f"{zone}/temp")
        if name and value is not None and value != POWERED_OFF_MC:
            temperatures[name] = value
    return temperatures


def read_trips(files: Files) -> tuple[Trip, ...]:
    """The trip points of every zone. Which of them is the higher is not always which of them acts first: mind the kind."""
    return tuple(trip for zone in files.glob(ZONES) for trip in _trips(files, zone))


def reached(trips: tuple[Trip, ...], temperatures_mc: dict[str, int]) -> tuple[Trip, ...]:
    """The trips at which the kernel throttles now."""
    return tuple(
        trip for trip in trips if trip.kind in ("passive", "hot") and temperatures_mc.get(trip.zone, 0) >= trip.temperature_mc
    )


def _trips(files: Files, zone: str) -> Iterator[Trip]:
    name = files.find_text(f"{zone}/type")
    for path in files.glob(f"{zone}/trip_point_*_temp"):
        kind, temperature = files.find_text(path.removesuffix("temp") + "type"), files.find_int(path)
        # Trips that are switched off read zero or below.
        if name and kind and temperature is not None and temperature > 0:
            yield Trip(name, kind, temperature)
