# SPDX-License-Identifier: Apache-2.0
"""Heat protection: the kernel's passive cooling, the firmware's throttling, and switching off.

Past a passive trip the kernel lowers the limits of CPU and GPU by one step at every turn, and raises them below it (Linux,
drivers/thermal/gov_step_wise.c). Hotter, the firmware removes pulses, unseen by files.
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

_FAN_PERIOD_S = 1.0  # assumed: interval of the fan's control


class Slowdown:
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
        """Next event of heat or over-current; infinity: none by itself."""
        return (self._throttle.due, self._over_current.due if self._over_current else math.inf)

    def act(self, now: float) -> bool:
        """Apply due events; returns True if the board switches itself off."""
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
    """Passive cooling of one board; ``hardware_c`` is the firmware's throttling temperature, or infinity.

    Attributes:
        due: time of its next turn; infinity while cool.
        steps: distance of the limits below the top, in steps.
        hard: True if the firmware throttles.
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
        return _HARDWARE_SHARE if self.hard else 1.0

    def watch(self, now: float) -> None:
        if math.isinf(self.due) and self._thermal.hottest_c >= self._lowest_c:
            self.due = now

    def act(self, now: float) -> None:
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
