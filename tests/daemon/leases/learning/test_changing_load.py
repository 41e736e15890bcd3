# SPDX-License-Identifier: Apache-2.0
"""A program whose frames become heavier or lighter is kept in time for less, and what may be better is tried."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.daemon.leases.learning.replanning import MOST_TRIED
from jetdvfs.daemon.leases.lease import Holder
from jetdvfs.daemon.planning.lease_plan import LeasePlan
from jetdvfs.kernels.correction.flat import flat_surface
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.kernels.surface import Surface
from jetdvfs.profiles.twin.simulated_board import simulated_board
from jetdvfs.tests.support.boards.hardware_kernel import FakeClock
from jetdvfs.tests.support.daemons.programs import Program, Programs

FPS = 2.0
FOUND_OUT_S, HEAVIER_S = 120.0, 30.0


def true(board_grid: Surface) -> Surface:
    """Frames that take a constant, and time at each of the clocks; what they draw grows with those."""
    grid = board_grid.grid
    cpu, gpu, emc = np.meshgrid(*(np.array(levels) / levels[-1] for levels in grid.to_json().values()), indexing="ij")
    latency_ms = 2 + 4 / gpu + 2 / emc + 1 / cpu
    power_mw = 3000 + 8000 * gpu**2.5 + 3000 * emc**1.5 + 3000 * cpu**2
    nothing = np.zeros(grid.shape)
    return Surface(grid, latency_ms, power_mw, power_mw * latency_ms / 1e3, 0.4 * power_mw, nothing, nothing, "true")


@pytest.mark.parametrize(("found_out_s", "heavier"), [(FOUND_OUT_S, 1.3), (9.0, 1.45), (24.0, 1.45), (30.0, 1.3)])
def test_frames_that_become_heavier_are_in_time_again_within_ten(tmp_path: Path, found_out_s: float, heavier: float) -> None:
    clock = FakeClock()
    board = simulated_board("agx-xavier", clock=clock)
    flat = flat_surface(board.description.grid)
    program = Program("", flat, true(flat), FPS)
    limit_ms = 2 * float(program.true.latency_ms.min())
    programs = Programs(board, clock, tmp_path, program.true)

    async def lives() -> list[int]:
        one = await programs.begin(program, f"latency_ms={limit_ms}", limit_ms, 1)
        await programs.until(clock.now + found_out_s)
        learned = len(one.tried)
        assert (learned > 5 or found_out_s < FOUND_OUT_S) and one.late_in_a_row == 0
        one.heavier = heavier
        await programs.until(clock.now + HEAVIER_S)
        in_a_row = [max(programs.rows, default=0), one.late_in_a_row]
        assert len(one.tried) > learned
        await programs.end(one)
        return in_a_row

    longest, still = programs.daemon.run(lives())
    programs.daemon.close()
    assert 0 < longest <= 10 and still == 0


def test_who_was_late_for_want_of_any_way_is_in_time_within_ten_once_there_is_one(tmp_path: Path) -> None:
    clock = FakeClock()
    board = simulated_board("agx-xavier", clock=clock)
    real = true(flat_surface(board.description.grid))
    uncertain = np.full(real.grid.shape, 0.05)
    hoped = replace(real, latency_ms=0.8 * real.latency_ms, energy_mj=0.8 * real.energy_mj, latency_sigma=uncertain)
    program = Program("late", hoped, real, FPS)
    limit_ms = 2.2 * float(real.latency_ms.min())
    programs = Programs(board, clock, tmp_path, real)

    async def lives() -> int:
        others = [await programs.begin(replace(program, name=f"company {n}"), "latency_ms=490", 490, n) for n in (2, 3)]
        for other in others:
            other.heavier = 25
        one = await programs.begin(program, f"latency_ms={limit_ms}", limit_ms, 1)
        await programs.until(clock.now + 4 * HEAVIER_S)
        assert programs.excused > 50 and one.late_in_a_row == 0
        programs.rows.clear()
        await programs.end(others[0])
        await programs.until(clock.now + HEAVIER_S)
        longest = max(*programs.rows, one.late_in_a_row, 0)
        for left in (one, others[1]):
            await programs.end(left)
        return longest

    longest = programs.daemon.run(lives())
    programs.daemon.close()
    assert longest <= 10


def test_where_no_clocks_are_predicted_to_do_the_highest_are_tried_before_ten_are_late(tmp_path: Path) -> None:
    clock = FakeClock()
    board = simulated_board("agx-xavier", clock=clock)
    real = true(flat_surface(board.description.grid))
    limit_ms = 1.3 * float(real.latency_ms.min())
    # It is believed that the GPU's highest clocks gain nothing.
    enough = int(np.argmax(np.array(real.grid.gpu_hz) >= 0.8 * real.grid.gpu_hz[-1]))
    latency_ms = real.latency_ms.copy()
    latency_ms[:, enough:] = latency_ms[:, enough : enough + 1]
    believed = replace(real, latency_ms=latency_ms, latency_sigma=np.full(real.grid.shape, 0.05))
    programs = Programs(board, clock, tmp_path, real)

    async def lives() -> tuple[int, int]:
        one = await programs.begin(Program("", believed, real, FPS), f"latency_ms={limit_ms}", limit_ms, 1)
        await programs.until(clock.now + HEAVIER_S)
        one.heavier = 1.25
        await programs.until(clock.now + HEAVIER_S)
        longest, still = max(programs.rows, default=0), one.late_in_a_row
        await programs.end(one)
        return longest, still

    longest, still = programs.daemon.run(lives())
    programs.daemon.close()
    assert 0 < longest <= 10 and still == 0


def energy_mj(surface: Surface, clocks: FrequencyConfiguration) -> float:
    return float(surface.energy_per_frame_mj(FPS)[surface.grid.index(clocks)])


def test_what_may_gain_is_tried_within_a_minute_and_then_the_clocks_stay(tmp_path: Path) -> None:
    clock = FakeClock()
    board = simulated_board("agx-xavier", clock=clock)
    real = true(flat_surface(board.description.grid))
    # Low memory clocks are taken to draw more than they do.
    emc = np.array(real.grid.emc_hz) / real.grid.emc_hz[-1]
    uncertain = np.full(real.grid.shape, 0.06)
    believed_mw = real.power_mw * (1.6 - 0.6 * emc)
    predicted = replace(
        real,
        power_mw=believed_mw,
        idle_mw=0.4 * believed_mw,
        energy_mj=believed_mw * real.latency_ms / 1e3,
        latency_sigma=uncertain,
        energy_sigma=2 * uncertain,
    )
    limit_ms = 2 * float(real.latency_ms.min())
    programs = Programs(board, clock, tmp_path, real)

    async def lives() -> tuple[float, float, list[FrequencyConfiguration], list[FrequencyConfiguration]]:
        one = await programs.begin(Program("net", predicted, real, FPS), f"latency_ms={limit_ms}", limit_ms, 1)
        first = board.configuration
        await programs.until(clock.now + 90)
        tried, found = list(one.tried), board.configuration
        await programs.until(clock.now + 300)
        later = one.tried[len(tried) :]
        await programs.end(one)
        return energy_mj(real, first), energy_mj(real, found), tried, later

    first_mj, found_mj, tried, later = programs.daemon.run(lives())
    programs.daemon.close()
    least_mj = float(real.energy_per_frame_mj(FPS)[real.latency_ms <= limit_ms].min())
    assert found_mj < 1.05 * least_mj < first_mj
    assert 1 < len(set(tried)) <= MOST_TRIED and not later
    assert programs.late == 0


def test_frames_that_become_lighter_are_given_less(tmp_path: Path) -> None:
    clock = FakeClock()
    board = simulated_board("agx-xavier", clock=clock)
    real = true(flat_surface(board.description.grid))
    predicted = replace(real, latency_sigma=np.full(real.grid.shape, 0.02), energy_sigma=np.full(real.grid.shape, 0.02))
    limit_ms = 1.5 * float(real.latency_ms.min())
    programs = Programs(board, clock, tmp_path, real)

    async def lives() -> tuple[float, float]:
        one = await programs.begin(Program("net", predicted, real, FPS), f"latency_ms={limit_ms}", limit_ms, 1)
        await programs.until(clock.now + 60)
        before = board.configuration
        one.heavier = 0.7
        await programs.until(clock.now + 30)
        after = board.configuration
        await programs.end(one)
        return energy_mj(real, before), energy_mj(real, after)

    before_mj, after_mj = programs.daemon.run(lives())
    programs.daemon.close()
    assert after_mj < 0.95 * before_mj and programs.late == 0


def test_what_could_not_be_tried_does_not_delay_what_must_be_done(tmp_path: Path) -> None:
    clock = FakeClock()
    board = simulated_board("agx-xavier", clock=clock)
    real = true(flat_surface(board.description.grid))
    uncertain = np.full(real.grid.shape, 0.06)
    predicted = replace(real, latency_sigma=uncertain, energy_sigma=2 * uncertain)
    limit_ms = 2 * float(real.latency_ms.min())
    programs = Programs(board, clock, tmp_path, real)
    board_service = programs.daemon.board_service

    async def lives() -> int:
        # Somebody holds clocks, so that the limits are others each time, and nothing that is tried comes into force.
        held = board_service.granted(Holder("other", 4321, 1000, "other"), LeasePlan(real.grid.configuration((20, 5, 3))), "")
        one = await programs.begin(Program("net", predicted, real, FPS), f"latency_ms={limit_ms}", limit_ms, 1)
        await programs.until(clock.now + 4 * HEAVIER_S)
        one.heavier = 1.4
        await programs.until(clock.now + 2 * HEAVIER_S)
        longest = max(*programs.rows, one.late_in_a_row, 0)
        board_service.ended(held)
        await programs.end(one)
        return longest

    longest = programs.daemon.run(lives())
    programs.daemon.close()
    assert 0 < longest <= 10
