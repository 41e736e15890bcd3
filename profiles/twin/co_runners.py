# SPDX-License-Identifier: Apache-2.0
"""Co-runners of a board: total load, and next event."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

from ...kernels.grid import FrequencyConfiguration
from .frames import FrameCosts
from .tree.clocks.cpufreq import SimulatedCpuPolicy


class BoardClocks(Struct, frozen=True):
    """Hardware clocks: each online cpufreq policy's in kHz by name, the rest in Hz."""

    cpu_khz: Mapping[str, int]
    gpu_hz: int
    emc_hz: int


class CoRunnerLoad(Struct, frozen=True):
    """Present load of a co-runner.

    Attributes:
        cpu: busy cores by cpufreq policy (``{"policy0": 0.3}``: a third of one core).
        memory_bytes_s: used bandwidth.
        emc_hz: memory clock requested from the bandwidth manager.
    """

    cpu: Mapping[str, float] = field(default_factory=dict)
    memory_bytes_s: float = 0.0
    emc_hz: float = 0.0


class CoRunner(Protocol):
    """Work besides the applications. The board calls it with its time stopped; it must not call the board."""

    def load(self, now: float, clocks: BoardClocks) -> CoRunnerLoad:
        """Load until :meth:`due` or a change of a clock."""
        ...

    def due(self, now: float, clocks: BoardClocks) -> float:
        """Next moment of an event of its own; infinity: never."""
        ...

    def elapse(self, start: float, seconds: float, clocks: BoardClocks) -> None:
        """Let time pass at constant load and clocks; ``start + seconds`` is never past :meth:`due`."""
        ...


class CoRunners:
    """Co-runners, and their loads since the board's last stop."""

    def __init__(self, clocks: Callable[[], BoardClocks]) -> None:
        self._clocks = clocks
        self._runners: list[CoRunner] = []
        self._loads: list[CoRunnerLoad] = []

    def __bool__(self) -> bool:
        return bool(self._runners)

    def join(self, runner: CoRunner) -> None:
        self._runners.append(runner)

    def leave(self, runner: CoRunner) -> None:
        self._runners = [other for other in self._runners if other is not runner]

    def advance(self, now: float) -> None:
        if self._runners or self._loads:
            clocks = self._clocks()
            self._loads = [runner.load(now, clocks) for runner in self._runners]

    def due(self, now: float) -> float:
        if not self._runners:
            return math.inf
        clocks = self._clocks()
        return min(runner.due(now, clocks) for runner in self._runners)

    def elapse(self, start: float, seconds: float) -> None:
        if self._runners:
            clocks = self._clocks()
            for runner in self._runners:
                runner.elapse(start, seconds, clocks)

    @property
    def busy_cores(self) -> Mapping[str, float]:
        busy: dict[str, float] = {}
        for load in self._loads:
            for policy, cores in load.cpu.items():
                busy[policy] = busy.get(policy, 0.0) + cores
        return busy

    @property
    def memory_bytes_s(self) -> float:
        return sum(load.memory_bytes_s for load in self._loads)

    @property
    def emc_hz(self) -> float:
        return max((load.emc_hz for load in self._loads), default=0.0)

    def draw(
        self, watts: tuple[float, ...], now: FrequencyConfiguration, policies: Sequence[SimulatedCpuPolicy], costs: FrameCosts
    ) -> tuple[float, ...]:
        busy = self.busy_cores
        parts = [(self.memory_bytes_s / 1e9, costs.traffic_w(now))] if self.memory_bytes_s else []
        for policy in policies:
            if cores := min(busy.get(policy.name, 0.0), len(policy.online)):
                parts.append((cores, costs.core_w(now._replace(cpu_khz=policy.clock.actual))))
        for factor, each in parts:
            watts = tuple(w + factor * more for w, more in zip(watts, each, strict=True))
        return watts
