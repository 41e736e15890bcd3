# SPDX-License-Identifier: Apache-2.0
"""Planning within what the board may draw; where that leaves nothing that meets a target, for what comes closest."""

from __future__ import annotations

from dataclasses import replace

from ..errors import TargetNotAttainable
from ..planning.lease_plan import LeasePlan
from ..planning.limits import Limits


def planned(plan: LeasePlan, limits: Limits, *, held: bool) -> LeasePlan:
    """The plan of a lease within limits.

    Args:
        held: whether it is in force already: then it must keep to what the board may draw, whatever becomes of its target.

    Raises:
        TargetNotAttainable: nothing meets its target, whatever the board may draw.
        UsageError, InputError: as for :func:`jetdvfs.daemon.planning.plan.plan`.
    """
    assert plan.planner is not None
    try:
        return plan.planner.plan(limits)
    except TargetNotAttainable:
        closest = None if limits.power_mw is None else plan.closest(limits)
        if closest is None:
            raise
        if not held:
            plan.planner.plan(replace(limits, power_mw=None, because=""))
        return closest
