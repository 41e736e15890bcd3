# SPDX-License-Identifier: Apache-2.0
"""What heat, over-current and scripted faults do to the clocks behind the drivers' backs, and heat to the fan."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...faults import Faults
from ..clocks.cpufreq import SimulatedCpuPolicy
from ..clocks.devfreq import SimulatedGpu
from .fan import SimulatedFan
from .overcurrent import OverCurrent
from .thermal import ThermalModel
from .throttle import Throttle

_FAN_PERIOD_S = 1.0  # assumed: how often whatever drives the fan looks at the temperature


class Slowdown:
    """The slowdown of one board's clocks.

    Args:
        now: when the fan is first driven.
    """

    def __init__(
        self,
        policies: Sequence[SimulatedCpuPolicy],
        gpu: SimulatedGpu,
        thermal: ThermalModel,
        throttle: Throttle,
        over_current: OverCurrent | None,
        fan: SimulatedFan,
        faults: Faults,
        now: float,
    ) -> None:
        self._gpu = gpu
        self._clocks = (gpu.clock, *(policy.clock for policy in policies))
        self._thermal = thermal
        self._throttle = throttle
        self._over_current = over_current
        self._fan = fan
        self._faults = faults
        self._fan_at = now

    @property
    def due(self) -> tuple[float, ...]:
        """When heat or over-current next does something by itself; infinity: not before something else happens."""
        return (self._throttle.due, self._over_current.due if self._over_current else math.inf)

    def act(self, now: float) -> bool:
        """Let everything take its course; returns whether the board has become so hot that it switches itself off."""
        self._throttle.watch(now)
        self._throttle.act(now)
        share = self._throttle.share * self._faults.share
        if self._over_current is not None:
            self._over_current.act()
            self._over_current.watch(self._gpu.load)
            share *= self._over_current.share
        for clock in self._clocks:
            clock.slowdown = share
        if now >= self._fan_at:
            self._fan.follow(self._thermal.hottest_c)
            self._fan_at = now + _FAN_PERIOD_S
        return self._throttle.critical
