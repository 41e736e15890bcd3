# SPDX-License-Identifier: Apache-2.0
"""One clock of a simulated board: its request, and the hardware's rate."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from ...faults import Faults


class TransitionCost(Struct, frozen=True):
    """Cost of a change in seconds: the writer waits ``blocks_s``, work feels it after ``effective_s``."""

    blocks_s: float
    effective_s: float
    spread: float

    @classmethod
    def of(cls, section: Mapping[str, Any]) -> TransitionCost:
        return cls(float(section["blocks_ms"]) / 1e3, float(section["effective_ms"]) / 1e3, float(section["spread"]))


class SimulatedClock:
    """Clock with a table of rising rates, in the unit of its files.

    Attributes:
        requested: last requested rate.
        slowdown: remaining share of pulses under over-current and heat.
    """

    def __init__(
        self,
        name: str,
        rates: Sequence[int],
        rate: int,
        transition: TransitionCost,
        now: Callable[[], float],
        random: np.random.Generator,
        faults: Faults,
    ) -> None:
        self.name = name
        self.rates = tuple(rates)
        self.requested = rate
        self.transitions = 0
        self.slowdown = 1.0
        self._actual = rate
        self._due = math.inf
        self._transition = transition
        self._now = now
        self._random = random
        self._faults = faults

    @property
    def settled(self) -> int:
        """Rate of the clock's source, as drivers see it."""
        stuck_at = self._faults.stuck.get(self.name)
        return self._actual if stuck_at is None else stuck_at

    @property
    def actual(self) -> int:
        """Rate of the hardware, lower under a hidden slowdown."""
        return self.settled if self.slowdown == 1.0 else round(self.settled * self.slowdown)

    @property
    def due(self) -> float:
        """Time at which the hardware reaches the request; infinity once it has."""
        return self._due

    def request(self, rate: int) -> float:
        """Request a rate of the table; returns the caller's delay."""
        if rate == self.requested:
            return 0.0
        self.requested = rate
        self.transitions += 1
        factor = math.exp(self._transition.spread * float(self._random.standard_normal()))
        self._due = self._now() + self._transition.effective_s * factor
        return self._transition.blocks_s * factor

    def settle(self) -> None:
        if self._due <= self._now() and self.name not in self._faults.stuck:
            self._due = math.inf
            self._actual = self.requested

    def at_least(self, rate: float) -> int:
        """Lowest rate of the table at or above ``rate``, else the highest."""
        return self.rates[min(bisect_left(self.rates, rate), len(self.rates) - 1)]

    def at_most(self, rate: float) -> int:
        """Highest rate of the table at or below ``rate``, else the lowest."""
        return self.rates[max(bisect_right(self.rates, rate) - 1, 0)]
