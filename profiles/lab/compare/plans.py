# SPDX-License-Identifier: Apache-2.0
"""How well a profile predicts, and how well plans made with it do, on simulated boards that it was not trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ....kernels.cost.model import surface
from ....kernels.network import Network
from ....kernels.surface import Surface
from ....kernels.units import METHODS
from ...adapt.network_errors import NetworkError, compare
from ...bundle.bundle import Bundle
from ...twin.silicon.silicon import Silicon
from ..measure.meters.engine import board_of, engine_meter, listed
from ..train.evaluation import measure_network, with_frames
from ..train.truth import mean_surface, true_surface
from .trials import Trial, plans_for, try_out, usual_targets

CONFIDENCE = 0.95
PLAIN, CONFIDENT, FLOOR = "plan", f"plan with confidence {CONFIDENCE:g}", "floor"
"""Whose plans are tried out: the profile's, with and without confidence, and those of the training boards' mean."""


@dataclass(frozen=True)
class BoardResult:
    """What was found for one network on one board.

    Attributes:
        errors: how far each method's prediction is off, and that of the training boards' mean (``FLOOR``).
        trials: what became of each planner's plans, one for each target.
    """

    node: int
    errors: Mapping[str, NetworkError]
    trials: Mapping[str, tuple[Trial, ...]]


@dataclass(frozen=True)
class NetworkResult:
    """What was found for one network.

    Attributes:
        guessed_share: the part of the GPU's time that guessed kernels take, the mean over all configurations, 0 to 1.
    """

    network: str
    guessed_share: float
    boards: tuple[BoardResult, ...]


def untrained_nodes(bundle: Bundle, count: int) -> tuple[int, ...]:
    """The first boards, by number, that a profile was not trained on."""
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
    """Compare predictions with measurements at random configurations, and plans with exhaustive searches, network by network.

    Args:
        nodes: the boards to evaluate on.
        configurations: how many each network is measured at on each board.
        temperature_c: of the boards' dies, which the predictions are told; by default that of the profile's idle power.
        compiled: one of :data:`jetdvfs.kernels.engine.fusing.ENGINE_TYPES` where the boards run engines.
        perturbed: as for :class:`~jetdvfs.profiles.twin.silicon.silicon.Silicon`.
        progress: called with the steps done, the steps in all, and what is being done.

    Raises:
        TwinError: that silicon does not know one of a network's kinds, or no engine can be built of it.
        ModelError: a network cannot be listed as an engine has it.
        CostModelError: a network cannot be predicted, or the profile does not know that temperature.
    """
    manifest, cost = bundle.manifest, bundle.cost if temperature_c is None else bundle.cost.warmed(temperature_c)
    die_c = manifest.measured_at_c if temperature_c is None else temperature_c
    boards = {node: board_of(manifest.board, node, compiled, perturbed) for node in {*nodes, *manifest.nodes}}
    meters = {node: engine_meter(manifest.board, node, seed + 1, compiled, die_c, perturbed) for node in nodes}
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
