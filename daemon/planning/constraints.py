# SPDX-License-Identifier: Apache-2.0
"""Constraints that a lease puts on the whole board: a temperature ceiling, a battery that is to last; and the power budget."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import UsageError

CEILINGS_C = (20.0, 110.0)
"""Temperature ceilings that make sense, in degrees Celsius."""
BATTERIES_WH = (0.1, 100_000.0)
"""Charges of batteries that make sense, in watt hours."""


@dataclass(frozen=True)
class BoardConstraints:
    """Constraints on the whole board.

    Attributes:
        ceiling_c: temperature that no zone may exceed, in degrees Celsius; None for no ceiling.
        hours: time that the battery is to last from the grant of the lease; None for no constraint.
        battery_wh: charge of the battery at the grant, if the board does not report it.

    Raises:
        UsageError: a figure makes no sense.
    """

    ceiling_c: float | None = None
    hours: float | None = None
    battery_wh: float | None = None

    def __post_init__(self) -> None:
        _check("ceiling_c", self.ceiling_c, CEILINGS_C, "degrees Celsius")
        _check("battery_wh", self.battery_wh, BATTERIES_WH, "watt hours")
        if self.battery_wh is not None and self.hours is None:
            raise UsageError(f"battery_wh={self.battery_wh:g}: said of a target of hours, such as hours=6")

    @property
    def anything(self) -> bool:
        return self.ceiling_c is not None or self.hours is not None


class LeaseConstraints(NamedTuple):
    """Constraints of one lease on the whole board.

    Attributes:
        lease: its name; ``label`` is for people.
        uid: whose it is.
    """

    lease: str
    label: str
    uid: int
    asked: BoardConstraints


def heeded(asking: Sequence[LeaseConstraints], operators: Collection[int]) -> tuple[LeaseConstraints, ...]:
    """Those that bound what the board draws: who is no operator may slow down no other user's leases."""
    users = {one.uid for one in asking}
    return tuple(one for one in asking if one.uid in operators or users <= {one.uid})


@dataclass(frozen=True)
class Budget:
    """What the board may draw in the mean.

    Attributes:
        power_mw: of the energy rails.
        reason: why, in one line.
    """

    power_mw: float
    reason: str

    def __str__(self) -> str:
        return f"{self.power_mw / 1e3:.4g} W {self.reason}"


def _check(name: str, value: float | None, valid: tuple[float, float], unit: str) -> None:
    low, high = valid
    if value is not None and not (math.isfinite(value) and low <= value <= high):
        raise UsageError(f"{name}={value:g}: expected {low:g} to {high:g} {unit}")
