# SPDX-License-Identifier: Apache-2.0
"""What the board does when it is hot: the kernel's passive cooling, the firmware's, and at last switching off.

Past a passive trip the kernel's step-wise governor lowers the limits of CPU and GPU by one step of their tables at every turn
and raises them again below it (Linux, drivers/thermal/gov_step_wise.c). A little hotter the firmware takes pulses out of the
clocks, which no file shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...faults import Faults
from ..clocks.cpufreq import SimulatedCpuPolicy
from ..clocks.devfreq import SimulatedGpu
from .fan import SimulatedFan
from .overcurrent import OverCurrent
from .thermal import ThermalModel

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


_TURN_S = 1.0
_HARDWARE_SHARE = 0.5


class Throttle:
    """Passive cooling of one board.

    Args:
        hardware_c: the temperature at which the firmware throttles, or infinity.

    Attributes:
        due: when it looks again; infinity while nothing is hot.
        steps: how many steps of their tables the clocks' limits stand below the top.
        hard: whether the firmware throttles.
        critical: whether a critical trip was passed.
    """

    def __init__(
        self, thermal: ThermalModel, policies: Sequence[SimulatedCpuPolicy], gpu: SimulatedGpu, hardware_c: float
    ) -> None:
        self.due = math.inf
        self.steps = 0
        self.hard = False
        self.critical = False
        self._thermal = thermal
        self._policies = tuple(policies)
        self._gpu = gpu
        self._hardware_c = hardware_c
        self._lowest_c = min((trip for _, trip, _ in thermal.trips()), default=math.inf)
        self._deepest = max(len(clock.rates) for clock in (gpu.clock, *(policy.clock for policy in policies))) - 1

    @property
    def share(self) -> float:
        """The share of their pulses that the clocks get."""
        return _HARDWARE_SHARE if self.hard else 1.0

    def watch(self, now: float) -> None:
        """Notice that something has become hot."""
        if math.isinf(self.due) and self._thermal.hottest_c >= self._lowest_c:
            self.due = now

    def act(self, now: float) -> None:
        """Take a turn, if it is due."""
        if now < self.due:
            return
        trips = list(self._thermal.trips())
        passed = {kind for kind, trip, temperature in trips if temperature >= trip}
        self.critical = "critical" in passed
        self.hard = self._thermal.hottest_c >= self._hardware_c
        steps = min(self.steps + 1, self._deepest) if "passive" in passed else max(self.steps - 1, 0)
        if steps != self.steps:
            self.steps = steps
            for policy in self._policies:
                policy.cool(_limit(policy.clock.rates, steps))
            self._gpu.cool(_limit(self._gpu.clock.rates, steps))
        self.due = now + _TURN_S if steps or passed else math.inf


def _limit(rates: Sequence[int], steps: int) -> int | None:
    return rates[max(len(rates) - 1 - steps, 0)] if steps else None
