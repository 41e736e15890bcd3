# SPDX-License-Identifier: Apache-2.0
"""Planning within what the board may draw; where that leaves nothing that meets a target, for what comes closest."""

from __future__ import annotations

from dataclasses import replace

from ..errors import TargetNotAttainable, UsageError
from ..leases import Need
from ..planning.limits import Limits
from ..targets import Hours, Target
from .asked import Asked


def planned(need: Need, limits: Limits, *, held: bool) -> Need:
    """What a lease needs within limits.

    Args:
        held: whether it is in force already: then it must keep to what the board may draw, whatever becomes of its target.

    Raises:
        TargetNotAttainable: nothing meets its target, whatever the board may draw.
        UsageError, InputError: as for :func:`jetdvfs.daemon.planner.plan`.
    """
    assert need.again is not None
    try:
        return need.again(limits)
    except TargetNotAttainable:
        if limits.power_mw is None or need.closest is None:
            raise
        if not held:
            need.again(replace(limits, power_mw=None, because=""))
        return replace(need.closest(limits), again=need.again)


def lasting(target: Target, battery_wh: float | None, limits: Limits) -> Limits:
    """What a plan without a board keeps to: these limits, and that a battery lasts as long as its target says, if it does.

    Raises:
        UsageError: what is left in the battery is not told, or told of another target.
    """
    hours = target.limit if isinstance(target, Hours) else None
    Asked(hours=hours, battery_wh=battery_wh)
    if hours is None:
        return limits
    if battery_wh is None:
        raise UsageError(f"target {target}: expected what is left in the battery (battery_wh), such as --battery-wh 50")
    return replace(limits, power_mw=1e3 * battery_wh / hours, because=f"so that {battery_wh:g} Wh last for {hours:g} h")
