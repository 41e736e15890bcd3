# SPDX-License-Identifier: Apache-2.0
"""Energy of each rail since the board was started, and what an INA3221 makes of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from ...faults import Faults

CONVERSION_S = 1.1e-3
CYCLE_S = 6 * CONVERSION_S  # bus and shunt of three channels, one after the other
SAMPLES = (1, 4, 16, 64, 128, 256, 512, 1024)
_SHUNT_STEP_UV = 40
_BUS_STEP_MV = 8
_HISTORY = 4096
_NOISE_W, _NOISE_SHARE = 0.035, 0.012  # assumed: standard deviation of one cycle's power, with none and for each watt


class RailLedger:
    """Cumulative energy of every rail, exact at each moment, with enough history to average over a sensor's window."""

    def __init__(self, rails: Sequence[str], start: float) -> None:
        self.rails = tuple(rails)
        self._times = [start]
        self._joules: list[tuple[float, ...]] = [(0.0,) * len(self.rails)]

    def add(self, seconds: float, watts: Sequence[float]) -> None:
        """Let the rails draw this much for some time."""
        if seconds <= 0.0:
            return
        last = self._joules[-1]
        self._times.append(self._times[-1] + seconds)
        self._joules.append(tuple(energy + power * seconds for energy, power in zip(last, watts, strict=True)))
        if len(self._times) > 2 * _HISTORY:
            del self._times[:_HISTORY], self._joules[:_HISTORY]

    @property
    def joules(self) -> tuple[float, ...]:
        """Energy of each rail until now."""
        return self._joules[-1]

    def mean_w(self, rail: str, start: float, end: float) -> float:
        """Mean power of a rail between two moments; as far back as the history goes."""
        start, end = max(start, self._times[0]), min(end, self._times[-1])
        if end <= start:
            return 0.0
        column = self.rails.index(rail)
        return (self._at(column, end) - self._at(column, start)) / (end - start)

    def _at(self, column: int, time: float) -> float:
        right = min(max(bisect_right(self._times, time), 1), len(self._times) - 1)
        before, after = self._times[right - 1], self._times[right]
        low, high = self._joules[right - 1][column], self._joules[right][column]
        return low + (high - low) * (time - before) / (after - before)


class SimulatedPowerMonitor:
    """One monitor: up to three channels, converted in turn, averaged over ``samples`` cycles, in steps of its converters.

    A channel that no rail is wired to reads zero.
    """

    def __init__(
        self,
        channels: Sequence[str],
        shunt_uohm: int,
        bus_mv: int,
        ledger: RailLedger,
        random: np.random.Generator,
        faults: Faults,
        samples: int = 1,
    ) -> None:
        self.channels = tuple(channels)
        self.samples = samples
        self.step_ma = 1000 * _SHUNT_STEP_UV // shunt_uohm
        self.bus_mv = bus_mv // _BUS_STEP_MV * _BUS_STEP_MV
        self._ledger = ledger
        self._random = random
        self._faults = faults
        self._read: dict[int, tuple[int, int]] = {}

    def milliamperes(self, channel: int, now: float) -> int:
        """The channel's last finished conversion."""
        rail = self.channels[channel]
        if rail in self._faults.silent_rails or rail not in self._ledger.rails:
            return 0
        cycle = int(now / CYCLE_S)
        if self._read.get(channel, (-1, 0))[0] != cycle:
            end = cycle * CYCLE_S + 2 * channel * CONVERSION_S
            end = end if end <= now else end - CYCLE_S
            start = end - (CONVERSION_S if self.samples == 1 else self.samples * CYCLE_S)
            watts = self._ledger.mean_w(rail, start, end)
            noise = (_NOISE_W + _NOISE_SHARE * watts) / self.samples**0.5
            amperes = 1e3 * (watts + noise * float(self._random.standard_normal())) / self.bus_mv
            self._read[channel] = (cycle, max(round(1e3 * amperes / self.step_ma), 0) * self.step_ma)
        return self._read[channel][1]
