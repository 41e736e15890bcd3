# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab silicon gate``: simulated silicon is as hard to predict as the boards of MIRAGE (SEC '21)."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from .....daemon import arguments
from .....daemon.cli.output import print_json
from .....daemon.errors import InputError, TargetNotAttainable, UsageError
from .....kernels.text import needing
from . import second_gate

if TYPE_CHECKING:
    from ...paper.difficulty import GateRow

MISSED = TargetNotAttainable.exit_code
"""Exit code where simulated boards are further off than a comparison allows."""
ROUNDS = 600


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    """Add the part; ``verb(name, summary, action)`` gives the parser of a new part."""
    sub = verb("gate", "check that simulated silicon is as hard to predict as the boards of MIRAGE were", gate)
    arguments.add_simulated_board(sub)
    for option, count, what in (
        ("--conv2d", 200_000, "convolutions to measure, all boards together (the paper: 1,400,000)"),
        ("--batch-norm", 100_000, "batch norms to measure"),
        ("--matmul", 100_000, "matrix products to measure (the paper: 150,000)"),
    ):
        sub.add_argument(option, type=arguments.whole(0), default=count, metavar="N", help=f"{what}; default {count}")
    sub.add_argument(
        "--rounds",
        type=arguments.whole(1),
        metavar="N",
        help=f"boosting rounds (the paper's Table 2: 100 to 3000; default {ROUNDS}, of version 2 {second_gate.ROUNDS})",
    )
    arguments.add_silicon(sub)
    second_gate.add_options(sub)
    arguments.add_threads(sub)
    arguments.add_seed(sub)


def gate(args: argparse.Namespace) -> int:
    if args.silicon != 1:
        return second_gate.run(args)
    from ....board import load_board
    from ....reference import reference_names, reference_network
    from ....twin.silicon.silicon import Silicon
    from ...paper.difficulty import KINDS, TOLERANCE, run_gate

    board, rounds = load_board(args.board), args.rounds or ROUNDS
    samples = {kind: count for kind in KINDS if (count := getattr(args, kind))}
    if not samples:
        raise UsageError("nothing to measure: --conv2d, --batch-norm and --matmul are all 0")
    if not args.json:
        print(f"difficulty gate of simulated silicon {Silicon(board=board).version}: plain MIRAGE recipe, {rounds} rounds")
        print("within 10 % must land within " + f"{TOLERANCE:g} points of the paper's Tables 4 and 5")
        print(f"{'kernel':<12}{'target':<9}{'train':>9}{'test':>8}{'5%':>8}{'10%':>8}{'paper':>8}{'15%':>8}{'20%':>8}")
    networks = [reference_network(name) for name in reference_names()]
    report = (lambda row: None) if args.json else _print_row
    with needing("silicon gate", "train", InputError):
        rows = run_gate(networks, board, samples, rounds, args.threads, args.seed, report)
    passed = all(row.passed for row in rows)
    if args.json:
        keep = ("kind", "target", "training", "testing", "within", "paper_within_10", "passed")
        print_json([{"simulated": True, **{name: getattr(row, name) for name in keep}} for row in rows])
    else:
        print("gate passed" if passed else "gate not passed")
    return 0 if passed else MISSED


def _print_row(row: GateRow) -> None:
    five, ten, fifteen, twenty = row.within
    print(
        f"{row.kind:<12}{row.target:<9}{row.training:>9}{row.testing:>8}{five:>8.1f}{ten:>8.1f}{row.paper_within_10:>8.1f}"
        f"{fifteen:>8.1f}{twenty:>8.1f}  {'ok' if row.passed else 'MISSED'} ({row.seconds:.0f} s)",
        flush=True,
    )
