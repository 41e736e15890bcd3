# SPDX-License-Identifier: Apache-2.0
"""Summary of a lease."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from ...hardware.applied_setting import AppliedSetting
from ...hardware.sensors.energy import RailEnergies
from ...planning.plan import Plan
from ..lease import Lease

SHORTEST_S = 2.0
"""Shortest time whose energy is reported: the sensors are read about once a second."""


class LeaseMeter(Struct):
    """Energy of the board from the first to the last reading during a lease. For one thread."""

    began_s: float
    first: RailEnergies | None = None
    last: RailEnergies | None = None

    def take(self, found: tuple[RailEnergies, RailEnergies] | None) -> None:
        if found is not None:
            same = self.first is not None and self.first.energy_mj.keys() == found[1].energy_mj.keys()
            self.first, self.last = self.first if same else found[0], found[1]

    def measured(self, energy_rails: Sequence[str]) -> tuple[float, float] | None:
        first, last = self.first, self.last
        if first is None or last is None or not energy_rails or not first.energy_mj.keys() >= set(energy_rails):
            return None
        if last.time_s - first.time_s < SHORTEST_S:
            return None
        return sum(last.energy_mj[rail] - first.energy_mj[rail] for rail in energy_rails), last.time_s - first.time_s


def used(lease: Lease, now_s: float, measured: tuple[float, float] | None, applied: AppliedSetting | None) -> dict[str, Any]:
    """The ``Used`` of the interface; nothing is saved unless the plan's clocks are in force."""
    in_force = applied is not None and applied.verified and applied.requested == lease.plan.configuration
    energy_mj, measured_s = measured or (None, None)
    return {
        "held_s": max(now_s - lease.since_s, 1e-9),
        "energy_mj": energy_mj,
        "measured_s": measured_s,
        "mean_power_mw": None if energy_mj is None or measured_s is None else energy_mj / measured_s,
        "frames": lease.frames.reported,
        "late": lease.frames.late,
        "saved_share": _saved_share(lease.plan.chosen) if lease.frames.reported and in_force else None,
    }


def _saved_share(plan: Plan | None) -> float | None:
    if plan is None:
        return None
    if plan.top.energy_per_frame_mj and plan.choice.energy_per_frame_mj is not None:
        return 1 - plan.choice.energy_per_frame_mj / plan.top.energy_per_frame_mj
    return 1 - plan.choice.energy_mj / plan.top.energy_mj
