# SPDX-License-Identifier: Apache-2.0
"""The levels that a board's clocks may be set to now: what its tables, its power mode and others' limits leave."""

from __future__ import annotations

from ...kernels.grid import FrequencyGrid
from ...profiles.board import BoardDescription, PowerMode
from .axes import TITLES, Axes
from .clocks.driver import OthersValue
from .power_modes import RunningModes, bound_levels


class Offered:
    """What every axis, and every CPU cluster that is set apart, offers.

    Args:
        modes: the power modes, whose caps bound the levels.
    """

    def __init__(self, axes: Axes, description: BoardDescription, modes: RunningModes) -> None:
        self._axes = axes
        self._described = description.grid
        self._modes = modes

    def grid(self, others: OthersValue) -> FrequencyGrid:
        """The levels of every axis; one that cannot be controlled has one.

        Args:
            others: tells a limit as others left it.

        Raises:
            HardwareBusy, HardwareRefused: a clock's table or limit cannot be read any more.
        """
        mode = self._modes.active()
        return FrequencyGrid(**{name: self._levels(name, others, mode) for name in TITLES})

    def levels(self, axis: str, others: OthersValue) -> tuple[int, ...]:
        """The levels of an axis or a cluster, rising.

        Raises:
            HardwareBusy, HardwareRefused: as for :meth:`grid`.
        """
        return self._levels(axis, others, self._modes.active())

    def fixed_level(self, axis: str) -> int:
        """Where a clock that cannot be controlled is taken to be; unseen, at the highest level that the mode leaves it."""
        return self._fixed_level(axis, self._modes.active())

    def _levels(self, axis: str, others: OthersValue, mode: PowerMode | None) -> tuple[int, ...]:
        if axis in self._axes.fixed:
            return (self._fixed_level(axis, mode),)
        levels = self._axes.drivers[axis].levels(others)
        return levels if mode is None else bound_levels(levels, getattr(mode, axis if axis in TITLES else "cpu_khz"))

    def _fixed_level(self, axis: str, mode: PowerMode | None) -> int:
        fixed = self._axes.fixed[axis]
        if fixed.seen or mode is None:
            return fixed.level
        return bound_levels(getattr(self._described, axis), getattr(mode, axis))[-1]
