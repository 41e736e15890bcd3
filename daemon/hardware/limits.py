# SPDX-License-Identifier: Apache-2.0
"""Limits of clocks that stand otherwise than the power mode sets them: somebody has moved them since."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...profiles.board import PowerMode
from .axes import TITLES, megahertz
from .clocks.driver import Driver
from .files import Files
from .power_modes import bound_levels


def moved_limits(files: Files, drivers: Iterable[tuple[str, Driver]], mode: PowerMode | None) -> Iterator[str]:
    """One line for each clock whose limits leave one frequency, or another highest one than the mode does.

    Args:
        drivers: what each clock is called, and its driver.
        mode: the power mode in force, where it is known.

    Raises:
        HardwareBusy, HardwareRefused: a clock's table cannot be read.
    """
    for title, driver in drivers:
        lowest, highest = mode_limits(driver, mode)
        cap = getattr(mode, _axis(driver), None)
        named = f"power mode {mode.name}" if mode is not None else "the board"
        top = megahertz(driver.axis, highest)
        for low, high in sorted(set(_limits(files, driver))):
            bottom, end = megahertz(driver.axis, low), megahertz(driver.axis, high)
            if low == high and lowest < highest:
                yield f"{title} is pinned at {bottom} by its limits: by jetson_clocks, a service, or a process that holds it"
            elif high < highest:
                yield f"{title} is limited to {end}, below the {top} of {named}: by a person, a service, or heat"
            elif cap is not None and high > highest:
                yield f"{title} may go up to {end}, above the {top} of {named}: raised since the mode was set"


def mode_limits(driver: Driver, mode: PowerMode | None) -> tuple[int, int]:
    """The limits that a power mode sets; those of the hardware where the mode is not known or sets none.

    Raises:
        HardwareBusy, HardwareRefused: the clock's table cannot be read.
    """
    table = driver.table()
    highest = bound_levels(table, getattr(mode, _axis(driver), None))[-1]
    floor = mode.cpu_min_khz if mode is not None and _axis(driver) == "cpu_khz" else None
    return min(bound_levels(table, floor)[-1] if floor else table[0], highest), highest


def _axis(driver: Driver) -> str:
    """What a power mode calls a clock: a CPU cluster that is set apart has the limits of them all."""
    return driver.axis if driver.axis in TITLES else "cpu_khz"


def _limits(files: Files, driver: Driver) -> Iterator[tuple[int, int]]:
    """Both limits of every domain whose limits can be read now."""
    for domain in driver.domains:
        if domain.low is not None and domain.high is not None:
            low, high = files.find_int(domain.low), files.find_int(domain.high)
            if low is not None and high is not None:
                yield low, high
