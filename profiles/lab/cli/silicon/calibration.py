# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab silicon calibrate``: what version 2 of the simulated chips was fitted to, before and after."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .....daemon import arguments
from .....daemon.cli.output import print_json
from .....daemon.errors import InputError, UsageError
from .....kernels.text import needing, valid_instead
from ....errors import ComparisonDataError
from ....twin.silicon.chip import load_chip

if TYPE_CHECKING:
    from ....twin.silicon.chip import Chip
    from ...compare.tables import Table


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    """Add the action; ``verb(name, summary, action)`` gives the parser of a new one."""
    sub = verb("calibrate", "show what version 2 of simulated chips was fitted to, or fit it again", run)
    arguments.add_data(sub)
    sub.add_argument("--board", action="append", metavar="NAME", help="may be repeated (default: every board with tables)")
    sub.add_argument("--fit", action="store_true", help="fit again from where the chips' files stand, and print the parameters")


def run(args: argparse.Namespace) -> int:
    from ...compare.calibration import PARAMETERS, fitted
    from ...compare.tables import TABLES, tables

    for board in args.board or ():
        if board not in TABLES:
            raise UsageError(f"--board: no measurements to fit {board} to{valid_instead(board, list(TABLES))}")
    figures: list[dict[str, Any]] = []
    for board in args.board or TABLES:
        try:
            measured = tables(board, args.data)
        except ComparisonDataError as error:
            raise InputError(str(error)) from error
        chips = {"version 1": load_chip(board, version=1), "version 2": load_chip(board, version=2)}
        names = PARAMETERS.get(board, ())
        if args.fit and names:
            with needing("jetdvfs-lab silicon calibrate", "train", InputError):
                result = fitted(chips["version 2"], names, measured)
            chips["fitted"] = result.chip
            figures.append({"board": board, "parameters": dict(result.values)})
        if not args.json:
            print(f"{board}: simulated chips beside a real board; relative error: median, median of its size, largest")
        for table in measured:
            figures.append({"board": board, **_row(table, chips)})
            if not args.json:
                print(_line(figures[-1]))
        if "fitted" in chips and not args.json:
            print("  " + ", ".join(f"{name} {number:.4g}" for name, number in result.values.items()))
    if args.json:
        print_json({"simulated": True, "tables": figures})
    return 0


def _row(table: Table, chips: dict[str, Chip]) -> dict[str, Any]:
    errors = {name: table.errors(chip) for name, chip in chips.items()}
    return {
        "table": table.name,
        "points": len(table.measured),
        **{
            name: {"bias": float(np.median(one)), "median": float(np.median(np.abs(one))), "largest": float(np.abs(one).max())}
            for name, one in errors.items()
        },
    }


def _line(row: dict[str, Any]) -> str:
    parts = [
        f"{name} {part['bias']:+8.1%}{part['median']:8.1%}{part['largest']:8.1%}"
        for name, part in row.items()
        if isinstance(part, dict)
    ]
    return f"  {row['table']:<54}{row['points']:>4}  " + "   ".join(parts)
