# SPDX-License-Identifier: Apache-2.0
"""Errors common to networks and boards are found again in measurements that were made with them."""

from __future__ import annotations

import numpy as np
import pytest

from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.cost.totals import BottleneckShares
from jetdvfs.profiles.lab.train.common_error import ObservedErrors, fit_shares, squared_parts
from jetdvfs.tests.support.profiles.analytic import GRID, board, conv2d, matmul, network, relu, view

NETWORKS = (
    network(matmul(1000), matmul(900), conv2d(), name="computing"),
    network(relu(1 << 22), relu(1 << 21), name="moving"),
    network(*[view()] * 300, relu(64), matmul(50), name="launching"),
)
COST = board(host_us=(0, 10_000, 0))


def observed(shares: BottleneckShares, trials: int = 3000, seed: int = 0) -> list[ObservedErrors]:
    """What networks show whose host, computation and memory traffic are each off by a random factor of its own."""
    rng = np.random.default_rng(seed)
    found = []
    for one in NETWORKS:
        parts, _ = squared_parts(one, COST)
        factors = rng.normal(0, 1, (trials, 3)) * [shares.host, shares.compute, shares.memory]
        error = factors @ np.sqrt(parts)
        found.append(ObservedErrors(error.ravel(), np.zeros(error.size), np.tile(parts, (1, trials))))
    return found


@pytest.mark.parametrize("shares", [BottleneckShares(0.05, 0.02, 0.1), BottleneckShares(0.1, 0.0, 0.03), BottleneckShares()])
def test_the_shares_that_made_the_errors_are_found(shares: BottleneckShares) -> None:
    fitted = fit_shares(observed(shares))
    for name in ("host", "compute", "memory"):
        assert getattr(fitted, name) == pytest.approx(getattr(shares, name), rel=0.1, abs=0.003)


def test_what_kernels_explain_is_not_counted_again() -> None:
    explained = [
        ObservedErrors(one.error, one.error**2, one.parts) for one in observed(BottleneckShares(0.1, 0.1, 0.1), trials=50)
    ]
    assert fit_shares(explained) == BottleneckShares()


def test_the_parts_are_those_of_the_whole() -> None:
    for one in NETWORKS:
        latency, energy = (np.sqrt(np.maximum(parts, 0)).sum(axis=0) for parts in squared_parts(one, COST))
        np.testing.assert_allclose(latency, 1, rtol=1e-4)
        np.testing.assert_allclose(energy, 1, rtol=1e-4)
    assert surface(NETWORKS[0], COST).latency_sigma.max() == 0
    assert GRID.size == latency.size
