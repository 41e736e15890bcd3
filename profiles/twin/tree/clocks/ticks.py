# SPDX-License-Identifier: Apache-2.0
"""Governor timers, and utilisation between their ticks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec import Struct

from .cpufreq import SimulatedCpuPolicy
from .devfreq import POLLING_MS, SimulatedGpu

_CPU_PERIOD_S = 0.010  # assumed: the kernel's governors look whenever the scheduler tells them to
BACKGROUND_LOAD = 0.01  # assumed: busy share of a core on an idle system


class _Tick(Struct):
    period_s: float
    act: Callable[[float], bool]
    next_at: float = math.inf
    since: float = 0.0
    busy_s: float = 0.0

    def fire(self, now: float) -> bool:
        elapsed = max(now - self.since, 1e-9)
        load, self.busy_s, self.since = min(self.busy_s / elapsed, 1.0), 0.0, now
        return self.act(load)


class GovernorTicks:
    """Governor timers of a board; ``follow`` moves the memory clock after a governor."""

    def __init__(self, policies: Sequence[SimulatedCpuPolicy], gpu: SimulatedGpu, follow: Callable[[], bool]) -> None:
        self._follow = follow
        self._cpu = {policy.name: _Tick(_CPU_PERIOD_S, partial(self._act, policy.tick)) for policy in policies}
        self._gpu = _Tick(POLLING_MS / 1e3, partial(self._act, gpu.tick))

    def _act(self, choose: Callable[[float], bool], load: float) -> bool:
        moved = choose(load)
        return self._follow() or moved

    @property
    def _all(self) -> tuple[_Tick, ...]:
        return (*self._cpu.values(), self._gpu)

    @property
    def due(self) -> tuple[float, ...]:
        """Time of the next tick; infinity while all sleep."""
        return tuple(tick.next_at for tick in self._all)

    def count(self, seconds: float, busy_cores: Mapping[str, float], gpu_share: float) -> None:
        """Let time pass with busy cores by policy, and a busy share of the GPU."""
        for policy, tick in self._cpu.items():
            tick.busy_s += seconds * min(max(busy_cores.get(policy, 0.0), BACKGROUND_LOAD), 1.0)
        self._gpu.busy_s += seconds * gpu_share

    def fire(self, now: float, *, active: bool) -> None:
        """Run due governors; if nothing is ``active``, timers then sleep."""
        for tick in self._all:
            if tick.next_at <= now:
                moved = tick.fire(now)
                tick.next_at = now + tick.period_s if moved or active else math.inf

    def wake(self, now: float) -> None:
        for tick in self._all:
            if math.isinf(tick.next_at):
                tick.next_at, tick.since, tick.busy_s = now + tick.period_s, now, 0.0
