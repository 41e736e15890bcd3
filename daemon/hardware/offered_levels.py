# SPDX-License-Identifier: Apache-2.0
"""Levels that a board offers now, cut by its power mode and by limits of other programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field

from ...kernels.grid import FrequencyGrid
from ...profiles.board import BoardDescription, PowerMode
from ..errors import DaemonError
from .axes import TITLES, Axes, FixedAxis, megahertz, title
from .clocks.driver import Driver, OthersValue
from .files import Files
from .power_modes import bound_levels


class OfferedLevels(Struct, frozen=True):
    """Levels that the board offers, read once for one change; one for an axis that cannot be controlled.

    Attributes:
        clusters: in kHz, of each CPU cluster set apart, by cpufreq policy.
        tables: every listed frequency regardless of limits.
    """

    grid: FrequencyGrid
    clusters: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    mode: PowerMode | None = None
    tables: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def levels(self) -> dict[str, tuple[int, ...]]:
        return {**{axis: self.grid.levels(axis) for axis in TITLES}, **self.clusters}


def read_offered(
    axes: Axes, description: BoardDescription, mode: PowerMode | None, others: OthersValue, failed: list[str] | None = None
) -> OfferedLevels:
    """Read the levels that the board offers within its power mode and the limits of ``others``; raises HardwareBusy or
    HardwareRefused.

    With ``failed``, an unreadable limit adds a line there instead, and all levels of its clock count.
    """
    tables = {name: driver.table() for name, driver in axes.drivers.items()}

    def levels(axis: str) -> tuple[int, ...]:
        if axis in axes.fixed:
            return fixed_levels(axes, description, axis, mode)
        try:
            return _within_mode(axes.drivers[axis].levels(tables[axis], others), axis, mode)
        except DaemonError as error:
            if failed is None:
                raise
            failed.append(f"{title(axis)}: its limits are unknown: {error}")
            return tables[axis] or getattr(description.grid, _mode_axis(axis))

    grid = FrequencyGrid(**{axis: levels(axis) for axis in TITLES})
    return OfferedLevels(grid, {name: levels(name) for name in axes.apart}, mode, tables)


def offered_levels_of(driver: Driver, mode: PowerMode | None, others: OthersValue) -> tuple[int, ...]:
    return _within_mode(driver.levels(driver.table(), others), driver.axis, mode)


def fixed_level(axes: Axes, description: BoardDescription, axis: str, mode: PowerMode | None) -> int:
    """Assumed level of a clock that cannot be controlled; if unseen, the highest that the mode allows."""
    fixed = axes.fixed[axis]
    if fixed.seen or mode is None:
        return fixed.level
    return bound_levels(getattr(description.grid, axis), getattr(mode, axis))[-1]


def fixed_levels(axes: Axes, description: BoardDescription, axis: str, mode: PowerMode | None) -> tuple[int, ...]:
    """The one level of a clock that cannot be controlled; all that the mode allows if it waits for its files."""
    if axes.fixed[axis].waits:
        return _within_mode(getattr(description.grid, axis), axis, mode)
    return (fixed_level(axes, description, axis, mode),)


def moved_limits(files: Files, drivers: Iterable[tuple[str, Driver]], mode: PowerMode | None) -> Iterator[str]:
    """Lines on clocks whose limits leave one frequency, or a highest one other than the mode's."""
    for clock, driver in drivers:
        if not (table := driver.table()):
            continue
        lowest, highest = mode_limits(driver.axis, table, mode)
        cap = getattr(mode, _mode_axis(driver.axis), None)
        named = f"power mode {mode.name}" if mode is not None else "the board"
        top = megahertz(driver.axis, highest)
        # A limit of 0 is no limit.
        for low, high in sorted({(low or table[0], high or table[-1]) for low, high in _limits(files, driver)}):
            bottom, end = megahertz(driver.axis, low), megahertz(driver.axis, high)
            if low == high and lowest < highest:
                yield f"{clock} is pinned at {bottom} by its limits: by jetson_clocks, a service, or a process that holds it"
            elif high < highest:
                yield f"{clock} is limited to {end}, below the {top} of {named}: by a person, a service, or heat"
            elif cap is not None and high > highest:
                yield f"{clock} may go up to {end}, above the {top} of {named}: raised since the mode was set"


def mode_limits(axis: str, table: tuple[int, ...], mode: PowerMode | None) -> tuple[int, int]:
    """Limits of an axis or cluster by the power mode; the hardware's if that is unknown or sets none."""
    highest = bound_levels(table, getattr(mode, _mode_axis(axis), None))[-1]
    floor = mode.cpu_min_khz if mode is not None and _mode_axis(axis) == "cpu_khz" else None
    return min(bound_levels(table, floor)[-1] if floor else table[0], highest), highest


def _mode_axis(axis: str) -> str:
    return axis if axis in TITLES else "cpu_khz"


def _within_mode(levels: tuple[int, ...], axis: str, mode: PowerMode | None) -> tuple[int, ...]:
    return levels if mode is None else bound_levels(levels, getattr(mode, _mode_axis(axis)))


def _limits(files: Files, driver: Driver) -> Iterator[tuple[int, int]]:
    for domain in driver.domains:
        if domain.low is not None and domain.high is not None:
            low, high = files.find_int(domain.low), files.find_int(domain.high)
            if low is not None and high is not None:
                yield low, high


class Cap(Struct, frozen=True):
    """Limit of a clock: the system's table, the power mode, or another program."""

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
