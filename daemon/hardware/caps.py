# SPDX-License-Identifier: Apache-2.0
"""Caps of a board's clocks: the system's table, the power mode, and limits of other programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...profiles.board import BoardDescription
from .axes import TITLES, FixedAxis
from .offered_levels import OfferedLevels, mode_limits


@dataclass(frozen=True)
class Cap:
    axis: str
    level: int
    reason: str


def find_caps(offered: OfferedLevels, description: BoardDescription, fixed: Mapping[str, FixedAxis]) -> Iterator[Cap]:
    for axis in TITLES:
        if axis in fixed:
            yield Cap(axis, fixed[axis].level, fixed[axis].reason)
            continue
        described, table, mode = getattr(description.grid, axis)[-1], offered.tables[axis], offered.mode
        if table[-1] < described and not description.like:
            yield Cap(axis, table[-1], "the running system's table of frequencies ends there, by its firmware or device tree")
        allowed = mode_limits(axis, table, mode)[1]
        if mode is not None and allowed < table[-1]:
            yield Cap(axis, allowed, f"power mode {mode.id} {mode.name}")
        if offered.grid.levels(axis)[-1] < allowed:
            yield Cap(axis, offered.grid.levels(axis)[-1], "the clock's upper limit, set by a person, a service or heat")
