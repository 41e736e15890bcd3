# SPDX-License-Identifier: Apache-2.0
"""A bundle from nothing: measure a simulated board's kernels, train, evaluate on a board left out, write.

Everything follows from the board's name, the silicon's version and a seed, so that one command reproduces a shipped bundle.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels.cost.features import MODELLED_KINDS
from ...kernels.kinds import ELEMENTWISE
from ...kernels.network import Network
from ..board import load_board
from ..bundle.bundle import Bundle, load_bundle
from ..bundle.writing import write_bundle, write_manifest
from ..measuring.campaign import Campaign, CampaignSize, plan_campaign, run_campaign, spread_over_sizes
from ..measuring.measurements import Measurements
from ..measuring.meters.simulated import TwinMeter
from ..measuring.sampling import Sampler
from ..reference import reference_names, reference_network
from ..twin.silicon.chip import AMBIENT_DIE_C
from ..twin.silicon.silicon import Silicon, version_of
from .assembly import (
    Uncertainty,
    board_cost,
    contents_of,
    left_out_uncertainty,
    make_folds,
    manifest_of,
    regions_of,
    train_all,
)
from .evaluation import NetworkError, evaluate, measure_network, summary
from .kernel_models import Recipe, TrainingOptions

KINDS: tuple[str, ...] = (*MODELLED_KINDS, ELEMENTWISE)
EVALUATION_NODES = (11, 12)
"""The simulated boards that no bundle is trained on."""

UNSEEN_BOARD = "unseen_board"
UNSEEN_NETWORK = "unseen_board_and_network"
"""The two evaluations that a manifest keeps."""

FULL = CampaignSize(
    nodes=tuple(range(11)),
    random_kernels={"conv2d": 20000, "matmul": 3000, ELEMENTWISE: 0},
    random_kernels_default=2000,
    configurations=4,
    network_configurations=16,
    whole_network_configurations=40,
    host_configurations=64,
    warm_configurations=256,
)
QUICK = CampaignSize(
    nodes=(0, 1, 2),
    random_kernels={"conv2d": 300, ELEMENTWISE: 0},
    random_kernels_default=60,
    configurations=8,
    network_configurations=8,
    whole_network_configurations=10,
    host_configurations=16,
    warm_configurations=128,
)
"""For trying the command out; too little for a bundle to rely on."""

WARMER_C = (25.0, 65.0, 85.0)
"""Temperatures of the die at which idle power is measured besides the usual one: from a cold board to one about to throttle."""

_CANDIDATES = 10  # drawn for each random kernel that is measured

_RECIPES = {
    "conv2d": (Recipe(7, 0.1, 10.0), Recipe(9, 0.1, 10.0)),
    "": (Recipe(5, 0.1), Recipe(7, 0.1)),
}


@dataclass(frozen=True)
class Production:
    """What to make, decided before anything is measured; ``silicon`` is the version of the simulated boards' behaviour."""

    name: str
    command: str
    campaign: Campaign
    options: TrainingOptions
    folds: int
    silicon: int = 1

    @property
    def networks(self) -> tuple[Network, ...]:
        return self.campaign.networks


Progress = Callable[[int, int, str], None]


def plan_simulated(
    board_name: str, name: str, command: str, *, quick: bool = False, threads: int = 1, seed: int = 0, silicon: int = 1
) -> Production:
    """Decide what a simulated board's bundle is made of.

    Args:
        silicon: version of the simulated boards' behaviour.

    Raises:
        BoardDescriptionError: there is no such board.
    """
    board = load_board(board_name)
    networks = [reference_network(network) for network in reference_names()]
    sampler = Sampler(networks, seed, by_magnitude=True)
    campaign = plan_campaign(
        board,
        networks,
        lambda kind, count: spread_over_sizes(sampler.draw(kind, _CANDIDATES * count), count) if count else [],
        QUICK if quick else FULL,
        kinds=KINDS,
        temperature_c=AMBIENT_DIE_C,
        warmer_c=WARMER_C,
        silicon_version=Silicon(board=board, version=silicon).version,
        seed=seed,
    )
    options = TrainingOptions(
        {kind: recipes[:1] for kind, recipes in _RECIPES.items()} if quick else _RECIPES,
        most_rounds=60 if quick else 300,
        threads=threads,
        seed=seed,
    )
    return Production(name, command, campaign, options, folds=2 if quick else 5, silicon=silicon)


def measure_simulated(production: Production, folder: Path | None, progress: Progress) -> Measurements:
    """Run the campaign on simulated boards, in virtual time."""
    campaign = production.campaign
    return run_campaign(
        campaign,
        lambda node: twin_meter(campaign.board.name, node, campaign.seed, production.silicon),
        folder,
        progress,
    )


def make_bundle(production: Production, measurements: Measurements, directory: Path, progress: Progress) -> Bundle:
    """Train, find the uncertainty, write the bundle, and evaluate what was written on a board left out."""
    board, networks = production.campaign.board, production.networks
    trained = train_all(measurements, board, networks, KINDS, production.options, progress)
    folds = make_folds(networks, measurements.nodes, production.folds, production.campaign.seed)
    uncertainty = left_out_uncertainty(measurements, board, networks, trained, folds, production.options, progress)
    cost = board_cost(measurements, board, trained, uncertainty)
    regions = regions_of(measurements, board, networks, trained, uncertainty, production.options, progress)
    manifest = manifest_of(
        production.name, measurements, board, trained, uncertainty, regions, production.command, _tools(), cost.heat
    )
    written = write_bundle(directory, manifest, contents_of(trained, cost))
    bundle = load_bundle(directory)
    errors = evaluate_simulated(bundle, networks, EVALUATION_NODES)
    complete = replace(written, evaluation=evaluation_record(errors, uncertainty))
    return replace(bundle, manifest=write_manifest(directory, complete, written.checksums))


def evaluate_simulated(
    bundle: Bundle, networks: Sequence[Network], nodes: Sequence[int], *, configurations: int = 100, seed: int = 0
) -> list[NetworkError]:
    """Both methods' errors against networks measured on simulated boards of the silicon that the bundle was trained on.

    Raises:
        TwinError: there is no such silicon here.
    """
    silicon = version_of(bundle.manifest.silicon_version, bundle.manifest.board)
    measured = []
    for node in nodes:
        meter = twin_meter(bundle.manifest.board, node, seed + 1, silicon)
        for number, network in enumerate(networks):
            choice = seed + 100 * node + number
            measured.append(measure_network(network, bundle.cost.grid, bundle.manifest.rails, meter, configurations, choice))
    return evaluate(bundle.cost, measured)


def evaluation_record(errors: Sequence[NetworkError], uncertainty: Uncertainty) -> dict[str, Any]:
    """What a manifest keeps of its evaluation: a board left out, and networks left out as well."""
    return {
        UNSEEN_BOARD: {
            "nodes": list(EVALUATION_NODES),
            "mean": summary(errors),
            "networks": [error.to_json() for error in errors],
        },
        UNSEEN_NETWORK: {
            "mean": summary(uncertainty.errors),
            "networks": [error.to_json() for error in uncertainty.errors],
        },
    }


def _tools() -> dict[str, str]:
    import scipy
    import treelite
    import xgboost

    tools = (np, scipy, treelite, xgboost)
    return {"python": platform.python_version(), **{tool.__name__: tool.__version__ for tool in tools}}


def twin_meter(board: str, node: int, seed: int, silicon: int = 1, temperature_c: float = AMBIENT_DIE_C) -> TwinMeter:
    """The measuring instrument of one simulated board, of that version of the silicon's behaviour, at that temperature."""
    return TwinMeter(Silicon(node, board=board, version=silicon), seed + 1000 * node, temperature_c)
