# SPDX-License-Identifier: Apache-2.0
"""Adding to a finished profile how its board's idle power grows with temperature."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from jetdvfs.kernels.cost.model import surface
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.errors import TwinError
from jetdvfs.profiles.lab.train.truth import true_surface
from jetdvfs.profiles.lab.train.warming import warm
from jetdvfs.profiles.reference import reference_network
from jetdvfs.profiles.twin.silicon.silicon import Silicon
from jetdvfs.tests.support.profiles.small_bundle import make_bundle


def quiet(done: int, total: int, text: str) -> None:
    """No progress bar."""


def test_an_older_profile_learns_what_leaks_and_keeps_everything_else(tmp_path: Path) -> None:
    pytest.importorskip("scipy", reason="training needs scipy")
    make_bundle(tmp_path / "old")
    path = tmp_path / "old/manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "silicon_version": "agx-xavier-1"}))
    old = load_bundle(tmp_path / "old", cache_dir=tmp_path / "cache")
    warmed = warm(old, tmp_path / "new", 0, quiet)
    assert old.cost.heat is None and warmed.cost.heat is not None and warmed.cost.leakage_mw is not None
    np.testing.assert_array_equal(warmed.cost.idle_mw, old.cost.idle_mw)
    assert warmed.manifest.kinds == old.manifest.kinds and "jetdvfs-lab train" in warmed.manifest.command
    changed = {name for name, digest in warmed.manifest.checksums.items() if old.manifest.checksums[name] != digest}
    assert changed == {"board.npz"}


def test_boards_of_other_silicon_are_not_warmed(tmp_path: Path) -> None:
    make_bundle(tmp_path / "alien")
    with pytest.raises(TwinError, match="no simulated silicon 'test-1'"):
        warm(load_bundle(tmp_path / "alien", cache_dir=tmp_path / "cache"), tmp_path / "new", 0, quiet)


@pytest.mark.parametrize(
    "name", ["nano-sim", *(pytest.param(name, marks=pytest.mark.slow) for name in ("agx-xavier-sim", "agx-orin-64gb-sim"))]
)
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
