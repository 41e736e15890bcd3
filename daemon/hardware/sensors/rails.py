# SPDX-License-Identifier: Apache-2.0
"""A board's power rails, and what each of them means: which count towards energy, which lie within another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ....profiles.board import BoardDescription, PowerMonitor
from ...errors import HardwareBusy
from ..files import Files
from . import ina238, ina3221
from .channel import Channel

_CHIPS: dict[str, Callable[[Files, PowerMonitor, str], Iterator[Channel]]] = {
    "ina3221": ina3221.channels,
    "ina238": ina238.channels,
}


@dataclass(frozen=True)
class PowerRails:
    """The rails of a board, by label.

    Attributes:
        energy_rails: those that count towards the energy of an inference.
        total_rails: those whose sum is what the module draws.
    """

    files: Files
    channels: tuple[Channel, ...]
    energy_rails: tuple[str, ...]
    total_rails: tuple[str, ...]

    def read_mw(self) -> dict[str, float]:
        """Power of every rail that can be read now, in mW. Rails may lie within each other: do not add them up."""
        read = {channel.label: channel.read_mw(self.files) for channel in self.channels}
        return {label: power for label, power in read.items() if power is not None}

    def energy_mw(self) -> float:
        """Power of the rails that count towards the energy of an inference, in mW.

        Raises:
            HardwareBusy: one of them cannot be read; a sum without it would be too low.
        """
        return self._sum(self.energy_rails)

    def total_mw(self) -> float:
        """What the module draws, in mW.

        Raises:
            HardwareBusy: a rail that it is the sum of cannot be read.
        """
        return self._sum(self.total_rails)

    def _sum(self, labels: tuple[str, ...]) -> float:
        rails = self.read_mw()
        missing = [label for label in labels if label not in rails]
        if missing:
            raise HardwareBusy(f"power rails {', '.join(missing)} cannot be read; readable: {', '.join(rails) or 'none'}")
        return sum(rails[label] for label in labels)


def probe(files: Files, description: BoardDescription) -> PowerRails:
    """Find what every monitor of the board measures."""
    driver = str(description.section("rails")["driver"])
    found = [channel for monitor in description.monitors for channel in _CHIPS[monitor.chip](files, monitor, driver)]
    return PowerRails(files, tuple(found), description.energy_rails, description.total_rails)
