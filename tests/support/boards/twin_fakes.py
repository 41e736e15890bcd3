# SPDX-License-Identifier: Apache-2.0
"""A board around silicon of three lines, in a time that passes only when somebody waits."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from jetdvfs.daemon.hardware.files import Files
from jetdvfs.kernels.network import KernelInvocation, Network
from jetdvfs.profiles.board import BoardDescription, load_board
from jetdvfs.profiles.timing import Clock
from jetdvfs.profiles.twin.co_runners import BoardClocks, CoRunnerLoad
from jetdvfs.profiles.twin.silicon.chip import Clocks
from jetdvfs.profiles.twin.silicon.silicon import Execution
from jetdvfs.profiles.twin.simulated_board import SimulatedBoard
from jetdvfs.profiles.twin.variant import installed

CPU = "/sys/devices/system/cpu"
POLICY = f"{CPU}/cpufreq/policy0"
GPU = "/sys/devices/17000000.gv11b"
DEVFREQ = f"{GPU}/devfreq/17000000.gv11b"
EMC = "/sys/kernel/debug/bpmp/debug/clk/emc"
CAP = "/sys/kernel/nvpmodel_emc_cap/emc_iso_cap"
INA = "/sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon3"


class VirtualClock:
    """Time for a board and for whoever waits for it."""

    def __init__(self) -> None:
        self.time = 1000.0
        self._lock = threading.Lock()
        self._appointments: list[tuple[float, Callable[[], None]]] = []

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.time += seconds
            due = [action for moment, action in self._appointments if moment <= self.time]
            self._appointments = [item for item in self._appointments if item[0] > self.time]
        for action in due:
            action()

    def at(self, moment: float, action: Callable[[], None]) -> None:
        """Do something when somebody has waited until then."""
        self._appointments.append((moment, action))


@dataclass
class FakeSilicon:
    """1 W on every rail while idle, 3 W while working."""

    rails: tuple[str, ...]
    node: int = 0

    def idle_rails_w(self, clocks: Clocks, temperature_c: float = 45.0, cluster_hz: Any = None) -> dict[str, Any]:
        return {rail: np.ones(len(clocks)) for rail in self.rails}

    def other_rails_w(self, clocks: Clocks, *, cores: float = 0.0, dram_bytes_s: float = 0.0) -> dict[str, Any]:
        return {self.rails[0]: np.full(len(clocks), 0.5 * cores + 1e-11 * dram_bytes_s)}

    def sensed(self, rails: dict[str, Any]) -> dict[str, Any]:
        return rails


def execute(network: Network, silicon: Any, clocks: Clocks, temperature_c: float) -> Execution:
    """10 ms of GPU time at 1377 MHz, in inverse proportion to the GPU clock, at 20 GB/s."""
    seconds = 0.010 * 1377e6 / clocks.gpu_hz
    return Execution(seconds, dict.fromkeys(silicon.rails, 3.0 * seconds), 0.3 * seconds, seconds, 20e9 * seconds)


def fake_board(clock: Clock | None = None, name: str | BoardDescription = "agx-xavier", **how: Any) -> SimulatedBoard:
    """A board by its name or its description; ``how``: its JetPack, firmware, power mode and whether it has a desktop."""
    described = load_board(name) if isinstance(name, str) else name
    board = installed(described, how.pop("jetpack", ""), how.pop("firmware", ""))
    rails = tuple(dict.fromkeys(rail for monitor in board.monitors for rail in monitor.channels if rail != "NC"))
    return SimulatedBoard(board, FakeSilicon(rails), clock or VirtualClock(), execute, **how)


def small_network(name: str = "small") -> Network:
    relu = KernelInvocation("relu", "relu", ((1, 8, 8, 8),), (1, 8, 8, 8), "float32", {}, 512, 4096)
    return Network(name, (), (relu, relu))


class Shell:
    """Reads and writes a tree as a root shell would."""

    def __init__(self, board: SimulatedBoard) -> None:
        self.board = board

    def cat(self, path: str) -> str:
        return self.board.tree.read(self.board.tree.resolve(path)).decode().removesuffix("\n")

    def echo(self, value: object, path: str) -> None:
        self.board.tree.write(self.board.tree.resolve(path), f"{value}\n".encode())

    def pin_gpu(self, rate: int) -> None:
        self.echo("userspace", f"{DEVFREQ}/governor")
        self.echo(rate, f"{DEVFREQ}/userspace/set_freq")


class TreeFiles(Files):
    """A board's tree as the hardware layer sees it, without anything between them.

    Attributes:
        before: called before every write; may raise.
        written: every write that was taken, in order.
    """

    def __init__(self, board: SimulatedBoard) -> None:
        self.written: list[tuple[str, str]] = []
        super().__init__("/", lambda path, value: self.written.append((path, value)), clock=board.clock)
        self.tree = board.tree
        self.before: Callable[[str, str], None] = lambda path, value: None

    def exists(self, path: str) -> bool:
        try:
            return self.tree.exists(self.tree.resolve(path))
        except OSError:
            return False

    def list_names(self, path: str) -> tuple[str, ...]:
        try:
            names = self.tree.names(self.tree.resolve(path))
        except OSError:
            return ()
        return tuple(sorted(names, key=lambda name: (len(name), name)))

    def _read(self, path: str) -> bytes:
        return self.tree.read(self.tree.resolve(path))

    def _write(self, path: str, line: bytes) -> int:
        self.before(path, line.decode().removesuffix("\n"))
        self.tree.write(self.tree.resolve(path), line)
        return len(line)


@contextmanager
def refused(number: int) -> Iterator[None]:
    """What is done within must fail with this error number."""
    with pytest.raises(OSError) as caught:
        yield
    assert caught.value.errno == number


@dataclass
class Busy:
    """Something that keeps cores and memory busy all the time."""

    cpu: dict[str, float]
    memory_bytes_s: float = 0.0
    emc_hz: float = 0.0
    passed_s: list[float] = field(default_factory=list)

    def load(self, now: float, clocks: BoardClocks) -> CoRunnerLoad:
        return CoRunnerLoad(self.cpu, self.memory_bytes_s, self.emc_hz)

    def due(self, now: float, clocks: BoardClocks) -> float:
        return math.inf

    def elapse(self, start: float, seconds: float, clocks: BoardClocks) -> None:
        self.passed_s.append(seconds)


def shell(name: str, **how: Any) -> Shell:
    return Shell(fake_board(VirtualClock(), name, **how))


def sleep(board: Shell, seconds: float) -> None:
    board.board.clock.sleep(seconds)


def zone(board: Shell, name: str) -> str:
    """The directory of a thermal zone."""
    root = "/sys/class/thermal"
    return next(f"{root}/{one}" for one in board.board.tree.names(root) if board.cat(f"{root}/{one}/type") == name)
