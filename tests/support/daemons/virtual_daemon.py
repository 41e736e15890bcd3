# SPDX-License-Identifier: Apache-2.0
"""What of the daemon decides, learns and sets clocks, in this process and in a time that passes only when it is waited for.

Its controller, its hardware layer, its monitor of other work and its learner are the real ones, put together as the resident
daemon does. Sockets, workers and threads are not part of it: what would take place on another thread takes place at once, and a
plan that is made again comes into force :data:`REPLANNED_S` later. Frames are the caller's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

from jetdvfs.daemon.config import Config
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.daemon.hardware.sensors.cooling import CoolingState
from jetdvfs.daemon.hardware.sensors.energy import RailEnergies
from jetdvfs.daemon.hardware.sensors.sampled import SampledSensors, TimedValue
from jetdvfs.daemon.hardware.sensors.sensors import Sensors, throttling_reasons
from jetdvfs.daemon.leases.board.service import BoardService
from jetdvfs.daemon.leases.board.slowdown import EventCounters
from jetdvfs.daemon.leases.controller import Controller
from jetdvfs.daemon.leases.demand import DemandMonitor
from jetdvfs.daemon.leases.demand_floors import FloorRules
from jetdvfs.daemon.leases.learning.learner import Learner
from jetdvfs.daemon.leases.learning.observation_store import ObservationStore, ProgramKey
from jetdvfs.daemon.leases.learning.progress import LeaseProgress
from jetdvfs.daemon.leases.learning.surface_corrector import SurfaceCorrector
from jetdvfs.daemon.leases.learning.unpredicted_program import UnpredictedProgram
from jetdvfs.daemon.leases.lease import Holder, Lease
from jetdvfs.daemon.planning.lease_plan import LeasePlan, Planner, PlanRequest, is_known
from jetdvfs.daemon.planning.plan import Planning
from jetdvfs.daemon.planning.thermal_state import warmth_of
from jetdvfs.kernels.surface import Surface
from jetdvfs.profiles.board import BoardDescription
from jetdvfs.profiles.twin.simulated_board import SimulatedBoard
from jetdvfs.tests.support.boards.hardware_kernel import FakeClock
from jetdvfs.tests.support.boards.twin_fakes import TreeFiles

REPLANNED_S = 0.08
"""From a missed target to the new clocks, as of the real daemon on a board whose files take a millisecond."""
_READ_S = 1.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in a clock's time, without other threads."""

    def __init__(self, clock: FakeClock) -> None:
        self._time = clock
        super().__init__()

    def time(self) -> float:
        return self._time.monotonic()

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


class ReadSensors:
    """A board's sensors, read once a second; ``drawn_mw`` is the power of its energy rails."""

    def __init__(
        self, files: TreeFiles, description: BoardDescription, clock: FakeClock, drawn_mw: Callable[[], float]
    ) -> None:
        self._sensors = Sensors(files, description)
        self.energy_rails = self._rails = description.energy_rails
        self._clock = clock
        self._drawn_mw = drawn_mw
        self.trips = self._sensors.trips
        self.notes: tuple[str, ...] = ()
        self._read_s = float("-inf")
        self._samples: dict[str, TimedValue[float]] = {}
        self._energy_mj = 0.0
        self._zones: Mapping[str, int] = {}
        self.sample()

    def sample(self) -> None:
        """Read what is due."""
        now_s = self._clock.monotonic()
        if now_s - self._read_s < _READ_S:
            return
        drawn_mw = self._drawn_mw()
        if self._samples:
            self._energy_mj += drawn_mw * (now_s - self._read_s)
        self._read_s = now_s
        self._samples = {rail: TimedValue(drawn_mw / len(self._rails), now_s) for rail in self._rails}
        self._zones = self._sensors.temperatures_mc()

    def want(self) -> None:
        pass

    def rails_mw(self) -> dict[str, float]:
        return {name: sample.value for name, sample in self._samples.items()}

    def rails_sampled(self) -> Mapping[str, TimedValue[float]]:
        return self._samples

    def energy_mj(self) -> dict[str, float]:
        return dict.fromkeys(self._rails, self._energy_mj / len(self._rails))

    def metered(self, since_s: float) -> tuple[RailEnergies, RailEnergies] | None:
        return None

    def temperatures_mc(self) -> Mapping[str, int]:
        return self._zones

    def throttled(self, *, now: bool = False) -> tuple[str, ...]:
        return throttling_reasons(self.trips, self._zones, self.cooling())

    def cooling(self) -> tuple[CoolingState, ...]:
        return self._sensors.cooling()

    def over_current(self) -> Mapping[str, int]:
        return self._sensors.over_current()


class VirtualBoardService(BoardService):
    """Acts at once, and replans after a while."""

    async def replan(self, lease: Lease, planner: Planner, reason: str, *, asked: bool = False) -> Lease | None:
        await asyncio.sleep(REPLANNED_S)
        try:
            return self._controller.replan(lease, planner, reason, asked=asked)
        finally:
            self._publish()

    def granted(self, holder: Holder, need: LeasePlan, reason: str) -> Lease:
        try:
            return self._controller.hold(holder, need, reason)[0]
        finally:
            self._publish()

    def ended(self, lease: Lease) -> None:
        self._controller.release(lease)
        self._publish()

    def tend(self) -> None:
        self._tend()
        self._publish()


class VirtualDaemon:
    """One daemon on one board.

    Args:
        board: whose clock is ``clock``.
        folder: for its baseline and what it learns.
        drawn_mw: what the board's energy rails draw at this moment.
    """

    def __init__(self, board: SimulatedBoard, clock: FakeClock, folder: Path, drawn_mw: Callable[[], float]) -> None:
        self.board, self.clock = board, clock
        self.files = files = TreeFiles(board)
        sensing: list[ReadSensors] = []

        def read(description: BoardDescription) -> ReadSensors:
            sensing.append(ReadSensors(files, description, clock, drawn_mw))
            return sensing[0]

        self.hardware = hardware = Hardware.probe(files, clock, baseline=folder / "baseline", sensing=read)
        demands = DemandMonitor(files, hardware.description, clock.monotonic, hardware, FloorRules())
        self.controller = Controller(hardware, Config(), clock.monotonic, demands)
        events = EventCounters(hardware.sensors.over_current, clock.monotonic)
        self.board_service = VirtualBoardService(hardware, self.controller, events, deque(maxlen=1), lambda: 0)
        (self.sensors,) = sensing
        sensors = cast(SampledSensors, self.sensors)
        self.memory = ObservationStore(folder / "learned.json", clock.monotonic)
        self._warmth = warmth = partial(warmth_of, sensors, hardware.description)
        self.learner = Learner(self.board_service, sensors, self.memory, warmth, clock.monotonic)
        self.empty()
        self._loop = VirtualLoop(clock)
        self._tended_s = clock.monotonic()

    def empty(self) -> None:
        """Forget recent surfaces and plans."""
        self._corrections, self._plans = SurfaceCorrector(self.memory, self._warmth), Planning()

    def run(self, what: Any) -> Any:
        """Run a coroutine until it ends."""
        asyncio.set_event_loop(self._loop)
        return self._loop.run_until_complete(what)

    def close(self) -> None:
        """End what still waits."""
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                self._loop.run_until_complete(task)
        self._loop.close()

    async def hold(
        self, holder: Holder, surface: Surface, target: str, fps: float | None, confidence: float | None = None, key: str = ""
    ) -> Lease:
        """Grant a lease for a target.

        Args:
            surface: as predicted; the flat one where nothing is.
            key: what it is remembered by.

        Raises:
            DaemonError: as of :meth:`Controller.hold`.
        """
        whose = ProgramKey(holder.uid, key)
        make = partial(self._corrections.make, surface, whose, fps)
        known = is_known(surface)
        request = PlanRequest(
            self._plans, make((), True) if known else surface, target, fps, confidence, key if known else "", simulated=True
        )
        remembered = self.memory.summary(whose) if known else None
        predicted = self._corrections.predicted(surface, fps) if remembered is not None else None
        progress = LeaseProgress(
            whose, request, make, original=surface if known else None, predicted=predicted, remembered=remembered
        )
        if not known:
            make = partial(self._corrections.make, surface, None, fps)
            progress = LeaseProgress(
                whose, request, make, unknown=UnpredictedProgram(request, self.memory.observations(whose)), exploring=True
            )
        lease = self.board_service.granted(holder, progress.beginning.plan(self.controller.limits()), "")
        self.learner.began(lease, progress)
        return lease

    def known(self, lease: Lease, surface: Surface, key: str, fps: float | None) -> Surface:
        """What is known of a lease that runs alone; arguments as of :meth:`hold`."""
        seen = lease.frames.observations(self.clock.now, frozenset())
        return self._corrections.make(surface, ProgramKey(lease.holder.uid, key), fps, seen, cautious=False)

    async def release(self, lease: Lease) -> None:
        self.board_service.ended(lease)
        self.learner.ended()

    async def report(self, lease: Lease, took_ms: float) -> None:
        """Report a frame of a lease that has just ended."""
        held = self.board_service.snapshot.leases.get(lease.id)
        if held is not None:
            self.learner.report(held, [took_ms])
            await self._settle()

    async def until(self, moment_s: float) -> None:
        """Let time pass, and tend the board."""
        while (due_s := self._tended_s + self.controller.tend_in_s) <= moment_s:
            self.clock.now = max(self.clock.now, due_s)
            self._tended_s = self.clock.now
            self.sensors.sample()
            self.board_service.tend()
            self.files.written.clear()
            await self._settle()
        self.clock.now = max(self.clock.now, moment_s)
        self.sensors.sample()
        await self._settle()

    async def _settle(self) -> None:
        """Run what is due."""
        for _ in range(4 if len(asyncio.all_tasks()) > 2 else 1):
            await asyncio.sleep(0)
