# SPDX-License-Identifier: Apache-2.0
"""The daemon's own loop on tables of real boards: programs that nobody predicted are got to know while they keep a deadline.

    python tests/bench/replayed.py FOLDER [--table NAME]

What decides, learns and sets clocks is the daemon's, on a board that replays a table, in a time that passes only when it is
waited for (:mod:`jetdvfs.tests.support.daemons.virtual_daemon`); ``jetdvfs-lab compare replay`` prints the planner alone.
 A program runs at the rate of its deadline until its clocks have stood still for half a minute. Between frames half of what
a frame draws is taken to be drawn, for the tables have no idle power. Regret is by how much the energy from one frame to the
next is then above the least of the table that keeps the deadline.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from jetdvfs.daemon.planning.limits import Limits
from jetdvfs.kernels.correction.flat import flat_surface
from jetdvfs.kernels.grid import FrequencyGrid
from jetdvfs.kernels.surface import Surface
from jetdvfs.kernels.units import AXES
from jetdvfs.profiles.twin.measured.tables import MeasuredTable, load_tables
from jetdvfs.profiles.twin.replayed_board import replay_board
from jetdvfs.tests.support.boards.hardware_kernel import FakeClock
from jetdvfs.tests.support.daemons.programs import Program, Programs, nearest

DEADLINES = (1.15, 1.5, 2.5)
_STILL_S, _MOST_S = 30.0, 1800.0


class Outcome(NamedTuple):
    """Attributes:
    tried: at how many configurations frames ran.
    late: how many of them, from the fourth on, do not keep the deadline.
    row: the most late frames in a row.
    """

    tried: int
    late: int
    row: int
    regret: float
    missed: bool


def measured(table: MeasuredTable) -> Surface:
    """The table as a surface; where nothing was measured, as the nearest that was."""
    latency_ms, power_mw = table.latency_ms.copy(), table.power_mw.copy()
    for place in zip(*np.nonzero(~table.measured), strict=True):
        other = table.nearest((int(place[0]), int(place[1]), int(place[2])))
        latency_ms[place], power_mw[place] = table.latency_ms[other], table.power_mw[other]
    nothing = np.zeros(table.grid.shape)
    return Surface(table.grid, latency_ms, power_mw, power_mw * latency_ms / 1e3, 0.5 * power_mw, nothing, nothing, "measured")


def offered(true: Surface, limits: Limits) -> Surface:
    """The same, where a clock that it has one level of has the highest that the board's power mode leaves."""
    levels = []
    for axis in AXES:
        own, bounds = true.grid.levels(axis), getattr(limits, axis)
        levels.append((min(own[0], bounds[1]),) if len(own) == 1 and bounds is not None else own)
    return replace(true, grid=FrequencyGrid(*levels))


def run(table: MeasuredTable, deadline: float, folder: Path) -> Outcome:
    clock = FakeClock()
    board = replay_board(table, clock)
    true = measured(table)
    limit_ms = deadline * float(true.latency_ms.min())
    programs = Programs(board, clock, folder, true)
    true = offered(true, programs.daemon.controller.limits())
    # Of clocks between those that were measured nobody knows what is true.
    program = Program(table.workload, flat_surface(true.grid), true, 1e3 / limit_ms)

    async def lives() -> Outcome:
        one = await programs.begin(program, f"latency_ms={limit_ms}", limit_ms, 1)
        ends_s, before = clock.now + _MOST_S, -1
        while len(one.tried) != before and clock.now < ends_s:
            before = len(one.tried)
            await programs.until(clock.now + max(_STILL_S, 12 * one.period_s))
        tried = [nearest(true, clocks) for clocks in one.tried]
        late = [true.latency_ms[place] > limit_ms for place in dict.fromkeys(tried)]
        keeps = true.latency_ms <= limit_ms
        energy_mj = true.energy_per_frame_mj(program.fps)
        regret = float(energy_mj[tried[-1]] / energy_mj[keeps].min() - 1)
        row = max(one.late_in_a_row, *programs.rows, 0)
        outcome = Outcome(len(late), sum(late[3:]), row, regret, not keeps[tried[-1]])
        await programs.end(one)
        return outcome

    outcome: Outcome = programs.daemon.run(lives())
    programs.daemon.close()
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of tables, as of jetdvfs-lab compare replay --data")
    parser.add_argument("--table", help="only those whose names begin so")
    args = parser.parse_args()
    logging.disable()
    outcomes = []
    for table in load_tables(args.folder):
        if args.table and not table.name.startswith(args.table):
            continue
        for deadline in DEADLINES:
            with tempfile.TemporaryDirectory(prefix="jetdvfs-") as name:
                found = run(table, deadline, Path(name))
            outcomes.append(found)
            ends = "ends late" if found.missed else f"regret {found.regret:.1%}"
            print(
                f"{table.name}, {table.workload}, {deadline:g} times the shortest: {found.tried} configurations, "
                f"{found.late} late after the third, at most {found.row} late frames in a row; {ends}",
                flush=True,
            )
    kept = [one.regret for one in outcomes if not one.missed]
    regret = f"regret {np.median(kept):.1%} in the median, {np.quantile(kept, 0.9):.1%} at the 90th percentile"
    late, ended = sum(one.late for one in outcomes), sum(one.missed for one in outcomes)
    print(f"{len(outcomes)} targets: {regret}; {late} configurations late after the third, {ended} end late")


if __name__ == "__main__":
    main()
