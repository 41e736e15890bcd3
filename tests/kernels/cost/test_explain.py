# SPDX-License-Identifier: Apache-2.0
"""Predictions taken apart: the parts make up the whole, and each kernel's limit is the one it was made for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from jetdvfs.kernels.cost.explain import explain
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.errors import GridError
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.kernels.network import Call
from jetdvfs.kernels.units import METHODS, Method
from jetdvfs.tests.support.profiles.analytic import GRID, board, conv2d, matmul, network, relu, view

calls = st.sampled_from([matmul(1000), matmul(100), relu(1 << 22), relu(64), conv2d(), relu(1 << 18, kind="cumsum"), view()])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(calls, min_size=1, max_size=12).filter(lambda calls: any(call != view() for call in calls)),
    st.sampled_from(list(GRID)),
    st.sampled_from(METHODS),
    st.floats(0, 200_000),
    st.floats(0, 1),
)
def test_the_parts_make_up_the_whole(
    chosen: list[Call], configuration: FrequencyConfiguration, method: Method, us_mhz: float, waiting: float
) -> None:
    launched, cost = network(*chosen), replace(board(sigma=0.1, host_us=(1, us_mhz, 10), once_us=20), waiting=waiting)
    explanation = explain(launched, cost, configuration, method)
    whole = surface(launched, cost, method).at(configuration)
    assert explanation.prediction == whole
    latency_ms = explanation.gpu_ms + explanation.waited_ms + explanation.after_ms
    assert latency_ms == pytest.approx(whole.latency_ms, rel=1e-5)
    assert explanation.idle_mj + explanation.host_mj + explanation.kernels_mj == pytest.approx(whole.energy_mj, rel=1e-5)
    assert sum(part.launches for part in explanation.kernels) == len(launched.launches)
    assert sum(part.waited_ms for part in explanation.kernels) == pytest.approx(explanation.waited_ms)
    if method == "timeline":
        assert sum(part.calls for part in explanation.host) == len(chosen) + 1  # and what is paid once
    else:
        assert not explanation.host and explanation.waited_ms == 0


def test_each_kernel_is_bounded_by_what_it_was_made_for() -> None:
    launched = network(matmul(1000), relu(1 << 22), *[view()] * 4000, relu(64))
    explanation = explain(launched, board(slowdown=2), GRID.top)
    assert {part.kernel.output: part.limit for part in explanation.kernels} == {
        (1000, 1000): "compute", (1, 1 << 22): "memory", (1, 64): "launch",
    }  # fmt: skip
    assert [part.roofline_share for part in explanation.kernels] == pytest.approx([0.5] * 3)
    assert explanation.kernels[0].kernel.output == (1, 64)  # what is waited for longest comes first
    assert explanation.limit == "launch"
    assert explain(network(matmul(1000), relu(64)), board(), GRID.top).limit == "compute"


def test_a_kernel_without_a_model_says_so() -> None:
    explanation = explain(network(matmul(1000), relu(1 << 20)), board(kinds=("matmul",)), GRID.top)
    assert {part.kernel.kind: part.modelled for part in explanation.kernels} == {"matmul": True, "relu": False}


def test_the_hosts_calls_are_added_up_by_name() -> None:
    explanation = explain(network(relu(), view(), view(), relu(64)), board(once_us=100), GRID.top)
    assert [(part.name, part.calls) for part in explanation.host] == [("inference", 1), ("relu", 2), ("view", 2)]
    assert explanation.host[0].host_ms == pytest.approx(0.1)
    assert explanation.host[1].host_ms == pytest.approx(0.01)


def test_steps_go_up_and_down_each_clock_and_stop_at_the_ends() -> None:
    launched, cost = network(matmul(1000)), board()
    middle = FrequencyConfiguration(1_000_000, 400_000_000, 800_000_000)
    steps = {(step.axis, step.up): step.prediction for step in explain(launched, cost, middle).steps}
    assert set(steps) == {
        ("cpu_khz", False), ("cpu_khz", True), ("gpu_hz", False), ("gpu_hz", True), ("emc_hz", True),
    }  # fmt: skip
    whole = surface(launched, cost)
    assert steps["gpu_hz", True] == whole.at(middle._replace(gpu_hz=800_000_000))
    assert steps["gpu_hz", True].latency_ms < whole.at(middle).latency_ms


def test_a_configuration_off_the_grid_is_refused() -> None:
    with pytest.raises(GridError, match=r"GPU less than 0\.001 MHz is not a frequency of this board"):
        explain(network(relu()), board(), FrequencyConfiguration(1_000_000, 7, 800_000_000))
