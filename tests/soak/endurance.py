# SPDX-License-Identifier: Apache-2.0
"""What is left behind by 10,000 leases, and by a day of them.

    python -m jetdvfs.tests.soak.endurance cycles 10000
    python -m jetdvfs.tests.soak.endurance day 24

The cycles are had with the real daemon, a process of its own, on a simulated AGX Xavier served by FUSE.

The day is virtual, and of the daemon only what decides, learns and sets clocks, in this process, on a simulated AGX Xavier
without files in between, all of them on one clock that passes only when it is waited for. Leases come and go, programs for
latency targets among them, known to the profile or not, whose frames become heavier and lighter; a camera and a control loop
run for some of the hours, the board is heated past its trips and cools. Sockets, workers and process are not part of it. The
profile was trained on boards of another version of the silicon.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from jetdvfs.daemon.errors import DaemonError
from jetdvfs.daemon.leases.lease import Holder, Lease
from jetdvfs.daemon.planning.lease_plan import LeasePlan
from jetdvfs.kernels.correction.flat import flat_surface
from jetdvfs.kernels.cost.model import surface
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.bundle.finding import resolve_bundle
from jetdvfs.profiles.lab.train.evaluation import true_surface
from jetdvfs.profiles.reference import reference_network
from jetdvfs.profiles.twin.silicon.silicon import Silicon
from jetdvfs.profiles.twin.simulated_board import SimulatedBoard, simulated_board
from jetdvfs.tests.soak import boards, checks
from jetdvfs.tests.soak.boards import Boards
from jetdvfs.tests.soak.events import service
from jetdvfs.tests.soak.processes import Resources
from jetdvfs.tests.soak.reachable import bytes_beside
from jetdvfs.tests.soak.stage import Places, Stage
from jetdvfs.tests.soak.wire import Wire
from jetdvfs.tests.soak.world import USUAL_BOARD, world
from jetdvfs.tests.support.boards.corunner import PeriodicWork, camera, control_loop
from jetdvfs.tests.support.boards.hardware_kernel import FakeClock
from jetdvfs.tests.support.daemons.programs import Program, Programs

_STEP_S = 0.5
_NETWORKS = ("squeezenet1_0", "resnet18", "mobilenet_v2")
_NODE = 7
_RATES = (1.0, 2.0, 4.0)
_TIMES_THE_SHORTEST = (1.5, 2.0, 3.0)
_MOST_PROGRAMS = 3
_EVENTS = 0.01  # of half seconds, in which something happens
#: For how many frames a target may be missed that some configuration could keep.
LATE_IN_A_ROW = 10
_SETTLED = 500
_LOG_BYTES = 500  # of a hold and its release: three lines
BYTES_PER_CYCLE = 64.0
#: What may be more after the last cycle than after the first hundreds, when every cache has been filled.
MORE_KB, MORE_DESCRIPTORS, MORE_THREADS = 4096, 0, 0
#: What Python's own objects of the daemon's parts may take more after any hour of a day than after its first, when nobody holds
#: anything: each that logs remembers the last 256 texts. Surfaces and plans made lately, a few of each, are let go first.
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
        self.board: SimulatedBoard = simulated_board(USUAL_BOARD, _NODE, clock=self.clock)
        self._known = _programs()
        self.programs = Programs(self.board, self.clock, folder, self._known[0].true)
        self.daemon = self.programs.daemon
        self.found = self._settings()
        self.happened: Counter[str] = Counter()
        self._leases: list[Lease] = []
        self._runners = [PeriodicWork(beat(), BYTES_PER_CYCLE) for beat in (camera, control_loop)]
        self._attached: set[int] = set()
        self._begun = 0

    def pass_by(self, draw: random.Random, seconds: float) -> list[str]:
        """Let time pass, in which things happen; what was not as it must be."""
        broken: list[str] = self.daemon.run(self._pass_by(draw, seconds))
        return broken

    async def _pass_by(self, draw: random.Random, seconds: float) -> list[str]:
        broken: list[str] = []
        on, ends = world(USUAL_BOARD), self.clock.now + seconds
        while self.clock.now < ends:
            if draw.random() < _EVENTS:
                await self._happen(draw, on.configuration(draw))
            await self.programs.until(self.clock.now + _STEP_S)
        await self._quiet()
        await self.programs.until(self.clock.now + 240 * _STEP_S)
        if (now := self._settings()) != self.found:
            broken += [f"{path} is {now[path]} instead of {value}" for path, value in self.found.items() if now[path] != value]
        if self.daemon.hardware.touched:
            broken.append("the baseline is still held")
        if self.daemon.controller.troubles:
            broken.append(f"troubles stand: {self.daemon.controller.troubles}")
        broken += [
            f"{often} times {row} frames in a row were late that could be in time"
            for row, often in sorted(self.programs.rows.items())
            if row > LATE_IN_A_ROW
        ]
        self.programs.rows = Counter({row: often for row, often in self.programs.rows.items() if row <= LATE_IN_A_ROW})
        return broken

    async def _happen(self, draw: random.Random, configuration: object) -> None:
        doings = ("hold", "release", "release", "heat", "cool", "cool", "cool", "company", "quiet", "connection")
        what = draw.choice((*doings, *5 * ("program",), *2 * ("program ends",), *5 * ("heavier",)))
        running = self.programs.running
        try:
            if what == "hold" and len(self._leases) < 8:
                holder = Holder(draw.randrange(4), 1000 + draw.randrange(4), 1000, "soak")
                self._leases.append(self.daemon.board_service.granted(holder, LeasePlan(configuration), "a day"))  # type: ignore[arg-type]
            elif what == "release" and self._leases:
                self.daemon.board_service.ended(self._leases.pop(draw.randrange(len(self._leases))))
            elif what == "connection":
                gone = draw.randrange(4)
                self.daemon.controller.drop(gone)
                self._leases = [lease for lease in self._leases if lease.holder.connection != gone]
            elif what in ("heat", "cool"):
                self.board.faults.fever_c = 45.0 if what == "heat" else 0.0
            elif what == "company":
                self._attach(draw.randrange(2))
            elif what == "quiet":
                self._detach()
            elif what == "program" and len(running) < _MOST_PROGRAMS:
                await self._begin(draw)
            elif what == "program ends" and running:
                await self.programs.end(draw.choice(running))
            elif what == "heavier" and running:
                draw.choice(running).heavier = draw.choice((0.8, 1.0, 1.15, 1.3))
            else:
                return
            self.happened[what] += 1
        except DaemonError as error:
            self.happened[f"{what}: {type(error).__name__}"] += 1

    async def _begin(self, draw: random.Random) -> None:
        program = replace(draw.choice(self._known), fps=draw.choice(_RATES))
        if draw.random() < 0.3:
            program = replace(program, name=f"{program.name}, not predicted", predicted=flat_surface(program.predicted.grid))
        # Judged by what is asked for to the last digit: two programs may take exactly twice the shortest.
        limit_ms = round(draw.choice(_TIMES_THE_SHORTEST) * float(program.true.latency_ms.min()), 4)
        self._begun += 1
        await self.programs.begin(program, f"latency_ms={limit_ms:.4f}", min(limit_ms, 1e3 / program.fps), self._begun)

    def _attach(self, number: int) -> None:
        if number not in self._attached:
            self.board.attach(self._runners[number])
            self._attached.add(number)

    def _detach(self) -> None:
        for number in self._attached:
            self.board.detach(self._runners[number])
        self._attached.clear()

    async def _quiet(self) -> None:
        """Everybody goes."""
        self.board.faults.clear()
        self._detach()
        for one in self.programs.running:
            await self.programs.end(one)
        for connection in range(4):
            self.daemon.controller.drop(connection)
        self._leases.clear()

    def _settings(self) -> dict[str, str]:
        tree = self.board.tree
        names = ("governor", "min_freq", "max_freq", "mrq_rate_locked")
        return {path: tree.read(path).decode().strip() for path, node in tree.files() if node.write and path.endswith(names)}


@cache
def _programs() -> list[Program]:
    bundle = load_bundle(resolve_bundle(f"{USUAL_BOARD}-sim"))
    silicon = Silicon(_NODE, load_board(USUAL_BOARD))
    made = []
    for name in _NETWORKS:
        network = reference_network(name)
        true = true_surface(network, silicon, bundle.manifest.grid, bundle.manifest.rails)
        made.append(Program(name, surface(network, bundle.cost), true, _RATES[0]))
    return made


def day(hours: int) -> list[str]:
    """Let a day pass; what is not as it was."""
    folder = Path(tempfile.mkdtemp(prefix="day-"))
    draw, broken, first = random.Random(hours), list[str](), 0
    began = time.monotonic()
    try:
        passing = Day(folder)
        for hour in range(1, hours + 1):
            broken += [f"hour {hour}: {text}" for text in passing.pass_by(draw, 3600.0)]
            passing.daemon.empty()
            # The board remembers every configuration that it was in.
            taken = bytes_beside(passing.board, ends=(FakeClock,))
            first = first or taken
            programs = passing.programs
            said = f"{programs.frames} frames, {programs.late} late, {programs.excused} of them with no way; longest row "
            said += f"{max(programs.rows, default=0)}"
            spent = f"hour {hour:2}: {taken >> 10} kB, {time.monotonic() - began:.0f} s"
            print(f"{spent}; {said}; {len(broken)} faults; {dict(passing.happened)}", flush=True)
            if taken > first + MORE_BYTES:
                broken.append(f"hour {hour}: memory grew from {first >> 10} to {taken >> 10} kB")
        return broken
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
