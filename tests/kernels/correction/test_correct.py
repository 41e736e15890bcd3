# SPDX-License-Identifier: Apache-2.0
"""Surfaces corrected by what was observed: rates found again, outliers recognised, age, pacing, and no prediction at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from jetdvfs.kernels.correction.correct import correct, information
from jetdvfs.kernels.correction.flat import flat_surface
from jetdvfs.kernels.correction.observation import Observation
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.cost.roofline import terms_ms
from jetdvfs.kernels.errors import CostModelError, GridError
from jetdvfs.kernels.grid import FrequencyConfiguration, FrequencyGrid
from jetdvfs.kernels.heat import Heat
from jetdvfs.kernels.surface import Surface
from jetdvfs.tests.support.profiles.analytic import GRID, Rates, board, matmul, network, relu

WIDE = FrequencyGrid(
    tuple(range(200_000, 2_200_000, 200_000)),
    tuple(range(100_000_000, 1_300_000_000, 100_000_000)),
    (200_000_000, 400_000_000, 800_000_000, 1_600_000_000),
)


@pytest.fixture
def predicted() -> Surface:
    calls = [matmul(1000)] * 3 + [relu()] * 3
    return surface(network(*calls), board(sigma=0.05, common=0.1))


def _seen(truth: Surface, places: Sequence[tuple[int, int, int]], **more: Any) -> list[Observation]:
    return [
        Observation(truth.grid.configuration(at), float(truth.latency_ms[at]), float(truth.power_mw[at]), frames=30, **more)
        for at in places
    ]


def _random(grid: FrequencyGrid, count: int, seed: int = 1) -> list[tuple[int, int, int]]:
    cells = np.random.default_rng(seed).choice(grid.size - 1, count - 1, replace=False)
    first = (len(grid.cpu_khz) - 1, len(grid.gpu_hz) - 1, len(grid.emc_hz) - 1)
    return [first, *((int(a), int(b), int(c)) for a, b, c in zip(*np.unravel_index(cells, grid.shape), strict=True))]


def _error(found: NDArray[np.float64], true: NDArray[np.float64]) -> float:
    return float(np.abs(found / true - 1).mean())


def _overlapping(grid: FrequencyGrid) -> Surface:
    """A program that no model knows: three terms that hide each other in part, and power that grows with voltages."""
    cpu, gpu, emc = np.meshgrid(*(np.array(levels) / levels[-1] for levels in grid.to_json().values()), indexing="ij")
    latency_ms = ((8 / cpu) ** 3 + (12 / gpu) ** 3 + (5 / emc) ** 3) ** (1 / 3) + 1
    power_mw = 2000 + 1500 * cpu**2.2 + 5000 * gpu**2.4 + 1500 * emc
    return replace(flat_surface(grid), latency_ms=latency_ms, power_mw=power_mw, energy_mj=latency_ms * power_mw / 1e3)


def test_a_network_is_made_of_what_computing_traffic_and_the_host_take() -> None:
    kernel = matmul(1000)
    made = surface(network(kernel, kernel), board(slowdown=2.0, host_us=(100.0, 0.0, 0.0)))
    assert made.terms is not None
    _, gpu_mhz, emc_mhz = GRID.levels_mhz()
    compute_ms, memory_ms = terms_ms([kernel], gpu_mhz[None, :, None], emc_mhz[None, None, :], Rates())
    np.testing.assert_allclose(made.terms.host_ms, 0.2)
    together = made.terms.compute_ms + made.terms.memory_ms
    np.testing.assert_allclose(together, made.latency_ms - 0.1, rtol=1e-4)  # the first launch is waited for
    np.testing.assert_allclose((made.terms.memory_ms / together)[0], (memory_ms / (compute_ms + memory_ms))[0], rtol=1e-4)


def test_terms_are_kept_with_the_surface_and_old_files_do_without(predicted: Surface, tmp_path: Path) -> None:
    predicted.save(tmp_path / "new.npz")
    again = Surface.load(tmp_path / "new.npz").terms
    assert again is not None and predicted.terms is not None
    np.testing.assert_array_equal(again.memory_ms, predicted.terms.memory_ms)
    assert again.host_sigma == predicted.terms.host_sigma
    replace(predicted, terms=None).save(tmp_path / "old.npz")
    old = Surface.load(tmp_path / "old.npz")
    assert old.terms is None
    slower = replace(predicted, latency_ms=predicted.latency_ms * 1.3)
    corrected = correct(old, _seen(slower, _random(GRID, 3))).surface
    assert _error(corrected.latency_ms, slower.latency_ms) < 0.02


@pytest.mark.parametrize("factors", [(1.4, 1.0, 1.0), (1.0, 1.5, 1.0), (1.0, 1.0, 2.0), (0.8, 1.2, 1.3)])
def test_rates_of_another_board_are_found_from_a_few_configurations(factors: tuple[float, float, float]) -> None:
    compute, memory, host = factors
    calls = [matmul(1000)] * 3 + [relu(4_000_000)] * 2

    def on(rates: Rates, slower: float) -> Surface:
        cost = board(host_us=(0.0, slower * 400_000.0, 0.0), sigma=0.05, common=0.05)
        return surface(network(*calls), replace(cost, chip=rates))

    prediction = on(Rates(), 1.0)
    truth = on(Rates({"float32": 1000.0 / compute}, 10.0 / memory), host)
    corrected = correct(prediction, _seen(truth, _random(GRID, 8)))
    before, after = _error(prediction.latency_ms, truth.latency_ms), _error(corrected.surface.latency_ms, truth.latency_ms)
    assert after < 0.03 and after < before / 3
    assert corrected.correction.latency_error[1] < corrected.correction.latency_error[0]


def test_a_heavier_load_leaves_the_host_its_time() -> None:
    light, heavy = (
        surface(network(*[matmul(1000)] * 4), board(slowdown=slowdown, host_us=(0.0, 2.5e6, 0.0), sigma=0.05, common=0.03))
        for slowdown in (1.0, 1.6)
    )
    slow_gpu, slow_host = (-1, 0, -1), (0, -1, -1)
    assert heavy.latency_ms[slow_gpu] > 1.4 * light.latency_ms[slow_gpu]
    assert heavy.latency_ms[slow_host] < 1.15 * light.latency_ms[slow_host]
    top = GRID.shape[0] - 1, 0, GRID.shape[2] - 1
    found = correct(light, _seen(heavy, [top])).surface
    assert found.latency_ms[slow_host] == pytest.approx(heavy.latency_ms[slow_host], rel=0.1)
    assert found.latency_ms[slow_gpu] == pytest.approx(heavy.latency_ms[slow_gpu], rel=0.03)


def test_idle_and_dynamic_power_are_told_apart(predicted: Surface) -> None:
    dynamic_mw = predicted.power_mw - predicted.idle_mw
    power_mw = 1.5 * predicted.idle_mw + 0.8 * dynamic_mw
    truth = replace(
        predicted, idle_mw=1.5 * predicted.idle_mw, power_mw=power_mw, energy_mj=power_mw * predicted.latency_ms / 1e3
    )
    found = correct(predicted, _seen(truth, _random(GRID, 10)))
    assert _error(found.surface.power_mw, power_mw) < 0.02
    assert _error(found.surface.idle_mw, truth.idle_mw) < 0.1
    rates = {rate.name: rate.factor for rate in found.correction.rates}
    assert rates["idle"] == pytest.approx(1.5, rel=0.1) and rates["dynamic"] == pytest.approx(0.8, rel=0.1)


def test_power_over_the_period_of_frames_is_mostly_idle_power(predicted: Surface) -> None:
    paced = [
        replace(one, power_mw=float(predicted.energy_per_frame_mj(2.0)[GRID.index(one.configuration)] * 2), period_ms=500.0)
        for one in _seen(predicted, _random(GRID, 6))
    ]
    found = correct(predicted, paced).surface
    assert _error(found.power_mw, predicted.power_mw) < 0.03
    assert _error(found.idle_mw, predicted.idle_mw) < 0.03


def test_a_warm_die_is_not_taken_for_a_hungry_board(predicted: Surface) -> None:
    leaking = replace(predicted, leakage_mw=0.5 * predicted.idle_mw, heat=Heat(45.0, 38.0))
    warm = leaking.warmed(80.0)
    found = correct(leaking, _seen(warm, _random(GRID, 6), temperature_c=80.0)).surface
    assert _error(found.idle_mw, leaking.idle_mw) < 0.03
    assert _error(found.warmed(80.0).power_mw, warm.power_mw) < 0.03


def test_uncertainty_falls_where_there_is_evidence_and_more_slowly_elsewhere(predicted: Surface) -> None:
    place = (2, 3, 1)
    found = correct(predicted, _seen(predicted, [place])).surface
    assert found.latency_sigma[place] < 0.2 * predicted.latency_sigma[place]
    assert found.energy_sigma[place] < 0.5 * predicted.energy_sigma[place]
    assert found.latency_sigma[0, 0, 0] > found.latency_sigma[place]


def test_a_frame_that_was_disturbed_changes_little(predicted: Surface) -> None:
    good = _seen(predicted, _random(GRID, 6))
    late = replace(good[3], latency_ms=3 * (good[3].latency_ms or 0), frames=1)
    told = correct(predicted, [*good[:3], replace(late, disturbed=True), *good[4:]])
    assert _error(told.surface.latency_ms, predicted.latency_ms) < 0.02
    recognised = correct(predicted, [*good, late])
    assert recognised.correction.left_out == (6,)
    assert _error(recognised.surface.latency_ms, predicted.latency_ms) < 0.02


def test_what_was_observed_long_ago_counts_less_than_what_is_observed_now(predicted: Surface) -> None:
    places = _random(GRID, 6)
    slower = replace(predicted, latency_ms=1.2 * predicted.latency_ms)
    found = correct(predicted, [*_seen(predicted, places, age_s=7 * 86_400), *_seen(slower, places)]).surface
    assert _error(found.latency_ms, slower.latency_ms) < 0.04


def test_what_rates_cannot_explain_is_learned_where_it_was_seen(predicted: Surface) -> None:
    step = np.where(np.array(GRID.gpu_hz) > 500e6, 1.0, 1.15)[None, :, None]
    truth = replace(predicted, latency_ms=predicted.latency_ms * step)
    places = [(c, g, e) for c in (0, 2) for g in range(4) for e in (0, 1)]
    found = correct(predicted, _seen(truth, places))
    assert _error(found.surface.latency_ms, truth.latency_ms) < 0.02
    assert found.correction.residual_latency > 0.01


def test_a_program_nobody_predicted_is_known_after_ten_configurations() -> None:
    truth = _overlapping(WIDE)
    found = correct(flat_surface(WIDE), _seen(truth, _random(WIDE, 10)))
    assert _error(found.surface.latency_ms, truth.latency_ms) < 0.05
    assert _error(found.surface.power_mw, truth.power_mw) < 0.08
    # What it says of its own error is about right.
    scores = np.log(found.surface.latency_ms / truth.latency_ms) / found.surface.latency_sigma
    assert np.sqrt((scores**2).mean()) < 2


def test_what_was_seen_of_a_program_nobody_predicted_stands_for_itself_and_misleads_nothing_else() -> None:
    truth, places = _overlapping(WIDE), _random(WIDE, 10)
    seen, other = _seen(truth, places), places[4]
    plain = correct(flat_surface(WIDE), seen).surface
    thrifty = replace(seen[4], power_mw=0.8 * truth.power_mw[other])
    found = correct(flat_surface(WIDE), [*seen[:4], thrifty, *seen[5:]]).surface
    assert found.power_mw[other] == pytest.approx(0.8 * truth.power_mw[other], rel=0.01)
    assert found.power_mw[WIDE.index(WIDE.top)] == pytest.approx(plain.power_mw[WIDE.index(WIDE.top)], rel=0.05)


def test_a_board_with_one_clock_needs_only_a_few() -> None:
    grid = FrequencyGrid((1_000_000,), WIDE.gpu_hz, (1_600_000_000,))
    truth = _overlapping(grid)
    found = correct(flat_surface(grid), _seen(truth, [(0, 11, 0), (0, 5, 0), (0, 1, 0)])).surface
    assert _error(found.latency_ms, truth.latency_ms) < 0.05


def test_latency_alone_and_power_alone_can_be_observed(predicted: Surface) -> None:
    at = GRID.top
    timed = correct(predicted, [Observation(at, latency_ms=2 * predicted.at(at).latency_ms)])
    assert timed.surface.at(at).latency_ms == pytest.approx(2 * predicted.at(at).latency_ms, rel=0.1)
    metered = correct(predicted, [Observation(at, power_mw=2 * predicted.at(at).power_mw, frames=30)]).surface
    np.testing.assert_allclose(metered.latency_ms, predicted.latency_ms)
    assert metered.at(at).power_mw > 1.5 * predicted.at(at).power_mw


def test_a_correction_says_in_one_line_how_much_and_why(predicted: Surface) -> None:
    truth = replace(predicted, latency_ms=1.2 * predicted.latency_ms)
    text = str(correct(predicted, _seen(truth, _random(GRID, 5))).correction)
    assert "\n" not in text and "5 observations of 5 configurations" in text and "compute x1" in text and "dynamic x" in text


def test_a_corrected_surface_names_the_clocks_below_every_observation(predicted: Surface) -> None:
    cpu, gpu, emc = predicted.grid.shape
    found = correct(predicted, _seen(predicted, [(cpu - 1, gpu - 1, emc - 1), (cpu - 1, gpu - 2, 0)])).surface
    low = predicted.grid.configuration((cpu - 1, gpu - 2, 0))
    assert found.execution_note.endswith(f"not observed below CPU {low.cpu_khz // 1000} MHz, GPU {low.gpu_hz // 10**6} MHz")
    assert correct(predicted, _seen(predicted, [(0, 0, 0)])).surface.execution_note == predicted.execution_note


def test_the_next_observation_that_tells_most_is_far_from_the_others() -> None:
    truth = _overlapping(WIDE)
    told = information(
        flat_surface(WIDE), _seen(truth, [(9, 11, 3), (9, 10, 3)]), np.ones(WIDE.shape, bool), np.ones(WIDE.shape)
    )
    assert told[9, 11, 3] < 0.1 * told.max()
    only = np.zeros(WIDE.shape, bool)
    only[3, 4, 2] = True
    alone = information(flat_surface(WIDE), _seen(truth, [(9, 11, 3)]), only, np.ones(WIDE.shape))
    assert (alone >= 0).sum() == 1 and alone[3, 4, 2] > 0


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda s: [], CostModelError, "expected at least one observation"),
        (lambda s: [Observation(FrequencyConfiguration(1, 2, 3), 1.0)], GridError, "not a frequency of this board"),
        (lambda s: [Observation(GRID.top)], CostModelError, "expected latency_ms, power_mw or both"),
        (lambda s: [Observation(GRID.top, float("nan"))], CostModelError, "latency_ms is nan, expected a positive number"),
        (lambda s: [Observation(GRID.top, 1.0, age_s=-1.0)], CostModelError, "an age of at least 0 s"),
    ],
)
def test_what_is_no_observation_is_refused(
    predicted: Surface, make: Callable[[Surface], list[Observation]], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        correct(predicted, make(predicted))


def test_a_prediction_of_another_kind_of_board_gives_way_to_what_is_observed() -> None:
    """Its power grows otherwise with the clocks than any rates could make it."""
    truth = _overlapping(WIDE)
    calls = [matmul(1000)] * 3 + [relu()] * 3
    cost = replace(
        board(sigma=0.05, common=0.3),
        grid=WIDE,
        idle_mw=np.full(WIDE.shape, 3000.0, np.float32),
        host_active_mw=np.full(len(WIDE.cpu_khz), 500.0, np.float32),
    )
    strange = surface(network(*calls), cost)
    seen = _seen(truth, _random(WIDE, 24))
    found, alone = correct(strange, seen), correct(flat_surface(WIDE), seen)
    assert max(found.correction.prediction_counts) < 0.5 and "the prediction counts" in str(found.correction)
    for figure in ("latency_ms", "power_mw"):
        true = getattr(truth, figure)
        assert _error(getattr(found.surface, figure), true) < 1.3 * _error(getattr(alone.surface, figure), true) + 0.005


def test_a_prediction_that_holds_counts_for_more_than_a_fit_of_what_is_observed(predicted: Surface) -> None:
    slower = replace(predicted, latency_ms=1.2 * predicted.latency_ms)
    found = correct(predicted, _seen(slower, _random(GRID, 5)))
    assert min(found.correction.prediction_counts) > 0.9 and "counts" not in str(found.correction)
    assert correct(predicted, _seen(slower, _random(GRID, 2))).correction.prediction_counts == (1.0, 1.0)


def test_far_from_all_that_was_observed_the_prediction_stands(predicted: Surface) -> None:
    near = [(-1, gpu, emc) for gpu in (-1, -2) for emc in (-1, -2)]
    grid = predicted.grid
    places = [tuple(int(one) % size for one, size in zip(at, grid.shape, strict=True)) for at in near]
    found = correct(predicted, _seen(predicted, [(a, b, c) for a, b, c in places])).surface
    assert found.latency_ms[0, 0, 0] == pytest.approx(predicted.latency_ms[0, 0, 0], rel=0.05)
    assert found.power_mw[0, 0, 0] == pytest.approx(predicted.power_mw[0, 0, 0], rel=0.05)


def test_what_contradicts_a_prediction_is_no_outlier_where_others_know_better() -> None:
    """With the slowest memory it takes far longer than any rates could make it, as two of twelve observations say."""
    truth = _overlapping(WIDE)
    assert truth.terms is not None
    terms = replace(truth.terms, unpredicted=False, compute_sigma=0.05, memory_sigma=0.05, host_sigma=0.05, all_sigma=0.05)
    slowest = np.arange(len(WIDE.emc_hz)) == 0
    predicted = replace(
        truth,
        terms=replace(terms, memory_ms=terms.memory_ms * np.float32(0.01)),
        latency_ms=np.where(slowest, 0.25, 1.0) * truth.latency_ms,
        latency_sigma=np.full(WIDE.shape, 0.05),
    )
    others = [place for place in _random(WIDE, 14) if place[2]][:10]
    found = correct(predicted, _seen(truth, [*others, (3, 3, 0), (7, 8, 0)])).surface
    assert _error(found.latency_ms[..., 0], truth.latency_ms[..., 0]) < 0.2
