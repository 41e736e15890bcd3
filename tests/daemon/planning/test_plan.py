# SPDX-License-Identifier: Apache-2.0
"""Planning: the best configuration for each kind of target, why, and what cannot be met."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from jetdvfs.daemon.errors import TargetNotAttainable, UsageError
from jetdvfs.daemon.planning.limits import Limits
from jetdvfs.daemon.planning.plan import Plan, plan
from jetdvfs.daemon.planning.targets import parse_target
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.grid import FrequencyGrid
from jetdvfs.kernels.surface import Surface
from jetdvfs.tests.support.profiles.analytic import GRID, board, conv2d, matmul, network, relu

NETWORK = network(*[conv2d(), relu(), matmul(500)] * 5)
SURFACE = surface(NETWORK, board(sigma=0.1, common=0.05))

finite = st.floats(0.1, 1000, allow_nan=False)


def surface_of(latency: list[float], power: list[float], idle: float = 100.0, sigma: float = 0.0) -> Surface:
    """A surface over GPU clocks alone."""
    shape = (1, len(latency), 1)
    grid = FrequencyGrid((1000,), tuple(range(1000, 1000 * (len(latency) + 1), 1000)), (1000,))
    latency_ms, power_mw = (np.reshape(values, shape) for values in (latency, power))
    flat = np.ones(shape)
    return Surface(
        grid, latency_ms, power_mw, latency_ms * power_mw / 1e3, idle * flat, sigma * flat, sigma * flat, method="timeline"
    )


def gpu(chosen: Plan) -> int:
    return chosen.configuration.gpu_hz // 1000


def test_a_latency_target_takes_the_least_energy_within_it() -> None:
    three = surface_of([40, 20, 10], [1000, 2500, 4000])  # 40, 50 and 40 mJ: the fastest costs no more than the slowest
    assert gpu(plan(three, "latency_ms=30")) == 3
    assert gpu(plan(surface_of([40, 20, 10], [1000, 2500, 9000]), "latency_ms=30")) == 2


def test_an_energy_target_takes_the_lowest_latency_within_it() -> None:
    assert gpu(plan(surface_of([40, 20, 10], [1000, 2500, 9000]), "energy_mj=60")) == 2
    assert gpu(plan(surface_of([40, 20, 10], [1000, 2500, 9000]), "energy_mj=90")) == 3


def test_a_power_target_takes_the_lowest_latency_within_it() -> None:
    assert gpu(plan(surface_of([40, 20, 10], [1000, 2500, 9000]), "power_mw=3000")) == 2


def test_minimum_energy_and_minimum_energy_delay_product() -> None:
    three = surface_of([40, 20, 10], [1000, 2500, 6000])  # 40, 50, 60 mJ
    assert gpu(plan(three, "min-energy")) == 1
    assert gpu(plan(three, "min-edp")) == 3


def test_with_a_frame_rate_the_idle_energy_between_frames_counts() -> None:
    racing = surface_of([40, 10], [1000, 3000], idle=500)
    assert gpu(plan(racing, "min-energy")) == 2  # 40 against 30 mJ
    paced = plan(racing, "min-energy", fps=10)
    assert paced.energy_per_frame_mj == pytest.approx(40 + 0.5 * 60)  # against 30 + 0.5 * 90
    assert gpu(paced) == 1


def test_with_a_frame_rate_the_period_must_be_met() -> None:
    assert gpu(plan(surface_of([40, 20], [1000, 9000]), "min-energy", fps=30)) == 2
    with pytest.raises(
        TargetNotAttainable, match=r"60 frames per second need an inference within 16.67 ms; the fastest takes 20 ms"
    ):
        plan(surface_of([40, 20], [1000, 9000]), "min-energy", fps=60)


def test_with_a_frame_rate_a_power_target_is_the_mean_over_the_period() -> None:
    burst = surface_of([40, 10], [1000, 9000], idle=100)
    assert gpu(plan(burst, "power_mw=2000")) == 1
    assert gpu(plan(burst, "power_mw=2000", fps=10)) == 2  # 99 mJ per 100 ms


def test_with_a_confidence_the_target_is_met_at_that_quantile() -> None:
    unsure = surface_of([30, 26], [1000, 5000], sigma=0.1)
    assert gpu(plan(unsure, "latency_ms=32")) == 1
    sure = plan(unsure, "latency_ms=32", confidence=0.95)  # 30 ms may take 35, 26 ms may take 30.6
    assert gpu(sure) == 2
    assert sure.choice.latency_high_ms == pytest.approx(26 * np.exp(0.164485), rel=1e-4)
    with pytest.raises(TargetNotAttainable, match=r"with 0.999 confidence"):
        plan(unsure, "latency_ms=32", confidence=0.999)


def test_ties_go_to_the_lower_clocks() -> None:
    assert gpu(plan(surface_of([10, 10, 10], [1000, 1000, 1000]), "latency_ms=20")) == 1
    assert gpu(plan(surface_of([10.004, 10], [1000, 1000]), "power_mw=2000")) == 1


def test_limits_bound_each_clock() -> None:
    limited = plan(SURFACE, "min-edp", limits=Limits(gpu_hz=(300_000_000, 500_000_000)))
    assert limited.configuration.gpu_hz == 400_000_000
    assert all(option.configuration.gpu_hz == 400_000_000 for option in limited.front)
    assert limited.considered == GRID.size // 4
    assert {other.verdict for other in limited.alternatives if "GPU" in other.step} == {"outside the limits"}
    with pytest.raises(UsageError, match="no GPU frequency from 1 to 2 MHz; this board has 200 to 1000 MHz"):
        plan(SURFACE, "min-energy", limits=Limits(gpu_hz=(1_000_000, 2_000_000)))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(finite, finite), min_size=1, max_size=8),
    finite,
    st.sampled_from(["latency_ms", "energy_mj", "power_mw"]),
)
def test_no_configuration_that_meets_the_target_is_better(figures: list[tuple[float, float]], limit: float, name: str) -> None:
    made = surface_of([latency for latency, _ in figures], [power for _, power in figures])
    wanted: dict[str, NDArray[np.float64]] = {
        "latency_ms": made.energy_mj,
        "energy_mj": made.latency_ms,
        "power_mw": made.latency_ms,
    }
    met = getattr(made, name) <= limit
    try:
        chosen = plan(made, f"{name}={limit!r}")
    except TargetNotAttainable:
        assert not met.any()
        return
    index = made.grid.index(chosen.configuration)
    assert met[index]
    assert wanted[name][index] <= wanted[name][met].min() * 1.001
    assert chosen.attaining == met.sum()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=12))
def test_the_front_is_what_no_configuration_beats(figures: list[tuple[float, float]]) -> None:
    made = surface_of([latency for latency, _ in figures], [power for _, power in figures])
    points = list(zip(made.latency_ms.ravel().tolist(), made.energy_mj.ravel().tolist(), strict=True))
    undominated = {
        (latency, energy)
        for latency, energy in points
        if not any(other != (latency, energy) and other[0] <= latency and other[1] <= energy for other in points)
    }
    front = [(option.latency_ms, option.energy_mj) for option in plan(made, "min-energy").front]
    assert set(front) == undominated and front == sorted(front)


def test_a_thinned_front_keeps_its_ends_and_its_order() -> None:
    made = plan(SURFACE, "min-energy")
    assert len(made.front) > 5
    thinned = made.thinned_front(5)
    assert len(thinned) == 5 and (thinned[0], thinned[-1]) == (made.front[0], made.front[-1])
    assert [option for option in made.front if option in thinned] == list(thinned)
    assert [point["latency_ms"] for point in made.to_json(5)["front"]] == [option.latency_ms for option in thinned]
    assert made.thinned_front(None) == made.thinned_front(len(made.front)) == made.front


def test_with_a_frame_rate_the_front_ends_at_the_period() -> None:
    fronts = {fps: plan(SURFACE, "min-energy", fps=fps).front for fps in (1, 40)}
    assert max(option.latency_ms for option in fronts[40]) <= 25 < max(option.latency_ms for option in fronts[1])


def test_what_cannot_be_met_names_the_best_there_is() -> None:
    with pytest.raises(TargetNotAttainable) as caught:
        plan(SURFACE, "latency_ms=0.01")
    assert caught.value.exit_code == 4
    fastest = SURFACE.latency_ms.min()
    assert str(caught.value).startswith(
        f"target latency_ms=0.01 is not attainable; the lowest latency is {fastest:.4g} ms at CPU"
    )
    with pytest.raises(TargetNotAttainable, match="within the period of 100 ms is not attainable; the lowest energy is"):
        plan(SURFACE, "energy_mj=1", fps=10)


def test_a_plan_says_what_binds_and_what_each_clock_would_change() -> None:
    chosen = plan(SURFACE, f"latency_ms={SURFACE.latency_ms.min() * 1.02:.6g}", fps=10)
    assert "The active constraint is latency at most" in chosen.reason and "per frame could be" in chosen.reason
    clocks = zip(chosen.configuration, (GRID.cpu_khz, GRID.gpu_hz, GRID.emc_hz), strict=True)
    neighbours = sum((clock != axis[0]) + (clock != axis[-1]) for clock, axis in clocks)
    assert len(chosen.alternatives) == neighbours
    assert any("over" in other.verdict for other in chosen.alternatives)
    assert chosen.saving.startswith("Against the top clocks: energy per frame")
    assert all(other.step in chosen.why for other in chosen.alternatives)
    assert "No constraint is active" in plan(SURFACE, "latency_ms=1e6").reason


def test_a_plan_is_json_with_its_figures() -> None:
    data = json.loads(json.dumps(plan(SURFACE, "min-energy", fps=5, confidence=0.9).to_json()))
    assert data["target"] == "min-energy" and data["fps"] == 5
    assert set(data["choice"]["configuration"]) == {"cpu_khz", "gpu_hz", "emc_hz"}
    assert data["choice"]["energy_high_mj"] > data["choice"]["energy_per_frame_mj"] > data["choice"]["energy_mj"]
    assert data["front"] and data["top"]["latency_ms"] > 0
    assert "energy_per_frame_mj" not in plan(SURFACE, "min-energy").to_json()["choice"]


@pytest.mark.parametrize("text", ["latency_ms=50", "energy_mj=0.5", "power_mw=15000", "tokens_per_s=12.5", "min-edp"])
def test_targets_read_back_as_they_were_written(text: str) -> None:
    assert str(parse_target(text)) == text
    assert parse_target(text) == parse_target(f" {text} ")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "latency_ms",
        "latency_ms=",
        "latency_ms=-1",
        "latency_ms=0",
        "latency_ms=nan",
        "energy_mj=inf",
        "tokens_per_s=0",
        "speed=1",
        "min-edp=2",
    ],
)
def test_malformed_targets_are_refused_with_what_is_valid(text: str) -> None:
    with pytest.raises(
        UsageError,
        match=r"valid: latency_ms=NUMBER, tokens|expected (latency_ms|energy_mj|tokens_per_s|min-edp)",
    ):
        parse_target(text)


@pytest.mark.parametrize(
    ("said", "meant"),
    [("tokens_per_s=50", "latency_ms=20"), ("ttft_ms=20", "latency_ms=20"), ("mj_per_token=150", "energy_mj=150")],
)
def test_targets_in_tokens_are_those_in_time_and_energy(said: str, meant: str) -> None:
    chosen, same = plan(SURFACE, said), plan(SURFACE, meant)
    assert (chosen.choice, chosen.attaining) == (same.choice, same.attaining)
    assert 0 < chosen.attaining < chosen.considered


def test_a_rate_of_tokens_that_cannot_be_is_told_in_tokens() -> None:
    with pytest.raises(TargetNotAttainable, match=r"tokens_per_s=900000 is not attainable; .* \(99.4 tokens per second\) at"):
        plan(SURFACE, "tokens_per_s=900000")
    assert "with at least 50 tokens per second" in plan(SURFACE, "tokens_per_s=50").why


@pytest.mark.parametrize("arguments", [{"fps": 0}, {"fps": float("nan")}, {"confidence": 1}, {"confidence": 0.2}])
def test_senseless_rates_and_confidences_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="expected a"):
        plan(SURFACE, "min-energy", **arguments)
