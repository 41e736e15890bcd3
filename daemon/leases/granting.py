# SPDX-License-Identifier: Apache-2.0
"""Planning within what the board may draw; where that leaves nothing that meets a target, for what comes closest."""

from __future__ import annotations

from dataclasses import replace

from ..errors import TargetNotAttainable
from ..planning.lease_plan import LeasePlan
from ..planning.limits import Limits


def planned(need: LeasePlan, limits: Limits, *, held: bool) -> LeasePlan:
    """What a lease needs within limits.

    Args:
        held: whether it is in force already: then it must keep to what the board may draw, whatever becomes of its target.

    Raises:
        TargetNotAttainable: nothing meets its target, whatever the board may draw.
        UsageError, InputError: as for :func:`jetdvfs.daemon.planning.plan.plan`.
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
