# SPDX-License-Identifier: Apache-2.0
"""Bundle of a simulated board from its name and a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ....kernels.cost.features import MODELLED_KINDS
from ....kernels.kinds import ELEMENTWISE
from ....kernels.network import KernelInvocation, Network
from ...adapt.measurements import Measurements
from ...adapt.network_errors import NetworkError
from ...board import load_board
from ...bundle.bundle import Bundle
from ...bundle.manifest import UNSEEN_BOARD, UNSEEN_BOARD_AND_NETWORK, UNSEEN_FAMILY
from ...reference import reference_names, reference_network
from ...twin.silicon.chip import AMBIENT_DIE_C
from ...twin.silicon.silicon import Silicon, check_version
from ..measure.campaign import Campaign, CampaignSize, plan_campaign
from ..measure.meters.simulated import listed, twin_meter
from ..measure.one_twin import WARMER_C
from ..measure.variation import MANY, Variations
from .assembly import Uncertainty, make_folds
from .evaluation import evaluate, evaluated, measure_network, with_frames
from .kernel_models import Recipe, TrainingOptions
from .listed_networks import calibrating_networks, left_out_networks, trained_networks
from .making import write_trained

KINDS: tuple[str, ...] = (*MODELLED_KINDS, ELEMENTWISE)
EVALUATION_NODES = (11, 12)
"""Simulated boards held out of every bundle."""

FULL = CampaignSize(
    nodes=(*range(8), *range(18, 26)),
    random_kernels={"conv2d": 96000, "matmul": 360000, "attention": 9600, ELEMENTWISE: 4800},
    random_kernels_default=1800,
    configurations=2,
    network_configurations=8,
    whole_network_configurations=24,
    host_configurations=24,
    warm_configurations=256,
)
QUICK = replace(
    FULL,
    nodes=tuple(range(8)),
    random_kernels={"conv2d": 72000, "matmul": 96000, "attention": 2400, ELEMENTWISE: 1200},
    random_kernels_default=480,
    network_configurations=4,
    whole_network_configurations=16,
    host_configurations=16,
    warm_configurations=64,
)
"""Fewer kernels, on half of the boards."""

_RECIPES = {
    # Leaves of many kernels: how uneven a library's choices are is not to be learned from one.
    "conv2d time": (Recipe(8, 0.1, min_child_weight=20.0, rounds=1000, colsample_bytree=1.0, colsample_bynode=0.35),),
    "conv2d power": (Recipe(8, 0.1, min_child_weight=20.0, rounds=800, colsample_bytree=1.0, colsample_bynode=0.4),),
    "matmul time": (Recipe(8, 0.1, min_child_weight=20.0, rounds=1000),),
    "attention time": (Recipe(8, 0.1, min_child_weight=20.0, rounds=300),),
    "matmul power": (Recipe(8, 0.1, min_child_weight=20.0),),
    "": (Recipe(6, 0.1, min_child_weight=10.0),),
}
# Few trees, for few bytes: many kernels make them no larger, and nearer.
_SMALL_RECIPES = {
    "conv2d": (Recipe(8, 0.2, min_child_weight=20.0, colsample_bytree=1.0, colsample_bynode=0.35),),
    "matmul": (Recipe(7, 0.2, min_child_weight=20.0),),
    "": (Recipe(5, 0.2),),
}


class TrainingPlan(Struct, frozen=True):
    """Plan of a bundle; ``silicon`` is the version of the simulated boards."""

    name: str
    command: str
    campaign: Campaign
    options: TrainingOptions
    folds: int

    @property
    def networks(self) -> tuple[Network, ...]:
        return self.campaign.networks


Progress = Callable[[int, int, str], None]


def plan_simulated(
    board_name: str,
    name: str,
    command: str,
    progress: Progress = lambda done, total, text: None,
    *,
    quick: bool = False,
    threads: int = 1,
    seed: int = 0,
) -> TrainingPlan:
    """Plan a simulated board's bundle; ``quick`` measures less. Raises BoardDescriptionError."""
    board = load_board(board_name)
    networks = [reference_network(network) for network in reference_names()]
    others = trained_networks()
    evaluation_networks = [*left_out_networks(), *calibrating_networks()]
    variations = Variations([*networks, *others], seed, MANY, without=evaluation_networks)

    def some(kind: str, count: int) -> Sequence[KernelInvocation]:
        progress(KINDS.index(kind), len(KINDS), f"choosing kernels: {kind}")
        return variations.some(kind, count)

    campaign = plan_campaign(
        board,
        networks,
        some,
        QUICK if quick else FULL,
        kinds=KINDS,
        temperature_c=AMBIENT_DIE_C,
        others=others,
        warmer_c=WARMER_C,
        silicon_version=Silicon(board=board).version,
        seed=seed,
    )
    progress(len(KINDS), len(KINDS), "chosen")
    recipes, rounds = (_SMALL_RECIPES, 120) if quick else (_RECIPES, 300)
    options = TrainingOptions(recipes, rounds, threads=threads, seed=seed)
    return TrainingPlan(name, command, campaign, options, folds=2 if quick else 3)


def make_bundle(production: TrainingPlan, measurements: Measurements, directory: Path, progress: Progress) -> Bundle:
    """Train, find uncertainty, write the bundle, and evaluate it on held-out boards."""
    networks = production.networks
    folds = make_folds(networks, measurements.nodes, production.folds, production.campaign.seed)

    def evaluation(bundle: Bundle, uncertainty: Uncertainty) -> Mapping[str, Any]:
        errors = evaluate_simulated(bundle, networks, EVALUATION_NODES)
        strange = evaluate_simulated(bundle, left_out_networks(), EVALUATION_NODES)
        return evaluation_record(errors, uncertainty, strange)

    return write_trained(
        production.name,
        production.command,
        measurements,
        networks,
        KINDS,
        production.options,
        folds,
        directory,
        evaluation,
        progress,
    )


def evaluate_simulated(
    bundle: Bundle,
    networks: Sequence[Network],
    nodes: Sequence[int],
    *,
    configurations: int = 100,
    seed: int = 0,
    compiled: str = "",
) -> list[NetworkError]:
    """Errors of both methods on simulated boards of the bundle's training silicon. Raises TwinError without it.

    ``compiled`` is an engine type of :data:`jetdvfs.kernels.engine.fusing.ENGINE_TYPES`, or empty.
    """
    check_version(bundle.manifest.silicon_version, bundle.manifest.board)
    measured = []
    for node in nodes:
        meter = twin_meter(bundle.manifest.board, node, seed + 1, compiled)
        for number, network in enumerate(networks):
            choice = seed + 100 * node + number
            taken = measure_network(network, bundle.cost.grid, bundle.manifest.rails, meter, configurations, choice)
            measured.append(replace(with_frames(taken, bundle.cost.grid, meter), network=listed(network, compiled)))
    return evaluate(bundle.cost, measured)


def evaluation_record(
    errors: Sequence[NetworkError], uncertainty: Uncertainty, strange: Sequence[NetworkError]
) -> dict[str, Any]:
    """Evaluation in a manifest: held-out boards, then networks as well, then families."""
    return {
        UNSEEN_BOARD: evaluated(errors, EVALUATION_NODES),
        UNSEEN_BOARD_AND_NETWORK: evaluated(uncertainty.errors),
        UNSEEN_FAMILY: evaluated(strange, EVALUATION_NODES),
    }
