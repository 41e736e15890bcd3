# SPDX-License-Identifier: Apache-2.0
"""How the board heats, and its thermal zones' files (Linux, Documentation/driver-api/thermal/sysfs-api.rst).

A heat sink of first order, cooled by the fan, carries all of the power; each zone stands above it by its own rail's power.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from .tree import Attribute, Link, constant

_ZONES = "/sys/devices/virtual/thermal"
_JUNCTION_TAU_S = 0.8


@dataclass(frozen=True)
class Zone:
    """A thermal zone: the rail that heats it and by how much, or a constant; trip points in thousandths of a degree."""

    name: str
    trips_mc: tuple[int, ...] = ()
    rail: str | None = None
    k_per_w: float = 0.0
    offset_c: float = 0.0
    constant_c: float | None = None


class ThermalModel:
    """Temperatures in degrees Celsius.

    Args:
        section: ``ambient_c``, ``k_per_w`` (heat sink with the fan at rest and at full speed), ``tau_s``.
        zones: the zones, in the order of their numbers.
        rails: the order of the powers given to :meth:`step`.
        watts: the powers with which the board has been running for long.
    """

    def __init__(
        self, section: Mapping[str, Any], zones: Sequence[Zone], rails: Sequence[str], watts: Sequence[float], pwm: int
    ) -> None:
        self._ambient_c = float(section["ambient_c"])
        self._k_per_w: tuple[float, float] = tuple(section["k_per_w"])
        self._tau_s = float(section["tau_s"])
        self._rails = tuple(rails)
        self._zones = tuple(zones)
        self._watts = list(watts)
        self._sink_c = self._steady_c(sum(watts), pwm)

    def _steady_c(self, watts: float, pwm: int) -> float:
        still, full = self._k_per_w
        return self._ambient_c + watts * (still + (full - still) * pwm / 255)

    def step(self, seconds: float, watts: Sequence[float], pwm: int) -> None:
        """Let the board draw these powers for some time."""
        near = 1.0 - math.exp(-seconds / _JUNCTION_TAU_S)
        self._watts = [old + near * (new - old) for old, new in zip(self._watts, watts, strict=True)]
        self._sink_c += (1.0 - math.exp(-seconds / self._tau_s)) * (self._steady_c(sum(watts), pwm) - self._sink_c)

    def zone_c(self, zone: Zone) -> float:
        if zone.constant_c is not None:
            return zone.constant_c
        above = zone.k_per_w * self._watts[self._rails.index(zone.rail)] if zone.rail else 0.0
        return self._sink_c + zone.offset_c + above

    @property
    def hottest_c(self) -> float:
        """The temperature of the die: that of its hottest zone."""
        return max(self.zone_c(zone) for zone in self._zones if zone.rail)

    def temperatures_c(self) -> dict[str, float]:
        return {zone.name: self.zone_c(zone) for zone in self._zones}

    def _reading(self, zone: Zone) -> str:
        # The sensors count in half degrees.
        return str(round(2 * self.zone_c(zone)) * 500)

    def nodes(self) -> Iterator[tuple[str, Attribute | Link]]:
        for index, zone in enumerate(self._zones):
            folder = f"{_ZONES}/thermal_zone{index}"
            yield f"{folder}/type", constant(zone.name)
            yield f"{folder}/temp", Attribute(partial(self._reading, zone))
            yield f"{folder}/mode", constant("enabled")
            yield f"{folder}/policy", constant("step_wise")
            for trip, millidegrees in enumerate(zone.trips_mc):
                kind = "critical" if trip == len(zone.trips_mc) - 1 else "passive"
                yield f"{folder}/trip_point_{trip}_type", constant(kind)
                yield f"{folder}/trip_point_{trip}_temp", constant(millidegrees)
                yield f"{folder}/trip_point_{trip}_hyst", constant(0)
            yield f"/sys/class/thermal/thermal_zone{index}", Link(folder)
