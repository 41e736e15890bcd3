# SPDX-License-Identifier: Apache-2.0
"""One configuration for several applications, on a grid whose surfaces can be worked out by hand."""

from __future__ import annotations

import time

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.daemon.leases.joint_choice import (
    EXACT,
    MOST_CONFIDENCES,
    SLICE_MS,
    jointly,
    shared_latency_ms,
    together,
    without_waiting,
)
from jetdvfs.daemon.planning.lease_plan import GpuLoad
from jetdvfs.daemon.planning.limits import Limits
from jetdvfs.kernels.correction.observation import Observation
from jetdvfs.kernels.grid import FrequencyConfiguration, FrequencyGrid
from jetdvfs.kernels.surface import Surface
from jetdvfs.tests.support.responses import responses_ms
from jetdvfs.tests.support.speed import multiples_of_unpickling

GRID = FrequencyGrid((1_000_000,), tuple(100_000_000 * step for step in range(1, 11)), (1_000_000_000,))
GPU = np.array(GRID.gpu_hz, np.float64).reshape(GRID.shape) / 1e9


def surface(work_ms: float) -> Surface:
    """Takes ``work_ms`` at 1 GHz, longer in proportion below; idles at 0.1 W, and adds the cube of the clock, 10 W at 1 GHz."""
    latency_ms = work_ms / GPU
    power_mw = 1e2 + 1e4 * GPU**3
    idle_mw, sigma = np.full(GRID.shape, 1e2), np.full(GRID.shape, 0.05)
    return Surface(GRID, latency_ms, power_mw, power_mw * latency_ms / 1e3, idle_mw, sigma, sigma, "timeline")


def gpu_mhz(found: FrequencyConfiguration) -> float:
    return found.gpu_hz / 1e6


def at(mhz: int) -> FrequencyConfiguration:
    return FrequencyConfiguration(1_000_000, mhz * 1_000_000, 1_000_000_000)


def test_a_frame_waits_for_one_of_each_other_application_of_its_process() -> None:
    works = [GpuLoad(surface(4), fps=10), GpuLoad(surface(6))]
    assert [float(one[0, -1, 0]) for one in responses_ms(works, None)] == pytest.approx([10, 10])
    assert shared_latency_ms({"1": works[0], "2": works[1]}, at(500)) == {"1": pytest.approx(20), "2": pytest.approx(20)}


def test_with_confidence_every_frame_is_counted_as_longer() -> None:
    works = [GpuLoad(surface(4)), GpuLoad(surface(6))]
    assert responses_ms(works, 0.95)[0][0, -1, 0] == pytest.approx(10 * np.exp(0.05 * 1.645), rel=0.01)


def top_ms(*works: GpuLoad) -> list[float]:
    """How long frames of applications of processes of their own take at the top clock."""
    apart = [replace(work, process=number) for number, work in enumerate(works)]
    return [float(one[0, -1, 0]) for one in responses_ms(apart, None)]


def test_processes_take_turns_so_that_a_short_frame_is_not_held_up_by_a_long_one() -> None:
    assert top_ms(GpuLoad(surface(2)), GpuLoad(surface(20))) == pytest.approx([4 + SLICE_MS, 40 + SLICE_MS])


def test_what_seldom_comes_delays_by_no_more_than_it_takes() -> None:
    assert top_ms(GpuLoad(surface(20), fps=10), GpuLoad(surface(2), fps=20)) == pytest.approx([22, 4 + SLICE_MS])
    # So often that five of its frames come meanwhile, with the one that is there already.
    assert top_ms(GpuLoad(surface(20), fps=10), GpuLoad(surface(2), fps=125))[0] == pytest.approx(30)
    assert top_ms(GpuLoad(surface(20), fps=10), GpuLoad(surface(2), fps=1), GpuLoad(surface(3), fps=1))[0] == pytest.approx(25)


def test_both_deadlines_are_kept_at_the_lowest_clock_that_does() -> None:
    first, second = GpuLoad(surface(4), limit_ms=14), GpuLoad(surface(6), limit_ms=17)
    assert gpu_mhz(jointly([first], Limits()).configuration) == 300
    assert gpu_mhz(jointly([second], Limits()).configuration) == 400
    found = jointly([first, second], Limits())
    assert found.attained and gpu_mhz(found.configuration) == 800


def test_what_cannot_be_kept_comes_as_close_as_it_can_and_others_are_kept() -> None:
    tight, loose = GpuLoad(surface(4), limit_ms=9), GpuLoad(surface(6), limit_ms=50)
    found = jointly([tight, loose], Limits())
    assert not found.attained and gpu_mhz(found.configuration) == 1000


def test_clocks_that_others_need_and_limits_bind() -> None:
    works = [GpuLoad(surface(4), limit_ms=50), GpuLoad(surface(6), limit_ms=50)]
    assert gpu_mhz(jointly(works, Limits()).configuration) == 200
    assert gpu_mhz(jointly(works, Limits(), at(600)).configuration) == 600
    assert gpu_mhz(jointly(works, Limits(gpu_hz=(300_000_000, 400_000_000)), at(600)).configuration) == 400


def test_power_is_idle_power_and_what_frames_add_as_often_as_they_come() -> None:
    paced = together([GpuLoad(surface(4), fps=50), GpuLoad(surface(6), fps=50)])
    assert paced.power_mw[0, -1, 0] == pytest.approx(1e2 + 50 * (0.004 + 0.006) * 1e4)
    filled = together([GpuLoad(surface(4), fps=50), GpuLoad(surface(6))])
    assert filled.power_mw[0, -1, 0] == pytest.approx(1e2 + 1e4)  # what is left over is used
    assert filled.energy_mj[0, -1, 0] == pytest.approx(1.01e4 * 0.006 / 0.8)  # while a frame of the other is made


def test_waiting_is_no_sign_of_a_slow_network_but_more_than_that_is() -> None:
    own, others = GpuLoad(surface(4)), [GpuLoad(surface(6))]
    waited, slow = Observation(at(1000), latency_ms=9.9), Observation(at(500), latency_ms=22.0)
    assert without_waiting([waited, slow], [], own, others) == [replace(slow, latency_ms=8 * 1.1)]
    alone = Observation(at(500), latency_ms=8.2)
    assert without_waiting([slow], [alone], own, others) == [alone]


def mixed(number: int) -> list[GpuLoad]:
    """Applications of processes of their own, with and without a rate."""
    rates = (0.5, 2.0, None, 5.0)
    return [GpuLoad(surface(1 + place % 5), fps=rates[place % 4], confidence=0.6, process=place) for place in range(number)]


@pytest.mark.parametrize("number", [EXACT, EXACT + 1, 20])
def test_response_times_of_many_applications_are_never_below_the_exact_ones(number: int) -> None:
    works = mixed(number)
    bounds = responses_ms(works, 0.6)
    for configuration in (at(100), at(500), at(1000)):
        exact = shared_latency_ms({str(place): work for place, work in enumerate(works)}, configuration)
        index = GRID.index(configuration)
        shares = [float(bounds[place][index]) / exact[str(place)] for place in range(number)]
        assert min(shares) >= 1 - 1e-12
        assert max(shares) == pytest.approx(1) if number <= EXACT else max(shares) < 1.5


def test_confidences_count_as_asked_for_while_they_are_few_and_are_rounded_up_otherwise() -> None:
    def chosen(confidences: list[float]) -> float:
        works = [GpuLoad(surface(1), fps=1, confidence=one, limit_ms=80) for one in confidences]
        return gpu_mhz(jointly(works, Limits()).configuration)

    few, many = [0.5 + 0.01 * place for place in range(MOST_CONFIDENCES)], [0.5 + 0.01 * place for place in range(8)]
    assert chosen(few) == chosen([max(few)] * len(few))
    assert chosen([0.5] * 8) <= chosen(many) <= chosen([0.8] * 8)


@pytest.mark.alone
def test_a_choice_for_many_leases_of_distinct_confidences_takes_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = FrequencyGrid(*(tuple(step * 100_000_000 for step in range(1, levels)) for levels in (30, 15, 10)))
    gpu = np.array(grid.gpu_hz, np.float64).reshape(1, -1, 1) / 1e9

    def large(work_ms: float) -> Surface:
        latency_ms = np.broadcast_to(work_ms / gpu, grid.shape)
        power_mw, sigma = np.broadcast_to(1e2 + 1e4 * gpu**3, grid.shape), np.full(grid.shape, 0.05)
        return Surface(
            grid, latency_ms, power_mw, power_mw * latency_ms / 1e3, np.full(grid.shape, 1e2), sigma, sigma, "timeline"
        )

    works = [GpuLoad(large(2 + place % 5), 10, 0.6 + 0.005 * place, 30, process=place) for place in range(56)]

    def dearest() -> None:
        assert not jointly(works, Limits()).attained  # every configuration is looked at

    monkeypatch.setattr(time, "process_time", time.thread_time)  # the daemon has no threads of BLAS, which would wait in a loop
    assert multiples_of_unpickling(dearest, tries=30) < [8.0]  # some 250 before the work was bounded
