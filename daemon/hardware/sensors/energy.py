# SPDX-License-Identifier: Apache-2.0
"""Energy from power that is read now and then: between two readings that are not too far apart, their mean."""

from __future__ import annotations


class Energy:
    """The energy of one rail. For one thread that adds; whoever reads sees one of the values there were.

    Attributes:
        energy_mj: up to the last reading.
        peak_mw: the highest reading.
        last: the last reading in mW, and when it was made.
    """

    def __init__(self, longest_s: float) -> None:
        self.energy_mj = 0.0
        self.peak_mw = 0.0
        self.last: tuple[float, float] | None = None
        self._longest_s = longest_s

    def add(self, power_mw: float, time_s: float) -> None:
        """Take in a reading; what lies further back than ``longest_s`` is not known, and counts as nothing."""
        if self.last is not None and 0 < (elapsed_s := time_s - self.last[1]) <= self._longest_s:
            self.energy_mj += elapsed_s * (self.last[0] + power_mw) / 2
        self.last, self.peak_mw = (power_mw, time_s), max(self.peak_mw, power_mw)

    def up_to_mj(self, time_s: float) -> float:
        """Energy up to a moment after the last reading, as if that still held."""
        if self.last is None:
            return self.energy_mj
        power_mw, read_s = self.last
        return self.energy_mj + power_mw * min(max(time_s - read_s, 0.0), self._longest_s)
