# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab silicon gate``: difficulty of simulated silicon compared with real boards."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from ....daemon import arguments
from ....daemon.cli.output import print_json
from ....daemon.errors import TargetNotAttainable
from .arguments import add_count, add_seed, add_threads, reading_data

if TYPE_CHECKING:
    from ..compare.gate_kinds import GateRow

MISSED = TargetNotAttainable.exit_code
"""Exit code if simulated boards are outside a band."""
ROUNDS, SAMPLES, CONFIGURATIONS = 600, 26_000, 40


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    text = "check that simulated silicon is as hard to predict as real boards\n\nexample: jetdvfs-lab silicon gate --data DIR"
    group = verb("gate", text, run)
    add_count(
        group,
        "--samples",
        f"kernels of each kind, products twice and convolutions 18 times as many (default {SAMPLES})",
        SAMPLES,
    )
    add_count(group, "--configurations", f"at which networks are run (default {CONFIGURATIONS})", CONFIGURATIONS)
    add_count(group, "--rounds", f"boosting rounds (default {ROUNDS})", ROUNDS)
    group.add_argument(
        "--data", type=arguments.folder, metavar="DIR", help="folder with measurements of desktop GPUs, for the last rows"
    )
    add_threads(group)
    add_seed(group)


def run(args: argparse.Namespace) -> int:
    from ...reference import reference_names, reference_network
    from ...twin.silicon.chip import load_chip
    from ..compare.gate import BOARD, rows
    from ..compare.gate_kinds import GateEffort

    effort = GateEffort(args.samples, args.configurations, args.rounds, args.threads, args.seed)
    began = time.process_time()
    if not args.json:
        chip = load_chip(BOARD)
        print(f"gate of simulated silicon {chip.version}: {effort.samples} kernels of each kind, {effort.rounds} rounds")
        print(f"{'part':<10}{'figure':<66}{'simulated':>10}{'real':>8}{'band':>14}  band from")
    found = []
    try:
        with reading_data("silicon gate"):
            for row in rows([reference_network(name) for name in reference_names()], effort, args.data, _doing):
                found.append(row)
                if not args.json:
                    _doing("")
                    print(_line(row), flush=True)
    finally:
        _doing("")
    passed = all(row.passed for row in found)
    if args.json:
        print_json([{"simulated": True, **asdict(row), "passed": row.passed} for row in found])
    else:
        missed = sum(not row.passed for row in found)
        verdict = "gate passed" if passed else f"gate not passed: {missed} of {len(found)} rows missed"
        without = "" if args.data else "; without --data no kernels were compared with those of desktop GPUs"
        print(f"{verdict} ({time.process_time() - began:.0f} s of a processor{without})")
    return 0 if passed else MISSED


def _line(row: GateRow) -> str:
    band = f"{row.low:.1f} to {row.high:.1f}"
    verdict = "ok" if row.passed else "MISSED"
    return f"{row.part:<10}{row.name:<66}{row.value:>10.1f}{row.real:>8.1f}{band:>14}  {row.source:<32}{verdict}"


def _doing(what: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{what}", end="", file=sys.stderr, flush=True)
