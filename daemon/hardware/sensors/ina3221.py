# SPDX-License-Identifier: Apache-2.0
"""The INA3221 power monitor: three rails, as hwmon shows them since JetPack 5 (Linux, Documentation/hwmon/ina3221.rst) and as
the industrial I/O driver of JetPack 4 does.

Limits and averaging are the board's own and are never written.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....profiles.board import PowerMonitor
from ..files import Files
from .channel import UNUSED, Channel, hwmon_node

_LEGACY_DRIVER = "/sys/bus/i2c/drivers/ina3221x"


def channels(files: Files, monitor: PowerMonitor, driver: str) -> Iterator[Channel]:
    """The rails that this monitor measures, by the labels the running system gives them, else by the description's."""
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
