# SPDX-License-Identifier: Apache-2.0
"""The real daemon, as a process of its own, on a simulated board."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import TracebackType

from jetdvfs.daemon.errors import NoDaemon
from jetdvfs.daemon.wire.client import Client
from jetdvfs.daemon.wire.protocol import ADMIN_SOCKET_NAME
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.profiles.twin.serve import serve
from jetdvfs.profiles.twin.simulated_board import SimulatedBoard, simulated_board
from jetdvfs.tests.support.daemons.converted import provide

CPU = "sys/devices/system/cpu/cpufreq/policy0"
GPU = "sys/devices/17000000.gv11b/devfreq/17000000.gv11b"
EMC = "sys/kernel/debug/bpmp/debug/clk/emc"
LOW = FrequencyConfiguration(1190400, 675750000, 1600000000)
"""Clocks of the simulated AGX Xavier, of which GPU and memory are found at others."""
TESTS = Path(__file__).parents[2]
_START = "import sys\nfrom jetdvfs.daemon.service import main\nsys.exit(main())"
LONGEST_S = 30.0
"""What is waited for comes much sooner, but on a machine that is busy."""


@lru_cache
def require_own_code(pythonpath: str) -> None:
    """Ensure that a process started with this ``PYTHONPATH`` runs the code of the tree that these tests belong to.

    Raises:
        AssertionError: it runs that of another tree.
    """
    command = [sys.executable, "-c", "import jetdvfs; print(jetdvfs.__path__[0])"]
    env = {**os.environ, "PYTHONPATH": pythonpath}
    found = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, check=True).stdout.strip()
    tests = Path(found, "tests")
    if not tests.exists() or not tests.samefile(TESTS):
        raise AssertionError(f"{sys.executable} with PYTHONPATH={pythonpath!r} runs the code of {found}, not of {TESTS.parent}")


class BoardFiles:
    """A served board's files, and what somebody else does to them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, path: str) -> str:
        return (self.root / path).read_text().strip()

    def write(self, path: str, value: object) -> None:
        with (self.root / path).open("w") as file:
            file.write(str(value))

    def settings(self) -> dict[str, str]:
        """What may be set, as it stands."""
        files = [f"{CPU}/scaling_governor", f"{CPU}/scaling_min_freq", f"{CPU}/scaling_max_freq"]
        files += [f"{GPU}/governor", f"{GPU}/min_freq", f"{GPU}/max_freq", f"{EMC}/mrq_rate_locked"]
        return {path: self.read(path) for path in files}


class Board(BoardFiles):
    """A simulated board that this process serves. It must run none of the board's programs: see :mod:`.board_apart`."""

    def __init__(self, twin: SimulatedBoard, root: Path) -> None:
        super().__init__(root)
        self.twin = twin

    @property
    def clocks(self) -> FrequencyConfiguration:
        with self.twin.present():
            return self.twin.configuration


@contextmanager
def served_board(root: Path, backend: str, name: str = "agx-xavier") -> Iterator[Board]:
    twin = simulated_board(name)
    with serve(twin, root, backend):
        yield Board(twin, root)


class Daemon:
    """A ``jetdvfsd`` process.

    Args:
        converted: the tables of a shipped profile are there already, as after the first start.
        quickened: statements of Python that shorten its waits before it starts.
        through: a command that starts it in its own place.
    """

    def __init__(
        self,
        board: BoardFiles,
        folder: Path,
        *options: str,
        env: dict[str, str] | None = None,
        converted: bool = True,
        quickened: str = "",
        through: Sequence[str] = (),
    ) -> None:
        self.socket = folder / "run" / "jetdvfs.sock"
        self.admin = self.socket.with_name(ADMIN_SOCKET_NAME)
        self.state = folder / "state"
        self.runtime = folder / "runtime"
        self.baseline = self.runtime / "baseline"
        self.log = folder / "log"
        started = ["-c", f"{quickened}\n{_START}"] if quickened else ["-m", "jetdvfs.daemon.service"]
        self._command = [*through, sys.executable, *started, "--root", str(board.root), "--socket", str(self.socket)]
        self._command += ["--state-dir", str(self.state), "--runtime-dir", str(self.runtime), *options]
        self._env = {**os.environ, **(env or {})}
        require_own_code(self._env.get("PYTHONPATH", ""))
        if converted and "--state-dir" not in options:
            provide(options[options.index("--profile") + 1] if "--profile" in options else _shipped(board), self.state)
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stderr=log, stdout=log, env=self._env, cwd="/")

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End the process, in order unless the test has failed already."""
        if kind is not None:
            self.kill()
        elif (code := self.stop()) != 0:
            raise AssertionError(f"jetdvfsd ended with {code}: {self.log.read_text()}")

    def client(self, *, within_s: float = LONGEST_S) -> Client:
        """A connection, once it answers."""
        deadline = time.monotonic() + within_s
        while True:
            try:
                return Client(self.socket)
            except NoDaemon:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"no daemon: {self.log.read_text()}") from None
                time.sleep(0.02)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def handles_terminate(self) -> bool:
        """True once Python has started and the process handles SIGTERM; until then the kernel ends it."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        handled = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
        return bool(int(handled, 16) & 1 << signal.SIGTERM - 1)

    def stop(self) -> int:
        """Ask it to end, as soon as it handles that, and return its exit code."""
        deadline = time.monotonic() + LONGEST_S
        while self.process.poll() is None and not self.handles_terminate() and time.monotonic() < deadline:
            time.sleep(0.02)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LONGEST_S)


def _shipped(board: BoardFiles) -> str:
    """The shipped profile that a daemon on a board predicts with by itself; empty if the board is served elsewhere."""
    return f"{board.twin.description.name}-sim" if isinstance(board, Board) else ""


@contextmanager
def asked_meanwhile(daemon: Daemon, every_s: float) -> Iterator[list[float]]:
    """How long each status took that another client asked for meanwhile, in seconds."""
    took: list[float] = []
    over = threading.Event()

    def ask() -> None:
        with daemon.client() as client:
            while not over.wait(every_s):
                started = time.monotonic()
                client.status()
                took.append(time.monotonic() - started)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield took
    finally:
        over.set()
        thread.join()


def eventually(condition: object, within_s: float = LONGEST_S) -> bool:
    """Whether a condition comes to hold."""
    assert callable(condition)
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
