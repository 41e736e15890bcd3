# SPDX-License-Identifier: Apache-2.0
"""Power monitors: energy of each rail, and the chips in the drivers of JetPack 4 and 5."""

from __future__ import annotations

import posixpath
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from ...faults import Faults
from ..attributes import Attribute, Link, Nodes, constant, whole_number

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
        samples: int,
        now: Callable[[], float],
    ) -> None:
        self.channels = tuple(channels)
        self.samples = samples
        self.step_ma = 1000 * _SHUNT_STEP_UV // shunt_uohm
        self.bus_mv = bus_mv // _BUS_STEP_MV * _BUS_STEP_MV
        self._ledger = ledger
        self._random = random
        self._faults = faults
        self._now = now
        self._read: dict[int, tuple[int, int]] = {}

    def milliamperes(self, channel: int) -> int:
        rail, now = self.channels[channel], self._now()
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


def _device_nodes(device: str, name: str, driver: str, node: str, listed: str) -> Nodes:
    """Names and links of an I2C chip; ``listed`` is the class directory of its node."""
    address = posixpath.basename(device)
    yield f"{device}/name", constant(name)
    yield f"{node}/name", constant(name)
    yield f"{listed}/{posixpath.basename(node)}", Link(node)
    yield f"{driver}/{address}", Link(device)
    yield f"/sys/bus/i2c/devices/{address}", Link(device)


def ina3221_files(monitor: SimulatedPowerMonitor, device: str, hwmon: str, driver: str, limits_ma: Mapping[str, int]) -> Nodes:
    """Files of one INA3221: directory of the device, hwmon node, driver directory, alarm currents by rail."""
    node = f"{device}/hwmon/{hwmon}"

    def set_samples(text: str) -> None:
        value = whole_number(text)
        monitor.samples = min(SAMPLES, key=lambda count: abs(count - value))

    yield from _device_nodes(device, "ina3221", driver, node, "/sys/class/hwmon")
    yield f"{node}/samples", Attribute(lambda: monitor.samples, set_samples)
    yield f"{node}/update_interval", Attribute(lambda: round(1e3 * CYCLE_S * monitor.samples))
    for index, label in enumerate(monitor.channels):
        number = index + 1
        yield f"{node}/in{number}_label", constant(label)
        yield f"{node}/in{number}_enable", constant(1)
        yield f"{node}/in{number}_input", constant(monitor.bus_mv)
        yield f"{node}/curr{number}_input", Attribute(partial(monitor.milliamperes, index))
        for limit in ("max", "crit"):
            yield f"{node}/curr{number}_{limit}", constant(limits_ma.get(label, _LARGEST_MA))
            yield f"{node}/curr{number}_{limit}_alarm", constant(0)
    yield f"{node}/in7_label", constant("sum of shunt voltages")
    yield f"{node}/device", Link(device)


def iio_files(monitor: SimulatedPowerMonitor, device: str, name: str, driver: str) -> Nodes:
    """Files of one INA3221 (IIO): voltage, current and power of each channel in mV, mA and mW."""
    node, channels = f"{device}/{name}", range(len(monitor.channels))

    def milliwatts(channel: int) -> int:
        return monitor.milliamperes(channel) * monitor.bus_mv // 1000

    yield from _device_nodes(device, "ina3221x", driver, node, "/sys/bus/iio/devices")
    yield f"{node}/running_mode", constant(1)
    yield f"{node}/in_current_sum_input", Attribute(lambda: sum(map(monitor.milliamperes, channels)))
    for channel, label in enumerate(monitor.channels):
        yield f"{node}/rail_name_{channel}", constant(label)
        yield f"{node}/in_voltage{channel}_input", constant(monitor.bus_mv)
        yield f"{node}/in_current{channel}_input", Attribute(partial(monitor.milliamperes, channel))
        yield f"{node}/in_power{channel}_input", Attribute(partial(milliwatts, channel))
        yield f"{node}/polling_delay_{channel}", constant(f"{round(1e3 * CYCLE_S)} ms")
        for limit in ("crit", "warn"):
            yield f"{node}/{limit}_current_limit_{channel}", constant(_LARGEST_MA)


def ina238_files(monitor: SimulatedPowerMonitor, device: str, hwmon: str, driver: str) -> Nodes:
    """Files of one INA238: bus voltage in mV, current in mA, power in uW."""
    node = f"{device}/hwmon/{hwmon}"
    yield from _device_nodes(device, "ina238", driver.replace("ina3221", "ina238"), node, "/sys/class/hwmon")
    yield f"{node}/in1_input", constant(monitor.bus_mv)
    yield f"{node}/curr1_input", Attribute(lambda: monitor.milliamperes(0))
    yield f"{node}/power1_input", Attribute(lambda: monitor.milliamperes(0) * monitor.bus_mv)
    yield f"{node}/device", Link(device)
