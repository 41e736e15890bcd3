# SPDX-License-Identifier: Apache-2.0
"""How well the daemon knows programs, and how well it runs them, while all about them changes.

    python -m jetdvfs.tests.soak.changing [--boards 10] [--minutes 6]

The ten reference networks, each on boards that the shipped profile was not trained on, of a silicon that it was not trained on
either; all of it simulated and in virtual time, of the daemon what decides, learns and sets clocks. A program holds a lease for
the least energy within 1.5, 2 or 3 times its shortest latency, with 95% confidence, and reports its frames, which are as noisy
as the simulated board's. The first minute nothing changes; before each further one something does: the images become larger or
smaller, the board warmer or cooler by up to 30 degrees, a camera or a control loop comes or goes. A program is never told of
it.

At the end of each minute stands, over all programs: how many configurations were observed; mean relative error of time and
energy of a frame by what is known then, over the configurations that keep the target, against what is true at that moment; by
how much the energy of a frame at the clocks in force is above the least of all configurations that keep the target and are
open to the program; and in how many minutes more than one frame of twenty was late, though the highest clocks kept the target.
"""

from __future__ import annotations

import argparse
import logging
import math
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jetdvfs.daemon.leases.lease import Holder, Lease
from jetdvfs.daemon.planning.limits import Limits
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.network import Network, TensorSpec
from jetdvfs.kernels.surface import Surface
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.bundle.bundle import Bundle, load_bundle
from jetdvfs.profiles.bundle.finding import resolve_bundle
from jetdvfs.profiles.lab.compare.plans import untrained_nodes
from jetdvfs.profiles.lab.train.evaluation import true_surface
from jetdvfs.profiles.reference import reference_input, reference_model, reference_names
from jetdvfs.profiles.twin.co_runners import BoardClocks
from jetdvfs.profiles.twin.silicon.chip import Clocks
from jetdvfs.profiles.twin.silicon.silicon import Silicon
from jetdvfs.profiles.twin.simulated_board import simulated_board
from jetdvfs.tests.soak.endurance import BYTES_PER_CYCLE
from jetdvfs.tests.soak.world import USUAL_BOARD
from jetdvfs.tests.support.boards.corunner import PeriodicWork, camera, control_loop
from jetdvfs.tests.support.boards.hardware_kernel import FakeClock
from jetdvfs.tests.support.daemons.programs import nearest
from jetdvfs.tests.support.daemons.virtual_daemon import VirtualDaemon

_CONFIDENCE = 0.95
_TIMES_THE_SHORTEST = (1.5, 2.0, 3.0)
_MOST_FPS = 10.0
_SIZES = {"usual": 1.0, "larger": 8 / 7, "smaller": 6 / 7}
_HEAT_C = (0.0, 15.0, 30.0)


@dataclass
class Minute:
    """How things stood at the end of one minute of one program.

    Attributes:
        observed: configurations observed up to then.
        latency_error, energy_error: mean relative errors over the configurations that keep the target.
        regret: of the clocks in force; None where nothing keeps the target.
        late: share of frames that were; ``attainable`` whether the highest clocks kept the target.
    """

    observed: int
    latency_error: float
    energy_error: float
    regret: float | None
    late: float
    attainable: bool


@dataclass
class Surroundings:
    """What changes about a program."""

    size: str = "usual"
    heat_c: float = 0.0
    beside: list[str] = field(default_factory=list)

    def change(self, draw: random.Random) -> None:
        what = draw.choice(("size", "heat", "beside"))
        if what == "size":
            self.size = draw.choice([size for size in _SIZES if size != self.size])
        elif what == "heat":
            self.heat_c = draw.choice([heat_c for heat_c in _HEAT_C if heat_c != self.heat_c])
        else:
            self.beside = draw.choice([some for some in ([], ["camera"], ["control"]) if some != self.beside])


class Scene:
    """One network on one board."""

    def __init__(self, name: str, node: int, bundle: Bundle, folder: Path) -> None:
        self.draw = random.Random(f"{name} {node}")
        self._bundle = bundle
        self.description = load_board(USUAL_BOARD)
        self.silicon = Silicon(node, self.description)
        self.networks = {size: _sized(name, factor) for size, factor in _SIZES.items()}
        self.clock = FakeClock()
        self.board = simulated_board(USUAL_BOARD, node, clock=self.clock)
        self._metered = (self.clock.now, self._energy_mj())
        self.daemon = VirtualDaemon(self.board, self.clock, folder, self._drawn_mw)
        self.runners = {
            "camera": PeriodicWork(camera(), BYTES_PER_CYCLE),
            "control": PeriodicWork(control_loop(), BYTES_PER_CYCLE),
        }
        self.around = Surroundings()
        self.name = name
        shortest_ms = float(self._true().latency_ms.min())
        self.limit_ms = self.draw.choice(_TIMES_THE_SHORTEST) * shortest_ms
        self.fps = min(_MOST_FPS, 1e3 / self.limit_ms)
        self.predicted = surface(self.networks["usual"], bundle.cost)

    def run(self, minutes: int) -> list[Minute]:
        found: list[Minute] = self.daemon.run(self._run(minutes))
        self.daemon.close()
        return found

    async def _run(self, minutes: int) -> list[Minute]:
        holder, target = Holder("program", 4321, 1000, self.name), f"latency_ms={self.limit_ms:.4f}"
        lease = await self.daemon.hold(holder, self.predicted, target, self.fps, _CONFIDENCE, key=self.name)
        found = []
        for minute in range(minutes):
            if minute:
                before = list(self.around.beside)
                self.around.change(self.draw)
                self.board.faults.fever_c = self.around.heat_c
                for name in before:
                    self.board.detach(self.runners[name])
                for name in self.around.beside:
                    self.board.attach(self.runners[name])
            late = await self._frames(lease, 60.0)
            found.append(self._standing(lease, late))
        return found

    async def _frames(self, lease: Lease, seconds: float) -> float:
        """Run frames for so long; the share of them that were late."""
        ends, taken = self.clock.now + seconds, []
        while self.clock.now < ends:
            began = self.clock.now
            stream = self.board.infer(self.networks[self.around.size])
            taken.append(1e3 * stream.latencies_s[0])
            await self.daemon.until(self.clock.now)
            await self.daemon.report(lease, taken[-1])
            await self.daemon.until(max(began + 1 / self.fps, self.clock.now))
        return float(np.mean([latency_ms > self.limit_ms for latency_ms in taken]))

    def _standing(self, lease: Lease, late: float) -> Minute:
        true, known = self._true(), self.daemon.known(lease, self.predicted, self.name, self.fps)
        # A plan leaves frames the room by which they differ from each other, and so does the search.
        assert known.tails is not None
        room = math.exp(known.tails.frames.quantile(_CONFIDENCE))
        in_time = room * true.latency_ms <= min(self.limit_ms, 1e3 / self.fps)
        beside_mj = self._beside_mw() / self.fps
        true_mj, known_mj = true.energy_per_frame_mj(self.fps) + beside_mj, known.energy_per_frame_mj(self.fps)
        limits = self.daemon.controller.limits()
        among = in_time & limits.permits(true.grid) if isinstance(limits, Limits) else in_time
        place, regret = nearest(true, self.board.configuration), None
        if among.any():
            regret = float(true_mj[place] / true_mj[among].min() - 1)
        observed = len({one.configuration for one in lease.frames.observations(self.clock.now, frozenset())})
        return Minute(
            observed,
            _mean(known.latency_ms / true.latency_ms, in_time),
            _mean(known_mj / true_mj, in_time),
            regret,
            late,
            bool(in_time.any()),
        )

    def _true(self) -> Surface:
        with self.board.present():
            die_c = self.board.thermal.hottest_c
        rails = self.description.energy_rails
        return true_surface(self.networks[self.around.size], self.silicon, self._bundle.manifest.grid, rails, die_c)

    def _beside_mw(self) -> NDArray[np.float64]:
        """What the board's rails draw besides, for all that runs beside the program, over the grid."""
        grid = self._bundle.manifest.grid
        drawn = np.zeros(grid.shape)
        clocks = Clocks.of(list(grid))
        core_mw = self._rails_mw(self.silicon.other_rails_w(clocks, cores=1.0))
        traffic_mw = self._rails_mw(self.silicon.other_rails_w(clocks, dram_bytes_s=1e9))
        for name in self.around.beside:
            for cell, at in enumerate(grid):
                home = {self.board.policies[0].name: at.cpu_khz}
                load = self.runners[name].load(self.clock.now, BoardClocks(home, at.gpu_hz, at.emc_hz))
                cores = sum(load.cpu.values())
                drawn.ravel()[cell] += cores * core_mw[cell] + load.memory_bytes_s / 1e9 * traffic_mw[cell]
        return drawn

    def _rails_mw(self, watts: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        sensed = self.silicon.sensed(watts)
        drawn: NDArray[np.float64] = 1e3 * np.sum([sensed[rail] for rail in self.description.energy_rails if rail in sensed], 0)
        return drawn

    def _energy_mj(self) -> float:
        with self.board.present():
            joules = dict(zip(self.board.rails.rails, self.board.rails.joules, strict=True))
        return 1e3 * sum(joules[rail] for rail in self.description.energy_rails)

    def _drawn_mw(self) -> float:
        """The mean since it was asked last, as an averaging power monitor has it."""
        (before_s, before_mj), now = self._metered, (self.clock.now, self._energy_mj())
        self._metered = now
        return (now[1] - before_mj) / max(now[0] - before_s, 1e-3)


def _sized(name: str, factor: float) -> Network:
    """A reference network for images of another size."""
    usual = reference_input(name)
    batch, channels, *sides = usual.shape
    shape = (batch, channels, *(round(factor * side) for side in sides))
    return decompose(reference_model(name), [TensorSpec(shape)], name=name)


def _mean(ratio: NDArray[np.float64], among: NDArray[np.bool_]) -> float:
    return float(np.abs(ratio[among] - 1).mean()) if among.any() else 0.0


def lines(minutes: Sequence[Sequence[Minute]]) -> list[str]:
    """The figures of all programs, minute by minute."""
    found = [f"{'minute':<8}{'observed':>9}{'time':>8}{'energy':>8}{'regret: median':>16}{'90%':>8}{'missed':>16}"]
    for number, all_of in enumerate(zip(*minutes, strict=True), 1):
        can = [one for one in all_of if one.attainable]
        regrets = [one.regret for one in can if one.regret is not None]
        missed = sum(one.late > 1 - _CONFIDENCE for one in can)
        middle, most = np.quantile(regrets, (0.5, 0.9))
        observed, time, energy = (
            float(np.mean([getattr(one, name) for one in can])) for name in ("observed", "latency_error", "energy_error")
        )
        found.append(
            f"{number:<8}{observed:>9.1f}{time:>8.1%}{energy:>8.1%}{middle:>16.1%}{most:>8.1%}{f'{missed} of {len(can)}':>16}"
        )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--boards", type=int, default=10)
    parser.add_argument("--minutes", type=int, default=6)
    parser.add_argument("--networks", nargs="*", default=reference_names())
    args = parser.parse_args()
    logging.disable()
    bundle = load_bundle(resolve_bundle(f"{USUAL_BOARD}-sim"))
    minutes = []
    for name in args.networks:
        for node in untrained_nodes(bundle, args.boards):
            folder = Path(tempfile.mkdtemp(prefix="changing-"))
            try:
                minutes.append(Scene(name, node, bundle, folder).run(args.minutes))
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        print(f"{name}: {len(minutes)} programs", file=sys.stderr, flush=True)
    print(f"simulated: {len(minutes)} programs")
    print("\n".join(lines(minutes)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
