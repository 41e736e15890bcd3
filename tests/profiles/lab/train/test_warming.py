# SPDX-License-Identifier: Apache-2.0
"""How a board's idle power grows with temperature, by the shipped profiles."""

from __future__ import annotations

import numpy as np
import pytest

from jetdvfs.kernels.cost.model import surface
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.lab.train.evaluation import true_surface
from jetdvfs.profiles.reference import reference_network
from jetdvfs.profiles.twin.silicon.silicon import Silicon


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nano-sim", "agx-xavier-sim", "agx-orin-64gb-sim"])
def test_the_mean_error_of_shipped_profiles_does_not_move_with_the_temperature(name: str) -> None:
    """Of the boards that they were trained on: what others leak more or less, no profile can know."""
    bundle = load_bundle(name)
    description, network = load_board(bundle.manifest.board), reference_network("resnet18")
    predicted = surface(network, bundle.cost)

    def bias(temperature_c: float) -> float:
        ratios = []
        for node in bundle.manifest.nodes:
            silicon = Silicon(node, description)
            true = true_surface(network, silicon, description.grid, bundle.manifest.rails, temperature_c)
            ratios.append(predicted.warmed(temperature_c).energy_mj / true.energy_mj)
        return float(np.mean(ratios))

    usual = bias(45.0)
    assert all(bias(temperature_c) == pytest.approx(usual, abs=0.03) for temperature_c in (30.0, 60.0, 75.0, 85.0))


def test_the_same_power_at_another_temperature_is_another_board_cost() -> None:
    cost = load_bundle("agx-xavier-sim").cost
    network = reference_network("alexnet")
    whole = surface(network, cost).warmed(80.0)
    beforehand = surface(network, cost.warmed(80.0))
    np.testing.assert_allclose(whole.energy_mj, beforehand.energy_mj, rtol=1e-5)
    np.testing.assert_allclose(whole.idle_mw, beforehand.idle_mw, rtol=1e-5)
