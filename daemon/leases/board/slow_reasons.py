# SPDX-License-Identifier: Apache-2.0
"""Reasons why a clock is not higher."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from ....kernels.units import AXES
from ....profiles.board import BoardDescription
from ...hardware.sensors.sensors import SensorReader
from .snapshot import Snapshot


class SlowReason(Struct, frozen=True):
    """Cap on one clock, None for several: highest level left (None if unknown), and the reason."""

    axis: str | None
    level: int | None
    reason: str


def slow_reasons(snapshot: Snapshot, sensors: SensorReader, description: BoardDescription) -> Iterator[SlowReason]:
    cooling = sensors.cooling()
    for axis in AXES:
        for cap in snapshot.reading.caps:
            if cap.axis == axis:
                yield SlowReason(axis, cap.level, cap.reason)
        most = getattr(snapshot.operator, axis).max
        if most is not None and most < getattr(description.grid, axis)[-1]:
            yield SlowReason(axis, most, f"limits.{axis}.max of the configuration")
        for device in cooling:
            if axis in device.axes:
                yield SlowReason(axis, None, str(device))
        yield from _held(snapshot, axis)
    named = {str(device) for device in cooling if device.axes}
    for text in sensors.throttled():
        if text not in named:
            yield SlowReason(None, None, text)
    for event in snapshot.events:
        if event.per_minute:
            yield SlowReason(None, None, f"over-current event {event.event}: {event.per_minute:.3g} a minute")
    if snapshot.budget is not None and snapshot.budget.power_mw is not None:
        yield SlowReason(None, None, f"power budget of {snapshot.budget}")
    for text in snapshot.deviating:
        yield SlowReason(None, None, text)


def _held(snapshot: Snapshot, axis: str) -> Iterator[SlowReason]:
    if snapshot.applied is None or snapshot.applied.leaves(axis):
        governor = snapshot.reading.governors.get(axis)
        if governor:
            held = "no lease is held" if snapshot.applied is None else "no lease sets it"
            yield SlowReason(axis, None, f"{held}: governor {governor} chooses")
        return
    level = getattr(snapshot.applied.requested, axis)
    needed = [lease for lease in snapshot.leases.values() if getattr(lease.plan.configuration, axis) == level]
    floor = next((floor.reason for floor in snapshot.floors.floors if floor.clock == axis and floor.least == level), "")
    if needed:
        plan = needed[0].plan
        yield SlowReason(axis, level, f"{needed[0].label} holds it there ({plan.target or 'configuration'})")
    elif floor:
        yield SlowReason(axis, level, floor)
    elif any(one.since_s is not None for one in snapshot.standby.values()):
        yield SlowReason(axis, level, "standby, as no frames come")
    else:
        yield SlowReason(axis, level, "set for all leases together")
