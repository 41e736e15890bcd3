# SPDX-License-Identifier: Apache-2.0
"""Temperatures of the board and files of its thermal zones (Linux, Documentation/driver-api/thermal/sysfs-api.rst).

A first-order heat sink, cooled by the fan, carries all power; each zone is hotter by its own rail's power. The zone of an
unpowered part reads an impossible number or an error, by release.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from ..attributes import Attribute, Link, Nodes, constant, refusal

_ZONES = "/sys/devices/virtual/thermal"
_JUNCTION_TAU_S = 0.8


class SimulatedZone(Struct, frozen=True):
    """Thermal zone: rail and resistance, or a constant; trip points in thousandths of a degree.

    Attributes:
        hottest: True if it shows the hottest zone.
        part: required powered part: ``gpu``, ``never`` (unused), or none.
    """

    name: str
    trips_mc: tuple[int, ...] = ()
    rail: str | None = None
    k_per_w: float = 0.0
    offset_c: float = 0.0
    constant_c: float | None = None
    hottest: bool = False
    part: str = ""


def _kind(zone: SimulatedZone, trip: int) -> str:
    return "critical" if trip == len(zone.trips_mc) - 1 else "passive"


class ThermalModel:
    """Temperatures in degrees Celsius.

    Args:
        section: ``ambient_c``, ``k_per_w`` (heat sink with the fan at rest and at full speed), ``tau_s``; ``step_mc``, the
            resolution of sensors (default: half degrees), ``off_mc``, the reading of an unpowered part (default: EAGAIN).
        zones: in the order of their numbers.
        rails: order of the powers of :meth:`step`.
        watts: long-term powers before.
        heating: rails whose powers add up to all.
        gated: True if the GPU is unpowered.
        fever_c: additional degrees.
    """

    def __init__(
        self,
        section: Mapping[str, Any],
        zones: Sequence[SimulatedZone],
        rails: Sequence[str],
        watts: Sequence[float],
        pwm: int,
        heating: Sequence[str] | None = None,
        gated: Callable[[], bool] = lambda: False,
        fever_c: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._fever_c = fever_c
        self._ambient_c = float(section["ambient_c"])
        self._k_per_w: tuple[float, float] = tuple(section["k_per_w"])
        self._tau_s = float(section["tau_s"])
        self._step_mc = float(section.get("step_mc", 500))
        self._off_mc: int | None = section.get("off_mc")
        self._gated = gated
        self._rails = tuple(rails)
        self._counted = [index for index, rail in enumerate(rails) if heating is None or rail in heating]
        self._zones = tuple(zones)
        self._watts = list(watts)
        self._sink_c = self._steady_c(self._sum(watts), pwm)

    def _sum(self, watts: Sequence[float]) -> float:
        return sum(watts[index] for index in self._counted)

    def _steady_c(self, watts: float, pwm: int) -> float:
        still, full = self._k_per_w
        return self._ambient_c + watts * (still + (full - still) * pwm / 255)

    def step(self, seconds: float, watts: Sequence[float], pwm: int) -> None:
        near = 1.0 - math.exp(-seconds / _JUNCTION_TAU_S)
        self._watts = [old + near * (new - old) for old, new in zip(self._watts, watts, strict=True)]
        self._sink_c += (1.0 - math.exp(-seconds / self._tau_s)) * (self._steady_c(self._sum(watts), pwm) - self._sink_c)

    def zone_c(self, zone: SimulatedZone) -> float:
        if zone.constant_c is not None:
            return zone.constant_c
        if zone.hottest:
            return self.hottest_c
        above = zone.k_per_w * self._watts[self._rails.index(zone.rail)] if zone.rail else 0.0
        return self._sink_c + zone.offset_c + above + self._fever_c()

    @property
    def hottest_c(self) -> float:
        return max(self.zone_c(zone) for zone in self._zones if zone.rail)

    def temperatures_c(self) -> dict[str, float]:
        return {zone.name: self.zone_c(zone) for zone in self._zones}

    def trips(self) -> Iterator[tuple[str, float, float]]:
        """Throttling and critical trips: kind, temperature, and its zone's temperature, in degrees."""
        for zone in self._zones:
            for trip, millidegrees in enumerate(zone.trips_mc):
                yield _kind(zone, trip), millidegrees / 1e3, self.zone_c(zone)

    def _reading(self, zone: SimulatedZone) -> int:
        if zone.part == "never" or (zone.part == "gpu" and self._gated()):
            if self._off_mc is None:
                raise refusal(errno.EAGAIN)
            return self._off_mc
        return int(round(1e3 * self.zone_c(zone) / self._step_mc) * self._step_mc)

    def nodes(self) -> Nodes:
        for index, zone in enumerate(self._zones):
            folder = f"{_ZONES}/thermal_zone{index}"
            yield f"{folder}/type", constant(zone.name)
            yield f"{folder}/temp", Attribute(partial(self._reading, zone))
            yield f"{folder}/mode", constant("enabled")
            yield f"{folder}/policy", constant("step_wise")
            for trip, millidegrees in enumerate(zone.trips_mc):
                yield f"{folder}/trip_point_{trip}_type", constant(_kind(zone, trip))
                yield f"{folder}/trip_point_{trip}_temp", constant(millidegrees)
                yield f"{folder}/trip_point_{trip}_hyst", constant(0)
            yield f"/sys/class/thermal/thermal_zone{index}", Link(folder)
