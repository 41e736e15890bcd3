# SPDX-License-Identifier: Apache-2.0
"""Errors of a profile, and of its plans, on unseen simulated boards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from ....daemon.errors import TargetNotAttainable
from ....daemon.planning.plan import Plan, outlook, plan, requirements
from ....daemon.planning.targets import EnergyTarget, LatencyTarget, MinEnergy, Target
from ....kernels.cost.model import surface
from ....kernels.network import Network
from ....kernels.surface import Surface
from ....kernels.units import METHODS
from ...adapt.network_errors import NetworkError, compare
from ...bundle.bundle import Bundle
from ...twin.silicon.silicon import Silicon
from ..measure.meters.simulated import board_of, listed, twin_meter
from ..train.evaluation import mean_surface, measure_network, true_surface, with_frames

TARGETS_IN_WORDS = (
    "latency at most 1.2 and 2 times the nominal board's shortest, energy at most 1.2 times its least, and least energy"
)


class PlanTrial(Struct, frozen=True):
    """One plan on one board, compared with exhaustive search.

    Attributes:
        attainable: True if a configuration of the board meets the target.
        refused: True if the planner found it out of reach.
        over: share of the limit by which the target is missed, else 0.
        regret: share of the minimised value above the best; None unless the plan meets the target.
    """

    target: str
    attainable: bool
    refused: bool
    over: float
    regret: float | None

    @property
    def missed(self) -> bool:
        return self.over > 0


class TrialCounts(Struct, frozen=True):
    """Counts of trials with attainable targets; regrets are without missed and refused ones."""

    trials: int
    missed: int
    refused: int
    worst_over: float
    mean_regret: float
    worst_regret: float

    @classmethod
    def of(cls, trials: Iterable[PlanTrial]) -> TrialCounts:
        counted = [trial for trial in trials if trial.attainable]
        regrets = [trial.regret for trial in counted if trial.regret is not None] or [0.0]
        return cls(
            len(counted),
            sum(trial.missed for trial in counted),
            sum(trial.refused for trial in counted),
            max((trial.over for trial in counted), default=0.0),
            float(np.mean(regrets)),
            max(regrets),
        )


def usual_targets(nominal: Surface) -> tuple[Target, ...]:
    """Four binding targets within every board's reach: :data:`TARGETS_IN_WORDS`."""
    shortest_ms, least_mj = float(nominal.latency_ms.min()), float(nominal.energy_mj.min())
    return LatencyTarget(1.2 * shortest_ms), LatencyTarget(2 * shortest_ms), EnergyTarget(1.2 * least_mj), MinEnergy()


def plans_for(surface: Surface, targets: Sequence[Target], confidence: float | None = None) -> tuple[Plan | None, ...]:
    return tuple(_plan(surface, target, confidence) for target in targets)


def _plan(surface: Surface, target: Target, confidence: float | None) -> Plan | None:
    try:
        return plan(surface, target, confidence=confidence)
    except TargetNotAttainable:
        return None


def try_out(target: Target, found: Plan | None, truth: Surface) -> PlanTrial:
    real = outlook(truth, None)
    met = np.ones(truth.grid.shape, bool)
    for bound in requirements(target, None):
        met &= getattr(real, bound.figure) <= bound.limit
    attainable = bool(met.any())
    if found is None:
        return PlanTrial(str(target), attainable, True, 0.0, None)
    at = truth.grid.index(found.configuration)
    over = max((float(getattr(real, bound.figure)[at]) / bound.limit - 1 for bound in requirements(target, None)), default=0.0)
    if not met[at]:
        return PlanTrial(str(target), attainable, False, over, None)
    objective = target.objective(real)
    return PlanTrial(str(target), attainable, False, 0.0, float(objective[at] / objective[met].min()) - 1)


CONFIDENCE = 0.95
PLAIN, CONFIDENT, FLOOR = "plan", f"plan with confidence {CONFIDENCE:g}", "floor"
"""Planners: the profile's, with and without confidence, and the training boards' mean."""


class BoardResult(Struct, frozen=True):
    """Results for one network on one board: errors of each method, and trials per target."""

    node: int
    errors: Mapping[str, NetworkError]
    trials: Mapping[str, tuple[PlanTrial, ...]]


class NetworkResult(Struct, frozen=True):
    """Results for one network; ``guessed_share`` is of GPU time, 0 to 1."""

    network: str
    guessed_share: float
    boards: tuple[BoardResult, ...]


def untrained_nodes(bundle: Bundle, count: int) -> tuple[int, ...]:
    nodes = range(count + len(bundle.manifest.nodes))
    return tuple(node for node in nodes if node not in bundle.manifest.nodes)[:count]


def evaluate_profile(
    bundle: Bundle,
    networks: Sequence[Network],
    nodes: Sequence[int],
    *,
    configurations: int = 100,
    seed: int = 0,
    temperature_c: float | None = None,
    compiled: str = "",
    perturbed: int = 0,
    progress: Callable[[int, int, str], None] = lambda done, total, text: None,
) -> Iterator[NetworkResult]:
    """Compare predictions with measurements at random configurations, and plans with exhaustive search, by network.

    Args:
        configurations: per network and board.
        temperature_c: die temperature, known to predictions; by default that of the profile's idle power.
        compiled: one of :data:`jetdvfs.kernels.engine.fusing.ENGINE_TYPES` for engines.

    Raises TwinError, ModelError or CostModelError for a network that cannot be simulated, decomposed or predicted.
    """
    manifest, cost = bundle.manifest, bundle.cost if temperature_c is None else bundle.cost.warmed(temperature_c)
    die_c = manifest.measured_at_c if temperature_c is None else temperature_c
    boards = {node: board_of(manifest.board, node, compiled, perturbed) for node in {*nodes, *manifest.nodes}}
    meters = {node: twin_meter(manifest.board, node, seed + 1, compiled, die_c, perturbed) for node in nodes}
    steps, done = len(networks) * (len(manifest.nodes) + len(nodes)), 0

    def truth(network: Network, chip: Silicon) -> Surface:
        return true_surface(network, chip, cost.grid, manifest.rails, die_c)

    for number, network in enumerate(networks):
        view = listed(network, compiled)
        predicted = {method: surface(view, cost, method) for method in METHODS}
        known = []
        for node in manifest.nodes:
            progress(done, steps, f"{network.name}: board {node}, which the profile knows")
            known.append(truth(network, boards[node]))
            done += 1
        mean = mean_surface(known)
        targets = usual_targets(truth(network, board_of(manifest.board, None, compiled, perturbed)))
        own = predicted[METHODS[0]]
        plans = {
            PLAIN: plans_for(own, targets),
            CONFIDENT: plans_for(own, targets, CONFIDENCE),
            FLOOR: plans_for(mean, targets),
        }
        results = []
        for node in nodes:
            progress(done, steps, f"{network.name}: board {node}")
            choice = seed + 100 * node + number
            measured = measure_network(network, cost.grid, manifest.rails, meters[node], configurations, choice)
            measured = with_frames(measured, cost.grid, meters[node])
            real = truth(network, boards[node])
            errors = {method: compare(one, measured) for method, one in (*predicted.items(), (FLOOR, mean))}
            trials = {
                planner: tuple(try_out(target, plan, real) for target, plan in zip(targets, found, strict=True))
                for planner, found in plans.items()
            }
            results.append(BoardResult(node, errors, trials))
            done += 1
        yield NetworkResult(network.name, float(own.guessed_share.mean()), tuple(results))
    progress(done, steps, "done")
