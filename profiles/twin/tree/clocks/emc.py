# SPDX-License-Identifier: Apache-2.0
"""What decides the memory clock: requests of others, a lock, caps. How a system shows it is the business of other modules.

While it is locked it holds the rate that was set, rounded up to one the memory is trained for and clamped by the present cap.
Otherwise it serves the highest request: the floor that comes with the CPU clocks, the bandwidth that the GPU's work and
others ask for, and the bandwidth manager's limits. A lock stays when whoever took it dies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .clock import SimulatedClock

_COUNTING_S = 0.010  # over which the activity monitor averages
_HEADROOM = 1.25
_EFFICIENCY = 0.7  # of the peak bandwidth that a client can count on


class SimulatedMemoryClock:
    """The memory clock. Rates are in Hz.

    Args:
        floors: the lowest memory clock at each CPU clock: (CPU at least this many kHz, EMC Hz), falling.
        bytes_per_cycle: DRAM bytes per cycle, for those who ask for bandwidth.

    Attributes:
        locked: whether a rate is held against every request.
        halted: whether the firmware's bandwidth manager stands still, so that requests change nothing.
        cap: the power mode's upper limit; 0 means no limit.
        limits: those of the bandwidth manager: what others' requests are clamped to.
    """

    def __init__(self, clock: SimulatedClock, floors: Sequence[tuple[int, int]], bytes_per_cycle: float) -> None:
        self.clock = clock
        self.locked = False
        self.halted = False
        self.cap = 0
        self.limits: tuple[int, int | None] = (0, None)
        self._floors = tuple(floors)
        self._bytes_per_cycle = bytes_per_cycle
        self._counted_bytes_s = 0.0
        self._others_hz = 0.0
        self._wanted = 0.0

    @property
    def ceiling(self) -> int:
        """The highest rate the caps leave."""
        top = self.clock.rates[-1]
        return self.clock.at_most(self.cap) if 0 < self.cap < top else top

    @property
    def activity_khz(self) -> int:
        """What the activity monitor counts: kHz of the memory clock in use."""
        return round(min(self._counted_bytes_s / self._bytes_per_cycle + self._others_hz, self.clock.actual) / 1e3)

    def count(self, seconds: float, bytes_s: float) -> None:
        """Let the GPU move that much for some time."""
        near = 1.0 - math.exp(-seconds / _COUNTING_S)
        self._counted_bytes_s += near * (bytes_s - self._counted_bytes_s)

    def follow(self, cpu_khz: int, gpu_share: float, others_bytes_s: float = 0.0, others_hz: float = 0.0) -> bool:
        """Serve the requests of others, if nobody holds the lock; returns whether the clock moved.

        Args:
            cpu_khz: the highest CPU clock, from which the floor follows.
            gpu_share: GPU clock times load, as a share of the highest; the GPU asks for bandwidth in proportion.
            others_bytes_s: the bandwidth that cameras, displays and other processes use.
            others_hz: the clock that one of them asks for.
        """
        asked_hz = _HEADROOM * gpu_share * self.clock.rates[-1]
        self._others_hz = others_bytes_s / self._bytes_per_cycle
        floor = next((emc for cpu, emc in self._floors if cpu_khz >= cpu), self.clock.rates[0])
        self._wanted = max(floor, others_hz, asked_hz + self._others_hz / _EFFICIENCY)
        return not self.locked and self.serve() > 0

    def serve(self) -> float:
        """Go to what others ask for; returns for how long the one who caused it is held up, as do the following."""
        if self.halted:
            return 0.0
        low, high = self.limits
        wanted = max(self._wanted, low)
        ceiling = self.ceiling if high is None else min(self.ceiling, self.clock.at_most(high))
        return self.clock.request(min(self.clock.at_least(wanted), ceiling))

    def lock(self, locked: bool) -> float:
        """Hold the present rate against every request, or serve requests again."""
        self.locked = locked
        return 0.0 if locked else self.serve()

    def set_rate(self, rate: int) -> float:
        """Set the rate to hold; without the lock nothing happens."""
        return self.clock.request(min(self.clock.at_least(rate), self.ceiling)) if self.locked else 0.0

    def set_cap(self, cap: int) -> float:
        self.cap = cap
        return 0.0 if self.locked else self.serve()

    def set_limits(self, low: int, high: int | None) -> float:
        self.limits = (low, high)
        return 0.0 if self.locked else self.serve()
