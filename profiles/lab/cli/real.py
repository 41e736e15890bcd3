# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab compare kernels`` and ``layers``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from ....daemon.cli.output import print_json, progress_bar, table
from .arguments import add_data, add_seed, add_threads, reading_data, rounded
from .silicon_gate import MISSED

if TYPE_CHECKING:
    from ..compare.real.layers import NetworkRow


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    for name, text, action in (
        ("kernels", "predict real kernels of desktop GPUs, a fifth of them held out, and compare with the plain recipe", run),
        ("layers", "predict real layers of an AGX Orin, each network left out in turn", layers),
    ):
        sub = verb(name, f"{text}\n\nexample: jetdvfs-lab compare {name} --data DIR", action)
        add_data(sub)
        add_threads(sub)
        add_seed(sub)


def run(args: argparse.Namespace) -> int:
    from ..compare.real.kernels import pairs

    found = []
    if not args.json:
        print("mean error of kernels held out; goal: within its figure where there is one, and no worse than the plain recipe")
        print(f"{'table':<8}{'GPU':<8}{'kernels':>8}{'plain':>8}{'forest':>8}{'own':>8}{'goal':>8}")
    with reading_data("compare kernels"):
        for pair in pairs(args.data, args.threads, args.seed, progress_bar):
            found.append(pair)
            if not args.json:
                goal = "" if pair.goal_percent is None else f"{pair.goal_percent:.1f}%"
                forest = "" if pair.forest_percent is None else f"{pair.forest_percent:.2f}%"
                figures = f"{pair.plain_percent:>7.2f}%{forest:>8}{pair.own_percent:>7.2f}%{goal:>8}"
                print(
                    f"{pair.table:<8}{pair.gpu:<8}{pair.kernels:>8}{figures}  {'ok' if pair.passed else 'MISSED'}",
                    flush=True,
                )
    missed = sum(not pair.passed for pair in found)
    if args.json:
        print_json([{**asdict(pair), "passed": pair.passed} for pair in found])
    else:
        print(f"{len(found) - missed} of {len(found)} pairs as aimed at")
    return MISSED if missed else 0


def layers(args: argparse.Namespace) -> int:
    from ..compare.agx_orin import LAYERS
    from ..compare.fit import find_file
    from ..compare.real.layers import read_layers

    with reading_data("compare layers"):
        return MISSED if show_layers(read_layers(find_file(args.data, LAYERS)), args) else 0


def show_layers(rows: Sequence[Mapping[str, str]], args: argparse.Namespace) -> bool:
    """Print errors of networks left out; True if a goal is missed. Raises ComparisonDataError, ModuleNotFoundError."""
    from ..compare.real.layers import GOALS, left_out, means, nearest
    from ..compare.real.shipped_layers import shipped

    found, floor = list(left_out(rows, args.threads, args.seed, progress_bar)), nearest(rows)
    predicted = shipped(rows)
    mean = means(found)
    missed = [batch for batch, own in mean.items() if own.percent > GOALS[batch]]
    if args.json:
        about = {str(batch): {**rounded(own), "goal": GOALS[batch]} for batch, own in mean.items()}
        for batch, percent in floor.items():
            about[str(batch)]["nearest"] = round(percent, 4)
        for batch, errors in predicted.items():
            about[str(batch)]["shipped"] = asdict(errors)
        print_json({"networks": [asdict(row) for row in found], "batches": about})
        return bool(missed)
    print(
        "mean error of networks' times, the sums of their layers', each network left out of training; AGX Orin 64GB, four modes"
    )
    print(table(["network", "batch", "runs", "error", "together", "scatter"], [_cells(row) for row in found]))
    for batch, own in mean.items():
        print(f"batch {batch}: {own.percent:.1f}%, goal {GOALS[batch]:g}%  {'MISSED' if batch in missed else 'ok'}")
    print(
        "all runs of a network together, where one that is too slow makes up for one that is too fast; no goal is set for it:"
    )
    print("  " + ", ".join(f"batch {batch}: {own.together_percent:.1f}%" for batch, own in mean.items()))
    print("left of the error if each network's middle one in each mode were known in hindsight:")
    print("  " + ", ".join(f"batch {batch}: {own.scatter_percent:.1f}%" for batch, own in mean.items()))
    for batch, percent in floor.items():
        print(
            f"batch {batch}: campaigns that measured the same differ; no prediction could be nearer to all than {percent:.1f}%"
        )
    if predicted:
        print("shipped profile of the simulated board, with the interpreter's host time as frame overhead, and without:")
        print(
            "  " + ", ".join(f"batch {batch}: {one.percent:.1f} ({one.alone_percent:.1f})%" for batch, one in predicted.items())
        )
    return bool(missed)


def _cells(row: NetworkRow) -> list[str]:
    percents = (row.percent, row.together_percent, row.scatter_percent)
    return [row.network, str(row.batch), str(row.cases), *(f"{percent:.1f}%" for percent in percents)]
