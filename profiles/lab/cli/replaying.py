# SPDX-License-Identifier: Apache-2.0
"""Run the planning loop on published tables of real boards, and print how fast it learns a program.

Without predictions, the planner begins at the highest clocks, chooses each configuration and observes the table's value, a mean
of many frames. Targets are the least energy of a frame within 1.15, 1.5 and 2.5 times the table's shortest
latency, and without a deadline, with 95% confidence.

After 3, 5, 10 and 20 observed configurations: mean relative error of time and power at unobserved configurations within the
deadline, in brackets at all; regret, the excess of the plan's energy over the table's best within the
deadline; and plans that miss it. A miss on the way is an observed configuration that misses the deadline.

Compared are the top clocks, the best power mode in hindsight, the kernel's governors on a replay board with a frame due every
deadline, and the plain overlap fit to ten random configurations.

--data names the tables' folder. Known ones are found by name; --table reads any other by a YAML file of its columns (examples:
profiles/twin/measured/mappings).

With --profile, programs are reference networks on unseen simulated boards, without noise; the planner begins with predictions.

examples:
  jetdvfs-lab compare replay --data DIR
  jetdvfs-lab compare replay --data DIR --only tx2 --plot loop.png
  jetdvfs-lab compare replay --data DIR --table mine.yaml --json
  jetdvfs-lab compare replay --profile agx-xavier-sim --perturbed 1 --boards 2
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec import to_builtins

from ....daemon import arguments
from ....daemon.cli.output import print_json
from ....daemon.cli.pictures import announce_picture, picture_file
from ....kernels.text import counted
from ...bundle.bundle import load_bundle
from ...errors import MeasurementError
from ...twin.cli.arguments import add_perturbed
from ...twin.measured.tables import load_tables

if TYPE_CHECKING:
    from ....kernels.surface import Surface
    from ..compare.loop import LoopResult

TIME, POWER, REGRET = 0.02, 0.04, 0.03
GOAL = f"goal after 10: time {TIME:.0%}, power {POWER:.0%}, regret (90%) {REGRET:.0%}, no miss after the third frame"


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    sub = verb("replay", __doc__ or "", replay_tables)
    source = sub.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, metavar="DIR", help="folder of the tables, or one anywhere above it")
    source.add_argument("--profile", metavar="NAME|DIR", help="the reference networks on simulated boards, with this profile")
    add_perturbed(sub)
    sub.add_argument("--boards", type=arguments.whole(1), default=2, help="how many simulated boards (default 2)")
    sub.add_argument(
        "--table", type=Path, action="append", default=[], metavar="FILE", help="mapping of a further table's columns"
    )
    sub.add_argument("--only", default="", metavar="TEXT", help="tables and programs whose name has this in it")
    sub.add_argument("--plot", type=picture_file, metavar="FILE", help="also draw regret and errors by observed configurations")


def replay_tables(args: argparse.Namespace) -> int:
    from ..compare.loop import replay, simulated_programs

    starts: dict[str, Surface] = {}
    if args.profile:
        programs = list(simulated_programs(load_bundle(args.profile), args.boards, args.perturbed))
        tables = [table for table, _ in programs]
        starts = {table.workload: start for table, start in programs}
    else:
        tables = load_tables(args.data, args.table)
    chosen = [table for table in tables if args.only in f"{table.name} {table.workload} {table.board}"]
    if not chosen:
        names = ", ".join(dict.fromkeys(table.name for table in tables))
        raise MeasurementError(f"--only {args.only!r:.80}: no table or program is called like this; there are {names}")
    if not args.json:
        print(f"{'simulated boards' if args.profile else 'real boards, replayed'}; {GOAL}")
    runs: list[LoopResult] = []
    for name in dict.fromkeys(table.name for table in chosen):
        own = [run for table in chosen if table.name == name for run in replay(table, starts.get(table.workload))]
        runs += own
        if not args.json:
            print(f"\n{name}: {next(table for table in chosen if table.name == name).source}")
            print("\n".join(lines(own)))
    if not args.json and len({run.table for run in runs}) > 1:
        print("\nall of them")
        print("\n".join(lines(runs)))
    if args.plot:
        from .pictures import draw_replays

        draw_replays(runs, args.plot, simulated=bool(args.profile))
        announce_picture(args.plot)
    if args.json:
        print_json(to_builtins(runs))
    return 0


def lines(runs: Sequence[LoopResult]) -> list[str]:
    late = sum(sum(number > 3 for number in run.late) for run in runs)
    early = sum(len(run.late) for run in runs) - late
    found = [
        f"  {counted(len(runs), 'target')} on {counted(len({(run.table, run.workload) for run in runs}), 'program')}; "
        f"missed on the way: {early} of the first three configurations, {late} later",
        f"  {'observed':<28}{'time':>15}{'power':>17}{'regret: median':>17}{'90%':>8}{'missed':>8}",
    ]
    for stop in runs[0].after:
        standing = [run.after[stop] for run in runs]
        middle = {
            name: float(np.median([getattr(one, name) for one in standing]))
            for name in ("latency_error", "latency_error_all", "power_error", "power_error_all")
        }
        regrets = [one.regret for one in standing]
        time = f"{middle['latency_error']:.1%} ({middle['latency_error_all']:.1%})"
        power = f"{middle['power_error']:.1%} ({middle['power_error_all']:.1%})"
        missed = sum(one.missed for one in standing)
        found.append(
            f"  {stop:<28}{time:>15}{power:>17}{np.median(regrets):>17.1%}{np.quantile(regrets, 0.9):>8.1%}{missed:>8}"
        )
    for name in runs[0].others:
        kept = [regret for run in runs if (regret := run.others[name]) is not None]
        missed = len(runs) - len(kept)
        middle_kept, most = (f"{np.quantile(kept, part):.1%}" if kept else "-" for part in (0.5, 0.9))
        found.append(f"  {name:<60}{middle_kept:>17}{most:>8}{missed:>8}")
    return found
