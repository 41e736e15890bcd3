# SPDX-License-Identifier: Apache-2.0
"""The plain recipe of the paper: its features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from jetdvfs.kernels.network import Network
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.lab.measure.sampling import Sampler, random_configurations
from jetdvfs.profiles.lab.paper import difficulty as gate
from jetdvfs.profiles.reference import reference_names, reference_network

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
