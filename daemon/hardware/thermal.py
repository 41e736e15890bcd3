# SPDX-License-Identifier: Apache-2.0
"""Temperatures of the thermal zones (Linux, Documentation/driver-api/thermal/sysfs-api.rst)."""

from __future__ import annotations

from .files import Files

ZONES = "/sys/class/thermal/thermal_zone*"
# What the zone of a powered-off part reads on JetPack 5; later releases fail the read instead.
POWERED_OFF_MC = -256000


def read_temperatures_mc(files: Files) -> dict[str, int]:
    """Temperature of every zone that can be read now, in thousandths of a degree Celsius, by the zone's type."""
    temperatures = {}
    for zone in files.glob(ZONES):
        name, value = files.find_text(f"{zone}/type"), files.find_int(f"{zone}/temp")
        if name and value is not None and value != POWERED_OFF_MC:
            temperatures[name] = value
    return temperatures
