# SPDX-License-Identifier: Apache-2.0
"""What is left behind by 10,000 leases, and by a day of them.

    python -m jetdvfs.tests.soak.endurance cycles 10000
    python -m jetdvfs.tests.soak.endurance day 24

The cycles are had with the real daemon, a process of its own, on a simulated AGX Xavier served by FUSE.

The day is virtual, and of the daemon only what decides and sets clocks: its controller, its hardware layer and its monitor of
other work's demand, in this process, on a simulated AGX Xavier without files in between, all of them on one clock that passes
only when it is waited for. The controller is called as the resident daemon calls it, twice in each virtual second; leases come
and go, a camera and a control loop run for some of the hours, the board is heated past its trips and cools. Sockets, workers
and process are not part of it.
"""

from __future__ import annotations

import argparse
import gc
import logging
import random
import shutil
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from pathlib import Path

from jetdvfs.daemon.config import Config
from jetdvfs.daemon.controller import Controller
from jetdvfs.daemon.errors import DaemonError
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.daemon.leases import Holder, Lease, Need
from jetdvfs.daemon.watch.demand import DemandMonitor
from jetdvfs.daemon.watch.floors import FloorRules
from jetdvfs.profiles.twin.simulated_board import SimulatedBoard, simulated_board
from jetdvfs.profiles.twin.work.corunner import PeriodicWork, camera, control_loop
from jetdvfs.tests.soak import boards, checks
from jetdvfs.tests.soak.boards import Boards
from jetdvfs.tests.soak.events import service
from jetdvfs.tests.soak.processes import Resources
from jetdvfs.tests.soak.stage import Places, Stage
from jetdvfs.tests.soak.wire import Wire
from jetdvfs.tests.soak.world import USUAL_BOARD, world
from jetdvfs.tests.support.boards.hardware_kernel import FakeClock
from jetdvfs.tests.support.boards.twin_fakes import TreeFiles

_TEND_S = 0.5
_SETTLED = 500
_LOG_BYTES = 500  # of a hold and its release: three lines
_BYTES_PER_CYCLE = 64.0
#: What may be more after the last cycle than after the first hundreds, when every cache has been filled.
MORE_KB, MORE_DESCRIPTORS, MORE_THREADS = 4096, 0, 0
#: What Python's own objects of the daemon's parts may take more after any hour of a day than after its first: each that logs
#: remembers the last 256 texts.
MORE_BYTES = 512 << 10


def cycles(number: int) -> list[str]:
    """Hold and release so often; what is not as it was."""
    folder = Path(tempfile.mkdtemp(prefix="cycles-"))
    folder.chmod(0o755)
    draw, on = random.Random(number), world(USUAL_BOARD)
    places = Places(folder)
    places.run.mkdir()
    places.config.write_text(service.BASIS)
    with Boards() as served:
        stage = Stage(served.new(USUAL_BOARD, "fuse", places.root), places, [], folder / "none")
        try:
            assert stage.up(), stage.log_text()
            wire = Wire(places.socket)
            began, settled, refused = time.monotonic(), Resources.of(stage.pid), 0
            for done in range(1, number + 1):
                reply = stage.judge(wire.call("Hold", {"configuration": on.configuration(draw)._asdict()}))
                if reply.error:
                    refused += 1
                else:
                    stage.judge(wire.call("Release", {"lease": reply.parameters["lease"]}))
                if done == min(_SETTLED, number // 2):
                    settled = Resources.of(stage.pid)
                if done % max(1, number // 10) == 0:
                    print(
                        f"{done:6} cycles, {1e3 * (time.monotonic() - began) / done:.1f} ms each: {Resources.of(stage.pid)}",
                        flush=True,
                    )
            wire.close()
            checks.check_given_back(stage, f"after {number} cycles")
            after = Resources.of(stage.pid)
            assert settled is not None and after is not None
            bounds = (MORE_DESCRIPTORS, MORE_THREADS, 0, MORE_KB)
            for name, more in zip(("descriptors", "threads", "children", "kilobytes"), bounds, strict=True):
                if getattr(after, name) > getattr(settled, name) + more:
                    stage.blame(f"{name} grew from {getattr(settled, name)} to {getattr(after, name)}")
            print(f"{number} cycles, {refused} of them refused; after {_SETTLED}: {settled}; in the end: {after}")
            stage.stop()
            checks.check_log(stage, _LOG_BYTES * number)
            return stage.troubles
        finally:
            stage.kill()
            shutil.rmtree(folder, ignore_errors=True)


class Day:
    """The parts of the daemon that decide, on a board in virtual time."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.board: SimulatedBoard = simulated_board(USUAL_BOARD, clock=self.clock)
        self._files = files = TreeFiles(self.board)
        self.hardware = Hardware.probe(files, self.clock, baseline=folder / "baseline")
        demands = DemandMonitor(files, self.hardware.description, self.clock.monotonic, self.hardware, FloorRules())
        self.controller = Controller(self.hardware, Config(), self.clock.monotonic, demands)
        self.found = self._settings()
        self.happened: Counter[str] = Counter()
        self._leases: list[Lease] = []
        self._runners = [PeriodicWork(beat(), _BYTES_PER_CYCLE) for beat in (camera, control_loop)]
        self._attached: set[int] = set()

    def pass_by(self, draw: random.Random, seconds: float) -> list[str]:
        """Let time pass, in which things happen; what was not as it must be."""
        broken: list[str] = []
        on, ends = world(USUAL_BOARD), self.clock.now + seconds
        while self.clock.now < ends:
            if draw.random() < 0.02:
                self._happen(draw, on.configuration(draw))
            self.controller.tend()
            self.clock.sleep(_TEND_S)
        self._quiet()
        for _ in range(240):
            self.controller.tend()
            self.clock.sleep(_TEND_S)
        self._files.written.clear()
        if (now := self._settings()) != self.found:
            broken += [f"{path} is {now[path]} instead of {value}" for path, value in self.found.items() if now[path] != value]
        if self.hardware.touched:
            broken.append("the baseline is still held")
        if self.controller.troubles:
            broken.append(f"troubles stand: {self.controller.troubles}")
        return broken

    def _happen(self, draw: random.Random, configuration: object) -> None:
        what = draw.choice(("hold", "hold", "release", "release", "heat", "cool", "company", "quiet", "connection"))
        try:
            if what == "hold" and len(self._leases) < 8:
                holder = Holder(draw.randrange(4), 1000 + draw.randrange(4), 1000, "soak")
                lease, _ = self.controller.hold(holder, Need(configuration), "a day")  # type: ignore[arg-type]
                self._leases.append(lease)
            elif what == "release" and self._leases:
                self.controller.release(self._leases.pop(draw.randrange(len(self._leases))))
            elif what == "connection":
                gone = draw.randrange(4)
                self.controller.drop(gone)
                self._leases = [lease for lease in self._leases if lease.holder.connection != gone]
            elif what in ("heat", "cool"):
                self.board.faults.fever_c = 45.0 if what == "heat" else 0.0
            elif what == "company":
                self._attach(draw.randrange(2))
            elif what == "quiet":
                self._detach()
            self.happened[what] += 1
        except DaemonError as error:
            self.happened[f"{what}: {type(error).__name__}"] += 1

    def _attach(self, number: int) -> None:
        if number not in self._attached:
            self.board.attach(self._runners[number])
            self._attached.add(number)

    def _detach(self) -> None:
        for number in self._attached:
            self.board.detach(self._runners[number])
        self._attached.clear()

    def _quiet(self) -> None:
        """Everybody goes."""
        self.board.faults.clear()
        self._detach()
        for connection in range(4):
            self.controller.drop(connection)
        self._leases.clear()

    def _settings(self) -> dict[str, str]:
        tree = self.board.tree
        names = ("governor", "min_freq", "max_freq", "mrq_rate_locked")
        return {path: tree.read(path).decode().strip() for path, node in tree.files() if node.write and path.endswith(names)}


def day(hours: int) -> list[str]:
    """Let a day pass; what is not as it was."""
    folder = Path(tempfile.mkdtemp(prefix="day-"))
    draw, broken, first = random.Random(hours), list[str](), 0
    began = time.monotonic()
    try:
        passing = Day(folder)
        tracemalloc.start()
        for hour in range(1, hours + 1):
            broken += [f"hour {hour}: {text}" for text in passing.pass_by(draw, 3600.0)]
            taken = _taken_by_the_daemon()
            first = first or taken
            print(f"hour {hour:2}: {taken >> 10} kB, {time.monotonic() - began:.0f} s; {dict(passing.happened)}", flush=True)
            if taken > first + MORE_BYTES:
                broken.append(f"hour {hour}: memory grew from {first >> 10} to {taken >> 10} kB")
        return broken
    finally:
        tracemalloc.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _taken_by_the_daemon() -> int:
    """Bytes of what is not the simulated board's, which remembers every configuration it was in, nor the harness's."""
    gc.collect()
    # Named tuples are made in "<string>": nearly all are those that the board remembers.
    others = ("*/profiles/twin/*", "*/tests/*", "<string>", tracemalloc.__file__)
    snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(False, name) for name in others])
    return sum(trace.size for trace in snapshot.traces)


def main() -> int:
    parser = argparse.ArgumentParser(description="What is left behind by many leases, and by a day of them.")
    parser.add_argument("what", choices=("cycles", "day"))
    parser.add_argument("number", type=int, help="of cycles, or of hours")
    args = parser.parse_args()
    logging.disable()
    if args.what == "cycles" and (missing := boards.obstacle()):
        print(f"cannot be done here: {missing}", file=sys.stderr)
        return 77
    broken = cycles(args.number) if args.what == "cycles" else day(args.number)
    print("\n".join(broken) or "everything is as it was")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
