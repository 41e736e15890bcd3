# SPDX-License-Identifier: Apache-2.0
"""A simulated board: clocks, governors, work, power and heat around one chip, moving in the time of an injected clock.

Nothing runs in the background. Whoever looks at the board or touches it first lets it catch up with the present, event by
event (a frame done, a clock settled, a governor's tick), so that its own time is exact however busy the host is.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ...kernels.grid import FrequencyConfiguration
from ...kernels.network import Network
from ..board import BoardDescription, load_board
from .bpmp import BpmpEmc
from .cpufreq import Cores, CpuPolicy
from .devfreq import GpuDevfreq
from .domain import ClockDomain, Transition
from .execution import execute
from .faults import Faults
from .hwmon import Fan, PowerMonitorFiles
from .identity import Identity
from .power import Ina3221, RailLedger
from .silicon import Silicon
from .silicon_chip import RAILS
from .thermal import ThermalModel, Zone
from .timing import Clock, SystemClock
from .tools.files import ToolFiles, boot_mode
from .tree import Link, Provider, Tree
from .work import BoardSilicon, Costs, Execute, FrameCost, Stream, WorkQueue

_LONGEST_STEP_S = 1.0
_WAIT_S = 0.01
_BACKGROUND_LOAD = 0.01


@dataclass
class Tick:
    """A governor's timer, and how busy its unit has been since it last went off."""

    period_s: float
    act: Callable[[float], bool]
    next_at: float
    since: float = 0.0
    busy_s: float = 0.0

    def fire(self, now: float) -> bool:
        elapsed = max(now - self.since, 1e-9)
        load, self.busy_s, self.since = min(self.busy_s / elapsed, 1.0), 0.0, now
        return self.act(load)


class TwinBoard:
    """One simulated board, as it is after booting.

    Args:
        description: which board.
        silicon: which chip.
        clock: the time it lives in.
        execute: what a frame costs on that chip.

    Attributes:
        tree: its files.
        faults: what goes wrong on it.
        tools: its nvpmodel and jetson_clocks.
    """

    def __init__(
        self,
        description: BoardDescription,
        silicon: BoardSilicon,
        clock: Clock,
        execute: Execute = execute,
    ) -> None:
        twin, cpu, gpu, emc = (description.section(name) for name in ("twin", "cpu", "gpu", "emc"))
        grid = description.grid
        self.description = description
        self.clock = clock
        self.faults = Faults()
        self.now = clock.now()
        self._lock = threading.RLock()
        random = np.random.default_rng([0x194, silicon.node])
        self._costs = Costs(silicon, execute)
        self._work = WorkQueue(random)

        def domain(name: str, rates: tuple[int, ...], rate: int) -> ClockDomain:
            transition = Transition.of(twin["transitions"][name])
            return ClockDomain(name, rates, rate, transition, lambda: self.now, random, self.faults)

        cores = Cores(description.cores, cpu["idle_states"])
        boot = (int(cpu["boot"]["min_khz"]), int(cpu["boot"]["max_khz"]))
        self.policies = tuple(
            CpuPolicy(
                policy.name,
                policy.cpus,
                domain("cpu", grid.cpu_khz, boot[0]),
                cores,
                cpu["governors"],
                str(cpu["governor"]),
                boot,
            )
            for policy in description.cpu_policies
        )
        self.gpu = GpuDevfreq(domain("gpu", grid.gpu_hz, grid.gpu_hz[0]), gpu, boot_mode(description).masks)
        self.emc = BpmpEmc(
            domain("emc", grid.emc_hz, grid.emc_hz[0]),
            emc,
            sorted(((int(khz), int(hz)) for khz, hz in cpu["emc_floors"]), reverse=True),
            float(twin["bpmp_read_ms"]) / 1e3,
        )
        self._clocks = (*(policy.clock for policy in self.policies), self.gpu.clock, self.emc.clock)
        self._ticks = (
            Tick(0.010, self._tick_cpu, math.inf, self.now),
            Tick(0.025, self._tick_gpu, math.inf, self.now),
        )
        thermal = twin["thermal"]
        self._fan = Fan(str(description.section("fan")["hwmon"]), int(thermal["fan_pwm"]))
        trips = description.section("thermal")["trips_mc"]
        zones = [
            Zone(name, tuple(trips.get(name, ())), **thermal["zones"][name]) for name in description.section("thermal")["zones"]
        ]
        idle = self._costs.idle_w(self.configuration, float(thermal["ambient_c"]))
        self.thermal = ThermalModel(thermal, zones, RAILS, idle, self._fan.pwm)
        self.rails = RailLedger(RAILS, self.now)
        self.tools = ToolFiles(description, self.faults, lambda: self.gpu.load > 0)
        self.tree = self._build_tree(cores, random, silicon.node)
        self._kick()

    def _build_tree(self, cores: Cores, random: np.random.Generator, node: int) -> Tree:
        description, rails = self.description, self.description.section("rails")
        tree = Tree(self.present, self.clock, self.faults)
        identity = Identity(description, f"{1421100000000 + node}")
        providers: list[Provider] = [cores, *self.policies, self.gpu, self.emc, self.thermal, self._fan, identity, self.tools]
        for provider in providers:
            tree.add(provider)
        for monitor in description.monitors:
            sensor = Ina3221(monitor.channels, monitor.shunt_uohm, int(rails["bus_mv"]), self.rails, random, self.faults)
            bus, driver = str(rails["bus"]), str(rails["driver"])
            tree.add(PowerMonitorFiles(sensor, bus, monitor.address, monitor.hwmon, driver, lambda: self.now))
        for path in description.section("gpu")["links"]:
            tree.put(path, Link(description.section("gpu")["device"]))
        tree.restrict(self.emc.private_directory, 0o700)
        return tree

    @property
    def configuration(self) -> FrequencyConfiguration:
        """The clocks the hardware runs at."""
        return FrequencyConfiguration(self._cpu_khz, self.gpu.clock.actual, self.emc.clock.actual)

    @property
    def requested(self) -> FrequencyConfiguration:
        """The clocks last asked for."""
        cpu = max(policy.clock.requested for policy in self.policies)
        return FrequencyConfiguration(cpu, self.gpu.clock.requested, self.emc.clock.requested)

    @property
    def _cpu_khz(self) -> int:
        return max(policy.clock.actual for policy in self.policies)

    @property
    def watts(self) -> tuple[float, ...]:
        """What each rail draws now."""
        running = self._work.running
        if running is None:
            return self._costs.idle_w(self.configuration, self.thermal.hottest_c)
        return self._cost(running.stream).watts

    @contextmanager
    def present(self) -> Iterator[None]:
        """The board, caught up with the present and standing still; what was touched meanwhile takes its course afterwards."""
        with self._lock:
            self._advance(self.clock.now())
            yield
            self._follow()
            self._kick()

    def run(
        self,
        network: Network,
        *,
        fps: float | None = None,
        frames: int | None = 1,
        seconds: float = 0.0,
        abandoned: Callable[[], bool] = lambda: False,
    ) -> Stream:
        """Run frames of a network, and return when they are done and the time is up.

        Args:
            fps: frames handed in per second; None hands in the next when one is done.
            frames: how many, or None for as many as fit into ``seconds``.
            abandoned: asked now and then; once it is true, the rest is given up.
        """
        with self.present():
            period = None if fps is None else 1.0 / fps
            # Frames that fit: a rate times a duration is a whole number up to rounding.
            count = frames if frames is not None or fps is None else max(int(seconds * fps + 1e-9), 1)
            stream = Stream(network, self.now, period, count, self.now + seconds)
            stream.opening_j = self.rails.joules
            self._work.add(stream)
        try:
            while True:
                with self.present():
                    if stream.done:
                        return stream
                    due = min(self._frame_due(), self._work.next_event(self.now))
                if abandoned():
                    return stream
                # Clocks may change meanwhile: look again soon, not only when it is due.
                self.clock.sleep(min(max(due - self.clock.now(), 0.0), _WAIT_S) + 2e-5)
        finally:
            with self._lock:
                self._work.cancel(stream)

    def _advance(self, until: float) -> None:
        while self.now < until:
            self._work.start(self.now, lambda stream: 1.0 - self._cost(stream).gpu_share)
            frame_due = self._frame_due()
            events = (
                until,
                frame_due,
                self._work.next_event(self.now),
                self.now + _LONGEST_STEP_S,
                *(clock.due for clock in self._clocks),
                *(tick.next_at for tick in self._ticks),
            )
            # A transition that is due already (of a stuck clock) is no event to come.
            end = min(moment for moment in events if moment > self.now)
            if frame_due > self.now:
                self._pass(end)
            if frame_due <= self.now:
                self._work.finish(self.now)
            self._work.close(self.now, self.rails.joules)
            for clock in self._clocks:
                clock.settle()
            self._fire_ticks()

    def _pass(self, end: float) -> None:
        """Let time pass in which nothing changes."""
        seconds = end - self.now
        running = self._work.running
        if running is None:
            watts = self._costs.idle_w(self.configuration, self.thermal.hottest_c)
            host_share = gpu_share = 0.0
        else:
            cost = self._cost(running.stream)
            running.run(seconds, cost)
            watts, host_share, gpu_share = cost.watts, cost.host_share, cost.gpu_share
        self.rails.add(seconds, watts)
        self.thermal.step(seconds, watts, self._fan.pwm)
        cpu, gpu = self._ticks
        cpu.busy_s += seconds * max(host_share, _BACKGROUND_LOAD)
        gpu.busy_s += seconds * gpu_share
        self.now = end

    def _cost(self, stream: Stream) -> FrameCost:
        return self._costs.frame(stream, self.configuration, self.thermal.hottest_c)

    def _frame_due(self) -> float:
        running = self._work.running
        return math.inf if running is None else running.due(self.now, self._cost(running.stream))

    def _fire_ticks(self) -> None:
        for tick in self._ticks:
            if tick.next_at <= self.now:
                moved = tick.fire(self.now)
                # Where nothing runs and nothing moves, governors have nothing to do until somebody touches the board.
                tick.next_at = self.now + tick.period_s if moved or self._work.busy else math.inf

    def _kick(self) -> None:
        for tick in self._ticks:
            if math.isinf(tick.next_at):
                tick.next_at, tick.since, tick.busy_s = self.now + tick.period_s, self.now, 0.0

    def _tick_cpu(self, load: float) -> bool:
        moved = [policy.tick(load) for policy in self.policies]
        return self._follow() or any(moved)

    def _tick_gpu(self, load: float) -> bool:
        moved = self.gpu.tick(load)
        return self._follow() or moved

    def _follow(self) -> bool:
        """Let the memory clock follow what the others do."""
        cpu_khz = max(policy.clock.requested for policy in self.policies)
        share = self.gpu.load * self.gpu.clock.requested / self.gpu.clock.rates[-1]
        return self.emc.follow(cpu_khz, share)


def simulated_board(name: str, node: int = 0, clock: Clock | None = None) -> TwinBoard:
    """A described board around its simulated silicon.

    Args:
        node: which individual: each number is another chip of the same kind.

    Raises:
        BoardDescriptionError: the board is not described.
        TwinError: there is no silicon for it.
    """
    description = load_board(name)
    silicon = Silicon(node, str(description.section("twin")["silicon"]))
    return TwinBoard(description, silicon, clock or SystemClock())
