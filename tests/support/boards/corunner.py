# SPDX-License-Identifier: Apache-2.0
"""Work with deadlines that runs beside the applications of a simulated board: a camera pipeline, a control loop.

Each beat has CPU cycles to spend on one core and bytes to move, both spread over the beat. It is missed where one of them is
not done by the next beat; what is left of it is dropped then, as cameras and controllers do. The core and the memory's
isochronous share are its own: neither waits for anybody but the clocks. Beats are counted in the board's own time, however
busy the host is.
"""

from __future__ import annotations

import math

from msgspec import Struct

from jetdvfs.profiles.twin.co_runners import BoardClocks, CoRunnerLoad

# The part of the peak bandwidth that the memory controller gives to isochronous clients while the GPU asks for all there is.
ISOCHRONOUS_SHARE = 0.4


class Beat(Struct, frozen=True):
    """What is to be done again and again.

    Attributes:
        period_s: from one beat to the next, by when its work must be done.
        cycles: of a core of ``policy``, by its cpufreq name.
        memory_bytes: moved to and from memory.
    """

    period_s: float
    policy: str
    cycles: float
    memory_bytes: float = 0.0


def control_loop(policy: str = "policy0") -> Beat:
    """A controller at 1 kHz that computes for 0.2 ms at 2.25 GHz."""
    return Beat(1e-3, policy, 0.45e6)


def camera(policy: str = "policy0") -> Beat:
    """Four 4K cameras at 30 frames per second through capture, image processor and encoder: 12 GB/s, and some CPU."""
    return Beat(1 / 30, policy, 9e6, 400e6)


class PeriodicWork:
    """One such work as a co-runner.

    Args:
        bytes_per_cycle: what the memory moves in a cycle of its clock at its peak.

    Attributes:
        beats: how many there have been; ``missed`` of them.
    """

    def __init__(self, beat: Beat, bytes_per_cycle: float) -> None:
        self.beats = 0
        self.missed = 0
        self._beat = beat
        self._bytes_per_cycle = bytes_per_cycle
        self._ends = -math.inf
        self._done = 0.0

    def load(self, now: float, clocks: BoardClocks) -> CoRunnerLoad:
        beat = self._beat
        wanted = beat.memory_bytes / beat.period_s
        asked_hz = wanted / (ISOCHRONOUS_SHARE * self._bytes_per_cycle)
        busy = min(self._computing_s(clocks) / beat.period_s, 1.0)
        cpu = {beat.policy: busy} if beat.policy in clocks.cpu_khz else {}
        return CoRunnerLoad(cpu, min(wanted, self._bandwidth(clocks)), asked_hz)

    def due(self, now: float, clocks: BoardClocks) -> float:
        """Never: its load is even over a beat, and where beats end is found out afterwards."""
        return math.inf

    def elapse(self, start: float, seconds: float, clocks: BoardClocks) -> None:
        needed, period, now, end = self._needed_s(clocks), self._beat.period_s, start, start + seconds
        if self._ends < start:
            self._ends, self._done = start + period, 0.0
        while self._ends <= end:
            self._count(1, self._done + (self._ends - now) / needed)
            now, self._done = self._ends, 0.0
            whole = int((end - now) / period)
            self._count(whole, period / needed)
            now += whole * period
            self._ends = now + period
        self._done += (end - now) / needed

    def _count(self, beats: int, done: float) -> None:
        self.beats += beats
        if done < 1.0 - 1e-9:
            self.missed += beats

    def _needed_s(self, clocks: BoardClocks) -> float:
        """How long a beat's work takes at these clocks."""
        moving = self._beat.memory_bytes / self._bandwidth(clocks)
        return max(self._computing_s(clocks), moving, 1e-9)

    def _computing_s(self, clocks: BoardClocks) -> float:
        khz = clocks.cpu_khz.get(self._beat.policy, 0)
        return self._beat.cycles / (1e3 * khz) if khz else math.inf

    def _bandwidth(self, clocks: BoardClocks) -> float:
        return ISOCHRONOUS_SHARE * self._bytes_per_cycle * clocks.emc_hz
