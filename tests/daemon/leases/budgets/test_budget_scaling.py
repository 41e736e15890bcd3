# SPDX-License-Identifier: Apache-2.0
"""Configurations under a budget of power, and leases whose frames do not come: by rule, and in the real daemon."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from jetdvfs.daemon.leases.budgets.budget_scaling import BudgetScaling
from jetdvfs.daemon.leases.effective_leases import SILENT_S, EffectiveLeases
from jetdvfs.daemon.leases.lease import Holder, Lease
from jetdvfs.daemon.planning.lease_plan import PlanRequest
from jetdvfs.daemon.planning.limits import Limits
from jetdvfs.daemon.planning.plan import Planning
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.kernels.units import AXES
from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon, eventually
from jetdvfs.tests.support.daemons.paced import IMAGE, MODEL, Application
from jetdvfs.tests.support.surfaces import GRID, crowded

TOP = FrequencyConfiguration(2265600, 1377000000, 2133000000)
LEVELS = {axis: GRID.levels(axis) for axis in AXES}


def test_clocks_are_lowered_while_the_board_draws_too_much_and_raised_after_a_calm() -> None:
    capping = BudgetScaling()
    assert capping.cap(GRID.top, LEVELS) == GRID.top
    assert capping.update(0.0, 10_000.0, 5_000.0) and capping.share == pytest.approx(0.7)
    assert not capping.update(1.0, 10_000.0, 5_000.0)
    assert capping.update(2.0, 5_200.0, 5_000.0) and capping.share == pytest.approx(0.7 * 0.95)
    lowered = capping.cap(GRID.top, LEVELS)
    assert all(low < high for low, high in zip(lowered, GRID.top, strict=True))
    assert all(getattr(lowered, axis) in LEVELS[axis] for axis in AXES)
    assert not capping.update(10.0, 4_000.0, 5_000.0) and not capping.update(30.0, 4_900.0, 5_000.0)
    assert capping.update(31.0, 4_000.0, 5_000.0)
    for moment in range(100):
        capping.update(100.0 + 3 * moment, 10_000.0, 1.0)
    assert capping.cap(GRID.top, LEVELS) == FrequencyConfiguration(*(LEVELS[axis][0] for axis in AXES))
    assert not capping.update(999.0, None, 1.0)
    assert capping.update(1000.0, None, None) and capping.cap(GRID.top, LEVELS) == GRID.top


def held(name: str, since_s: float = 0.0) -> Lease:
    plan = replace(
        PlanRequest(Planning(), crowded(), "min-energy", None, None, "crowded", True).plan(Limits()), configuration=GRID.top
    )
    return Lease(name, Holder(name, 1, 1000, "app"), plan, "", since_s)


def test_an_application_without_frames_for_a_minute_is_no_load_and_is_one_again_with_its_first_frame() -> None:
    present, lease = EffectiveLeases(), held("1")
    assert present.leases([lease], SILENT_S)[0] is lease
    idle = present.leases([lease], SILENT_S + 1)
    assert idle[0].plan.work is None and present.leases([lease], SILENT_S + 2)[0].plan is idle[0].plan
    lease.frames.report([10.0], SILENT_S + 3)
    assert present.leases([lease], SILENT_S + 3)[0] is lease
    assert present.leases([lease], 2 * SILENT_S + 4)[0].plan.work is None


def test_under_a_budget_an_application_counts_once_its_frames_come() -> None:
    present, lease = EffectiveLeases(), held("1")
    assert present.leases([lease], 1.0, budget="5 W")[0].plan.work is None
    lease.frames.report([10.0], 2.0)
    assert present.leases([lease], 2.0, budget="5 W")[0] is lease


@pytest.fixture
def daemon(board: Board, tmp_path: Path) -> Iterator[Daemon]:
    found = board.settings()
    (tmp_path / "jetdvfsd.yaml").write_text("ceiling_c: 45\nfloors: off\n")
    with Daemon(board, tmp_path, "--profile", "agx-xavier-sim", "--config", str(tmp_path / "jetdvfsd.yaml")) as daemon:
        yield daemon
    assert board.settings() == found


def test_the_operators_ceiling_binds_a_configuration_too_and_that_is_said(board: Board, daemon: Daemon) -> None:
    with daemon.client() as client:
        assert eventually(lambda: client.status()["rails_mw"])
        with client.hold(configuration=TOP, app="greedy"):
            assert eventually(lambda: client.status()["budget"] is not None)
            assert eventually(lambda: board.clocks.gpu_hz < TOP.gpu_hz, 20.0), client.status()["budget"]
            assert eventually(lambda: any("of greedy: lowered to" in text for text in client.status()["degraded"]))
            said = next(text for text in client.status()["degraded"] if "lowered to" in text)
            assert "hotter than 45 C" in said


@pytest.mark.slow
def test_a_lease_without_a_frame_takes_no_other_leases_clocks_down_under_a_ceiling(board: Board, daemon: Daemon) -> None:
    with daemon.client() as client, daemon.client() as other:
        application = Application(client, slower=1.0)
        with client.hold(application.network, f"latency_ms={application.target_ms(4):.3f}", fps=20.0) as lease:
            clocks = board.clocks
            with other.hold(other.load(MODEL, IMAGE), "min-energy"):
                for _ in range(8):
                    lease.report(application(board.clocks))
                    lease.flush()
                    time.sleep(0.25)
                    assert board.clocks.gpu_hz >= clocks.gpu_hz and board.clocks.emc_hz >= clocks.emc_hz
            (own,) = (one for one in client.status()["leases"] if one["lease"] == lease.id)
            assert own["unkept"] is None
