# SPDX-License-Identifier: Apache-2.0
"""One measured rail, whichever chip measures it."""

from __future__ import annotations

from dataclasses import dataclass

from ..files import Files

# The label of an input that is wired to nothing.
UNUSED = "NC"
_DEVICES = "/sys/bus/i2c/devices"
# No rail of a Jetson comes near it; a reading beyond, or below zero, is no power.
_MOST_MW = 1e6


@dataclass(frozen=True)
class Channel:
    """One rail: its power in mW is the product of what its files hold, times a scale."""

    label: str
    paths: tuple[str, ...]
    scale: float

    def read_mw(self, files: Files) -> float | None:
        """Power in mW, or None where it cannot be read now or makes no sense."""
        power = self.scale
        for path in self.paths:
            value = files.find_int(path)
            if value is None:
                return None
            power *= value
        return power if 0 <= power <= _MOST_MW else None


def hwmon_node(files: Files, address: str, driver: str) -> str | None:
    """A monitor's hwmon node; hwmon numbers its nodes as drivers load, so that only the I2C address names one for good."""
    for place in (f"{driver}/{address}", f"{_DEVICES}/{address}"):
        if nodes := files.glob(f"{place}/hwmon/hwmon*"):
            return nodes[0]
    return None
