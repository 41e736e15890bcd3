# SPDX-License-Identifier: Apache-2.0
"""A board's sensors, read on a thread of their own: clients never wait for one.

A zone or monitor may take half a second to answer, or hang. Each sensor has its own last value and time; an old value is
dropped and reported.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

from msgspec import Struct

from ....profiles.board import BoardDescription
from ..files import Files
from . import thermal
from .cooling import CoolingDevice, CoolingState, active, find_devices
from .energy import RailEnergies, RailEnergy
from .sensors import Sensors, throttling_reasons

log = logging.getLogger(__name__)
N = TypeVar("N", int, float)

WATCHED_S = 1.0
IDLE_S = 10.0
TOO_OLD_S = 15.0
_INTEREST_S = 5.0
_MOMENT_S = 0.2
_SAID_AGAIN_S = 60.0
_ZONES_AGAIN_S = 60.0
_ROUNDS_KEPT = 64


class TimedValue(Struct, Generic[N], frozen=True):
    value: N
    time_s: float


class SampledSensors:
    """Last values of a board's sensors, read by one thread. Its methods read no file and suit any thread."""

    def __init__(self, files: Files, description: BoardDescription, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.trips: tuple[thermal.TripPoint, ...] = ()
        self.energy_rails = description.energy_rails
        self._files = files
        self._description = description
        self._monotonic = monotonic
        self._rails: Mapping[str, TimedValue[float]] = {}
        self._energies: Mapping[str, RailEnergy] = {}
        self._metered: deque[RailEnergies] = deque(maxlen=_ROUNDS_KEPT)
        self._zones: Mapping[str, TimedValue[int]] = {}
        self._events: Mapping[str, TimedValue[int]] = {}
        self._cooling: tuple[CoolingState, ...] = ()
        self._missing: tuple[str, ...] = ()
        self._silent: tuple[str, ...] = ()
        self._wanted_s = monotonic()
        self._throttling: tuple[object, float, tuple[str, ...]] = None, float("-inf"), ()
        self._round_s = float("-inf")
        self._took_s = 0.0
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._waiting: list[Future[None]] = []
        self._over = False
        self._thread = threading.Thread(target=self._run, name="sensors", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over = True
        self._wake.set()

    def want(self) -> None:
        """Have the sensors read about once a second for a while."""
        now = self._monotonic()
        self._wanted_s = now
        if now - self._round_s >= WATCHED_S:
            self._wake.set()

    @property
    def round_age_s(self) -> float:
        return self._monotonic() - self._round_s

    @property
    def is_slow(self) -> bool:
        """True if the last round was too slow for a client to wait for the next."""
        return self._took_s > _MOMENT_S

    def next_round(self) -> Future[None]:
        future: Future[None] = Future()
        with self._lock:
            self._waiting.append(future)
        self._wake.set()
        return future

    @property
    def notes(self) -> tuple[str, ...]:
        old = [name for name, sample in self._rails.items() if not self._fresh(sample)]
        old += [name for name, sample in self._zones.items() if not self._fresh(sample)]
        reasons = (f"{', '.join(old)}: not read for {TOO_OLD_S:g} s",) if old else ()
        silent = (f"{', '.join(self._silent)}: 0 mW is read, but no board draws nothing",) if self._silent else ()
        return (*self._missing, *self._files.hanging, *reasons, *silent)

    def rails_mw(self) -> dict[str, float]:
        return {name: sample.value for name, sample in self._rails.items() if self._fresh(sample)}

    def rails_sampled(self) -> Mapping[str, TimedValue[float]]:
        return self._rails

    def energy_mj(self) -> dict[str, float]:
        """Energy of every rail since its first reading; 0 before the first round, for counters to begin."""
        now = self._monotonic()
        unread = self.energy_rails if self._round_s == float("-inf") else ()
        return {**dict.fromkeys(unread, 0.0), **{rail: energy.up_to_mj(now) for rail, energy in self._energies.items()}}

    def metered(self, since_s: float) -> tuple[RailEnergies, RailEnergies] | None:
        """First reading of all energy rails since a moment, and the last; None without two."""
        found = [one for one in tuple(self._metered) if one.time_s >= since_s]
        return (found[0], found[-1]) if len(found) > 1 else None

    def temperatures_mc(self) -> dict[str, int]:
        return {name: sample.value for name, sample in self._zones.items() if self._fresh(sample)}

    def throttled(self, *, now: bool = False) -> tuple[str, ...]:
        asked_s = self._monotonic()
        if now and asked_s - self._round_s > _MOMENT_S and not self.is_slow and self._thread.is_alive():
            wait({self.next_round()}, _MOMENT_S)
        # Requested with every report: renewed only after a zone was read or became too old.
        known, until_s, reasons = self._throttling
        zones, cooling = self._zones, self._cooling
        if known != (id(zones), cooling) or asked_s > until_s:
            until_s = min((sample.time_s + TOO_OLD_S for sample in zones.values() if self._fresh(sample)), default=asked_s)
            reasons = throttling_reasons(self.trips, self.temperatures_mc(), cooling)
            self._throttling = (id(zones), cooling), until_s, reasons
        return reasons

    def cooling(self) -> tuple[CoolingState, ...]:
        return self._cooling

    def over_current(self) -> Mapping[str, int]:
        return {name: sample.value for name, sample in self._events.items() if self._fresh(sample)}

    def _fresh(self, sample: TimedValue[int] | TimedValue[float]) -> bool:
        return self._monotonic() - sample.time_s <= TOO_OLD_S

    def _run(self) -> None:
        sensors: Sensors | None = None
        zones: tuple[thermal.ThermalZone, ...] = ()
        devices: tuple[CoolingDevice, ...] = ()
        found_s = 0.0
        said_s = -_SAID_AGAIN_S
        while not self._over:
            self._wake.clear()
            with self._lock:
                waiting, self._waiting = self._waiting, []
            started_s = self._monotonic()
            try:
                if sensors is None or started_s - found_s > _ZONES_AGAIN_S:
                    # Reads of zones and trips may fail too: a smaller number is not taken over.
                    zones, found_s = max(thermal.find_zones(self._files), zones, key=len), started_s
                    devices = max(find_devices(self._files), devices, key=len)
                    self.trips = max(thermal.read_trips(self._files), self.trips, key=len)
                sensors = sensors or Sensors(self._files, self._description)
                with self._files.together("sensors"):
                    self._round(sensors, zones, devices)
            except Exception as error:  # a driver's nonsense must not end the thread
                if started_s - said_s >= _SAID_AGAIN_S:
                    said_s = started_s
                    log.error("sensors: %r", error)
            self._round_s, self._took_s = started_s, self._monotonic() - started_s
            for future in waiting:
                future.set_result(None)
            watched = self._monotonic() - self._wanted_s < _INTEREST_S
            self._wake.wait(WATCHED_S if watched else IDLE_S)

    def _round(self, sensors: Sensors, zones: tuple[thermal.ThermalZone, ...], devices: tuple[CoolingDevice, ...]) -> None:
        read: dict[str, TimedValue[float]] = {}
        for channel in sensors.channels():
            power_mw = channel.read_mw(self._files)
            if power_mw is not None:
                read[channel.label] = TimedValue(power_mw, self._monotonic())
            if power_mw:
                self._rails = self._with(self._rails, channel.label, power_mw)
        own = sensors.energy_rails
        if own != self.energy_rails:
            self._metered.clear()
            self.energy_rails = own
        if all(rail in read for rail in own):
            self._silent = own if not any(read[rail].value for rail in own) else ()
        now = {**self._rails, **read}
        self._rails = {rail: sample for rail, sample in now.items() if rail not in self._silent}
        for rail, sample in read.items():
            if rail not in self._silent:
                if rail not in self._energies:
                    self._energies = {**self._energies, rail: RailEnergy(TOO_OLD_S)}
                self._energies[rail].add(sample.value, sample.time_s)
        if own and not self._silent and all(rail in read for rail in own):
            read_s = sum(read[rail].time_s for rail in own) / len(own)
            self._metered.append(RailEnergies(read_s, {rail: self._energies[rail].energy_mj for rail in own}))
        self._missing = sensors.notes_of(now)
        for name, count in sensors.over_current().items():
            self._events = self._with(self._events, name, count)
        before = {one.name: one for one in self._cooling}
        self._cooling = active(tuple(one for device in devices if (one := device.read(self._files) or before.get(device.name))))
        for zone in zones:
            self._zones = self._with(self._zones, zone.name, zone.read_mc(self._files))
        # The zone of a powered-off part fails until power returns, which is no fault.
        self._zones = {name: sample for name, sample in self._zones.items() if self._fresh(sample)}

    def _with(self, samples: Mapping[str, TimedValue[N]], name: str, value: N | None) -> Mapping[str, TimedValue[N]]:
        return samples if value is None else {**samples, name: TimedValue(value, self._monotonic())}
