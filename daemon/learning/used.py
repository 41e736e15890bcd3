# SPDX-License-Identifier: Apache-2.0
"""What a lease came to: time, the board's energy meanwhile, frames, and what they would have taken at the top clocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..leases import Lease

SHORTEST_S = 1.0
"""Energy of less is not told: the sensors are read about once a second while somebody looks."""


def energy_since_mj(began: Mapping[str, float] | None, now: Mapping[str, float], energy_rails: Sequence[str]) -> float | None:
    """What the energy rails took since; None where not all of them are read."""
    if not began or not energy_rails or any(rail not in now or rail not in began for rail in energy_rails):
        return None
    return sum(now[rail] - began[rail] for rail in energy_rails)


def used(lease: Lease, now_s: float, energy_mj: float | None) -> dict[str, Any]:
    """The ``Used`` of the interface."""
    held_s = max(now_s - lease.since_s, 1e-9)
    return {
        "held_s": held_s,
        "energy_mj": energy_mj,
        "mean_power_mw": None if energy_mj is None else energy_mj / held_s,
        "frames": lease.frames.reported,
        "late": lease.frames.late,
        "saved_share": _saved_share(lease.need.plan),
    }


def _saved_share(plan: Mapping[str, Any] | None) -> float | None:
    """By which share a frame takes less energy than at the top clocks, as predicted; None where there is no plan."""
    if plan is None:
        return None
    figure = "energy_per_frame_mj" if plan["top"].get("energy_per_frame_mj") else "energy_mj"
    return 1 - float(plan["choice"][figure]) / float(plan["top"][figure])
