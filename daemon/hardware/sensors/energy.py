# SPDX-License-Identifier: Apache-2.0
"""Energy from power readings, by the trapezoidal rule."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple


def total_mw(rails_mw: Mapping[str, float], energy_rails: Sequence[str]) -> float | None:
    """Sum of the energy rails; None if one is unread, since the rest is not the board's power."""
    known = energy_rails and all(rail in rails_mw for rail in energy_rails)
    return sum(rails_mw[rail] for rail in energy_rails) if known else None


class RailEnergy:
    """Energy of one rail up to the last reading. One thread adds; another may read a past value."""

    def __init__(self, longest_s: float) -> None:
        self.energy_mj = 0.0
        self.last: tuple[float, float] | None = None
        self._longest_s = longest_s

    def add(self, power_mw: float, time_s: float) -> None:
        """Add a reading; a gap longer than ``longest_s`` counts as nothing."""
        if self.last is not None and 0 < (elapsed_s := time_s - self.last[1]) <= self._longest_s:
            self.energy_mj += elapsed_s * (self.last[0] + power_mw) / 2
        self.last = (power_mw, time_s)

    def up_to_mj(self, time_s: float) -> float:
        """Energy up to a moment after the last reading, which is extrapolated."""
        if self.last is None:
            return self.energy_mj
        power_mw, read_s = self.last
        return self.energy_mj + power_mw * min(max(time_s - read_s, 0.0), self._longest_s)


class RailEnergies(NamedTuple):
    time_s: float
    energy_mj: Mapping[str, float]


class PowerTrace:
    def __init__(self) -> None:
        self._times_s: list[float] = []
        self._powers_mw: list[float] = []

    def add(self, power_mw: float, time_s: float) -> None:
        self._times_s.append(time_s)
        self._powers_mw.append(power_mw)

    def readings(self, begin_s: float, end_s: float) -> int:
        return sum(begin_s <= time_s <= end_s for time_s in self._times_s)

    def between(self, begin_s: float, end_s: float) -> tuple[float, float] | None:
        """Energy in mJ and highest power in mW between two moments, linear between readings."""
        if not self._times_s or end_s <= begin_s:
            return None
        inside = [
            (time_s, power_mw)
            for time_s, power_mw in zip(self._times_s, self._powers_mw, strict=True)
            if begin_s < time_s < end_s
        ]
        points = [(begin_s, self._at(begin_s)), *inside, (end_s, self._at(end_s))]
        energy_mj = sum(
            (later_s - sooner_s) * (first_mw + second_mw) / 2 for (sooner_s, first_mw), (later_s, second_mw) in pairwise(points)
        )
        return energy_mj, max(power_mw for _, power_mw in points)

    def _at(self, time_s: float) -> float:
        place = bisect_right(self._times_s, time_s)
        if place == 0:
            return self._powers_mw[0]
        if place == len(self._times_s):
            return self._powers_mw[-1]
        before_s, after_s = self._times_s[place - 1], self._times_s[place]
        share = (time_s - before_s) / (after_s - before_s)
        return self._powers_mw[place - 1] + share * (self._powers_mw[place] - self._powers_mw[place - 1])
