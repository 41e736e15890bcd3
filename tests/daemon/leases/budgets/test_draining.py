# SPDX-License-Identifier: Apache-2.0
"""A lease whose battery drains otherwise than planned is planned again, in a time that passes only when somebody waits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from jetdvfs.daemon.config import Config
from jetdvfs.daemon.errors import UsageError
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.daemon.hardware.sensors.thermal import TripPoint
from jetdvfs.daemon.leases.budgets.budgets import PowerBudgets
from jetdvfs.daemon.leases.controller import Controller
from jetdvfs.daemon.leases.lease import Holder
from jetdvfs.daemon.planning.lease_plan import LeasePlan, PlanRequest
from jetdvfs.daemon.planning.limits import BoardConstraints, Limits
from jetdvfs.daemon.planning.plan import Planning
from jetdvfs.profiles.board import load_board
from jetdvfs.tests.support.boards.hardware_kernel import FakeClock, Kernel
from jetdvfs.tests.support.daemons.paced import predicted

SUPPLY = "/sys/class/power_supply/pack"
RAILS = load_board("agx-xavier").energy_rails


class Sensed:
    """Sensors that read what a test says."""

    energy_rails = RAILS

    def __init__(self) -> None:
        self.trips: tuple[TripPoint, ...] = (TripPoint("CPU-therm", "passive", 90_000),)
        self.drawn_mw, self.die_c, self.blind, self.silent_rail = 8_000.0, 40.0, False, ""

    def rails_mw(self) -> Mapping[str, float]:
        return dict.fromkeys((rail for rail in RAILS if rail != self.silent_rail), self.drawn_mw / len(RAILS))

    def temperatures_mc(self) -> Mapping[str, int]:
        return {"PMIC-Die": 100_000, **({} if self.blind else {"CPU-therm": round(1e3 * self.die_c)})}

    def want(self) -> None:
        pass


class Board:
    """A board in memory with a battery, and its controller; ``tick`` lets time pass, in steps of five seconds."""

    def __init__(self, folder: Path, uid: int = 0, **asked: Any) -> None:
        self.kernel, self.sensed, self.clock = Kernel(), Sensed(), FakeClock()
        self.left_wh(20.0)
        hardware = Hardware.probe(self.kernel, self.clock, baseline=folder / "baseline.json")
        monotonic = self.clock.monotonic
        budgets = PowerBudgets(cast(Any, self.sensed), hardware.description, self.kernel, monotonic)
        self.controller = Controller(hardware, Config(), monotonic, budgets=budgets)
        target = f"hours={asked['hours']:g}" if "hours" in asked else "latency_ms=9"
        request = PlanRequest(Planning(), predicted(), target, None, None, "squeezenet", True, BoardConstraints(**asked))
        self.controller.hold(Holder("somebody", 1, uid, "app"), request.plan(Limits()), "test")

    def left_wh(self, left_wh: float) -> None:
        self.kernel.store |= {f"{SUPPLY}/type": "Battery", f"{SUPPLY}/energy_now": str(round(1e6 * left_wh))}

    def tick(self, seconds: float) -> None:
        for _ in range(round(seconds / 5)):
            self.clock.sleep(5)
            self.controller.tend()

    @property
    def gpu_hz(self) -> int:
        assert self.controller.applied is not None
        return self.controller.applied.accepted.gpu_hz


def test_a_battery_that_drains_faster_than_it_may_lowers_the_clocks_and_one_that_does_not_raises_them(tmp_path: Path) -> None:
    board = Board(tmp_path, hours=2.0)
    began_hz = board.gpu_hz
    board.left_wh(14.0)  # a quarter of an hour later, where 17.5 Wh should be left
    board.tick(900)
    lowered_hz = board.gpu_hz
    assert lowered_hz < began_hz
    board.tick(1800)  # nothing is drawn from it: the same for less time
    assert board.gpu_hz > lowered_hz
    board.tick(4600)
    assert board.controller.budgets is not None and board.controller.budgets.budget is None  # it has lasted


@pytest.mark.parametrize(("asks", "other", "counts"), [(1000, 1000, True), (1000, 1001, False), (0, 1001, True)])
def test_what_one_user_asks_of_the_board_slows_down_no_other_users_lease(
    tmp_path: Path, asks: int, other: int, counts: bool
) -> None:
    board = Board(tmp_path, uid=asks, hours=4.0)
    budgets = board.controller.budgets
    assert budgets is not None and budgets.budget is not None
    before_mw = budgets.budget.power_mw
    top = predicted().grid.top
    lease, _ = board.controller.hold(Holder("other", 2, other, "viewer"), LeasePlan(top), "test")
    assert (budgets.budget is not None) == counts
    assert any("that does not count while they are held" in note for note in board.controller.notes) == (not counts)
    board.tick(1800)
    board.controller.release(lease)
    # The time goes on meanwhile: as much energy for half an hour less.
    assert budgets.budget is not None and budgets.budget.power_mw == pytest.approx(before_mw * 4 / 3.5, rel=0.03)
    assert board.controller.notes == ()


def test_zones_that_come_near_the_ceiling_lower_the_clocks_and_a_calm_minute_raises_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    board = Board(tmp_path, ceiling_c=60.0)
    began_hz = board.gpu_hz
    board.sensed.die_c = 64.0
    board.tick(30)
    lowered_hz = board.gpu_hz
    assert lowered_hz < began_hz
    assert any("above the ceiling" in text for text in board.controller.notes)
    assert any("best attainable" in text for text in board.controller.notes)
    board.sensed.die_c, board.sensed.drawn_mw = 45.0, 4_000.0
    board.tick(30)
    assert board.gpu_hz == lowered_hz
    board.tick(120)
    assert board.gpu_hz == began_hz and board.controller.notes == ()
    changes = [record for record in caplog.records if "the board may draw" in record.getMessage()]
    assert len(changes) <= 4  # each is logged twice: what may be drawn, and clocks that are set


def test_sensors_and_batteries_that_die_leave_what_may_be_drawn_as_it_was_and_say_so(tmp_path: Path) -> None:
    board = Board(tmp_path, ceiling_c=60.0)
    board.sensed.die_c = 64.0
    board.tick(30)
    lowered_hz = board.gpu_hz
    board.sensed.blind = True
    board.tick(300)
    assert board.gpu_hz == lowered_hz
    assert any("no zone can be read" in text for text in board.controller.notes)

    board = Board(tmp_path / "other", hours=2.0)
    began_hz = board.gpu_hz
    board.kernel.store.pop(f"{SUPPLY}/energy_now")
    board.tick(60)
    assert board.gpu_hz == began_hz
    assert any("can no longer be read" in text for text in board.controller.notes)


def test_a_battery_whose_drain_is_unknown_is_said_to_be_not_counted_down(tmp_path: Path) -> None:
    board = Board(tmp_path, hours=2.0)
    board.sensed.silent_rail = RAILS[-1]
    board.tick(5)
    (note,) = [note for note in board.controller.notes if "battery" in note]
    assert note == f"power drawn from the battery is unknown ({RAILS[-1]} is not read): the charge is not counted down"


def test_a_ceiling_without_passive_trips_is_kept_by_the_zones_of_the_die(tmp_path: Path) -> None:
    board = Board(tmp_path, hours=2.0)
    board.sensed.trips = (TripPoint("PMIC-Die", "critical", 120_000),)
    budgets = board.controller.budgets
    assert budgets is not None
    budgets.check(BoardConstraints(ceiling_c=60.0))
    board.sensed.blind = True
    with pytest.raises(UsageError, match="no zone of the CPU, the GPU or the junction can be read; zones read: PMIC-Die"):
        budgets.check(BoardConstraints(ceiling_c=60.0))
