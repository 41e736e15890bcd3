# SPDX-License-Identifier: Apache-2.0
"""The INA3221 power monitors as the industrial I/O driver of JetPack 4 shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from ..attributes import Attribute, Link, constant
from .power import CYCLE_S, SimulatedPowerMonitor

_LARGEST_MA = 32760


class PowerMonitorIio:
    """The files of one INA3221: voltage, current and power of each channel in mV, mA and mW.

    Args:
        bus: the directory of its I2C bus.
        address: its I2C name, ``0-0041``.
        node: its device's name, ``iio:device1``.
        driver: the directory of its driver, where a link leads to it.
    """

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
