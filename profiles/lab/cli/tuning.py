# SPDX-License-Identifier: Apache-2.0
"""Search hyperparameters for the models of a record.

example: jetdvfs-lab tune board.npz --out recipes.json --trials 40
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ....daemon import arguments
from ....daemon.cli.output import print_json, progress_bar, table
from ....daemon.errors import InputError, UsageError
from ....kernels.text import needing
from .arguments import add_count, add_seed, cluster, print_members

if TYPE_CHECKING:
    from ..train.tuned_recipes import TunedRecipes
    from ..train.tuning import SearchSettings

_TRIALS = 40


def configure(sub: argparse.ArgumentParser) -> None:
    arguments.add_json(sub)
    sub.add_argument("record", type=arguments.named_file, metavar="RECORD", help="record of 'jetdvfs-lab collect' or 'import'")
    sub.add_argument(
        "--out", type=arguments.named_file, required=True, metavar="FILE", help="recipes, for 'jetdvfs-lab train --recipes'"
    )
    sub.add_argument(
        "--study",
        type=arguments.named_file,
        metavar="FILE",
        help="keep the search here, and resume from it (SQLite; default: next to --out)",
    )
    add_count(sub, "--trials", f"recipes for each model (default {_TRIALS})", _TRIALS)
    sub.add_argument(
        "--kind", action="append", default=[], metavar="KIND", help="only models of this kind, such as conv2d; may be repeated"
    )
    sub.add_argument(
        "--loss",
        type=float,
        default=2.0,
        metavar="PERCENT",
        help="take the smallest model whose error is at most this much above the best one's (default 2)",
    )
    sub.add_argument(
        "--workers",
        default="1",
        metavar="N|ADDRESS",
        help="processes that search, one thread each (default 1), or the workers of the Dask cluster whose scheduler is there: "
        "they must see RECORD and the search by the same names",
    )
    add_seed(sub)
    sub.add_argument("--dry-run", action="store_true", help="print the plan of the search")


def run(args: argparse.Namespace) -> int:
    if not 0 <= args.loss < 100:
        raise UsageError(f"--loss {args.loss:g}: expected a percentage from 0 to 100")
    if not args.out.parent.is_dir():
        raise InputError(f"--out: {args.out.parent} is not a folder")
    with needing("jetdvfs-lab tune", "tune", InputError):
        from ..train.tuning import SearchSettings, models_of

        study = args.study or args.out.with_suffix(".db")
        search = SearchSettings(
            args.record.absolute(), study.absolute(), args.trials, tuple(args.kind), args.loss / 100, seed=args.seed
        )
        if args.dry_run:
            models = [" ".join(model) for model in models_of(search)]
            plan = {
                "models": models,
                "trials": args.trials * len(models),
                "study": str(search.storage),
                "writes": str(args.out),
            }
            print_members(plan, args.json, 8)
            return 0
        tuned = _searched(search, args.workers)
    tuned.save(args.out)
    _show(tuned, args.out, args.json)
    return 0


def _searched(search: SearchSettings, workers: str) -> TunedRecipes:
    from ..train.tuning import tune

    with cluster("--workers", workers) as client:
        return tune(search, client.get_executor(), len(client.ncores()), progress_bar)


def _show(tuned: TunedRecipes, path: Path, as_json: bool) -> None:
    from ..train.tuned_recipes import describe

    rows = describe(tuned)
    if as_json:
        print_json({"path": str(path), "loss": tuned.loss, "models": rows, "made_with": dict(tuned.made_with)})
        return
    print(f"deviation of log(measured / predicted) where left out; the smallest model within {tuned.loss:.0%} of the best")
    headers = ["kind", "of", "tried", "given up", "best", "leaves", "chosen", "leaves"]
    shown = [
        [row["kind"], row["target"], str(row["trials"]), str(row["pruned"]), f"{row['best_error']:.2%}",
         f"{row['best_leaves']:.0f}", f"{row['error']:.2%}", f"{row['leaves']:.0f}"]
        for row in rows
    ]  # fmt: skip
    print(table(headers, shown, text_columns=2))
    print(f"next: jetdvfs-lab train {tuned.record} --recipes {path} --out DIR")
