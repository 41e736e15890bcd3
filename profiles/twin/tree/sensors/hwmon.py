# SPDX-License-Identifier: Apache-2.0
"""The INA3221 power monitors as hwmon shows them since JetPack 5 (Linux, Documentation/hwmon/ina3221.rst)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from ..attributes import Attribute, Link, constant
from ..parsing import whole_number
from .power import CYCLE_S, SAMPLES, SimulatedPowerMonitor

_LARGEST_MA = 32760


class PowerMonitorFiles:
    """The files of one INA3221.

    Args:
        bus: the directory of its I2C bus.
        address: its I2C name, ``1-0040``.
        hwmon: its hwmon node's name.
        driver: the directory of its driver, where a link leads to it.
        limits_ma: the currents that raise an alarm, by rail.
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
            yield (
                f"{node}/curr{number}_input",
                Attribute(partial(self._milliamperes, index)),
            )
            for limit in ("max", "crit"):
                yield f"{node}/curr{number}_{limit}", constant(self._limits_ma.get(label, _LARGEST_MA))
                yield f"{node}/curr{number}_{limit}_alarm", constant(0)
        yield f"{node}/in7_label", constant("sum of shunt voltages")
        yield f"{node}/device", Link(self._device)
        yield f"/sys/class/hwmon/{self._hwmon}", Link(node)
        for link in self._links:
            yield link, Link(self._device)
