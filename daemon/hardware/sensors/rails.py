# SPDX-License-Identifier: Apache-2.0
"""A board's power rails, and the chips that measure them.

INA3221: three rails, through hwmon since JetPack 5 (Linux, Documentation/hwmon/ina3221.rst) or JetPack 4's industrial I/O
driver; its limits and averaging are never written. INA238: one rail, whose power the chip computes (Linux,
Documentation/hwmon/ina238.rst).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from ....profiles.board import BoardDescription, PowerMonitor
from ..files import Files

# Label of an unconnected input.
UNUSED = "NC"
_LEGACY_DRIVER = "/sys/bus/i2c/drivers/ina3221x"
_DEVICES = "/sys/bus/i2c/devices"
# Beyond any rail of a Jetson; such readings, and negative ones, are invalid.
_MOST_MW = 1e6


class Channel(Struct, frozen=True):
    """One rail: its power in mW is the product of its files' values and a scale."""

    label: str
    paths: tuple[str, ...]
    scale: float

    def read_mw(self, files: Files) -> float | None:
        power = self.scale
        for path in self.paths:
            value = files.find_int(path)
            if value is None:
                return None
            power *= value
        return power if 0 <= power <= _MOST_MW else None


def hwmon_node(files: Files, address: str, driver: str) -> str | None:
    """A monitor's hwmon node by I2C address: hwmon numbers nodes in load order."""
    for place in (f"{driver}/{address}", f"{_DEVICES}/{address}"):
        if nodes := files.glob(f"{place}/hwmon/hwmon*"):
            return nodes[0]
    return None


def _ina3221(files: Files, monitor: PowerMonitor, driver: str) -> Iterator[Channel]:
    """The monitor's rails, by the running system's labels, else the description's."""
    node = hwmon_node(files, monitor.address, driver)
    legacy = None if node else next(iter(files.glob(f"{_LEGACY_DRIVER}/{monitor.address}/iio:device*")), None)
    for index, described in enumerate(monitor.channels):
        if node is not None:
            label = files.find_text(f"{node}/in{index + 1}_label") or described
            paths = (f"{node}/in{index + 1}_input", f"{node}/curr{index + 1}_input")
        elif legacy is not None:
            label = files.find_text(f"{legacy}/rail_name_{index}") or described
            paths = (f"{legacy}/in_voltage{index}_input", f"{legacy}/in_current{index}_input")
        else:
            return
        if label != UNUSED:
            # Millivolts times milliamperes are microwatts.
            yield Channel(label, paths, 1e-3)


def _ina238(files: Files, monitor: PowerMonitor, driver: str) -> Iterator[Channel]:
    node = hwmon_node(files, monitor.address, driver)
    if node is not None and files.exists(power := f"{node}/power1_input"):
        yield Channel(monitor.channels[0], (power,), 1e-3)


_CHIPS: dict[str, Callable[[Files, PowerMonitor, str], Iterator[Channel]]] = {"ina3221": _ina3221, "ina238": _ina238}


def find_channels(files: Files, description: BoardDescription) -> tuple[Channel, ...]:
    driver = str(description.section("rails")["driver"])
    return tuple(channel for monitor in description.monitors for channel in _CHIPS[monitor.chip](files, monitor, driver))


def energy_rails(description: BoardDescription, channels: Iterable[Channel]) -> tuple[str, ...]:
    """Rails whose sum is the board's power: the description's, with the parts of one whose monitor is absent."""
    there = {channel.label for channel in channels}
    found: list[str] = []
    for rail in description.energy_rails:
        parts = description.parts.get(rail, ())
        found += parts if rail not in there and parts and there.issuperset(parts) else (rail,)
    return tuple(found)


def read_rails_mw(files: Files, channels: Iterable[Channel]) -> dict[str, float]:
    read = {channel.label: channel.read_mw(files) for channel in channels}
    return {label: power for label, power in read.items() if power is not None}
