# SPDX-License-Identifier: Apache-2.0
"""The co-runners of one board: what they take together, and when something next happens to one of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ....kernels.grid import FrequencyConfiguration
from ..tree.clocks.cpufreq import SimulatedCpuPolicy
from .frames import Costs


@dataclass(frozen=True)
class BoardClocks:
    """The clocks the hardware runs at: each cpufreq policy's in kHz by its name (only those with a core online), the others
    in Hz."""

    cpu_khz: Mapping[str, int]
    gpu_hz: int
    emc_hz: int


@dataclass(frozen=True)
class Load:
    """What a co-runner takes at some moment.

    Attributes:
        cpu: cores that it keeps busy, by cpufreq policy (``{"policy0": 0.3}``: a third of one core).
        memory_bytes_s: bandwidth that it uses.
        emc_hz: the memory clock that it asks the bandwidth manager for, as cameras and displays do.
    """

    cpu: Mapping[str, float] = field(default_factory=dict)
    memory_bytes_s: float = 0.0
    emc_hz: float = 0.0


class CoRunner(Protocol):
    """Something that runs beside the applications. The board calls it while it stands still; it must not call the board."""

    def load(self, now: float, clocks: BoardClocks) -> Load:
        """What it takes from now on, until :meth:`due` or a change of a clock."""
        ...

    def due(self, now: float, clocks: BoardClocks) -> float:
        """The first moment after now at which something happens to it by itself (a frame, a deadline); infinity: never."""
        ...

    def elapse(self, start: float, seconds: float, clocks: BoardClocks) -> None:
        """Time passes in which its load and the clocks stay as they are; ``start + seconds`` is never past :meth:`due`."""
        ...


class Company:
    """Co-runners, and their loads since the board last stood still.

    Args:
        clocks: the clocks that they feel now.
    """

    def __init__(self, clocks: Callable[[], BoardClocks]) -> None:
        self._clocks = clocks
        self._runners: list[CoRunner] = []
        self._loads: list[Load] = []

    def __bool__(self) -> bool:
        return bool(self._runners)

    def join(self, runner: CoRunner) -> None:
        self._runners.append(runner)

    def leave(self, runner: CoRunner) -> None:
        self._runners = [other for other in self._runners if other is not runner]

    def look(self, now: float) -> None:
        """Ask everybody for their load."""
        if self._runners or self._loads:
            clocks = self._clocks()
            self._loads = [runner.load(now, clocks) for runner in self._runners]

    def due(self, now: float) -> float:
        """When something next happens to one of them."""
        if not self._runners:
            return math.inf
        clocks = self._clocks()
        return min(runner.due(now, clocks) for runner in self._runners)

    def elapse(self, start: float, seconds: float) -> None:
        """Let time pass in which nothing changes."""
        if self._runners:
            clocks = self._clocks()
            for runner in self._runners:
                runner.elapse(start, seconds, clocks)

    @property
    def busy_cores(self) -> Mapping[str, float]:
        """Cores that they keep busy together, by cpufreq policy."""
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
        """The highest memory clock that one of them asks for."""
        return max((load.emc_hz for load in self._loads), default=0.0)

    def draw(
        self, watts: tuple[float, ...], now: FrequencyConfiguration, policies: Sequence[SimulatedCpuPolicy], costs: Costs
    ) -> tuple[float, ...]:
        """The rails' powers with what they draw added, at the board's present clocks."""
        busy = self.busy_cores
        parts = [(self.memory_bytes_s / 1e9, costs.traffic_w(now))] if self.memory_bytes_s else []
        for policy in policies:
            if cores := min(busy.get(policy.name, 0.0), len(policy.online)):
                parts.append((cores, costs.core_w(now._replace(cpu_khz=policy.clock.actual))))
        for factor, each in parts:
            watts = tuple(w + factor * more for w, more in zip(watts, each, strict=True))
        return watts
