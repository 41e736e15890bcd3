# SPDX-License-Identifier: Apache-2.0
"""Planning loop on tables of real boards, without predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ....daemon.errors import TargetNotAttainable
from ....daemon.planning.exploring import next_configuration
from ....daemon.planning.plan import plan
from ....daemon.planning.targets import LatencyTarget, MinEnergy, Target
from ....kernels.correction.correct import correct
from ....kernels.correction.flat import flat_surface
from ....kernels.correction.observation import Observation
from ....kernels.correction.pinning import pinned
from ....kernels.cost.model import surface
from ....kernels.network import KernelInvocation, Network
from ....kernels.surface import Surface
from ....kernels.units import AXES
from ...board import load_board
from ...bundle.bundle import Bundle
from ...reference import reference_names, reference_network
from ...twin.measured.tables import MeasuredTable
from ...twin.replayed_board import replay_board
from ...twin.silicon.silicon import Silicon
from ..train.evaluation import true_surface
from ..train.transfer_table import overlap_fit
from .plans import untrained_nodes

STOPS = (3, 5, 10, 20)
"""Numbers of observed configurations at which state is recorded."""
DEADLINES = (1.15, 1.5, 2.5, None)
"""Targets: least energy within this multiple of the shortest latency; None for no deadline."""
CONFIDENCE = 0.95
TOP, MODES, GOVERNORS, OVERLAP = "top clocks", "best nvpmodel mode", "schedutil + podgov", "overlap fit, 10 random"

# Rows are means of many frames.
_FRAMES = 30
_SETTLING, _WATCHED = 25, 10
# Governors look every few milliseconds; a frame of many seconds is replayed as one of this length.
_GOVERNED_MS = 40.0
_DRAWS = 5

Index = tuple[int, int, int]


class LoopState(Struct, frozen=True):
    """State after some observed configurations.

    Attributes:
        latency_error, power_error: mean relative error at unobserved configurations within the deadline.
        latency_error_all, power_error_all: at all unobserved configurations.
        regret: share of the plan's energy above the best within the deadline; ``missed``: it misses that.
    """

    latency_error: float
    power_error: float
    latency_error_all: float
    power_error_all: float
    regret: float
    missed: bool


class LoopResult(Struct, frozen=True):
    """Result of one target on one program.

    Attributes:
        late: observations over the deadline, counted from 1.
        after: states by number of observed configurations.
        others: regret of further methods, None if they miss the deadline.
    """

    table: str
    workload: str
    deadline: float | None
    observed: int
    late: tuple[int, ...]
    after: Mapping[int, LoopState]
    others: Mapping[str, float | None]


def replay(
    table: MeasuredTable, start: Surface | None = None, deadlines: Sequence[float | None] = DEADLINES
) -> Iterator[LoopResult]:
    """Run the loop for each deadline; ``start`` is the predicted surface, flat by default."""
    for deadline in deadlines:
        yield _ReplayedLoop(table, deadline, start or flat_surface(table.grid)).run()


def simulated_programs(
    bundle: Bundle, boards: int, perturbed: int = 0, names: Sequence[str] = ()
) -> Iterator[tuple[MeasuredTable, Surface]]:
    """Reference networks on ``boards`` held-out simulated boards, and a profile's predictions."""
    manifest = bundle.manifest
    description = load_board(manifest.board)
    for name in names or reference_names():
        network = reference_network(name)
        predicted = surface(network, bundle.cost)
        for node in untrained_nodes(bundle, boards):
            silicon_of = Silicon(node, description, perturbed=perturbed)
            true = true_surface(network, silicon_of, manifest.grid, description.energy_rails)
            source = f"simulated, silicon {silicon_of.version}"
            board = f"{name} on board {node}"
            yield (
                MeasuredTable(manifest.name, board, manifest.board, source, manifest.grid, true.latency_ms, true.power_mw),
                predicted,
            )


class _ReplayedLoop:
    def __init__(self, table: MeasuredTable, deadline: float | None, start: Surface) -> None:
        self.table, self.deadline, self.start = table, deadline, start
        shortest_ms = float(np.nanmin(table.latency_ms))
        self.limit_ms = np.inf if deadline is None else deadline * shortest_ms
        self.target: Target = MinEnergy() if deadline is None else LatencyTarget(self.limit_ms)
        self.period_ms = self.limit_ms if deadline is not None else 2.5 * shortest_ms
        self.reach = table.measured & (table.latency_ms <= self.limit_ms)
        self.best_mj = float(np.nanmin(np.where(self.reach, table.energy_mj, np.nan)))

    def run(self) -> LoopResult:
        observations: list[Observation] = []
        places: list[Index] = []
        after: dict[int, LoopState] = {}
        while len(places) < STOPS[-1]:
            step = next_configuration(self.start, self.target, observations, confidence=CONFIDENCE, most=STOPS[-1])
            place = self._measured(self.table.grid.index(step.configuration))
            if place in places:
                break
            places.append(place)
            observations.append(self._observation(place))
            if len(places) in STOPS:
                after[len(places)] = self._standing(observations, places)
        for stop in STOPS:
            after.setdefault(stop, self._standing(observations, places))
        late = tuple(number for number, place in enumerate(places, 1) if self.table.latency_ms[place] > self.limit_ms)
        return LoopResult(self.table.name, self.table.workload, self.deadline, len(places), late, after, dict(self._others()))

    def _measured(self, place: Index) -> Index:
        return place if self.table.measured[place] else self.table.nearest(place)

    def _observation(self, place: Index) -> Observation:
        latency_ms, power_mw = float(self.table.latency_ms[place]), float(self.table.power_mw[place])
        return Observation(self.table.grid.configuration(place), latency_ms, power_mw, frames=_FRAMES)

    def _standing(self, observations: Sequence[Observation], places: Sequence[Index]) -> LoopState:
        made = correct(self.start, observations).surface
        return self._state(made, pinned(made, observations), places)

    def _state(self, made: Surface, planned_by: Surface, places: Sequence[Index]) -> LoopState:
        rest = self.table.measured.copy()
        for place in places:
            rest[place] = False
        latency, power = (np.abs(getattr(made, name) / getattr(self.table, name) - 1) for name in ("latency_ms", "power_mw"))
        chosen = self._plan(planned_by)
        return LoopState(
            latency_error=_mean(latency, rest & self.reach),
            power_error=_mean(power, rest & self.reach),
            latency_error_all=_mean(latency, rest),
            power_error_all=_mean(power, rest),
            regret=float(self.table.energy_mj[chosen]) / self.best_mj - 1,
            missed=bool(self.table.latency_ms[chosen] > self.limit_ms),
        )

    def _plan(self, made: Surface) -> Index:
        try:
            return self._measured(made.grid.index(plan(made, self.target, confidence=CONFIDENCE).configuration))
        except TargetNotAttainable:
            return self._measured(self._top)

    @property
    def _top(self) -> Index:
        cpu, gpu, emc = (length - 1 for length in self.table.grid.shape)
        return cpu, gpu, emc

    def _others(self) -> Iterator[tuple[str, float | None]]:
        yield TOP, self._regret([self._top])
        modes = [regret for place in self._modes() if (regret := self._regret([place])) is not None]
        yield MODES, min(modes, default=None)
        yield GOVERNORS, self._regret(self._governed())
        yield OVERLAP, self._overlap()

    def _regret(self, places: Sequence[Index]) -> float | None:
        places = [self._measured(place) for place in places]
        if any(self.table.latency_ms[place] > self.limit_ms for place in places):
            return None
        return float(np.mean([self.table.energy_mj[place] for place in places])) / self.best_mj - 1

    def _modes(self) -> Iterator[Index]:
        for mode in load_board(self.table.board).modes[0].table:
            places = []
            for axis, cap in zip(AXES, (mode.cpu_khz, mode.gpu_hz, mode.emc_hz), strict=True):
                levels = self.table.grid.levels(axis)
                below = [place for place, level in enumerate(levels) if cap is None or level <= cap]
                places.append(max(below, default=0))
            yield places[0], places[1], places[2]

    def _governed(self) -> list[Index]:
        shorter = min(1.0, _GOVERNED_MS / float(np.nanmin(self.table.latency_ms)))
        board = replay_board(replace(self.table, latency_ms=self.table.latency_ms * shorter), _ReplayClock())
        # Which network it is told to run does not matter on a board that replays a table.
        frame = KernelInvocation("relu", "", ((1, 1),), (1, 1), "float32", {}, 1, 8)
        network = Network(self.table.workload, (), (frame,))
        places = []
        for number in range(_SETTLING + _WATCHED):
            board.infer(network, fps=1e3 / (self.period_ms * shorter), frames=1)
            if number >= _SETTLING:
                levels = board.configuration
                places.append(
                    tuple(_nearest(self.table.grid.levels(axis), level) for axis, level in zip(AXES, levels, strict=True))
                )
        return [(cpu, gpu, emc) for cpu, gpu, emc in places]

    def _overlap(self) -> float | None:
        cells = np.argwhere(self.table.measured)
        regrets = []
        for draw in range(_DRAWS):
            drawn = np.random.default_rng(draw).permutation(len(cells))[:10]
            places = [(int(a), int(b), int(c)) for a, b, c in cells[drawn]]
            fitted = overlap_fit(self.table.grid, [self._observation(place) for place in places])
            regret = self._regret([self._plan(fitted)])
            regrets.append(np.inf if regret is None else regret)
        middle = float(np.median(regrets))
        return middle if np.isfinite(middle) else None


class _ReplayClock:
    def __init__(self) -> None:
        self._now_s = 0.0

    def monotonic(self) -> float:
        return self._now_s

    def sleep(self, seconds: float) -> None:
        self._now_s += seconds


def _nearest(levels: Sequence[int], level: int) -> int:
    return int(np.abs(np.log(np.array(levels, np.float64) / max(level, 1))).argmin())


def _mean(error: NDArray[np.float64], among: NDArray[np.bool_]) -> float:
    return float(error[among].mean()) if among.any() else 0.0
