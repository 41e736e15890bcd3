# SPDX-License-Identifier: Apache-2.0
"""Campaigns on one or several simulated boards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ....kernels.cost.features import MODELLED_KINDS
from ....kernels.kinds import ELEMENTWISE
from ....kernels.network import Network
from ...adapt.measurements import Measurements
from ...board import load_board
from ...twin.silicon.chip import AMBIENT_DIE_C
from ...twin.silicon.silicon import Silicon
from .campaign import Campaign, CampaignSize, plan_campaign
from .meters.simulated import TwinMeter, twin_meter
from .steps import Progress, run_campaign
from .variation import FEW, Variations

WARMER_C = (25.0, 65.0, 85.0)
"""Further die temperatures for idle power: from a cold board to the onset of throttling."""
_SHARED = 8
_STEPS = 1_000_003  # keeps the noise of steps apart from that of boards


def one_board_size(node: int, random_kernels: int) -> CampaignSize:
    """Size for one board; four kernels share each power configuration."""
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
        power_kernels=4,
        power_configurations=2,
    )


def several_boards_size(nodes: Sequence[int], random_kernels: int, configurations: int, observations: int) -> CampaignSize:
    """Size for several boards: more random kernels, at one configuration each. Shapes help unseen boards more than timings."""
    shared = _SHARED * random_kernels
    return replace(
        one_board_size(nodes[0], random_kernels),
        nodes=tuple(nodes),
        random_kernels={"conv2d": 8 * shared, "matmul": 2 * shared},
        random_kernels_default=shared,
        configurations=1,
        power_kernels=1,
        power_configurations=0,
        whole_network_configurations=configurations,
        fixed_observations=observations,
    )


def plan_twin(
    board: str, networks: Sequence[Network], size: CampaignSize, seed: int = 0, dtype: str = "", perturbed: int = 0
) -> Campaign:
    """Plan networks, their kernels and variations. Raises BoardDescriptionError, TwinError."""
    description = load_board(board)
    variations = Variations(networks, seed, replace(FEW, dtype=dtype))
    kinds = [kind for kind in (*MODELLED_KINDS, ELEMENTWISE) if variations.own(kind)]
    return plan_campaign(
        description,
        networks,
        variations.some,
        size,
        kinds=kinds,
        temperature_c=AMBIENT_DIE_C,
        warmer_c=WARMER_C,
        silicon_version=Silicon(board=description, perturbed=perturbed).version,
        seed=seed,
    )


def measure_twin(campaign: Campaign, folder: Path | None, progress: Progress) -> Measurements:
    return run_campaign(campaign, lambda node: twin_meter(campaign.board.name, node, campaign.seed), folder, progress)


class TwinMeters(Struct, frozen=True):
    """Makes meters of simulated boards; noise follows from board and step."""

    board: str
    seed: int
    perturbed: int = 0

    def __call__(self, node: int, step: int) -> TwinMeter:
        return twin_meter(self.board, node, self.seed + _STEPS * step, perturbed=self.perturbed)
