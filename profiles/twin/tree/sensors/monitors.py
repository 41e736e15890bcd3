# SPDX-License-Identifier: Apache-2.0
"""Power monitors: energy of each rail, and the chips in the drivers of JetPack 4 and 5."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from ...faults import Faults
from ..attributes import Attribute, Link, constant, whole_number

CONVERSION_S = 1.1e-3
CYCLE_S = 6 * CONVERSION_S  # bus and shunt of three channels, one after the other
SAMPLES = (1, 4, 16, 64, 128, 256, 512, 1024)
_SHUNT_STEP_UV = 40
_BUS_STEP_MV = 8
_HISTORY = 4096
_NOISE_W, _NOISE_SHARE = 0.035, 0.012  # assumed: standard deviation of one cycle's power, with none and for each watt


class RailLedger:
    """Cumulative energy of every rail, with history for a sensor's window."""

    def __init__(self, rails: Sequence[str], start: float) -> None:
        self.rails = tuple(rails)
        self._times = [start]
        self._joules: list[tuple[float, ...]] = [(0.0,) * len(self.rails)]

    def add(self, seconds: float, watts: Sequence[float]) -> None:
        if seconds <= 0.0:
            return
        last = self._joules[-1]
        self._times.append(self._times[-1] + seconds)
        self._joules.append(tuple(energy + power * seconds for energy, power in zip(last, watts, strict=True)))
        if len(self._times) > 2 * _HISTORY:
            del self._times[:_HISTORY], self._joules[:_HISTORY]

    @property
    def joules(self) -> tuple[float, ...]:
        return self._joules[-1]

    def mean_w(self, rail: str, start: float, end: float) -> float:
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
    """Monitor of up to three channels, averaged over ``samples`` cycles, in converter steps; unwired channels read zero."""

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


_LARGEST_MA = 32760


class PowerMonitorFiles:
    """Files of one INA3221: directory of its I2C bus, I2C name (``1-0040``), hwmon node, driver directory, alarm currents by
    rail.
    """

    def __init__(
        self,
        monitor: SimulatedPowerMonitor,
        bus: str,
        address: str,
        hwmon: str,
        driver: str,
        now: Callable[[], float],
        limits_ma: Mapping[str, int],
    ) -> None:
        self._monitor = monitor
        self._device = f"{bus}/{address}"
        self._hwmon = hwmon
        self._links = (f"{driver}/{address}", f"/sys/bus/i2c/devices/{address}")
        self._now = now
        self._limits_ma = limits_ma

    def _milliamperes(self, channel: int) -> str:
        return str(self._monitor.milliamperes(channel, self._now()))

    def _set_samples(self, text: str) -> float:
        value = whole_number(text)
        self._monitor.samples = min(SAMPLES, key=lambda count: abs(count - value))
        return 0.0

    def nodes(self) -> Iterator[tuple[str, Attribute | Link]]:
        monitor, node = self._monitor, f"{self._device}/hwmon/{self._hwmon}"
        yield f"{self._device}/name", constant("ina3221")
        yield f"{node}/name", constant("ina3221")
        yield f"{node}/samples", Attribute(lambda: str(monitor.samples), self._set_samples)
        yield f"{node}/update_interval", Attribute(lambda: str(round(1e3 * CYCLE_S * monitor.samples)))
        for index, label in enumerate(monitor.channels):
            number = index + 1
            yield f"{node}/in{number}_label", constant(label)
            yield f"{node}/in{number}_enable", constant(1)
            yield f"{node}/in{number}_input", constant(monitor.bus_mv)
            yield (f"{node}/curr{number}_input", Attribute(partial(self._milliamperes, index)))
            for limit in ("max", "crit"):
                yield f"{node}/curr{number}_{limit}", constant(self._limits_ma.get(label, _LARGEST_MA))
                yield f"{node}/curr{number}_{limit}_alarm", constant(0)
        yield f"{node}/in7_label", constant("sum of shunt voltages")
        yield f"{node}/device", Link(self._device)
        yield f"/sys/class/hwmon/{self._hwmon}", Link(node)
        for link in self._links:
            yield link, Link(self._device)


class PowerMonitorIio:
    """Files of one INA3221 (IIO): voltage, current and power of each channel in mV, mA and mW."""

    def __init__(
        self, monitor: SimulatedPowerMonitor, bus: str, address: str, node: str, driver: str, now: Callable[[], float]
    ) -> None:
        self._monitor = monitor
        self._device = f"{bus}/{address}"
        self._node = node
        self._links = (f"{driver}/{address}", f"/sys/bus/i2c/devices/{address}")
        self._now = now

    def _milliamperes(self, channel: int) -> str:
        return str(self._monitor.milliamperes(channel, self._now()))

    def _milliwatts(self, channel: int) -> str:
        return str(self._monitor.milliamperes(channel, self._now()) * self._monitor.bus_mv // 1000)

    def _sum(self) -> str:
        channels = range(len(self._monitor.channels))
        return str(sum(self._monitor.milliamperes(channel, self._now()) for channel in channels))

    def nodes(self) -> Iterator[tuple[str, Attribute | Link]]:
        monitor, node = self._monitor, f"{self._device}/{self._node}"
        yield f"{self._device}/name", constant("ina3221x")
        yield f"{node}/name", constant("ina3221x")
        yield f"{node}/running_mode", constant(1)
        yield f"{node}/in_current_sum_input", Attribute(self._sum)
        for channel, label in enumerate(monitor.channels):
            yield f"{node}/rail_name_{channel}", constant(label)
            yield f"{node}/in_voltage{channel}_input", constant(monitor.bus_mv)
            yield f"{node}/in_current{channel}_input", Attribute(partial(self._milliamperes, channel))
            yield f"{node}/in_power{channel}_input", Attribute(partial(self._milliwatts, channel))
            yield f"{node}/polling_delay_{channel}", constant(f"{round(1e3 * CYCLE_S)} ms")
            for limit in ("crit", "warn"):
                yield f"{node}/{limit}_current_limit_{channel}", constant(_LARGEST_MA)
        yield f"/sys/bus/iio/devices/{self._node}", Link(node)
        for link in self._links:
            yield link, Link(self._device)


class Ina238Files:
    """Files of one INA238: bus voltage in mV, current in mA, power in uW."""

    def __init__(
        self, monitor: SimulatedPowerMonitor, bus: str, address: str, hwmon: str, driver: str, now: Callable[[], float]
    ) -> None:
        self._monitor = monitor
        self._device = f"{bus}/{address}"
        self._hwmon = hwmon
        self._links = (f"{driver.replace('ina3221', 'ina238')}/{address}", f"/sys/bus/i2c/devices/{address}")
        self._now = now

    def _milliamperes(self) -> int:
        return self._monitor.milliamperes(0, self._now())

    def nodes(self) -> Iterator[tuple[str, Attribute | Link]]:
        node = f"{self._device}/hwmon/{self._hwmon}"
        yield f"{self._device}/name", constant("ina238")
        yield f"{node}/name", constant("ina238")
        yield f"{node}/in1_input", constant(self._monitor.bus_mv)
        yield f"{node}/curr1_input", Attribute(lambda: str(self._milliamperes()))
        yield f"{node}/power1_input", Attribute(lambda: str(self._milliamperes() * self._monitor.bus_mv))
        yield f"{node}/device", Link(self._device)
        yield f"/sys/class/hwmon/{self._hwmon}", Link(node)
        for link in self._links:
            yield link, Link(self._device)
