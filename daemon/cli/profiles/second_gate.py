# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs profile gate --silicon 2``: the gate of version 2 of the simulated silicon, one row for each figure."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from ....profiles.errors import ComparisonDataError
from ... import arguments
from ...errors import InputError, TargetNotAttainable, UsageError
from ..output import print_json

if TYPE_CHECKING:
    from ....profiles.studies.comparison.gate import Row


def add_options(parser: argparse.ArgumentParser) -> None:
    """What only this gate takes; ``--rounds``, ``--threads`` and ``--seed`` are those of the other."""
    group = parser.add_argument_group("of version 2")
    group.add_argument(
        "--samples",
        type=arguments.whole(1),
        default=50_000,
        metavar="N",
        help="kernels of each kind, convolutions four times as many (default 50000)",
    )
    group.add_argument(
        "--configurations", type=arguments.whole(1), default=60, metavar="N", help="at which networks are run (default 60)"
    )
    group.add_argument(
        "--data", type=arguments.folder, metavar="DIR", help="folder with measurements of desktop GPUs, for the last rows"
    )


def run(args: argparse.Namespace) -> int:
    """Print the table; what it returns says whether all rows passed."""
    from ....profiles.reference import reference_names, reference_network
    from ....profiles.studies.comparison.gate import BOARD, VERSION, Effort, rows
    from ....profiles.twin.silicon.chip import load_chip

    if args.board != BOARD:
        raise UsageError(f"--board: the gate of version {VERSION} is about the board of the paper; valid: {BOARD}")
    effort = Effort(args.samples, args.configurations, args.rounds, args.threads, args.seed)
    if not args.json:
        chip = load_chip(BOARD, version=VERSION)
        print(f"gate of simulated silicon {chip.version}: {effort.samples} kernels of each kind, {effort.rounds} rounds")
        print(f"{'part':<10}{'figure':<66}{'simulated':>10}{'real':>8}{'band':>16}")
    found = []
    try:
        for row in rows([reference_network(name) for name in reference_names()], effort, args.data):
            found.append(row)
            if not args.json:
                print(_line(row), flush=True)
    except ModuleNotFoundError as error:
        raise InputError(f"profile gate: needs the Python package {error.name} (jetdvfs[train])") from error
    except ComparisonDataError as error:
        raise InputError(f"--data: {error}") from error
    passed = all(row.passed for row in found)
    if args.json:
        print_json([{"simulated": True, **asdict(row), "passed": row.passed} for row in found])
    else:
        print(
            "gate passed" if passed else f"gate not passed: {sum(not row.passed for row in found)} of {len(found)} rows missed"
        )
    return 0 if passed else TargetNotAttainable.exit_code


def _line(row: Row) -> str:
    band = f"{row.low:.1f} to {row.high:.1f}"
    return f"{row.part:<10}{row.name:<66}{row.value:>10.1f}{row.real:>8.1f}{band:>16}  {'ok' if row.passed else 'MISSED'}"
