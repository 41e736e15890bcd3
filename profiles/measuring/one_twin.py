# SPDX-License-Identifier: Apache-2.0
"""A campaign on one simulated board, as an afternoon with a single real one would be, or on several by a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...kernels.cost.features import MODELLED_KINDS
from ...kernels.kinds import ELEMENTWISE
from ...kernels.network import Network
from ..board import load_board
from ..twin.silicon.chip import AMBIENT_DIE_C
from ..twin.silicon.silicon import Silicon
from .campaign import Campaign, CampaignSize, Progress, plan_campaign, run_campaign
from .measurements import Measurements
from .meters.simulated import TwinMeter, twin_meter
from .variation import Variations

WARMER_C = (25.0, 65.0, 85.0)
"""Temperatures of the die at which idle power is measured besides the usual one: from a cold board to one about to throttle."""


def one_board_size(node: int, random_kernels: int) -> CampaignSize:
    """How much is measured: so many random kernels of each kind, and more convolutions and products; idle power at a hundred
    configurations."""
    return CampaignSize(
        nodes=(node,),
        random_kernels={"conv2d": 6 * random_kernels, "matmul": 4 * random_kernels},
        random_kernels_default=random_kernels,
        configurations=4,
        network_configurations=4,
        whole_network_configurations=12,
        host_configurations=12,
        warm_configurations=40,
        idle_configurations=100,
    )


def plan_twin(board: str, networks: Sequence[Network], size: CampaignSize, silicon: int, seed: int = 0) -> Campaign:
    """Decide what is measured: the networks, their kernels and random ones around them.

    Raises:
        BoardDescriptionError: there is no such board.
        TwinError: there is no silicon for it.
    """
    description = load_board(board)
    variations = Variations(networks, seed)
    kinds = [kind for kind in (*MODELLED_KINDS, ELEMENTWISE) if variations.own(kind)]
    return plan_campaign(
        description,
        networks,
        variations.some,
        size,
        kinds=kinds,
        temperature_c=AMBIENT_DIE_C,
        warmer_c=WARMER_C,
        silicon_version=Silicon(board=description, version=silicon).version,
        seed=seed,
    )


def measure_twin(campaign: Campaign, board: str, silicon: int, folder: Path | None, progress: Progress) -> Measurements:
    """Run a campaign on simulated boards, in virtual time."""
    return run_campaign(campaign, lambda node: twin_meter(board, node, campaign.seed, silicon), folder, progress)


@dataclass(frozen=True)
class TwinMeters:
    """Gives the meters of simulated boards, whose noise follows from the board and the step."""

    board: str
    silicon: int
    seed: int

    def __call__(self, node: int, step: int) -> TwinMeter:
        return twin_meter(self.board, node, self.seed + 1_000_003 * step, self.silicon)
