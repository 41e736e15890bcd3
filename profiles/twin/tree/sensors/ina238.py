# SPDX-License-Identifier: Apache-2.0
"""The INA238 power monitor: one rail, whose power the chip itself works out (Linux, Documentation/hwmon/ina238.rst)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..attributes import Attribute, Link, constant
from .power import SimulatedPowerMonitor


class Ina238Files:
    """The files of one INA238: bus voltage in mV, current in mA, power in uW.

    Args:
        monitor: the converter behind them; its only channel is used.
        bus, address, hwmon, driver: as for the INA3221.
    """

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
