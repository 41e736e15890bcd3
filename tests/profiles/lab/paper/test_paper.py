# SPDX-License-Identifier: Apache-2.0
"""The paper's figures of accuracy, of boards' differences and of sums of kernels, on cases that were worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from jetdvfs.kernels.grid import FrequencyGrid
from jetdvfs.kernels.network import KernelInvocation, Network
from jetdvfs.profiles.adapt.measurements import TABLES, MeasurementRows, Measurements
from jetdvfs.profiles.board import ChipRates
from jetdvfs.profiles.device import Device
from jetdvfs.profiles.errors import MeasurementError
from jetdvfs.profiles.lab.measure.steps import fixed_configurations
from jetdvfs.profiles.lab.paper.accuracy import PredictionComparison, PredictionErrors, mean_of
from jetdvfs.profiles.lab.paper.network_on_boards import observed
from jetdvfs.profiles.lab.paper.published import MEANS, TABLE_4, TABLE_5, TABLE_6, TABLE_7
from jetdvfs.profiles.lab.paper.rotation import KernelRows, middle
from jetdvfs.profiles.lab.paper.single_network_models import SingleNetworkModel, improvement, one_against_many
from jetdvfs.profiles.lab.paper.study import some_of
from jetdvfs.profiles.lab.paper.variability import (
    DistributionTests,
    anderson_darling,
    differing,
    kolmogorov_smirnov,
    means_of_others,
    over_grid,
    spreads,
)

pytest.importorskip("scipy", reason="the tests of samples are scipy's")

GRID = FrequencyGrid(tuple(100_000 * n for n in range(1, 8)), (100_000_000, 200_000_000), (500_000_000, 1_000_000_000))
DEVICE = Device("bench", GRID, ChipRates({"float32": 10.0}, 16.0), ("ALL",), ())
SHAPE = (1, 4, 8, 8)
RELU = KernelInvocation("relu", "", (SHAPE,), SHAPE, "float32", {}, 256, 2048)
TANH = KernelInvocation("tanh", "", (SHAPE,), SHAPE, "float32", {}, 256, 2048)
NETWORK = Network("three", (), (RELU, TANH, RELU))


def compared(predicted: list[float], truth: list[float]) -> PredictionComparison:
    return PredictionComparison(np.array(predicted), np.array(truth), np.zeros(len(truth), np.int64))


def rows(*each: tuple[int, int, int, float]) -> MeasurementRows:
    what, node, configuration, value = zip(*each, strict=True)
    return MeasurementRows(np.array(what), np.array(node), np.array(configuration), np.array(value, np.float64))


def record(**tables: MeasurementRows) -> Measurements:
    none = {name: MeasurementRows.joined(()) for name in TABLES}
    return Measurements("bench", "", 45.0, ("ALL",), (RELU, TANH), (), (NETWORK,), {**none, **tables}, device=DEVICE)


def test_accuracy_is_the_shares_within_four_limits_and_two_absolute_errors() -> None:
    found = compared([104.0, 109.0, 86.0, 150.0], [100.0] * 4).accuracy()
    assert found.within == (25.0, 50.0, 75.0, 75.0) and found.count == 4
    assert found.mae == pytest.approx((4 + 9 + 14 + 50) / 4) and found.mean_percent == pytest.approx(77 / 4)
    assert found.rmse == pytest.approx(((16 + 81 + 196 + 2500) / 4) ** 0.5)


def test_accuracy_by_weight_counts_a_prediction_as_often_as_that() -> None:
    heavy = compared([104.0, 125.0], [100.0, 100.0]).accuracy([3.0, 1.0])
    same = compared([104.0, 104.0, 104.0, 125.0], [100.0] * 4).accuracy()
    assert heavy.within == same.within == (75.0, 75.0, 75.0, 75.0)
    assert (heavy.rmse, heavy.mae) == pytest.approx((same.rmse, same.mae))


def test_convolutions_count_half_as_networks_own_and_others_as_random_ones_alone() -> None:
    same = compared([1.0] * 4, [1.0] * 4)
    found = KernelRows(same, np.array([True, False, False, False]), same)
    assert found.weighed("conv2d") == pytest.approx([2.0, 2 / 3, 2 / 3, 2 / 3])
    assert found.weighed("relu").tolist() == [0.0, 1.0, 1.0, 1.0]
    both = compared([1.0] * 2, [1.0] * 2)
    only = KernelRows(both, np.array([True, True]), both)
    assert only.weighed("relu").tolist() == only.weighed("conv2d").tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("name", "printed"), [("table-4", TABLE_4), ("table-5", TABLE_5), ("table-6", TABLE_6), ("table-7", TABLE_7)]
)
def test_the_papers_last_rows_are_the_means_of_those_before_them(name: str, printed: dict[str, PredictionErrors]) -> None:
    means = mean_of(list(printed.values()))
    assert means.within == pytest.approx(MEANS[name].within, abs=0.02) and len(printed) in (8, 10)
    assert means.rmse == pytest.approx(MEANS[name].rmse, rel=0.02, abs=0.005)
    assert means.mae == pytest.approx(MEANS[name].mae, rel=0.02, abs=0.005)


def test_an_improvement_is_relative_to_the_single_board() -> None:
    single = compared([110.0 - 1e-9, 120.0, 104.0, 104.0], [100.0] * 4).accuracy()
    many = compared([105.0 - 1e-9, 110.0 - 1e-9, 104.0, 104.0], [100.0] * 4).accuracy()
    within_5, within_10, rmse, mae = improvement(single, many)
    assert within_5 == pytest.approx(50.0) and within_10 == pytest.approx(100 / 3)
    assert mae == pytest.approx(100 * (1 - 23 / 38)) and rmse == pytest.approx(100 * (1 - (157 / 532) ** 0.5))


def test_nothing_within_five_percent_is_taken_as_one_prediction_so_that_improvements_are_bounded() -> None:
    single, many = (compared([factor * 100.0] * 10, [100.0] * 10).accuracy() for factor in (1.5, 1.01))
    assert improvement(single, many)[0] == pytest.approx(1000.0)


def test_boards_that_are_left_out_are_spread_over_those_there_are() -> None:
    assert some_of(range(13), 2) == (3, 9) and some_of((4, 7), 5) == (4, 7) and some_of(range(4), 1) == (2,)


PAPER_SMOOTHNESS = [
    [38.7, 41.5, 43.8, 44.5, 45.5, 46.0, 47.7, 58.0],
    [39.2, 39.3, 39.7, 41.4, 41.8, 42.9, 43.3, 45.8],
    [34.0, 35.0, 39.0, 40.0, 43.0, 43.0, 44.0, 45.0],
    [34.0, 34.8, 34.8, 35.4, 37.2, 37.8, 41.2, 42.8],
]


def test_the_four_laboratories_of_scholz_and_stephens_differ() -> None:
    samples = [np.array(each) for each in PAPER_SMOOTHNESS]
    assert anderson_darling(samples) == pytest.approx(0.0023, abs=0.0008)
    assert differing(samples).anderson_darling == (1, 1)
    assert anderson_darling([samples[0], samples[0] + 0.01]) == pytest.approx(0.25)


def test_samples_that_do_not_overlap_differ_as_often_as_one_order_of_all_says() -> None:
    first, second = np.arange(5.0), np.arange(10.0, 15.0)
    assert kolmogorov_smirnov(first, second) == pytest.approx(2 / 252)  # of 10 over 5 ways, two keep them apart
    assert differing([first, second, second + 0.1]).kolmogorov_smirnov == (3, 2)


def test_equal_observations_differ_from_nothing() -> None:
    assert differing([np.ones(5), np.ones(5)]) == DistributionTests((1, 0), (1, 0))


def test_a_spread_is_of_medians_about_their_median_and_of_each_board_about_its_own() -> None:
    values = {0: [98.0, 100.0, 102.0], 1: [109.0, 110.0, 111.0], 2: [89.0, 90.0, 91.0]}
    table = rows(*((0, node, 5, value) for node, each in values.items() for value in each))
    (found,) = spreads(record(fixed_network_ms=table))
    assert found.reference == 100.0 and found.range_percent == pytest.approx(20.0)
    assert found.boards[1] == pytest.approx([9.0, 10.0, 11.0]) and found.within[0] == pytest.approx([-2.0, 0.0, 2.0])
    assert found.over_boards == DistributionTests((0, 0), (0, 0))  # three observations of a board are too few to test


def test_boards_that_differ_are_found_and_halves_of_one_board_are_not() -> None:
    random = np.random.default_rng(0)
    table = rows(*((0, node, 5, 100.0 + 3 * node + random.normal()) for node in range(3) for _ in range(30)))
    (found,) = spreads(record(fixed_network_ms=table))
    assert found.over_boards == DistributionTests((1, 1), (3, 3)) and found.within_boards == DistributionTests((3, 0), (3, 0))


def test_latency_over_the_grid_is_the_median_of_boards_in_the_order_of_the_clocks() -> None:
    table = rows((0, 0, 7, 40.0), (0, 1, 7, 44.0), (0, 2, 7, 60.0), (0, 0, 2, 400.0))
    (found,) = over_grid(record(network_ms=table))
    assert found.configuration.tolist() == [2, 7] and found.latency_ms.tolist() == [400.0, 44.0]
    assert found.times == pytest.approx(400 / 44)


def test_what_was_measured_more_than_once_counts_by_its_median() -> None:
    found = middle(rows((1, 0, 3, 5.0), (0, 0, 3, 2.0), (1, 0, 3, 9.0), (1, 0, 3, 6.0)))
    assert found.what.tolist() == [0, 1] and found.value.tolist() == [2.0, 6.0]


def test_sums_of_observed_kernels_count_every_launch_and_the_eight_kinds_apart() -> None:
    idle = rows(*((0, 0, at, 1000.0) for at in range(GRID.size)))
    (found,) = observed(
        record(
            fixed_network_ms=rows((0, 0, 5, 10.0), (0, 0, 5, 12.0), (0, 0, 5, 11.0)),
            fixed_network_mw=rows((0, 0, 5, 3000.0), (0, 0, 5, 3000.0), (0, 0, 5, 3000.0)),
            fixed_kernel_ms=rows((0, 0, 5, 3.0), (1, 0, 5, 4.0)),
            fixed_kernel_mw=rows((0, 0, 5, 1000.0), (1, 0, 5, 3000.0)),
            idle_mw=idle,
        )
    )
    assert found.selected.predicted.tolist() == [6.0] and found.all_kernels.predicted.tolist() == [10.0]
    assert found.all_kernels.observed.tolist() == [11.0] and found.unmeasured == 0.0
    assert found.selected_j is not None and found.selected_j.predicted == pytest.approx([6e-3 * 2.0])
    assert found.all_j is not None and found.all_j.predicted == pytest.approx([6e-3 * 2.0 + 4e-3 * 4.0])
    assert found.all_j.observed == pytest.approx([11e-3 * 3.0])


def test_the_mean_of_others_is_of_the_very_same_kernel_at_the_same_configuration() -> None:
    at_three = [(0, board, 3, value) for board, value in enumerate((1.0, 1.2, 1.4))]
    unlike = [(0, 0, 4, 9.0), (0, 1, 4, 9.0), (0, 2, 5, 7.0), (1, 0, 3, 9.0)]  # another clock, only here, another kind
    found = means_of_others(record(fixed_kernel_ms=rows(*at_three, *unlike)), [2, 0])
    assert list(found) == [("relu", "time")]
    one = found["relu", "time"]
    assert list(one.board) == [2, 0, 0] and list(one.observed) == [1.4, 1.0, 9.0]
    assert one.predicted == pytest.approx([1.1, 1.3, 9.0])


def test_the_lowest_configuration_in_common_is_not_at_the_slowest_cpu_clock() -> None:
    low, middling, high = (tuple(map(int, np.unravel_index(at, GRID.shape))) for at in fixed_configurations(GRID))
    assert (low, middling, high) == ((1, 0, 0), (3, 1, 1), (6, 1, 1))
    single = FrequencyGrid((1_000_000,), (1_000_000,), (1_000_000,))
    assert fixed_configurations(single) == (0,)


def laws(nodes: dict[int, float]) -> MeasurementRows:
    """Boards that take so many times what a law of the clocks says."""
    random = np.random.default_rng(1)
    each = []
    for node, factor in nodes.items():
        for at in random.choice(GRID.size, 20, replace=False):
            cpu, gpu, emc = (
                levels[index] for levels, index in zip(GRID.levels_mhz(), np.unravel_index(at, GRID.shape), strict=True)
            )
            each.append((0, node, int(at), factor * (100 / cpu + 500 / gpu + 900 / emc)))
    return rows(*each)


def test_a_model_of_one_network_learns_what_the_clocks_do() -> None:
    pytest.importorskip("xgboost", reason="trees are XGBoost's")
    known, strange = laws({0: 1.0, 1: 1.0}), laws({2: 1.0})
    error = np.abs(SingleNetworkModel(known, GRID).predict(strange.configuration) / strange.value - 1)
    assert error.mean() < 0.03


def test_training_on_many_boards_beats_one_that_is_unlike_the_others() -> None:
    pytest.importorskip("xgboost", reason="trees are XGBoost's")
    found = one_against_many(record(network_ms=laws({0: 1.0, 1: 1.0, 2: 1.3, 3: 1.02})), (0,), lambda done, total, text: None)
    (row,) = found
    assert row.figure == "runtime" and row.with_all.mae.high > 50 > row.with_all.mae.low
    with pytest.raises(MeasurementError, match="of 2 boards; one against many takes three"):
        one_against_many(record(network_ms=laws({0: 1.0, 1: 1.0})), (0,), lambda done, total, text: None)
