# SPDX-License-Identifier: Apache-2.0
"""What a simulated board does, known without measuring it."""

from __future__ import annotations

import numpy as np
import pytest

from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.lab.measure.meters.simulated import twin_meter
from jetdvfs.profiles.lab.train.evaluation import mean_surface, measure_network, true_surface
from jetdvfs.profiles.reference import reference_network
from jetdvfs.profiles.twin.silicon.silicon import Silicon

BOARD = load_board("agx-xavier")
NETWORK = reference_network("alexnet")


def test_the_truth_is_what_measuring_comes_close_to() -> None:
    truth = true_surface(NETWORK, Silicon(12, BOARD), BOARD.grid, BOARD.energy_rails)
    meter = twin_meter(BOARD.name, 12, 5)
    measured = measure_network(NETWORK, BOARD.grid, BOARD.energy_rails, meter, 200, seed=1)
    for figure, tolerance in (("latency_ms", 0.01), ("energy_mj", 0.01)):
        ratio = getattr(measured, figure) / getattr(truth, figure).ravel()[measured.index]
        assert np.median(ratio) == pytest.approx(1, abs=tolerance) and np.std(ratio) < 0.05
    assert (truth.latency_sigma == 0).all() and (truth.idle_mw < truth.power_mw).all()


def test_the_mean_of_boards_lies_between_them() -> None:
    boards = [true_surface(NETWORK, Silicon(node, BOARD), BOARD.grid, BOARD.energy_rails) for node in range(3)]
    mean = mean_surface(boards)
    for figure in ("latency_ms", "energy_mj", "idle_mw"):
        figures = np.array([getattr(one, figure) for one in boards])
        assert (getattr(mean, figure) >= figures.min(axis=0)).all() and (getattr(mean, figure) <= figures.max(axis=0)).all()
    assert np.allclose(mean.power_mw * mean.latency_ms / 1e3, mean.energy_mj)
    assert np.allclose(mean_surface(boards[:1]).energy_mj, boards[0].energy_mj)
