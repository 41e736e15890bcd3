# SPDX-License-Identifier: Apache-2.0
"""Power modes that would be better for a lease than the one in force: proposed, never switched.

A mode caps clocks and takes cores offline. Where another one leaves clocks at which a target is met that is not met now, or
what it prefers is lower by :data:`WORTH`, it is proposed, of equally good ones the one with the fewest cores. What cores draw
that are online and idle is in no profile, and is not counted.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from ...kernels.grid import FrequencyConfiguration, FrequencyGrid
from ...kernels.units import AXES
from ...profiles.board import ModeSet, PowerMode
from ..config import ClockLimits
from ..errors import TargetNotAttainable, UsageError
from ..hardware.power_modes import bound_levels, changed_masks
from .advising import share_on
from .limits import Limits
from .wishes import Wish

WORTH = 0.03
_AS_GOOD = 0.005


@dataclass(frozen=True)
class Proposal:
    """A power mode that would be better.

    Attributes:
        mode: which.
        configuration: what would be set in it.
        gain: by which share what the target prefers would be lower; None where the target is not met in the mode in force.
        note: what to do and why, in one line.
    """

    mode: PowerMode
    configuration: FrequencyConfiguration
    gain: float | None
    note: str

    def to_json(self) -> dict[str, Any]:
        """The ``Proposal`` of the interface."""
        mode = {"id": self.mode.id, "name": self.mode.name}
        held = self.configuration._asdict()
        return {"mode": mode, "cores": self.mode.cores, "configuration": held, "gain": self.gain, "note": self.note}


def propose(
    wish: Wish, modes: ModeSet, active: PowerMode, held: FrequencyConfiguration | None, bounds: ClockLimits | None = None
) -> Proposal | None:
    """The power mode that would be best for a wish, if it is worth a change.

    Args:
        modes: those that there are.
        active: the one in force.
        held: what is set in it; None where nothing of it meets the target.
        bounds: the operator's.

    Raises:
        UsageError, InputError: as for :meth:`~jetdvfs.daemon.planning.wishes.Wish.plan`.
    """
    found = []
    for mode in modes.table:
        if mode.id == active.id or share_on(mode, modes) != 1.0:
            continue
        try:
            configuration = wish.need(within_mode(wish.surface.grid, mode, bounds)).configuration
        except (TargetNotAttainable, UsageError):
            continue
        gain = None if held is None else wish.gain(held, configuration)
        if gain is None or gain >= WORTH:
            found.append((mode, configuration, gain))
    if not found:
        return None
    reference = found[0][1]
    least = min(-wish.gain(reference, configuration) for _, configuration, _ in found)
    alike = [one for one in found if -wish.gain(reference, one[1]) <= least + _AS_GOOD]
    mode, configuration, gain = min(alike, key=lambda one: (one[0].cores or 0, one[1].gpu_hz, one[0].id))
    return Proposal(mode, configuration, gain, _note(wish, mode, active, configuration, gain))


def against_default(wish: Wish, modes: ModeSet) -> Proposal | None:
    """As :func:`propose`, for a board in the mode that it boots with."""
    default = next(mode for mode in modes.table if mode.id == modes.default)
    held: FrequencyConfiguration | None = None
    with contextlib.suppress(TargetNotAttainable, UsageError):
        held = wish.need(within_mode(wish.surface.grid, default)).configuration
    return propose(wish, modes, default, held)


def within_mode(grid: FrequencyGrid, mode: PowerMode, bounds: ClockLimits | None = None) -> Limits:
    """Which clocks a mode leaves, within the operator's bounds."""
    ranges = {}
    for axis in AXES:
        levels = bound_levels(grid.levels(axis), getattr(mode, axis))
        if bounds is not None:
            levels = getattr(bounds, axis).allowed(levels)
        ranges[axis] = (levels[0], levels[-1])
    return Limits.within(ranges)


def _note(wish: Wish, mode: PowerMode, active: PowerMode, configuration: FrequencyConfiguration, gain: float | None) -> str:
    what = f"{wish.target} is met" if gain is None else f"{gain:.0%} {wish.merit} less for {wish.target}"
    cores = f", {mode.cores} cores online" if mode.cores is not None else ""
    reboot = "; it may need a reboot" if changed_masks(active, mode) else ""
    return (
        f"power mode {mode.name} instead of {active.name}{cores}: {what}, at {configuration} "
        f"(sudo jetdvfs board mode {mode.name}{reboot})"
    )
