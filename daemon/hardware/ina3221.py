# SPDX-License-Identifier: Apache-2.0
"""Power rails from the INA3221 monitors, as hwmon shows them since JetPack 5 (Linux, Documentation/hwmon/ina3221.rst)."""

from __future__ import annotations

from dataclasses import dataclass

from ...profiles.board import BoardDescription
from ..errors import HardwareBusy
from .files import Files


@dataclass(frozen=True)
class Channel:
    """One measured rail: its bus voltage in mV and its current in mA."""

    label: str
    voltage: str
    current: str


@dataclass(frozen=True)
class PowerRails:
    """The rails of a board, by label."""

    files: Files
    channels: tuple[Channel, ...]
    energy_rails: tuple[str, ...]

    def read_mw(self) -> dict[str, float]:
        """Power of every rail that can be read now, in mW."""
        rails = {}
        for channel in self.channels:
            millivolts, milliamperes = self.files.find_int(channel.voltage), self.files.find_int(channel.current)
            if millivolts is not None and milliamperes is not None:
                rails[channel.label] = millivolts * milliamperes / 1000
        return rails

    def total_mw(self) -> float:
        """Power of the rails that count towards the energy of an inference, in mW.

        Raises:
            HardwareBusy: one of them cannot be read; a sum without it would be too low.
        """
        rails = self.read_mw()
        missing = [label for label in self.energy_rails if label not in rails]
        if missing:
            raise HardwareBusy(f"power rails {', '.join(missing)} cannot be read; readable: {', '.join(rails) or 'none'}")
        return sum(rails[label] for label in self.energy_rails)


def probe(files: Files, description: BoardDescription) -> PowerRails:
    """Find the monitors' channels by the labels the running system gives them, else by the board's description.

    hwmon numbers its nodes in the order in which drivers load, so that only the I2C address names a monitor for good.
    """
    driver = description.section("rails")["driver"]
    channels = []
    for monitor in description.monitors:
        for node in files.glob(f"{driver}/{monitor.address}/hwmon/hwmon*")[:1]:
            for number, described in enumerate(monitor.channels, start=1):
                label = files.find_text(f"{node}/in{number}_label") or described
                if label != "NC":
                    channels.append(Channel(label, f"{node}/in{number}_input", f"{node}/curr{number}_input"))
    return PowerRails(files, tuple(channels), description.energy_rails)
