# SPDX-License-Identifier: Apache-2.0
"""Bounds are fitted to some networks and kept by others, network by network and frame by frame."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.network import Network
from jetdvfs.profiles.adapt.network_errors import NetworkMeasurement, compare
from jetdvfs.profiles.bundle.bundle import read_manifest
from jetdvfs.profiles.bundle.finding import SHIPPED, find_bundles
from jetdvfs.profiles.bundle.manifest import UNSEEN_FAMILY
from jetdvfs.profiles.errors import MeasurementError
from jetdvfs.profiles.lab.train.error_bounds import fit_bounds
from jetdvfs.profiles.lab.train.listed_networks import calibrating_networks, left_out_networks, trained_networks
from jetdvfs.tests.support.profiles.analytic import GRID, board, conv2d, matmul, network, relu, view

pytest.importorskip("scipy", reason="fitting needs scipy")

COST = board(host_us=(0, 10_000, 0), sigma=0.02, common=0.01)
BOARDS = 6


def some(count: int, first: int = 0) -> list[Network]:
    """Networks that compute, move or launch, each more or less."""
    made = []
    for number in range(first, first + count):
        calls = [matmul(200 + 50 * (number % 7)), conv2d(32 + 8 * (number % 5)), relu(1 << (16 + number % 6))]
        made.append(network(*calls, *[view()] * (40 * (number % 4)), name=f"net{number}"))
    return made


def measured(networks: Sequence[Network], seed: int, *, apart: float = 0.04) -> list[NetworkMeasurement]:
    """Each network is off by a factor of its own at all configurations, each board by another; frames are late now and then."""
    random = np.random.default_rng(seed)
    found = []
    of_boards = random.normal(0, 0.01, BOARDS)
    for one in networks:
        expected = surface(one, COST)
        own_ms, own_mj = random.normal(0, apart, 2)
        for of_board in of_boards:
            shape = (GRID.size, 25)
            late = 0.3 * random.random(shape) * (random.random(shape) < 0.04)
            off = own_ms + of_board + random.normal(0, 0.02, (GRID.size, 1))
            frames_ms = expected.latency_ms.reshape(-1, 1) * np.exp(off + random.normal(0, 0.01, shape) + late)
            energy_mj = expected.energy_mj.ravel() * np.exp(own_mj + of_board + random.normal(0, 0.02, GRID.size))
            found.append(NetworkMeasurement(one, np.arange(GRID.size), np.median(frames_ms, axis=1), energy_mj, frames_ms))
    return found


def test_a_bound_is_kept_by_networks_that_it_was_not_fitted_to() -> None:
    kept: dict[str, list[float]] = {"latency": [], "energy": []}
    before, wide = [], []
    for seed in range(2):  # other networks and boards each time
        cost, strangers = fit_bounds(COST, measured(some(24), seed)), some(12, first=100)
        others = measured(strangers, seed=100 + seed)
        found = [compare(surface(item.network, cost), item) for item in others]
        for figure, shares in kept.items():
            for one in strangers:
                shares.append(np.mean([getattr(each, f"{figure}_covered") for each in found if each.network == one.name]))
        wide += [each.latency_high for each in found]
        before += [compare(surface(item.network, COST), item).latency_covered for item in others]
    for shares in kept.values():
        assert np.mean([share >= 0.9 for share in shares]) >= 0.75 and np.mean(shares) >= 0.9
    assert max(wide) <= 1.3
    # As the profile had it before, errors log-normal and its kernels' own, they were hardly kept.
    assert np.mean(before) < 0.8


def test_networks_that_lie_further_apart_have_wider_bounds() -> None:
    near, far = (
        surface(some(1)[0], fit_bounds(COST, measured(some(16), seed=3, apart=apart))).quantile(0.95) for apart in (0.02, 0.12)
    )
    for figure in ("latency_ms", "energy_mj"):
        wider = getattr(far, figure) / getattr(near, figure)
        assert (wider > 1).all() and wider.mean() > 1.05


def test_late_frames_count_and_more_so_the_surer_a_bound_is_to_be() -> None:
    cost = fit_bounds(COST, measured(some(16), seed=4, apart=0.01))
    assert cost.tails is not None
    ahead = surface(some(1)[0], cost)
    surely, nearly = (ahead.quantile(sure).latency_ms / ahead.latency_ms for sure in (0.99, 0.95))
    assert (surely > nearly * 1.04).all()  # a normal distribution of that width has 1.02
    assert cost.tails.latency.scale > 0 and cost.tails.latency.quantile(0.999) > 1.3 * cost.tails.latency.quantile(0.99)


def test_too_few_networks_and_networks_without_power_are_refused() -> None:
    with pytest.raises(MeasurementError, match="3 networks of families that the profile does not know; expected 8"):
        fit_bounds(COST, measured(some(3), seed=5))
    unpowered = [NetworkMeasurement(item.network, item.index, item.latency_ms, None) for item in measured(some(8), seed=5)]
    with pytest.raises(MeasurementError, match="power of network net0 was not measured"):
        fit_bounds(COST, unpowered)


def test_bounds_are_fitted_to_networks_that_no_profile_is_trained_on_or_judged_by() -> None:
    ours = {one.digest for one in calibrating_networks()}
    assert len(ours) >= 20
    assert not ours & {one.digest for one in (*trained_networks(), *left_out_networks())}


FALLING_SHORT = {("tx2-sim", "latency")}


@pytest.mark.parametrize("name", sorted(find_bundles([SHIPPED])))
def test_families_left_out_keep_the_bounds_of_shipped_profiles(name: str) -> None:
    manifest = read_manifest(find_bundles([SHIPPED])[name])
    if manifest.bounds is None:
        pytest.skip("its bounds were not fitted")
    found = [item for item in manifest.evaluation[UNSEEN_FAMILY]["networks"] if item["method"] == "timeline"]
    for figure in ("latency", "energy"):
        kept = 0.8 if (name, figure) in FALLING_SHORT else 0.9
        assert np.mean([item[f"{figure}_covered"] for item in found]) >= kept
        assert np.median([item[f"{figure}_high"] for item in found]) <= 1.3
