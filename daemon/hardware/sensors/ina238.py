# SPDX-License-Identifier: Apache-2.0
"""The INA238 power monitor: one rail, whose power the chip itself works out (Linux, Documentation/hwmon/ina238.rst)."""

from __future__ import annotations

from collections.abc import Iterator

from ....profiles.board import PowerMonitor
from ..files import Files
from .channel import Channel, hwmon_node


def channels(files: Files, monitor: PowerMonitor, driver: str) -> Iterator[Channel]:
    """The rail that this monitor measures, in microwatts."""
    node = hwmon_node(files, monitor.address, driver)
    if node is not None:
        yield Channel(monitor.channels[0], (f"{node}/power1_input",), 1e-3)
