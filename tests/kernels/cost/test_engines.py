# SPDX-License-Identifier: Apache-2.0
"""Kernels inside of engines: what they take beside a framework's, and what is said where nobody measured it."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.kernels.cost.board import UNSCALED, BoardCost
from jetdvfs.kernels.cost.engines import EngineCosts, EngineRates
from jetdvfs.kernels.cost.explain import explain
from jetdvfs.kernels.cost.host import HostModel
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.cost.roofline import LaunchFloor
from jetdvfs.kernels.cost.totals import NO_SHARES
from jetdvfs.kernels.network import KernelInvocation, Network, numel
from jetdvfs.tests.support.profiles.analytic import GRID, board, conv2d, matmul, network, pointwise, relu

FLOOR = LaunchFloor(5.0, 2000.0)
STARTS = HostModel({"engine": (60.0, 0, 0, 0), "engine.launch": (2.0, 0, 0, 0)}, (0, 10_000.0, 0, 0))


def cost(rates: EngineRates, *, sigma: float = 0.1) -> BoardCost:
    engines = EngineCosts({"float32": rates}, UNSCALED, NO_SHARES, NO_SHARES, sigma, sigma, None)
    return replace(board(), host=STARTS, floor=FLOOR, engines=engines)


def copy() -> KernelInvocation:
    return replace(relu(), kind="clone")


def engine(*calls: KernelInvocation) -> Network:
    return replace(network(*calls), runtime="TensorRT")


MIXED = (conv2d(), conv2d(groups=64), matmul(300), relu(1 << 16), copy())


def test_where_every_factor_is_one_an_engine_s_kernels_take_what_the_framework_s_do() -> None:
    same, framework = (surface(engine(*MIXED), one, "sum") for one in (cost(EngineRates()), replace(board(), floor=FLOOR)))
    np.testing.assert_allclose(same.latency_ms, framework.latency_ms, rtol=1e-5)


OF_EACH_SORT = {
    "windows": conv2d(),
    "pointwise": pointwise(),
    "groups": conv2d(groups=64),
    "products": matmul(300),
    "others": relu(1 << 16),
    "copies": copy(),
}


@pytest.mark.parametrize("factor", OF_EACH_SORT)
def test_each_factor_is_of_its_own_kernels(factor: str) -> None:
    plain, faster = (cost(rates) for rates in (EngineRates(), EngineRates(**{factor: 0.5})))
    for name, one in OF_EACH_SORT.items():
        before, after = (surface(engine(one), each, "sum").latency_ms for each in (plain, faster))
        if name == factor:
            assert (after < before).all()
        else:
            np.testing.assert_array_equal(after, before)


def test_a_type_without_factors_takes_those_of_the_nearest() -> None:
    named = {dtype: EngineRates(floor=floor) for dtype, floor in (("float32", 1.0), ("float16", 2.0), ("int8", 3.0))}
    costs = EngineCosts(named, UNSCALED, NO_SHARES, NO_SHARES, 0.1, 0.1, None)
    near = {"float16": "float16", "bfloat16": "float16", "int64": "float16", "quint8": "int8", "int4": "float16"}
    assert {dtype: costs.rates_of(dtype).floor for dtype in near} == {dtype: named[of].floor for dtype, of in near.items()}


def test_small_kernels_gain_where_a_launch_takes_less() -> None:
    usual, less = cost(EngineRates()), cost(EngineRates(floor=0.4))
    for one, gain in ((relu(64), 1.4), (matmul(1500), 1.0)):
        ratio = surface(engine(one), usual, "sum").latency_ms / surface(engine(one), less, "sum").latency_ms
        assert (ratio >= gain).all() and (ratio < gain + 0.4).all()


@pytest.mark.parametrize("name", ["weights", "activations"])
def test_what_a_kernel_moves_is_added_at_the_bandwidth_of_the_memory_clock(name: str) -> None:
    usual, more = cost(EngineRates()), cost(EngineRates(**{name: 1.5}))
    _, _, emc_mhz = GRID.levels_mhz()
    for one, weights in ((conv2d(), 64 * 64 * 9), (matmul(300), 300 * 300), (relu(1 << 16), 0)):
        moved = weights if name == "weights" else sum(map(numel, (*one.inputs, one.output)))
        before, after = (surface(engine(one), each, "sum").latency_ms for each in (usual, more))
        expected = 1.5 * 4 * moved / usual.chip.bytes_per_emc_cycle / (np.asarray(emc_mhz) * 1e3)
        np.testing.assert_allclose(after - before, np.broadcast_to(expected, before.shape), rtol=1e-3, atol=1e-6)


def test_nothing_is_added_to_a_copy() -> None:
    usual, more = cost(EngineRates()), cost(EngineRates(weights=1.0, activations=1.0))
    before, after = (surface(engine(copy()), one, "sum").latency_ms for one in (usual, more))
    np.testing.assert_array_equal(after, before)


def test_no_time_rises_with_a_clock_whatever_the_factors_are() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        rates = EngineRates(*random.uniform(0.02, 2, 9))
        latency_ms = surface(engine(*MIXED), cost(rates), "sum").latency_ms
        for axis in (1, 2):
            assert (np.diff(latency_ms, axis=axis) <= 1e-6 * latency_ms.max()).all()


def test_power_above_idle_and_uncertainty_are_the_engine_s_own() -> None:
    usual, more = cost(EngineRates(), sigma=0.2), cost(EngineRates(product_power=1.5, other_power=1.5))
    before, after = (surface(engine(*MIXED), one, "sum") for one in (usual, more))
    dynamic = [one.energy_mj - one.idle_mw * one.latency_ms / 1e3 for one in (before, after)]
    np.testing.assert_allclose(dynamic[1], 1.5 * dynamic[0], rtol=1e-4)
    assert (before.latency_sigma >= 0.2).all() and (surface(network(*MIXED), usual).latency_sigma < 0.2).all()


def test_an_engine_s_start_takes_longer_with_each_kernel_and_is_one_part_of_the_host_s() -> None:
    known = cost(EngineRates())
    many = engine(*[relu(64)] * 100)
    parts = explain(many, known, GRID.top).host
    assert [(part.name, part.calls) for part in parts if part.name != "inference"] == [("engine", 1)]
    assert parts[0].host_ms == pytest.approx(0.060 + 100 * 0.002)


def test_an_explanation_is_of_the_same_kernels_as_the_surface() -> None:
    known = cost(EngineRates(floor=0.5, products=0.8, others=0.9, activations=0.3))
    assert explain(engine(*MIXED), known, GRID.top).prediction == surface(engine(*MIXED), known).at(GRID.top)


def test_eager_predictions_do_not_change_with_what_is_known_of_engines() -> None:
    known = cost(EngineRates(others=0.1, weights=1.0, product_power=2.0))
    found, without = (surface(network(*MIXED), one) for one in (known, replace(known, engines=None)))
    for figure in ("latency_ms", "energy_mj", "latency_sigma"):
        np.testing.assert_array_equal(getattr(found, figure), getattr(without, figure))


def test_what_an_engine_fused_is_a_guess_where_engines_were_not_measured() -> None:
    fused = replace(conv2d(), kind="conv2d_relu")
    known, unknown = cost(EngineRates()), replace(board(), floor=FLOOR)
    guessed = surface(engine(fused, relu()), unknown)
    assert [guess.kind for guess in guessed.guessed] == ["conv2d_relu"]
    assert "engines were not measured" in guessed.guessed[0].why
    assert surface(engine(fused, relu()), known).guessed == ()
    assert surface(network(fused, relu()), unknown).guessed == ()  # PyTorch's fusers
    assert (guessed.latency_sigma > surface(network(fused, relu()), unknown).latency_sigma).all()
    assert surface(engine(fused, relu()), replace(unknown, observed=True)).guessed == ()  # as the board runs them


def test_an_engine_in_8_bits_where_none_was_measured_says_so() -> None:
    known = cost(EngineRates())
    narrow = replace(conv2d(), dtype="int8")
    said = "no engine in int8 was measured: TensorRT builds none on chips without instructions for it"
    assert said in surface(engine(narrow), known).execution_note
    assert known.engines is not None
    both = replace(known, engines=replace(known.engines, rates={**known.engines.rates, "int8": EngineRates()}))
    assert said not in surface(engine(narrow), both).execution_note + surface(engine(conv2d()), known).execution_note


def test_factors_that_make_no_sense_are_refused() -> None:
    for factors in (
        {"floor": 0.0},
        {"products": -1.0},
        {"weights": -0.1},
        {"activations": float("inf")},
        {"other_power": float("nan")},
    ):
        with pytest.raises(ValueError, match="expected factors that are positive"):
            EngineRates(**factors)
