# SPDX-License-Identifier: Apache-2.0
"""A simulated board warms as planned, and otherwise: only then is there a reason to plan again."""

from __future__ import annotations

import pytest

from jetdvfs.daemon.planning.thermal_state import OFF_C, SETTLED_S, ThermalTracker
from jetdvfs.profiles.twin.simulated_board import SimulatedBoard, simulated_board
from jetdvfs.tests.support.boards.twin_fakes import VirtualClock

LONG_S = 1200
STEP_S = 2.0
MORE = 4.0
"""How many times as much the board draws while it works as while it is idle."""


class Working:
    """A board that was idle until now, and works from now on."""

    def __init__(self) -> None:
        self.board: SimulatedBoard = simulated_board("agx-xavier", 2, VirtualClock())
        self.settling = ThermalTracker()
        self.now_s = 0.0
        self._watts = [MORE * watts for watts in self.board.watts]

    @property
    def die_c(self) -> float:
        return self.board.thermal.hottest_c

    def work(self, seconds: float, planned_s: float = 0.0, planned_c: float | None = None) -> list[str]:
        """The reasons to plan again that there were meanwhile, looked for every two seconds."""
        reasons = []
        for _ in range(int(seconds / STEP_S)):
            self.now_s += STEP_S
            self.board.thermal.step(STEP_S, self._watts, 80)
            self.settling.see(self.now_s, self.die_c)
            if planned_c is not None:
                reasons.append(self.settling.reason(planned_s, planned_c))
        return [reason for reason in reasons if reason]


def settles_at_c() -> float:
    one = Working()
    one.work(LONG_S)
    return one.die_c


def test_while_a_board_warms_up_to_where_it_was_planned_for_nothing_is_planned_again() -> None:
    one, planned_c = Working(), settles_at_c()
    assert planned_c > one.die_c + 2 * OFF_C
    assert one.work(LONG_S, planned_c=planned_c) == []
    assert one.die_c == pytest.approx(planned_c, abs=0.1)


@pytest.mark.parametrize(("fever_c", "way"), [(12.0, "warmer"), (-12.0, "colder")])
def test_a_board_in_other_surroundings_is_planned_for_again_once(fever_c: float, way: str) -> None:
    one, planned_c = Working(), settles_at_c()
    one.work(LONG_S)
    began_s = one.now_s
    assert one.work(300, began_s, planned_c) == []
    one.board.faults.fever_c = fever_c
    reasons = one.work(300, began_s, planned_c)
    assert reasons[0] == f"the die has settled at {one.die_c:.0f} C, 12 C {way} than planned for"
    # Planned anew for the temperature that it has now, it stays so.
    assert one.work(600, one.now_s, one.die_c) == []


def test_a_plan_that_was_made_a_moment_ago_stands() -> None:
    settling = ThermalTracker()
    for second in range(0, 200, 5):
        settling.see(float(second), 60.0)
    assert settling.reason(planned_s=0.0, planned_c=50.0) is not None
    assert settling.reason(planned_s=195.0 - SETTLED_S / 2, planned_c=50.0) is None
    assert settling.reason(planned_s=0.0, planned_c=60.0 - OFF_C / 2) is None
    assert ThermalTracker().reason(0.0, 50.0) is None
