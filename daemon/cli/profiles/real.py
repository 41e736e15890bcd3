# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs profile kernels``: real kernels of desktop GPUs predicted by our recipe and by the plain one."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict

from ....profiles.errors import ComparisonDataError
from ... import arguments
from ...errors import InputError
from ..output import print_json, progress_bar
from .checks import MISSED, add_seed, add_threads


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    """Add the action; ``verb(name, summary, action)`` gives the parser of a new one."""
    sub = verb("kernels", "predict real kernels of desktop GPUs, a fifth of them held out, beside the plain recipe", run)
    sub.add_argument(
        "--data", type=arguments.folder, required=True, metavar="DIR", help="folder with the measurements, anywhere below it"
    )
    add_threads(sub)
    add_seed(sub)


def run(args: argparse.Namespace) -> int:
    from ....profiles.studies.comparison.real_kernels import pairs

    found = []
    if not args.json:
        print("mean error of kernels held out; goal: within its figure where there is one, and no worse than the plain recipe")
        print(f"{'table':<8}{'GPU':<8}{'kernels':>8}{'plain':>8}{'own':>8}{'goal':>8}")
    try:
        for pair in pairs(args.data, args.threads, args.seed, progress_bar):
            found.append(pair)
            if not args.json:
                goal = "" if pair.goal_percent is None else f"{pair.goal_percent:.1f}%"
                figures = f"{pair.plain_percent:>7.2f}%{pair.own_percent:>7.2f}%{goal:>8}"
                print(
                    f"{pair.table:<8}{pair.gpu:<8}{pair.kernels:>8}{figures}  {'ok' if pair.passed else 'MISSED'}", flush=True
                )
    except ModuleNotFoundError as error:
        raise InputError(f"profile kernels: needs the Python package {error.name} (jetdvfs[train])") from error
    except ComparisonDataError as error:
        raise InputError(f"--data: {error}") from error
    missed = sum(not pair.passed for pair in found)
    if args.json:
        print_json([{**asdict(pair), "passed": pair.passed} for pair in found])
    else:
        print(f"{len(found) - missed} of {len(found)} pairs as aimed at")
    return MISSED if missed else 0
