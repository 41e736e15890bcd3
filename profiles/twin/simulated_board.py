# SPDX-License-Identifier: Apache-2.0
"""Simulated board: clocks, governors, work, power and heat around one chip, in the time of an injected clock.

Every access first advances the board to the present, event by event, so its time is exact.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from ...kernels.grid import FrequencyConfiguration
from ...kernels.network import Network
from ..board import BoardDescription, load_board
from ..errors import TwinError
from ..timing import Clock, SystemClock
from .co_runners import BoardClocks, CoRunner, CoRunners
from .faults import Faults
from .frames import BoardSilicon, Execute, FrameCost, FrameCosts, FrameStream, RunningFrame, WorkQueue, blended, speeds
from .parts import BoardParts
from .silicon.silicon import Silicon, execute
from .tools.files import ToolFiles
from .tree.attributes import Link, Nodes, Tree
from .tree.clocks.cpufreq import SimulatedCpuPolicy
from .tree.clocks.ticks import BACKGROUND_LOAD, GovernorTicks
from .tree.identity import identity_files
from .tree.procfs import Processes, ProcessorTime
from .tree.sensors.battery import battery_files
from .tree.sensors.fan import fan_files
from .tree.sensors.monitors import RailLedger
from .variant import boot_mode, installed, mode_set, powered_sms

_LONGEST_STEP_S = 1.0
_WAIT_S = 0.01


class SimulatedBoard:
    """One simulated board after booting.

    Args:
        description: of the installed board (:mod:`.variant`).
        execute: cost of a frame on that chip.
        mode: power mode at boot; by default that of the ``twin`` section.
        desktop: True if a desktop has used the GPU since boot; else its clock's files are missing.
        battery_wh: charge of its battery in watt hours; None on the mains.

    Attributes:
        off: True once heat has switched it off.
        tree: its files.
        tools: its nvpmodel and jetson_clocks.
    """

    def __init__(
        self,
        description: BoardDescription,
        silicon: BoardSilicon,
        clock: Clock,
        execute: Execute = execute,
        *,
        mode: str = "",
        desktop: bool = True,
        battery_wh: float | None = None,
    ) -> None:
        self.description = description
        self.clock = clock
        self.faults = Faults()
        self.now = clock.monotonic()
        self.off = False
        self._lock = threading.RLock()
        random = np.random.default_rng([int(description.soc.removeprefix("tegra"), 16), silicon.node])
        self._costs = FrameCosts(silicon, execute)
        self._work = WorkQueue(random)
        self._company = CoRunners(lambda: self.clocks)
        self.processes = Processes()
        modes = mode_set(description)
        booted = boot_mode(description, modes, mode)
        shop = BoardParts(description, booted, desktop, lambda: self.now, random, self.faults)
        cores = shop.cores()
        self.policies = shop.policies(cores)
        self.gpu = shop.gpu()
        self.emc = shop.memory()
        self._others = tuple(shop.other_devices(self.gpu.gate))
        self._clocks = (
            *(policy.clock for policy in self.policies),
            self.gpu.clock,
            self.emc.clock,
            *(device.clock for device in self._others),
        )
        self._governors = GovernorTicks(self.policies, self.gpu, self._follow)
        self._fan = shop.fan()
        idle = self._costs.idle_w(self.configuration, shop.ambient_c, self._clusters)
        self.thermal = shop.thermal(silicon.rails, idle, self._fan, self.gpu)
        over_current = shop.over_current(self.gpu, silicon.node)
        self._slowdown = shop.slowdown(self.policies, self.gpu, self.thermal, over_current, self._fan)
        self._processors = ProcessorTime(cores, self.policies, pressure=not shop.legacy)
        self.rails = RailLedger(silicon.rails, self.now)
        self.tools = ToolFiles(description, modes, booted, self.faults, lambda: self.gpu.load > 0)
        self.tree = self._build_tree(
            *(cores.nodes(), self.gpu.nodes(), self.thermal.nodes(), self.tools.nodes(), self._processors.nodes()),
            *(policy.nodes() for policy in self.policies),
            *(device.nodes() for device in self._others),
            *([over_current.nodes()] if over_current else []),
            shop.memory_files(self.emc),
            fan_files(self._fan, description.section("fan")),
            identity_files(description, f"{1421100000000 + silicon.node}"),
            shop.monitors(self.rails),
            *([] if battery_wh is None else [self._battery(battery_wh)]),
        )
        self._governors.wake(self.now)

    def _battery(self, full_wh: float) -> Nodes:
        counted = [self.rails.rails.index(rail) for rail in self.description.total_rails]

        def total(figures: tuple[float, ...]) -> float:
            return sum(figures[index] for index in counted)

        began = self.now
        return battery_files(full_wh, lambda: total(self.rails.joules), lambda: self.now - began, lambda: total(self.watts))

    def _build_tree(self, *parts: Nodes) -> Tree:
        tree = Tree(self.present, self.clock, self.faults)
        for nodes in parts:
            tree.add(nodes)
        gpu = self.description.section("gpu")
        for path in gpu["links"]:
            tree.put(path, Link(gpu["device"]))
        tree.restrict("/sys/kernel/debug", 0o700)
        return tree

    @property
    def configuration(self) -> FrequencyConfiguration:
        """Hardware clocks; the CPU's is that of the applications' cluster."""
        return FrequencyConfiguration(self._home.clock.actual, self.gpu.clock.actual, self.emc.clock.actual)

    @property
    def requested(self) -> FrequencyConfiguration:
        return FrequencyConfiguration(self._home.clock.requested, self.gpu.clock.requested, self.emc.clock.requested)

    @property
    def _home(self) -> SimulatedCpuPolicy:
        # The core that boots the board cannot go offline, so that its cluster is always there.
        return self.policies[0]

    @property
    def _clusters(self) -> tuple[int, ...]:
        """Clock of each cluster in kHz, 0 without a core online; empty if all are equal."""
        clocks = tuple(policy.clock.actual if policy.online else 0 for policy in self.policies)
        return () if all(khz == clocks[0] for khz in clocks) else clocks

    @property
    def clocks(self) -> BoardClocks:
        cpu = {policy.name: policy.clock.actual for policy in self.policies if policy.online}
        return BoardClocks(cpu, self.gpu.clock.actual, self.emc.clock.actual)

    @property
    def watts(self) -> tuple[float, ...]:
        return self._draw(self._together())

    def _draw(self, cost: FrameCost | None) -> tuple[float, ...]:
        if self.off:
            return (0.0,) * len(self.rails.rails)
        clusters, now = self._clusters, self.configuration
        watts = self._costs.idle_w(now, self.thermal.hottest_c, clusters) if cost is None else cost.watts
        if cost is not None and clusters:
            apart = self._costs.idle_w(now, self.thermal.hottest_c, clusters)
            alike = self._costs.idle_w(now, self.thermal.hottest_c)
            watts = tuple(w + one - other for w, one, other in zip(watts, apart, alike, strict=True))
        return self._company.draw(watts, now, self.policies, self._costs) if self._company else watts

    def attach(self, runner: CoRunner) -> None:
        with self.present():
            self._company.join(runner)

    def detach(self, runner: CoRunner) -> None:
        with self.present():
            self._company.leave(runner)

    @contextmanager
    def present(self) -> Iterator[None]:
        """Context at the present moment, in which the board's time stops."""
        with self._lock:
            self._advance(self.clock.monotonic())
            yield
            self._follow()
            self._governors.wake(self.now)

    def infer(
        self,
        network: Network,
        *,
        fps: float | None = None,
        frames: int | None = 1,
        seconds: float = 0.0,
        abandoned: Callable[[], bool] = lambda: False,
        pid: int = 0,
    ) -> FrameStream:
        """Run frames of a network until they are done and the time is up.

        Args:
            fps: frames per second; None runs back to back.
            frames: their number; None for as many as fit into ``seconds``.
            abandoned: polled; True gives up the rest.
            pid: a live process that the CPU works for.

        Raises:
            TwinError: the board is off, or a kind is unknown.
        """
        with self.present():
            period = None if fps is None else 1.0 / fps
            # Frames that fit: a rate times a duration is a whole number up to rounding.
            count = frames if frames is not None or fps is None else max(int(seconds * fps + 1e-9), 1)
            stream = FrameStream(network, self.now, period, count, self.now + seconds, pid=pid)
            stream.opening_j = self.rails.joules
            self._cost(stream)  # refused here, where it is asked for, and not whenever the board is next looked at
            self._work.add(stream)
        try:
            while True:
                with self.present():
                    if stream.done:
                        return stream
                    if self.off:
                        raise TwinError("the simulated board has switched itself off: it became too hot")
                    due = min(self._frame_due(), self._work.next_event(self.now))
                if abandoned():
                    return stream
                # Clocks may change meanwhile: look again soon, not only when it is due.
                self.clock.sleep(min(max(due - self.clock.monotonic(), 0.0), _WAIT_S) + 2e-5)
        finally:
            with self._lock:
                self._work.cancel(stream)

    def busy_ms(self, network: Network) -> tuple[float, float]:
        """Busy time of GPU and host in one frame at the present clocks. Raises TwinError."""
        with self.present():
            cost = self._cost(FrameStream(network, self.now))
            return 1e3 * cost.latency_s * cost.gpu_share, 1e3 * cost.latency_s * cost.host_share

    def _advance(self, until: float) -> None:
        while self.now < until and not self.off:
            self._work.start(self.now, lambda stream: 1.0 - self._cost(stream).gpu_share)
            self._company.advance(self.now)
            frame_due = self._frame_due()
            events = (
                until,
                frame_due,
                self._work.next_event(self.now),
                self._company.due(self.now),
                self.now + _LONGEST_STEP_S,
                *self._slowdown.due,
                *(clock.due for clock in self._clocks),
                *self._governors.due,
            )
            # A transition that is due already, of a stuck clock, is not an event that is still to come.
            end = min(moment for moment in events if moment > self.now)
            if frame_due > self.now:
                self._elapse(end)
            if frame_due <= self.now:
                running = self._running()
                self._work.finish(self.now, [one for one, cost, speed in running if one.due(self.now, cost, speed) <= self.now])
            self._work.close(self.now, self.rails.joules)
            for clock in self._clocks:
                clock.settle()
            self._governors.fire(self.now, active=self._work.busy or bool(self._company))
            if self._slowdown.act(self.now):
                self.off = True
                self.faults.vanish("")
        self.now = until

    def _elapse(self, end: float) -> None:
        seconds = end - self.now
        running, cost = self._running(), self._together()
        watts = self._draw(cost)
        host_share = gpu_share = 0.0
        if cost is not None:
            host_share, gpu_share = cost.host_share, cost.gpu_share
        for frame, own, speed in running:
            frame.advance(seconds, own, speed)
            self.processes.add(frame.stream.pid, seconds * speed * own.host_share)
        self._company.elapse(self.now, seconds)
        self.emc.count(seconds, 0.0 if cost is None else cost.dram_bytes_s)
        self.rails.add(seconds, watts)
        self.thermal.step(seconds, watts, self._fan.pwm)
        busy = dict(self._company.busy_cores)
        busy[self._home.name] = busy.get(self._home.name, 0.0) + max(host_share, BACKGROUND_LOAD)
        self._processors.add(seconds, busy)
        self._governors.count(seconds, busy, gpu_share)
        if gpu_share:
            self.gpu.gate.work(end)
        self.now = end

    def _cost(self, stream: FrameStream) -> FrameCost:
        return self._costs.frame(stream, self.configuration, self.thermal.hottest_c)

    def _frame_due(self) -> float:
        return min((frame.due(self.now, cost, speed) for frame, cost, speed in self._running()), default=math.inf)

    def _running(self) -> list[tuple[RunningFrame, FrameCost, float]]:
        costs = [self._cost(frame.stream) for frame in self._work.running]
        at = speeds([cost.gpu_share for cost in costs]) if len(costs) > 1 else [1.0] * len(costs)
        return list(zip(self._work.running, costs, at, strict=True))

    def _together(self) -> FrameCost | None:
        running = self._running()
        if not running:
            return None
        idle_w = self._costs.idle_w(self.configuration, self.thermal.hottest_c)
        return blended([cost for _, cost, _ in running], [speed for _, _, speed in running], idle_w)

    def _follow(self) -> bool:
        cpu_khz = max(policy.clock.requested for policy in self.policies if policy.online)
        share = self.gpu.load * self.gpu.clock.requested / self.gpu.clock.rates[-1]
        return self.emc.follow(cpu_khz, share, self._company.memory_bytes_s, self._company.emc_hz)


def simulated_board(
    name: str | BoardDescription,
    node: int = 0,
    clock: Clock | None = None,
    *,
    jetpack: str = "",
    firmware: str = "",
    mode: str = "",
    desktop: bool = True,
    perturbed: int = 0,
    engine: str = "",
    dtype: str = "",
    battery_wh: float | None = None,
) -> SimulatedBoard:
    """A described board around its simulated silicon.

    Args:
        jetpack: its JetPack (``"5"``); by default the description's.
        firmware: its firmware; by default that of the description's axes.
        mode, desktop, battery_wh: as for :class:`SimulatedBoard`.
        node, perturbed, engine, dtype: as for :class:`~jetdvfs.profiles.twin.silicon.silicon.Silicon`.

    Raises BoardDescriptionError, or TwinError for an unknown variant.
    """
    description = installed(load_board(name) if isinstance(name, str) else name, jetpack, firmware)
    silicon = Silicon(node, description, perturbed=perturbed, engine=engine, dtype=dtype)
    powered = powered_sms(description, mode)
    if 0 < powered < silicon.chip.sm_count:
        silicon = Silicon(node, description, chip=silicon.chip.gated(powered), engine=engine, dtype=dtype)
    return SimulatedBoard(description, silicon, clock or SystemClock(), mode=mode, desktop=desktop, battery_wh=battery_wh)
