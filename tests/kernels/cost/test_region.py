# SPDX-License-Identifier: Apache-2.0
"""Where models were trained, and what is said of kernels that lie outside."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from jetdvfs.kernels.cost.board import BoardCost
from jetdvfs.kernels.cost.features import feature_rows
from jetdvfs.kernels.cost.guesses import UNMODELLED_SIGMA
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.cost.region import LEAST_KERNELS, ModelPair, Region, UnseenKernel, of_new_kind, outside
from jetdvfs.kernels.kinds import ELEMENTWISE
from jetdvfs.kernels.network import KernelInvocation
from jetdvfs.profiles.lab.measure.varieties import kinds_of, spans_of
from jetdvfs.tests.support.profiles.analytic import board, conv2d, matmul, network, relu

TOP = (-1, -1, -1)
SIGMA = 0.05
KIND, FORM, VARIETY, DOUBLING = ModelPair(0.3, 0.35), ModelPair(0.6, 0.5), ModelPair(0.4, 0.3), ModelPair(0.1, 0.2)


def region_of(kind: str, measured: list[KernelInvocation]) -> Region:
    kinds = kinds_of((call.kind, call.dtype) for call in measured)
    return Region(kinds, spans_of(kind, feature_rows(kind, measured)), KIND, FORM, VARIETY, DOUBLING)


def trained_on(kind: str, measured: list[KernelInvocation]) -> BoardCost:
    """A board whose models of one kind were trained on these kernels."""
    cost = board(sigma=SIGMA, host_us=(0, 0, 0))
    return replace(cost, kernels={**cost.kernels, kind: replace(cost.kernels[kind], region=region_of(kind, measured))})


def found(kind: str, call: KernelInvocation, region: Region) -> UnseenKernel | None:
    return outside(kind, feature_rows(kind, [call])[0].tolist(), region)


RELUS = [relu(1 << power) for power in range(10, 21)]


def test_what_was_measured_and_what_lies_between_is_inside() -> None:
    region = region_of("relu", RELUS)
    assert all(found("relu", relu(elements), region) is None for elements in (1 << 10, 3000, 12345, 1 << 20, 5 << 18))


def test_a_larger_kernel_is_outside_by_its_doublings() -> None:
    beyond = found("relu", relu(1 << 23), region_of("relu", RELUS))
    assert beyond is not None and beyond.new is None and beyond.doublings == pytest.approx(3, abs=0.01)
    assert beyond.why == "1 tensors: flops 8.39e+06, measured 1.02e+03 to 1.05e+06"


def test_a_form_or_a_variety_that_was_not_measured_is_outside_whatever_its_size() -> None:
    region = region_of("conv2d", [conv2d(channels=channels) for channels in (8, 16, 32, 64)])
    grouped, wide = conv2d(channels=16, groups=4), conv2d(channels=16)
    wide = replace(wide, params={**wide.params, "weight": (16, 16, 7, 7), "padding": (3, 3)})
    new_form, new_variety = found("conv2d", grouped, region), found("conv2d", wide, region)
    assert new_form == UnseenKernel("grouped: none measured", "form")
    assert new_variety == UnseenKernel("plain, 7x7 by 1x1: none measured", "variety")
    assert (region.more_sigma(new_form), region.more_sigma(new_variety)) == (FORM, VARIETY)


def test_an_element_type_that_was_not_measured_of_a_variety_is_outside() -> None:
    halves = [replace(each, dtype="float16", bytes=each.bytes // 2) for each in RELUS]
    region = region_of("relu", [*RELUS, *halves])
    half, other = (found("relu", replace(halves[3], dtype=dtype), region) for dtype in ("float16", "bfloat16"))
    assert half is None and other == UnseenKernel("1 tensors, bfloat16: measured float16, float32", "variety")
    assert region.more_sigma(other) == VARIETY
    assert region.spans["1 tensors"].types == {"float16": 11, "float32": 11}


def test_a_variety_of_which_hardly_anything_was_measured_says_nothing_of_other_sizes() -> None:
    few = [conv2d(channels=channels, groups=2) for channels in (16, 32, 64)[: LEAST_KERNELS - 1]]
    region = region_of("conv2d", few)
    assert all(found("conv2d", call, region) is None for call in few)
    beyond = found("conv2d", conv2d(channels=128, groups=2), region)
    assert beyond == UnseenKernel(f"grouped, 3x3 by 1x1: only {LEAST_KERNELS - 1} measured, of other sizes", "variety")


def test_a_kind_that_a_model_serves_and_was_not_trained_on_is_outside_whatever_it_is_like() -> None:
    cost = board(sigma=SIGMA, host_us=(0, 0, 0))
    plain = [*RELUS, *[replace(each, kind="sigmoid") for each in RELUS]]
    serving = replace(cost.kernels["relu"], kind=ELEMENTWISE, region=region_of(ELEMENTWISE, plain))
    assert serving.region is not None
    cost = replace(cost, kernels={ELEMENTWISE: serving})
    known, strange = (replace(RELUS[-1], kind=kind) for kind in ("sigmoid", "mish"))
    assert not surface(network(known), cost, "sum").guessed
    made = surface(network(strange), cost, "sum")
    (guess,) = made.guessed
    assert (guess.kind, guess.why, guess.time_share) == ("mish", "none of its kind measured", 1.0)
    assert made.latency_sigma[TOP] == pytest.approx(np.hypot(SIGMA, KIND.time), rel=1e-3)
    assert of_new_kind("sigmoid", "float16", serving.region) == UnseenKernel("float16: of its kind measured float32", "kind")
    # As uncertain as what makes it most so: four doublings of size are more than its kind here.
    large = surface(network(replace(relu(1 << 24), kind="mish")), cost, "sum")
    assert large.guessed[0].why == guess.why
    assert large.latency_sigma[TOP] == pytest.approx(np.hypot(SIGMA, 4 * DOUBLING.time), rel=1e-2)
    assert (
        of_new_kind("fused_pointwise", "float32", serving.region) is None
    )  # what stands in for fused kernels is known otherwise


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 1 << 22), min_size=LEAST_KERNELS, max_size=20))
def test_no_kernel_is_outside_of_what_it_was_measured_in(elements: list[int]) -> None:
    calls = [relu(count) for count in elements]
    region = region_of("relu", calls)
    assert all(found("relu", call, region) is None for call in calls)


def test_outside_the_figures_are_less_certain_and_say_so() -> None:
    cost = trained_on("relu", RELUS)
    inside, beyond = (surface(network(relu(count)), cost, "sum") for count in (1 << 20, 1 << 24))
    assert inside.latency_sigma[TOP] == pytest.approx(SIGMA, rel=1e-3) and not inside.guessed
    assert (inside.guessed_share == 0).all() and (beyond.guessed_share == 1).all()
    assert beyond.latency_sigma[TOP] == pytest.approx(np.hypot(SIGMA, 4 * DOUBLING.time), rel=1e-2)
    (guess,) = beyond.guessed
    assert (guess.kind, guess.launches, guess.time_share) == ("relu", 1, 1.0) and "measured" in guess.why
    assert beyond.at(beyond.grid.top).guessed_share == 1


def test_no_guess_is_less_certain_than_a_kernel_without_a_model() -> None:
    far = surface(network(relu(1 << 60)), trained_on("relu", RELUS), "sum")
    assert far.latency_sigma[TOP] == pytest.approx(np.hypot(SIGMA, UNMODELLED_SIGMA), rel=1e-3)


def test_a_part_that_is_off_by_a_factor_moves_the_whole_by_its_share() -> None:
    cost = trained_on("relu", RELUS)
    calls = [relu(1 << 27), *[relu((1 << 20) - index) for index in range(1, 9)]]  # seven doublings beyond
    high = surface(network(*calls), cost, "sum").quantile(0.95)
    whole = surface(network(*calls), cost, "sum")
    share = float(whole.guessed_share[TOP])
    expected = 1 + share * np.expm1(1.645 * 7 * DOUBLING.time)
    assert 0.9 < share < 0.95 and high.latency_ms[TOP] / whole.latency_ms[TOP] == pytest.approx(expected, rel=0.03)


def test_guessed_kernels_err_together_in_what_was_not_measured() -> None:
    cost = trained_on("relu", RELUS)
    one = surface(network(relu(1 << 24)), cost, "sum")
    many = surface(network(*[relu((1 << 24) + index) for index in range(16)]), cost, "sum")
    more = 4 * DOUBLING.time
    assert one.latency_sigma[TOP] == pytest.approx(np.hypot(SIGMA, more), rel=1e-2)
    assert many.latency_sigma[TOP] == pytest.approx(np.hypot(SIGMA / 4, more), rel=1e-2)
    assert many.energy_sigma[TOP] > 0.9 * one.energy_sigma[TOP]


def test_the_guessed_share_is_of_the_gpus_time_and_counts_kernels_without_a_model() -> None:
    cost = trained_on("relu", RELUS)
    half = surface(network(relu(1 << 22), relu(1 << 20), relu(1 << 20), relu(1 << 20), relu(1 << 20)), cost, "sum")
    assert half.guessed_share == pytest.approx(np.full(half.grid.shape, 0.5), rel=1e-3)
    without = replace(cost, kernels={"relu": cost.kernels["relu"]})
    both = surface(network(matmul(1000), relu(1 << 22), relu(1 << 20)), without, "sum")
    assert {(guess.kind, guess.why == "no model") for guess in both.guessed} == {("matmul", True), ("relu", False)}
    assert sum(guess.time_share for guess in both.guessed) == pytest.approx(both.guessed_share[TOP], rel=1e-5)
    (half_precision,) = surface(network(relu(dtype="float16")), cost, "sum").guessed
    assert half_precision.why == "float16: measured float32"


def test_launches_are_as_uncertain_wherever_the_guessed_ones_stand() -> None:
    cost = trained_on("relu", RELUS)
    calls = [relu(1 << 24), relu(1 << 12), relu(1 << 23), relu(1 << 19)]
    one, other = (surface(network(*order), cost, "sum") for order in (calls, calls[::-1]))
    np.testing.assert_allclose(one.latency_sigma, other.latency_sigma, rtol=1e-5)
    np.testing.assert_allclose(one.latency_ms, other.latency_ms, rtol=1e-5)
