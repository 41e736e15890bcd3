# SPDX-License-Identifier: Apache-2.0
"""Cost models: what a network costs over the grid, against hand arithmetic and a plain simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from numpy.typing import NDArray

from jetdvfs.kernels.cost.board import BoardCost, KernelModel, Regressor
from jetdvfs.kernels.cost.guesses import UNMODELLED_SIGMA
from jetdvfs.kernels.cost.host import HostModel, issue_key
from jetdvfs.kernels.cost.model import kernel_costs, play, surface
from jetdvfs.kernels.cost.roofline import NO_FLOOR, LaunchFloor, bound_at_ms, bound_ms
from jetdvfs.kernels.cost.totals import BottleneckShares
from jetdvfs.kernels.errors import CostModelError
from jetdvfs.kernels.fusion import products_of
from jetdvfs.kernels.network import Call, KernelInvocation, Network, ParamValue
from jetdvfs.kernels.surface import Surface
from jetdvfs.tests.support.profiles.analytic import (
    GRID,
    Analytic,
    Rates,
    board,
    conv2d,
    matmul,
    network,
    recurrent,
    relu,
    view,
)

TOP = (-1, -1, -1)


def test_the_bound_is_the_larger_of_compute_and_memory_time() -> None:
    bound = bound_ms([matmul(1000), relu(1 << 20)], GRID.levels_mhz(), Rates())
    assert bound.shape == (2, *GRID.shape)
    np.testing.assert_allclose(bound[0, 0, :, 0], [10, 5, 2.5, 2])  # 2 GFLOP at 1000 FLOP per cycle
    np.testing.assert_allclose(bound[1, 0, 0, :], 8 * 2**20 / 10 / np.array([800e3, 1600e3]))
    assert (bound == bound[:, :1]).all()  # the CPU clock plays no part


def test_the_bound_at_single_clocks_is_the_bound_over_the_grid() -> None:
    calls = [matmul(100), relu(), conv2d()]
    whole = bound_ms(calls, GRID.levels_mhz(), Rates())
    np.testing.assert_allclose(bound_at_ms(calls, [400.0] * 3, [1600.0] * 3, Rates()), whole[:, 0, 1, 1], rtol=1e-6)


def test_what_a_launch_takes_in_any_case_comes_before_the_bound() -> None:
    floor = LaunchFloor(2.0, 3000.0)
    bare, whole = (bound_ms([matmul(10), relu(64)], GRID.levels_mhz(), Rates(), each) for each in (NO_FLOOR, floor))
    np.testing.assert_allclose((whole - bare)[:, 0, :, 0] * 1e3, [[2 + 15, 2 + 7.5, 2 + 3.75, 2 + 3]] * 2)
    plain, with_floor = (surface(network(relu(1)), replace(board(), floor=each)).latency_ms for each in (NO_FLOOR, floor))
    assert (with_floor > plain).all()


def test_no_time_rises_with_a_clock_whatever_a_model_says() -> None:
    bumpy = Analytic(lambda cpu, gpu, emc: np.log(2.0) + 1.5 * np.sin(cpu + gpu / 90) + emc / 500)
    cost = replace(board(host_us=(0, 0, 0)), kernels={"relu": KernelModel("relu", bumpy, bumpy, 0, 0)})
    took = kernel_costs(network(relu()), cost).gpu_ms[0]
    for axis in range(3):
        assert (np.diff(took, axis=axis) <= 1e-6 * took.max()).all()
    assert took.max() > 1.5 * took.min()


def test_times_that_fall_with_every_clock_stay_as_the_model_says() -> None:
    falling = Analytic(lambda cpu, gpu, emc: np.log(2.0) - cpu / 9000)
    cost = replace(board(), kernels={"relu": KernelModel("relu", falling, falling, 0, 0)})
    took = kernel_costs(network(relu()), cost).gpu_ms[0]
    cpu_mhz = GRID.levels_mhz()[0][:, None, None]
    expected = bound_ms([relu()], GRID.levels_mhz(), Rates())[0] * 2.0 * np.exp(-cpu_mhz / 9000)
    np.testing.assert_allclose(took, expected, rtol=1e-6)


def test_a_model_is_told_the_features_that_it_was_trained_on() -> None:
    class Told(Analytic):
        def sweep(self, features: NDArray[np.float32], levels: tuple[NDArray[np.float32], ...]) -> NDArray[np.float32]:
            self.told = features[0, :-3].tolist()
            return super().sweep(features, levels)

    model = Told(lambda cpu, gpu, emc: 0 * gpu)
    names = ("log2_elements", "log2_flops", "cpu_mhz", "gpu_mhz", "emc_mhz")
    kernels = {"relu": KernelModel("relu", model, model, 0, 0, features=names)}
    kernel_costs(network(relu(1 << 10)), replace(board(), kernels=kernels))
    assert model.told == [10, 10]


def test_element_types_without_a_rate_count_as_float32_and_empty_kernels_have_a_bound() -> None:
    assert bound_at_ms([replace(matmul(), dtype="float64")], 1000, 800, Rates()) == bound_at_ms([matmul()], 1000, 800, Rates())
    assert bound_at_ms([replace(matmul(), dtype="float16")], 1000, 1600, Rates()) == pytest.approx(1.0)
    assert bound_at_ms([replace(relu(), flops=0, bytes=0)], 1000, 800, Rates())[0] > 0


def test_where_the_gpu_is_the_bottleneck_latency_is_the_sum_of_kernel_times_after_the_first_launch() -> None:
    result = surface(network(matmul(1000), relu(), matmul(1000)), board(slowdown=2))
    kernels = 2 * (2 * 2.0 + 8 * 2**20 / 10 / 1600e3)
    assert result.latency_ms[TOP] == pytest.approx(kernels + 0.005, rel=1e-5)  # 10,000 / 2000 MHz = 5 us a call


def test_where_the_host_is_the_bottleneck_latency_is_its_time_and_the_last_kernel() -> None:
    calls = [relu(64)] * 50
    result = surface(network(*calls, view(), relu(64)), board(host_us=(0, 100_000, 0)))
    last = 2 * 8 * 64 / 10 / 800e3
    np.testing.assert_allclose(result.latency_ms[:, 0, 0], 52 * 100 / np.array([500, 1000, 2000]) + last, rtol=1e-6)


def test_host_only_calls_after_the_last_launch_run_beside_it() -> None:
    cost = board()
    with_views = surface(network(matmul(1000), view(), view()), cost)
    np.testing.assert_allclose(with_views.latency_ms, surface(network(matmul(1000)), cost).latency_ms)
    assert surface(network(relu(1), *[view()] * 100), cost).latency_ms[TOP] == pytest.approx(101 * 0.005)


def test_the_host_has_a_time_per_call_name_and_one_paid_once() -> None:
    cost = replace(board(), host=HostModel({"view": (3, 0, 0, 0), "inference": (100, 0, 0, 0)}, (0, 0, 8000, 0)))
    latency = surface(network(view(), view(), relu(1)), cost).latency_ms
    np.testing.assert_allclose(latency[0, 0], (2 * 3 + 8000 / np.array([800, 1600]) + 100) / 1e3, rtol=1e-3)


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"weight": (64, 64, 3, 3)}, "conv2d"),
        ({"weight": (64, 64, 3, 3), "bias": True}, "conv2d.biased"),
        ({"weight": (64, 64, 1, 1)}, "conv2d.pointwise"),
        ({"weight": (64, 1, 3, 3), "groups": 64}, "conv2d.depthwise"),
        ({"weight": (64, 1, 3, 3), "groups": 64, "bias": True}, "conv2d.depthwise.biased"),
    ],
)
def test_ways_through_a_library_cost_the_host_apart(params: dict[str, ParamValue], name: str) -> None:
    call = KernelInvocation("conv2d", "", ((1, 64, 8, 8),), (1, 64, 8, 8), "float32", params, 1, 1)
    assert issue_key(call) == (name, 0)


def test_products_of_one_row_cost_the_host_apart() -> None:
    rows = {m: issue_key(replace(matmul(8), params={"m": m, "k": 8, "n": 8, "batch": 1}))[0] for m in (1, 2)}
    assert rows == {1: "matmul.vector", 2: "matmul"}
    assert issue_key(replace(matmul(8), params={"m": 1, "batch": 2}))[0] == "matmul"


@pytest.mark.parametrize(
    ("measured", "taken"),
    [
        (("matmul.vector.biased", "matmul.vector", "matmul"), "matmul.vector.biased"),
        (("matmul.vector", "matmul", "matmul.biased"), "matmul.vector"),
        (("matmul", "matmul.biased"), "matmul"),
        (("matmul.biased", "mul"), "matmul.biased"),
        (("mul",), None),
    ],
)
def test_a_way_that_was_not_measured_costs_the_host_as_the_nearest_that_was(
    measured: tuple[str, ...], taken: str | None
) -> None:
    times = {name: (float(1 + place), 0.0, 0.0, 0.0) for place, name in enumerate(measured)}
    host = HostModel(times, (100.0, 0.0, 0.0, 0.0))
    assert host.coefficients("matmul.vector.biased") == (times[taken] if taken else host.default)


def test_on_a_slower_memory_calls_still_take_no_longer_at_higher_cpu_clocks() -> None:
    host = HostModel({"view": (1.0, 1000.0, 2.0, 50.0)}, (0, 0, 0, 1))
    cpu_mhz, _, emc_mhz = GRID.levels_mhz()
    assert (np.diff(host.issue_us([view()], cpu_mhz, emc_mhz)[0], axis=0) > 0).any()
    for call in (view(), relu(64)):
        assert (np.diff(host.falling(GRID).issue_us([call], cpu_mhz, emc_mhz)[0], axis=0) <= 1e-9).all()
    alike = HostModel({"view": (1.0, 1000.0, 2.0, 0.1)}, (0, 0, 0, 0))
    assert alike.falling(GRID) == alike


def test_the_sum_leaves_the_host_out() -> None:
    cost = board(host_us=(1000, 0, 0), once_us=500)
    result = surface(network(matmul(1000), view(), matmul(1000)), cost, "sum")
    np.testing.assert_allclose(result.latency_ms[0, :, 0], 2 * 2 * np.array([10, 5, 2.5, 2]), rtol=1e-5)
    assert result.method == "sum"


def test_energy_is_idle_over_the_time_elapsed_plus_the_host_plus_each_kernel() -> None:
    cost = board(once_us=100)
    result = surface(network(matmul(1000), view(), relu(1 << 20)), cost)
    gpu_ms = 2 * np.array([2.0, 8 * 2**20 / 10 / 1600e3])
    idle_mw = 1000 + 200 + 500 + 400
    expected = idle_mw * (gpu_ms.sum() + 0.005 + 0.1) + 2000 * (3 * 0.005 + 0.1) + 12_000 * gpu_ms.sum()
    assert result.energy_mj[TOP] == pytest.approx(expected / 1e3, rel=1e-5)
    np.testing.assert_allclose(result.power_mw, result.energy_mj / result.latency_ms * 1e3)
    np.testing.assert_allclose(result.idle_mw[TOP], idle_mw)


def test_the_sums_energy_is_power_times_time_of_each_kernel() -> None:
    result = surface(network(matmul(1000), relu(1 << 20)), board(host_us=(1000, 0, 0)), "sum")
    assert result.energy_mj[TOP] == pytest.approx((2100 + 12_000) * 2 * (2.0 + 8 * 2**20 / 10 / 1600e3) / 1e3, rel=1e-5)


def simulate(host_ms: list[float], total_ms: float, durations: list[float]) -> float:
    """One inference, call by call."""
    done = 0.0
    for issued, duration in zip(host_ms, durations, strict=True):
        done = max(issued, done) + duration
    return max(done, total_ms)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_timeline_is_the_recurrence_at_every_configuration(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    kernels, launches, shape = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 12)), (2, 3, 2)
    host_ms = np.cumsum(rng.uniform(0, 1, (launches + 1, 2, 2)), axis=0)
    gpu_ms = rng.uniform(0, 2, (kernels, *shape))
    order = rng.integers(0, kernels, launches)
    played = play(host_ms, gpu_ms, order)
    for cpu, gpu, emc in np.ndindex(shape):
        issued, durations = list(host_ms[:, cpu, emc]), [gpu_ms[kernel, cpu, gpu, emc] for kernel in order]
        latency = simulate(issued[:-1], issued[-1], durations)
        assert played.latency_ms[cpu, gpu, emc] == pytest.approx(latency)
        # From the critical launch on the GPU never waits: host time up to it and the kernel times from it make the latency.
        critical = played.critical[cpu, gpu, emc]
        assert issued[critical] + sum(durations[critical:]) == pytest.approx(latency)


def test_each_distinct_kernel_is_swept_once_however_often_it_is_launched() -> None:
    time = Analytic(lambda cpu, gpu, emc: np.zeros(gpu.shape))
    cost = replace(board(), kernels={"relu": KernelModel("relu", time, time, 0, 0)})
    costs = kernel_costs(network(relu(10, scope="a"), relu(20), relu(10, scope="b"), relu(10)), cost)
    assert time.rows == 2 * 2  # two kernels, by the model of time and by that of power
    assert costs.order.tolist() == [0, 1, 0, 0]
    assert [kernel.output for kernel in costs.kernels] == [(1, 10), (1, 20)]


def test_kernels_without_a_model_cost_more_than_their_bound_are_listed_and_are_uncertain() -> None:
    both = network(matmul(1000), relu(1 << 22))
    cost = board(kinds=("matmul",), slowdown=1)
    partly, whole = surface(both, cost), surface(both, board(slowdown=1))
    (listed,) = partly.unmodelled
    assert (listed.kind, listed.launches) == ("relu", 1)
    assert listed.flops_share == pytest.approx((1 << 22) / (2e9 + (1 << 22)))
    assert listed.bytes_share == pytest.approx((8 << 22) / (12e6 + (8 << 22)))
    assert (partly.latency_ms > whole.latency_ms).all()
    assert (partly.latency_sigma > 0).all() and not whole.unmodelled and (whole.latency_sigma == 0).all()
    only = surface(network(relu(1 << 22)), cost)
    assert only.latency_sigma[TOP] == pytest.approx(UNMODELLED_SIGMA, rel=0.01)
    assert (only.energy_mj > only.idle_mw * only.latency_ms / 1e3).all()


def test_tiny_kernels_without_a_model_still_hold_the_gpu() -> None:
    assert surface(network(relu(1)), board(kinds=("matmul",)), "sum").latency_ms[TOP] >= 1e-3


def test_a_recurrent_layer_without_a_model_takes_its_products_one_after_the_other() -> None:
    cost = board(slowdown=2)
    once, twice = (surface(network(recurrent(steps=steps)), cost) for steps in (50, 100))
    products = [call for call, times in products_of(recurrent(steps=50)) for _ in range(times)]
    as_products = surface(network(*products), cost, "sum")
    np.testing.assert_allclose(surface(network(recurrent(steps=50)), cost, "sum").latency_ms, as_products.latency_ms, rtol=1e-5)
    assert (twice.latency_ms > 1.9 * (once.latency_ms - 0.02)).all()
    assert [kind.kind for kind in once.unmodelled] == ["lstm"] and once.guessed_share[TOP] == 1
    bounded = surface(network(recurrent(steps=50)), board(kinds=("relu",)))
    assert (bounded.latency_ms < once.latency_ms).all()


def test_an_elementwise_model_serves_pointwise_kinds_without_their_own() -> None:
    time, power = (Analytic(lambda cpu, gpu, emc: np.zeros(gpu.shape)) for _ in range(2))
    family = KernelModel("elementwise", time, power, 0, 0)
    cost = replace(board(kinds=("relu",)), kernels={**board(kinds=("relu",)).kernels, "elementwise": family})
    assert cost.model_for(relu(kind="silu")) is family
    assert cost.model_for(relu(kind="relu")) is cost.kernels["relu"]
    assert cost.model_for(relu(kind="cumsum")) is None
    assert not surface(network(relu(kind="silu")), cost).unmodelled


def test_element_types_a_model_was_not_trained_on_count_as_unmodelled() -> None:
    (listed,) = surface(network(relu(dtype="float16")), board()).unmodelled
    assert listed.kind == "relu"


def test_launches_of_one_kernel_err_together_and_distinct_kernels_apart() -> None:
    cost = board(sigma=0.2, host_us=(0, 0, 0))
    same = surface(network(*[relu(1 << 20)] * 4), cost).latency_sigma[TOP]
    apart = surface(network(*[relu((1 << 20) + index) for index in range(4)]), cost).latency_sigma[TOP]
    assert same == pytest.approx(0.2, rel=1e-4)
    assert apart == pytest.approx(0.1, rel=1e-4)


def test_the_common_part_adds_to_every_networks_uncertainty() -> None:
    result = surface(network(*[relu((1 << 20) + index) for index in range(4)]), board(sigma=0.2, common=0.1, host_us=(0, 0, 0)))
    np.testing.assert_allclose(result.latency_sigma, np.hypot(0.1, 0.1), rtol=1e-4)


def test_where_the_host_is_the_bottleneck_kernel_errors_do_not_delay_it() -> None:
    sigma = surface(network(*[relu(1 << 18)] * 30), board(sigma=0.3, host_us=(0, 2_000_000, 0))).latency_sigma
    assert sigma[0, -1, -1] < 0.01


def test_errors_common_to_host_computation_and_memory_count_for_what_each_takes() -> None:
    shares = BottleneckShares(host=0.3, compute=0.2, memory=0.1)
    cost = replace(board(host_us=(0, 10, 0)), latency_shares=shares, energy_shares=shares)

    def sigma(*calls: Call) -> tuple[float, float]:
        predicted = surface(network(*calls), cost)
        return float(predicted.latency_sigma[TOP]), float(predicted.energy_sigma[TOP])

    computing, moving = replace(matmul(1000), bytes=1), replace(relu(1 << 22), flops=0)
    assert sigma(computing) == pytest.approx((0.2, 0.2), rel=1e-3)
    assert sigma(moving) == pytest.approx((0.1, 0.1), rel=1e-3)
    assert sigma(*[view()] * 1_000_000, relu(1)) == pytest.approx((0.3, 0.3), rel=1e-3)
    half = replace(computing, bytes=20 * 16 * 10**5)  # 2 ms of each: what it takes is divided evenly
    assert sigma(half)[0] == pytest.approx(np.hypot(0.1, 0.05), rel=1e-3)
    assert surface(network(computing), cost, "sum").latency_sigma[TOP] == pytest.approx(0.2, rel=1e-6)


def test_quantile_surfaces_cover_what_they_promise_when_kernels_err_as_they_say() -> None:
    """Each distinct kernel and the whole network are off by log-normal factors of the sizes the models state."""
    calls = [relu(1 << size, scope=str(size)) for size in range(14, 22) for _ in range(3)]
    launched, cost = network(*calls), board(sigma=0.25, common=0.05, host_us=(0, 30_000, 0))
    high = surface(launched, cost).quantile(0.9)
    rng = np.random.default_rng(1)
    covered_latency, covered_energy = [], []
    for _ in range(150):
        worse = measured_otherwise(launched, cost, rng)
        common = np.exp(rng.normal(0, 0.05))
        covered_latency.append(worse.latency_ms * common <= high.latency_ms)
        covered_energy.append(worse.energy_mj * common <= high.energy_mj)
    assert 0.85 < np.mean(covered_latency) < 0.95
    assert 0.85 < np.mean(covered_energy) < 0.95


def measured_otherwise(launched: Network, cost: BoardCost, rng: np.random.Generator) -> Surface:
    """The surface on a board whose kernels are off by independent factors."""

    class Off(Analytic):
        def sweep(self, features: NDArray[np.float32], levels: tuple[NDArray[np.float32], ...]) -> NDArray[np.float32]:
            exact = super().sweep(features, levels)
            return exact + rng.normal(0, 0.25, (len(features), 1, 1, 1)).astype(np.float32)

    def off(regressor: Regressor) -> Off:
        assert isinstance(regressor, Analytic)
        return Off(regressor.formula)

    kernels = {kind: replace(model, time=off(model.time), power=off(model.power)) for kind, model in cost.kernels.items()}
    return surface(launched, replace(cost, kernels=kernels))


def test_what_cannot_be_costed_is_refused_in_one_line() -> None:
    unheard_of: Any = "average"
    nothing = Analytic(lambda cpu, gpu, emc: np.full(gpu.shape, np.nan))
    with pytest.raises(CostModelError, match="launches no kernel"):
        surface(network(view()), board())
    with pytest.raises(CostModelError, match="'average'; valid: timeline, sum"):
        surface(network(relu()), board(), unheard_of)
    with pytest.raises(CostModelError, match="relu model predicts"):
        surface(network(relu()), replace(board(), kernels={"relu": KernelModel("relu", nothing, nothing, 0, 0)}))
    with pytest.raises(CostModelError, match="host_active_mw has shape"):
        replace(board(), host_active_mw=np.zeros(2, np.float32))


def test_with_half_of_the_gpu_on_computation_lasts_twice_as_long_and_memory_traffic_as_long() -> None:
    computing, moving = (replace(matmul(), flops=flops, bytes=moved) for flops, moved in ((10**10, 1), (1, 10**8)))
    for kernel, factor in ((computing, 2.0), (moving, 1.0)):
        whole, half = (surface(network(kernel), board(), gpu_share=share) for share in (1.0, 0.5))
        np.testing.assert_allclose(half.latency_ms, factor * whole.latency_ms, rtol=1e-3)
        assert "50% of the GPU on" in half.execution_note and not whole.execution_note
        above_mj = [(one.power_mw - one.idle_mw) * one.latency_ms for one in (whole, half)]
        np.testing.assert_allclose(above_mj[0], above_mj[1], rtol=1e-3)


def test_an_unknown_part_of_the_gpu_is_predicted_as_all_of_it_and_said() -> None:
    whole, unknown = (surface(network(matmul()), board(), gpu_share=share) for share in (1.0, None))
    np.testing.assert_array_equal(unknown.latency_ms, whole.latency_ms)
    assert "part of the GPU that the power mode leaves on is unknown" in unknown.execution_note


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5])
def test_an_impossible_part_of_the_gpu_is_refused(share: float) -> None:
    with pytest.raises(CostModelError, match="part of the GPU that is on"):
        surface(network(matmul()), board(), gpu_share=share)
