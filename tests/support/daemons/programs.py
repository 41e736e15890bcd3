# SPDX-License-Identifier: Apache-2.0
"""Programs whose frames take and draw what a surface says of the clocks of a simulated board, several at a time."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct, field

from jetdvfs.daemon.leases.lease import Holder, Lease
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.kernels.surface import Surface
from jetdvfs.kernels.units import AXES
from jetdvfs.profiles.twin.simulated_board import SimulatedBoard
from jetdvfs.tests.support.boards.hardware_kernel import FakeClock
from jetdvfs.tests.support.daemons.virtual_daemon import VirtualDaemon

_COOLS_S = 60.0
"""For how long after heat nobody is blamed for late frames: clocks come back step by step."""


class Program(Struct, frozen=True, eq=False):
    """What is asked for, and what is true.

    Attributes:
        predicted: what the daemon is told; the flat surface where nothing is predicted.
        true: what its frames take and draw.
    """

    name: str
    predicted: Surface
    true: Surface
    fps: float


class Running(Struct, eq=False):
    """A program that holds a lease.

    Attributes:
        heavier: how many times as long as usual its frames take.
        late: whether each frame was late, that some configuration could have kept in time.
        tried: the clocks at which frames ran, in order, each once in a row.
    """

    program: Program
    lease: Lease
    limit_ms: float
    heavier: float = 1.0
    busy_until_s: float = 0.0
    over: bool = False
    late_in_a_row: int = 0
    tried: list[FrequencyConfiguration] = field(default_factory=list)

    @property
    def period_s(self) -> float:
        return 1 / self.program.fps


class Programs:
    """Runs programs on a virtual daemon's board. A frame that begins while others run takes longer, as if they took turns.

    Attributes:
        frames: how many ended, and how many of them ``late``; ``excused`` of those where heat or others left no way.
        rows: how often late frames came in a row of so many, that some configuration could have kept in time.
    """

    def __init__(self, board: SimulatedBoard, clock: FakeClock, folder: Path, idle: Surface) -> None:
        self._board, self._idle = board, idle
        self._running: list[Running] = []
        self._due: list[tuple[float, int, Running, float | None, bool]] = []
        self._count = 0
        self._hot_s = -math.inf
        self.frames = self.late = self.excused = 0
        self.rows: Counter[int] = Counter()
        self.daemon = VirtualDaemon(board, clock, folder, self.drawn_mw)

    def drawn_mw(self) -> float:
        """What the energy rails draw."""
        place = nearest(self._idle, self._board.configuration)
        drawn = float(self._idle.idle_mw[place])
        for one in self._running:
            place = nearest(one.program.true, self._board.configuration)
            share = min(one.heavier * float(one.program.true.latency_ms[place]) / 1e3 / one.period_s, 1.0)
            drawn += share * max(float(one.program.true.power_mw[place] - one.program.true.idle_mw[place]), 0.0)
        return drawn

    @property
    def running(self) -> Sequence[Running]:
        return tuple(self._running)

    async def begin(self, program: Program, target: str, limit_ms: float, number: int) -> Running:
        """Have a program hold a lease and run.

        Raises:
            DaemonError: the daemon grants none.
        """
        holder = Holder(f"program {number}", 2000 + number, 1000, program.name)
        lease = await self.daemon.hold(holder, program.predicted, target, program.fps, key=program.name)
        one = Running(program, lease, limit_ms)
        self._running.append(one)
        self._later(self.daemon.clock.now, one, None, False)
        return one

    async def end(self, one: Running) -> None:
        one.over = True
        self._running.remove(one)
        self._close_row(one)
        await self.daemon.release(one.lease)

    async def until(self, moment_s: float) -> None:
        """Let time pass."""
        while self._due and self._due[0][0] <= moment_s:
            due_s, _, one, took_ms, excused = heapq.heappop(self._due)
            await self.daemon.until(due_s)
            if one.over:
                continue
            if took_ms is None:
                self._start(one)
            else:
                self._judge(one, took_ms, excused)
                await self.daemon.report(one.lease, took_ms)
        await self.daemon.until(moment_s)

    def _start(self, one: Running) -> None:
        now_s, clocks = self.daemon.clock.now, self._board.configuration
        if not one.tried or one.tried[-1] != clocks:
            one.tried.append(clocks)
        own_ms = self._own_ms(one, clocks)
        others = [other for other in self._running if other is not one]
        took_ms = own_ms + sum(min(own_ms, 1e3 * max(other.busy_until_s - now_s, 0.0)) for other in others)
        if self.daemon.sensors.throttled():
            self._hot_s = now_s
        top = self._board.configuration.__class__(*(max(one.program.true.grid.levels(axis)) for axis in AXES))
        fastest_ms = self._own_ms(one, top)
        at_best_ms = fastest_ms + sum(min(fastest_ms, self._own_ms(other, top)) for other in others)
        excused = at_best_ms > one.limit_ms or now_s - self._hot_s < _COOLS_S
        one.busy_until_s = now_s + took_ms / 1e3
        self._later(one.busy_until_s, one, took_ms, excused)
        self._later(max(now_s + one.period_s, one.busy_until_s), one, None, False)

    def _judge(self, one: Running, took_ms: float, excused: bool) -> None:
        self.frames += 1
        late = took_ms > one.limit_ms * (1 + 1e-9)
        self.late += late
        self.excused += late and excused
        if late and not excused:
            one.late_in_a_row += 1
        else:
            self._close_row(one)

    def _close_row(self, one: Running) -> None:
        if one.late_in_a_row:
            self.rows[one.late_in_a_row] += 1
        one.late_in_a_row = 0

    def _own_ms(self, one: Running, clocks: FrequencyConfiguration) -> float:
        return one.heavier * float(one.program.true.latency_ms[nearest(one.program.true, clocks)])

    def _later(self, moment_s: float, one: Running, took_ms: float | None, excused: bool) -> None:
        self._count += 1
        heapq.heappush(self._due, (moment_s, self._count, one, took_ms, excused))


def nearest(surface: Surface, clocks: FrequencyConfiguration) -> tuple[int, int, int]:
    """Where a surface has the clocks nearest to these."""
    levels = (np.array(surface.grid.levels(axis)) for axis in AXES)
    cpu, gpu, emc = (int(np.abs(one - level).argmin()) for one, level in zip(levels, clocks, strict=True))
    return cpu, gpu, emc
