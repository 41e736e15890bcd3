# SPDX-License-Identifier: Apache-2.0
"""What is observed next: where the plans of some networks are least certain."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import asdict

from jetdvfs.kernels.correction.observation import Observation
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.grid import FrequencyConfiguration, FrequencyGrid
from jetdvfs.kernels.surface import Surface
from jetdvfs.profiles.adapt.prior import NextObservation, next_observation, on_front, prior_of
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.bundle.bundle import Bundle, load_bundle
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.train.transfer_orders import orders_compared
from jetdvfs.profiles.reference import reference_network

BOARD = load_board("nano")
NETWORKS = [reference_network(name) for name in ("resnet18", "squeezenet1_0")]


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return load_bundle("nano-sim")


@pytest.fixture(scope="module")
def surfaces(bundle: Bundle) -> list[Surface]:
    cost = prior_of(bundle, BOARD).cost
    return [surface(network, cost) for network in NETWORKS]


def chosen(surfaces: Sequence[Surface], count: int, offered: FrequencyGrid = BOARD.grid) -> list[NextObservation]:
    """So many choices, each observed to be a tenth slower than predicted."""
    seen: list[list[Observation]] = [[] for _ in surfaces]
    found: list[NextObservation] = []
    for _ in range(count):
        tried = [{one.configuration for one in each} for each in seen]
        choice = next_observation(surfaces, seen, tried, offered)
        assert choice is not None
        predicted = surfaces[choice.network].at(choice.configuration)
        observed = Observation(choice.configuration, 1.1 * predicted.latency_ms, predicted.power_mw, frames=100)
        seen[choice.network].append(observed)
        found.append(choice)
    return found


def test_each_network_is_observed_at_the_top_first_then_nothing_twice(surfaces: list[Surface]) -> None:
    found = chosen(surfaces, 10)
    assert [(one.network, one.configuration) for one in found[:2]] == [(0, BOARD.grid.top), (1, BOARD.grid.top)]
    assert len({(one.network, one.configuration) for one in found}) == 10
    assert found[0].uncertainty == float("inf") and found[-1].uncertainty < found[2].uncertainty < 1


def test_levels_that_are_not_offered_are_not_chosen(surfaces: list[Surface]) -> None:
    grid = BOARD.grid
    few = FrequencyGrid(grid.cpu_khz[-2:], grid.gpu_hz[:2], grid.emc_hz[-1:])
    found = chosen(surfaces, 8, few)
    assert {one.configuration for one in found} == set(few)
    everywhere = [set(few), set(few)]
    seen = [[Observation(few.top, 9.0, 5000.0)], [Observation(few.top, 9.0, 5000.0)]]
    assert next_observation(surfaces, seen, everywhere, few) is None


def test_where_a_first_observation_did_not_count_another_place_is_tried(surfaces: list[Surface]) -> None:
    choice = next_observation(surfaces[:1], [[]], [{BOARD.grid.top}], BOARD.grid)
    assert choice is not None and choice.configuration != BOARD.grid.top


def test_what_a_plan_may_choose_is_the_fastest_the_least_energy_and_what_lies_between(surfaces: list[Surface]) -> None:
    found = on_front(surfaces[0])
    assert found.shape == BOARD.grid.shape and found.min() >= 0 and found.max() == 1
    assert found.ravel()[[surfaces[0].latency_ms.argmin(), surfaces[0].energy_mj.argmin()]] == pytest.approx([1, 1])
    slow = BOARD.grid.index(FrequencyConfiguration(BOARD.grid.cpu_khz[-1], BOARD.grid.gpu_hz[0], BOARD.grid.emc_hz[-1]))
    assert found[slow] < 0.1 < np.mean(found > 0.9) * 10


def test_chosen_and_random_orders_are_told_beside_each_other(bundle: Bundle) -> None:
    rows = orders_compared(bundle, "nano", 1, 3, NETWORKS, counts=(1, 8))
    assert [(row.order, row.observations) for row in rows] == [("chosen", 1), ("chosen", 8), ("random", 1), ("random", 8)]
    first, last, early, late = rows
    assert first.expected_percent is None and last.expected_percent is not None and last.minutes == pytest.approx(8 * 2.5 / 60)
    assert last.error_percent < 2 * last.expected_percent
    assert first.error_percent == pytest.approx(early.error_percent) and late.expected_percent is None
    json.dumps([asdict(row) for row in rows], allow_nan=False)


def test_the_orders_of_an_unknown_board_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "transfer", "nano-sim", "--board", "nobodys", "--orders"]) == 3
    assert capsys.readouterr().err.count("\n") == 1
