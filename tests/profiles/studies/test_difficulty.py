# SPDX-License-Identifier: Apache-2.0
"""The difficulty gate runs the plain recipe, split by board, and says whether the silicon is as hard as the real boards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from jetdvfs.daemon.cli import main
from jetdvfs.kernels.network import Network
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.measuring.drawing.sampling import Sampler, random_configurations
from jetdvfs.profiles.reference import reference_names, reference_network
from jetdvfs.profiles.studies import difficulty as gate

BOARD = load_board("agx-xavier")


@pytest.fixture(scope="module")
def networks() -> list[Network]:
    return [reference_network(name) for name in reference_names()]


def test_features_are_raw_sizes_parameters_and_clocks(networks: list[Network]) -> None:
    calls = Sampler(networks).draw("conv2d", 50, real_share=0.5)
    configurations = random_configurations(BOARD.grid, 50, np.random.default_rng(0))
    features = gate.plain_features("conv2d", calls, configurations)
    for row, call, configuration in zip(features, calls, configurations, strict=True):
        params: Mapping[str, Any] = call.params
        expected = [*call.inputs[0], *params["weight"], params["bias"], *params["stride"]]
        expected += [*params["padding"], *params["dilation"], params["groups"]]
        expected += [configuration.cpu_khz / 1e3, configuration.gpu_hz / 1e6, configuration.emc_hz / 1e6]
        assert np.allclose(row, np.array(expected, np.float32))


def test_products_have_two_features_and_the_clocks(networks: list[Network]) -> None:
    calls = Sampler(networks).draw("matmul", 5)
    assert gate.plain_features("matmul", calls, [BOARD.grid.top] * 5).shape == (5, 5)


def test_boards_to_test_on_are_not_trained_on() -> None:
    assert len(gate.TRAINING_NODES) == 11 and len(gate.TEST_NODES) == 2
    assert not set(gate.TRAINING_NODES) & set(gate.TEST_NODES)


@pytest.mark.slow
def test_more_measurements_bring_batch_norm_near_the_paper(networks: list[Network]) -> None:
    pytest.importorskip("xgboost", reason="the gate trains XGBoost models")
    few, more = (gate.run_gate(networks, BOARD, {"batch_norm": count}, rounds=120, threads=1) for count in (1300, 26000))
    assert [(row.kind, row.target) for row in more] == [("batch_norm", "runtime"), ("batch_norm", "power")]
    assert (more[0].training, more[0].testing) == (22000, 4000)
    for sparse, dense in zip(few, more, strict=True):
        assert dense.within[1] > sparse.within[1]
        assert dense.within == tuple(sorted(dense.within))
        assert dense.within[1] > dense.paper_within_10 - 25
        # Twice the tolerance above the paper would be silicon that is too easy.
        assert dense.within[1] < dense.paper_within_10 + 2 * gate.TOLERANCE


def test_gate_passes_only_near_the_paper() -> None:
    def row(within: float) -> gate.GateRow:
        return gate.GateRow("conv2d", "runtime", 1, 1, (0.0, within, 100.0, 100.0), 82.11, 0.0)

    assert row(80.0).passed and row(88.0).passed
    assert not row(75.0).passed and not row(95.0).passed


def test_gate_command_fails_when_a_model_misses(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("xgboost", reason="the gate trains XGBoost models")
    asked = ["--silicon", "1", "--conv2d", "650", "--batch-norm", "0", "--matmul", "0", "--rounds", "5", "--threads", "1"]
    assert main(["profile", "gate", *asked]) == 4
    assert "MISSED" in capsys.readouterr().out
