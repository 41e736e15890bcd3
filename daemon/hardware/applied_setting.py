# SPDX-License-Identifier: Apache-2.0
"""Outcome of a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from msgspec import Struct, field

from ...kernels.grid import FrequencyConfiguration
from .axes import TITLES, megahertz, title
from .clocks.domain import Write
from .clocks.driver import Reading, effective, obeyed


class ClockLevel(NamedTuple):
    requested: int
    accepted: int
    effective: int


class AppliedSetting(Struct, frozen=True):
    """Outcome of a request.

    Attributes:
        accepted: request as held by the kernel and firmware, perhaps lower.
        effective: measured clocks; as accepted if unmeasured, 0 while power-gated.
        verified: all agree.
        waiting: axes set once their missing files appear.
    """

    requested: FrequencyConfiguration
    accepted: FrequencyConfiguration
    effective: FrequencyConfiguration
    verified: bool
    reason: str
    writes: tuple[Write, ...]
    elapsed_ms: float
    notes: tuple[str, ...] = ()
    clusters: Mapping[str, ClockLevel] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()
    governed: frozenset[str] = frozenset()

    def differs(self, configuration: FrequencyConfiguration, governed: frozenset[str]) -> bool:
        axes = (axis for axis in TITLES if axis not in governed)
        return self.governed != governed or any(getattr(self.requested, axis) != getattr(configuration, axis) for axis in axes)

    def leaves(self, axis: str) -> bool:
        return (axis if axis in TITLES else "cpu_khz") in self.governed

    def held(self, axis: str) -> int | None:
        if axis in FrequencyConfiguration._fields:
            return int(getattr(self.accepted, axis))
        return self.clusters[axis].accepted if axis in self.clusters else None

    def to_json(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name)._asdict() for name in ("requested", "accepted", "effective")},
            "verified": self.verified,
            "reason": self.reason,
            "writes": [write._asdict() for write in self.writes],
            "elapsed_ms": self.elapsed_ms,
            "notes": list(self.notes),
            "clusters": [{"policy": name, **level._asdict()} for name, level in self.clusters.items()],
            "governed": sorted(self.governed),
        }


def outcome(
    requested: Mapping[str, int],
    seen: Mapping[str, tuple[Reading, ...]],
    throttled: Callable[[], tuple[str, ...]],
    *,
    reason: str,
    writes: tuple[Write, ...],
    elapsed_ms: float,
    waiting: tuple[str, ...] = (),
    governed: frozenset[str] = frozenset(),
    failed: tuple[str, ...] = (),
) -> AppliedSetting:
    accepted, measured = dict(requested), dict(requested)
    notes = [f"{title(axis)}: {megahertz(axis, requested[axis])} is set when its files come" for axis in waiting]
    for axis, readings in seen.items():
        level = requested[axis]
        reading = next((one for one in readings if not obeyed(one, level)), readings[0])
        accepted[axis] = reading.accepted or 0
        measured[axis] = effective(reading)
        if reading.accepted != level:
            taken = f"the board accepted {megahertz(axis, reading.accepted)} ({reading.mode})"
            notes.append(f"{title(axis)}: asked for {megahertz(axis, level)}, {taken}")
        elif not obeyed(reading, level):
            why = "; ".join(throttled()) or "throttled, or stuck"
            clock = f"set to {megahertz(axis, level)}, measured {megahertz(axis, reading.effective)}"
            notes.append(f"{title(axis)}: {clock}: {why}")
        elif reading.effective is None:
            notes.append(f"{title(axis)}: accepted; the board has no measurement of it")
    notes += failed
    as_set = all(obeyed(reading, requested[axis]) for axis, readings in seen.items() for reading in readings)
    return AppliedSetting(
        _configuration(requested),
        _configuration(accepted),
        _configuration(measured),
        as_set and not waiting and not failed,
        reason,
        writes,
        elapsed_ms,
        tuple(notes),
        {name: ClockLevel(requested[name], accepted[name], measured[name]) for name in requested if name not in TITLES},
        waiting,
        governed,
    )


def _configuration(levels: Mapping[str, int]) -> FrequencyConfiguration:
    return FrequencyConfiguration(*(levels[name] for name in FrequencyConfiguration._fields))
