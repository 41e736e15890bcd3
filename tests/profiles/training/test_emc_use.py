# SPDX-License-Identifier: Apache-2.0
"""How well each memory clock is used is seen in large kernels that move data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.kernels.network import KernelInvocation
from jetdvfs.profiles.measuring.campaign import CampaignSize, plan_campaign
from jetdvfs.profiles.measuring.measurements import Measurements
from jetdvfs.profiles.measuring.steps import run_campaign
from jetdvfs.profiles.training.inside import fit_emc_use
from jetdvfs.tests.support.profiles.synthetic_meter import BOARD, SyntheticMeter, network, pointwise

LOWEST_HZ, HIGHEST_HZ = BOARD.grid.emc_hz[0], BOARD.grid.emc_hz[-1]


class BadlyUsed(SyntheticMeter):
    """The lowest memory clock moves half of what its clock could."""

    def kernel_times_ms(
        self, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration]
    ) -> NDArray[np.float64]:
        lowest = np.array([configuration.emc_hz == LOWEST_HZ for configuration in configurations])
        timed: NDArray[np.float64] = super().kernel_times_ms(invocations, configurations) * np.where(lowest, 2.0, 1.0)
        return timed


class Saturated(SyntheticMeter):
    """The two highest memory clocks move the same."""

    def kernel_times_ms(
        self, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration]
    ) -> NDArray[np.float64]:
        slower = [HIGHEST_HZ / BOARD.grid.emc_hz[-2] if one.emc_hz == HIGHEST_HZ else 1.0 for one in configurations]
        timed: NDArray[np.float64] = super().kernel_times_ms(invocations, configurations) * slower * 1.01
        return timed


def measured(meter: type[SyntheticMeter], elements: int, count: int = 60) -> Measurements:
    def kernels(kind: str, many: int) -> list[KernelInvocation]:
        return [pointwise(kind, elements + 1000 * number) for number in range(many)]

    size = CampaignSize((0, 1), {}, count, 6, 2, 2, 4)
    networks = [network("small", [20_000])]
    return run_campaign(plan_campaign(BOARD, networks, kernels, size, kinds=("relu",), temperature_c=45.0), meter)


def test_a_clock_that_moves_half_of_what_it_could_is_found() -> None:
    use = fit_emc_use(measured(BadlyUsed, 4_000_000), BOARD)
    assert use[0] == pytest.approx(0.5, rel=0.05) and use[1:] == pytest.approx([1.0] * (len(use) - 1), rel=0.05)


@pytest.mark.parametrize(
    ("meter", "elements", "count"), [(SyntheticMeter, 10_000, 60), (SyntheticMeter, 4_000_000, 4), (Saturated, 4_000_000, 60)]
)
def test_clocks_count_as_they_are_where_nothing_else_is_known(meter: type[SyntheticMeter], elements: int, count: int) -> None:
    assert fit_emc_use(measured(meter, elements, count), BOARD) == ()
