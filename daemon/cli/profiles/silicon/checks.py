# SPDX-License-Identifier: Apache-2.0
"""The parts of ``jetdvfs profile`` that check simulated silicon against MIRAGE (SEC '21): ``gate`` and ``table1``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from .....kernels.text import needing
from .... import arguments
from ....errors import InputError, TargetNotAttainable, UsageError
from ...output import print_json
from . import second_gate

if TYPE_CHECKING:
    from .....profiles.studies.difficulty import GateRow

MISSED = TargetNotAttainable.exit_code
"""Exit code where simulated boards are further off than a comparison allows."""
ROUNDS = 600


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    """Add the actions; ``verb(name, summary, action)`` gives the parser of a new one."""
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
    arguments.add_silicon(verb("table1", "print the simulated board's inference times beside MIRAGE's, Table 1", table_1))


def gate(args: argparse.Namespace) -> int:
    if args.silicon != 1:
        return second_gate.run(args)
    from .....profiles.board import load_board
    from .....profiles.reference import reference_names, reference_network
    from .....profiles.studies.difficulty import KINDS, TOLERANCE, run_gate
    from .....profiles.twin.silicon.silicon import Silicon

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
    with needing("profile gate", "train", InputError):
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


def table_1(args: argparse.Namespace) -> int:
    from .....profiles.reference import reference_network
    from .....profiles.studies.characterization import NODES
    from .....profiles.studies.table1 import KINDS, PAPER, TOLERANCE, measure
    from .....profiles.twin.silicon.silicon import Silicon

    if not args.json:
        version = Silicon(version=args.silicon).version
        print(f"simulated silicon {version} at top clocks, median of {NODES} nodes, beside MIRAGE (SEC '21), Table 1")
        print("times in ms; shares of the inference time in per cent, simulated/paper; all = every kernel on the GPU")
        titles = [_TITLES.get(kind, kind) for kind in KINDS]
        print(
            f"{'network':<19}{'T':>7}{'paper':>7}{'error':>8}{'host':>7}{'W':>6}{'all':>11}"
            + "".join(f"{title:>11}" for title in titles)
        )
    figures, worst = [], 0.0
    for name, paper in PAPER.items():
        row = measure(reference_network(name), version=args.silicon)
        error = row.error(paper)
        worst = max(worst, abs(error))
        figures.append({"network": name, "simulated_ms": row.time_ms, "paper_ms": paper.time_ms, "error": error})
        if not args.json:
            shares = zip((row.all_kernels, *row.shares), (paper.all_kernels, *paper.shares), strict=True)
            print(
                f"{name:<19}{row.time_ms:>7.2f}{paper.time_ms:>7.2f}{error:>+8.1%}{row.host_ms:>7.2f}{row.power_w:>6.1f}"
                + "".join(f"{f'{ours:.1f}/{theirs:.1f}' if ours or theirs else '-':>11}" for ours, theirs in shares)
            )
    if args.json:
        print_json(figures)
    else:
        print(f"largest error {worst:.1%}; allowed {TOLERANCE:.0%}")
    return 0 if worst <= TOLERANCE else MISSED


_TITLES = {"batch_norm": "bnorm", "max_pool2d": "maxpool", "adaptive_avg_pool2d": "adpool"}
