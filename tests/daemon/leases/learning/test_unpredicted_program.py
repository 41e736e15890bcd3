# SPDX-License-Identifier: Apache-2.0
"""A lease for a target without a network: it begins at the highest clocks and is got to know without missing its target."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jetdvfs.daemon.errors import UsageError
from jetdvfs.daemon.leases.learning.unpredicted_program import UnpredictedProgram
from jetdvfs.daemon.planning.lease_plan import PlanRequest
from jetdvfs.daemon.planning.limits import Limits
from jetdvfs.daemon.planning.plan import Planning
from jetdvfs.kernels.correction.flat import flat_surface
from jetdvfs.kernels.correction.observation import Observation
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.twin.measured.tables import MeasuredTable, load_tables
from jetdvfs.profiles.twin.replayed_board import replay_board
from jetdvfs.profiles.twin.serve import serve
from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon
from jetdvfs.tests.support.profiles.analytic import network, relu
from jetdvfs.tests.support.profiles.measured_table import latency_ms, write_table

FPS = 20.0
MOST_FRAMES = 600


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> MeasuredTable:
    folder = tmp_path_factory.mktemp("table")
    (table,) = load_tables(folder, [write_table(folder, board="agx-orin-64gb")])
    return table


@pytest.fixture
def board(table: MeasuredTable, tmp_path: Path) -> Iterator[Board]:
    twin = replay_board(table)
    with serve(twin, tmp_path / "board", "auto"):
        yield Board(twin, tmp_path / "board")


def _took_ms(clocks: FrequencyConfiguration) -> float:
    return latency_ms(clocks.cpu_khz / 1e3, clocks.gpu_hz / 1e6)


@pytest.mark.slow
def test_it_begins_at_the_highest_clocks_and_tries_only_what_keeps_the_target(
    table: MeasuredTable, board: Board, tmp_path: Path
) -> None:
    limit_ms = 2 * float(np.nanmin(table.latency_ms))
    with Daemon(board, tmp_path) as daemon, daemon.client() as client, daemon.client() as other:
        with pytest.raises(UsageError, match="execution: only with a network"):
            client.hold(target=f"latency_ms={limit_ms}", execution="graph")
        with pytest.raises(UsageError, match="fps=0: expected a frame rate"):
            client.hold(target=f"latency_ms={limit_ms}", fps=0.0)
        with client.hold(target=f"latency_ms={limit_ms}", fps=FPS) as lease:
            assert board.clocks == table.grid.top
            assert other.status()["leases"][0]["predicted"] is None
            tried: dict[FrequencyConfiguration, float] = {}
            # What was reported last may still change the clocks: at those in force it is known once frames ran there.
            while len(tried) < 3 or not _is_known(other.status()["leases"][0], board.clocks):
                tried[board.clocks] = _took_ms(board.clocks)
                stream = board.twin.infer(network(relu()), frames=5, fps=FPS)
                for took_s in stream.latencies_s:
                    lease.report(1e3 * took_s)
                assert other.status()["leases"][0]["frames"] < MOST_FRAMES, other.log()
            assert max(tried.values()) <= limit_ms and lease.missed() is None
            said = [entry for entry in other.log(lease.id) if entry["kind"] == "planned_again"]
            assert "its frames are not predicted: it tells most of all that keep the target" in said[0]["message"]


def _is_known(lease: dict[str, Any], clocks: FrequencyConfiguration) -> bool:
    return bool(lease["predicted"] and lease["predicted"]["latency_ms"] == pytest.approx(_took_ms(clocks), rel=0.2))


def test_what_is_known_in_the_end_is_nearly_the_best(table: MeasuredTable) -> None:
    limit_ms = 2 * float(np.nanmin(table.latency_ms))
    target = f"latency_ms={limit_ms}"
    request = PlanRequest(Planning(), flat_surface(table.grid), target, None, 0.95, "", simulated=False)
    need, seen, why = UnpredictedProgram(request).plan(Limits()), list[Observation](), "nothing was seen"
    assert need.predicted is None and need.limit_ms == pytest.approx(limit_ms)
    while why:
        place = table.grid.index(need.configuration)
        took_ms, drawn_mw = float(table.latency_ms[place]), float(table.power_mw[place])
        assert took_ms <= limit_ms
        seen.append(Observation(need.configuration, took_ms, drawn_mw, frames=30))
        need, _, why = UnpredictedProgram(request).next(seen, Limits())
        assert len(seen) <= 20
    place = table.grid.index(need.configuration)
    best_mj = np.nanmin(np.where(table.measured & (table.latency_ms <= limit_ms), table.energy_mj, np.nan))
    assert table.latency_ms[place] <= limit_ms and table.energy_mj[place] <= 1.05 * best_mj


def test_what_nothing_can_meet_is_run_at_what_comes_closest_and_tried_again(table: MeasuredTable) -> None:
    request = PlanRequest(Planning(), flat_surface(table.grid), "latency_ms=1", None, None, "", simulated=False)
    place = table.grid.index(table.grid.top)
    seen = [Observation(table.grid.top, float(table.latency_ms[place]), float(table.power_mw[place]), frames=30)]
    need, _, why = UnpredictedProgram(request).next(seen, Limits())
    assert need.configuration == table.grid.top and "best attainable" in need.unmet and why


def test_other_limits_are_kept_while_it_is_got_to_know(table: MeasuredTable) -> None:
    request = PlanRequest(Planning(), flat_surface(table.grid), "min-energy", None, None, "", simulated=False)
    limits = Limits(gpu_hz=(0, 700_000_000))
    need = UnpredictedProgram(request).plan(Limits())
    assert need.configuration == table.grid.top and need.planner is not None
    assert need.planner.plan(limits).configuration.gpu_hz <= 700_000_000
    place = table.grid.index(need.configuration)
    seen = [Observation(need.configuration, float(table.latency_ms[place]), float(table.power_mw[place]), frames=30)]
    again = UnpredictedProgram(request).next(seen, Limits())[0].planner
    assert again is not None and again.plan(limits).configuration.gpu_hz <= 700_000_000


def _seen(table: MeasuredTable, clocks: FrequencyConfiguration, times: float = 1.0) -> Observation:
    place = table.grid.index(clocks)
    return Observation(clocks, times * float(table.latency_ms[place]), float(table.power_mw[place]), frames=30)


@pytest.fixture(scope="module")
def known(table: MeasuredTable) -> list[Observation]:
    """Of some programs, all that is remembered: the corners."""
    cpu, gpu, _ = table.grid.shape
    return [_seen(table, table.grid.configuration((a, b, 0))) for a in (0, cpu // 2, cpu - 1) for b in (0, gpu // 2, gpu - 1)]


def _request(table: MeasuredTable) -> PlanRequest:
    return PlanRequest(Planning(), flat_surface(table.grid), "min-energy", None, None, "", simulated=False)


def test_what_is_known_of_a_name_counts_where_frames_take_the_same_and_not_for_another_program(
    table: MeasuredTable, known: list[Observation]
) -> None:
    program = UnpredictedProgram(_request(table), before=known)
    assert program.recalled([_seen(table, table.grid.top)]) == known
    assert program.recalled([_seen(table, table.grid.top, 1.3)]) == ()


def test_within_what_the_board_may_draw_it_begins_where_its_name_drew_no_more(
    table: MeasuredTable, known: list[Observation]
) -> None:
    drawn_mw = float(table.power_mw[table.grid.index(table.grid.top)])
    limits = Limits(power_mw=0.7 * drawn_mw)
    first = UnpredictedProgram(_request(table), before=known).plan(limits).configuration
    assert 0.5 * drawn_mw < table.power_mw[table.grid.index(first)] <= 0.75 * drawn_mw


def test_of_a_name_that_nobody_knows_it_begins_within_a_power_mode_for_what_the_board_may_draw(table: MeasuredTable) -> None:
    modes = load_board("agx-orin-64gb").modes[0]
    request = _request(table)
    caps = next(mode for mode in modes.table if "30W" in mode.name)
    first = UnpredictedProgram(request, modes=modes).plan(Limits(power_mw=31_000.0)).configuration
    assert first != table.grid.top and caps.gpu_hz is not None and caps.cpu_khz is not None
    assert first.gpu_hz <= caps.gpu_hz and first.cpu_khz <= caps.cpu_khz
    assert UnpredictedProgram(request, modes=modes).plan(Limits()).configuration == table.grid.top
    assert UnpredictedProgram(request).plan(Limits(power_mw=31_000.0)).configuration == table.grid.top
