# SPDX-License-Identifier: Apache-2.0
"""What becomes of plans on a board whose every configuration is known."""

from __future__ import annotations

import numpy as np
import pytest

from jetdvfs.daemon.planning.targets import parse_target
from jetdvfs.kernels.grid import FrequencyGrid
from jetdvfs.kernels.surface import Surface
from jetdvfs.profiles.lab.compare.plans import TrialCounts, plans_for, try_out, usual_targets

DEADLINE = parse_target("latency_ms=25")


def surface_of(latency: list[float], energy: list[float], sigma: float = 0.0) -> Surface:
    """A surface over GPU clocks alone."""
    shape = (1, len(latency), 1)
    grid = FrequencyGrid((1000,), tuple(range(1000, 1000 * (len(latency) + 1), 1000)), (1000,))
    latency_ms, energy_mj = (np.reshape(values, shape).astype(float) for values in (latency, energy))
    flat = np.ones(shape)
    return Surface(grid, latency_ms, energy_mj / latency_ms * 1e3, energy_mj, flat, sigma * flat, sigma * flat, "timeline")


TRUTH = surface_of([40, 20, 10], [30, 50, 60])


def test_a_planner_that_knows_the_board_has_no_regret_and_misses_nothing() -> None:
    targets = usual_targets(TRUTH)
    trials = [try_out(target, plan, TRUTH) for target, plan in zip(targets, plans_for(TRUTH, targets), strict=True)]
    assert all(one.attainable and not one.missed and not one.refused and one.regret == 0 for one in trials)


def test_the_usual_targets_bind_and_can_be_met() -> None:
    for target in usual_targets(TRUTH):
        if bound := target.bound:
            figures = getattr(TRUTH, bound.figure)
            assert (figures <= bound.limit).any() and (figures > bound.limit).any()


def test_regret_is_what_the_choice_costs_above_the_best_that_keeps_the_target() -> None:
    found = try_out(DEADLINE, plans_for(surface_of([40, 20, 10], [30, 50, 40]), [DEADLINE])[0], TRUTH)
    assert not found.missed and found.regret == pytest.approx(60 / 50 - 1)


def test_a_promise_that_the_board_does_not_keep_is_a_miss_by_a_share_of_the_limit() -> None:
    hopeful = surface_of([24, 20, 10], [30, 50, 60], sigma=0.3)
    found = try_out(DEADLINE, plans_for(hopeful, [DEADLINE])[0], TRUTH)
    assert found.missed and found.over == pytest.approx(40 / 25 - 1) and found.regret is None
    cautious = try_out(DEADLINE, plans_for(hopeful, [DEADLINE], 0.95)[0], TRUTH)
    assert not cautious.missed and cautious.regret == pytest.approx(60 / 50 - 1)


def test_a_target_that_the_planner_holds_to_be_out_of_reach_is_refused() -> None:
    found = try_out(DEADLINE, plans_for(surface_of([40, 30, 26], [1, 2, 3]), [DEADLINE])[0], TRUTH)
    assert found.refused and found.attainable and found.regret is None and not found.missed


def test_targets_out_of_the_boards_reach_are_not_counted() -> None:
    slow = surface_of([90, 80, 70], [30, 50, 60])
    plan = plans_for(TRUTH, [DEADLINE])[0]
    trials = [try_out(DEADLINE, plan, board) for board in (TRUTH, slow)]
    assert [one.attainable for one in trials] == [True, False]
    outcome = TrialCounts.of(trials)
    assert (outcome.trials, outcome.missed, outcome.refused) == (1, 0, 0)


def test_trials_are_counted_with_the_worst_of_each() -> None:
    plans = plans_for(surface_of([40, 20, 10], [30, 50, 40]), [DEADLINE])[0], plans_for(TRUTH, [DEADLINE])[0], None
    outcome = TrialCounts.of([try_out(DEADLINE, plan, TRUTH) for plan in plans])
    assert (outcome.trials, outcome.missed, outcome.refused) == (3, 0, 1)
    assert outcome.worst_regret == pytest.approx(0.2) and outcome.mean_regret == pytest.approx(0.1)
    assert TrialCounts.of([]).mean_regret == 0
