# SPDX-License-Identifier: Apache-2.0
"""A board's power rails, whichever chips measure them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ....profiles.board import BoardDescription, PowerMonitor
from ..files import Files
from . import ina238, ina3221
from .channel import Channel

_CHIPS: dict[str, Callable[[Files, PowerMonitor, str], Iterator[Channel]]] = {
    "ina3221": ina3221.channels,
    "ina238": ina238.channels,
}


def find_channels(files: Files, description: BoardDescription) -> tuple[Channel, ...]:
    """Every rail that the board's monitors measure, as far as their drivers are loaded."""
    driver = str(description.section("rails")["driver"])
    return tuple(channel for monitor in description.monitors for channel in _CHIPS[monitor.chip](files, monitor, driver))


def read_rails_mw(files: Files, channels: Iterable[Channel]) -> dict[str, float]:
    """Power of every rail that can be read now, in mW, by label. Rails may lie within each other: do not add them up."""
    read = {channel.label: channel.read_mw(files) for channel in channels}
    return {label: power for label, power in read.items() if power is not None}
