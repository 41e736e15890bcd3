# SPDX-License-Identifier: Apache-2.0
"""Train a profile's models on a record or on simulated boards, write the profile and evaluate it.

examples:
  jetdvfs-lab train cpu.npz --out cpu
  jetdvfs-lab train --board tx2 --simulated --quick --out tx2-own
"""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

from ....daemon import arguments
from ....daemon.cli.output import print_json, progress_bar
from ....daemon.cli.profile import describe
from ....daemon.errors import InputError, UsageError
from ....kernels.text import needing
from ...bundle.bundle import Bundle
from ...errors import BundleError
from . import tables
from .arguments import add_seed, add_threads, cluster, print_members


def configure(sub: argparse.ArgumentParser) -> None:
    arguments.add_json(sub)
    simulated = arguments.titled(sub, "instead of a record: simulated boards")
    sub.add_argument(
        "record",
        nargs="?",
        type=arguments.named_file,
        metavar="RECORD",
        help="record of 'jetdvfs-lab collect' or 'import', also of one board",
    )
    simulated.add_argument("--simulated", action="store_true", help="measure on simulated boards")
    tables.add_arguments(arguments.titled(sub, "instead of a record: published tables"))
    simulated.add_argument(
        "--board",
        metavar="NAME",
        help="with --simulated: the board, for instance agx-xavier; with --from-csv: the one that was measured, where the "
        "mapping does not say",
    )
    sub.add_argument("--out", type=Path, metavar="DIR", help="new folder for the profile")
    sub.add_argument("--name", help="its name (default: BOARD, or BOARD-sim if simulated)")
    sub.add_argument(
        "--recipes",
        type=arguments.named_file,
        metavar="FILE",
        help="with RECORD: hyperparameters of 'jetdvfs-lab tune' (default: those that did well on simulated boards)",
    )
    sub.add_argument(
        "--cluster",
        metavar="N|ADDRESS",
        help="with RECORD: train on this number of local processes, or on the workers of the Dask cluster whose scheduler "
        "is there, such as tcp://10.0.0.1:8786; each has a part of the rows",
    )
    simulated.add_argument("--quick", action="store_true", help="with --simulated: little, to try the command out")
    simulated.add_argument(
        "--campaign", type=Path, metavar="DIR", help="with --simulated: keep measurements here, and go on from those"
    )
    add_threads(sub)
    add_seed(sub)
    sub.add_argument("--dry-run", action="store_true", help="print the plan, and measure nothing")


def check_new(folder: Path) -> None:
    """Raise BundleError unless a folder is new or empty."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise BundleError(f"{folder}: is not empty, or no folder; give a new one")


def run(args: argparse.Namespace) -> int:
    if args.from_csv:
        return tables.run(args)
    if args.mapping is not None or args.device:
        raise UsageError("--mapping, --device: are of a table; valid: --from-csv TABLE --mapping NAME|FILE")
    if args.out is None:
        raise UsageError("--out: expected a new folder for the profile")
    check_new(args.out)
    if args.record is not None:
        of_simulated = [option for option in ("simulated", "board", "quick", "campaign") if getattr(args, option)]
        if of_simulated:
            raise UsageError(f"--{of_simulated[0]}: RECORD has its own board; valid: RECORD, or --simulated --board")
        bundle = _train_on_record(args)
    elif args.recipes is not None:
        raise UsageError("--recipes: are of a record; valid: RECORD --recipes FILE")
    elif args.cluster is not None:
        raise UsageError("--cluster: trains on a record; valid: RECORD --cluster N|ADDRESS")
    elif not args.simulated or args.board is None:
        raise UsageError("no training data; valid: RECORD of 'jetdvfs-lab collect', or --simulated --board NAME")
    else:
        bundle = _train_simulated(args)
    if bundle is None:
        return 0
    if args.json:
        print_json({"path": str(args.out), **bundle.manifest.to_json()})
    else:
        print(describe(args.out, bundle.manifest))
    return 0


def _train_on_record(args: argparse.Namespace) -> Bundle | None:
    from ...adapt.measurements import Measurements

    record = Measurements.load(args.record)
    with needing("jetdvfs-lab train", "train", InputError):
        from ..train.held_out import measured_kinds, whole_networks
        from ..train.making import bundle_from_record
        from ..train.tuned_recipes import TunedRecipes

        own = whole_networks(record)
        kinds = measured_kinds(own)
        if args.dry_run:
            what = {
                "device": own.described.name, "simulated": bool(own.silicon_version), "boards": list(own.nodes),
                "kernels": len(own.invocations), "kinds": len(kinds), "networks": len(own.networks),
                "power": own.powered, "writes": str(args.out),
            }  # fmt: skip
            print_members(what, args.json, 10)
            return None
        name = args.name or f"{record.board}{'-sim' if record.silicon_version else ''}"
        seed = f" --seed {args.seed}" if args.seed else ""
        tuned = None if args.recipes is None else TunedRecipes.load(args.recipes).recipes()
        recipes = "" if args.recipes is None else f" --recipes {args.recipes.name}"
        command = f"jetdvfs-lab train {args.record.name}{recipes}{seed} --name {name} --out {name}"
        with contextlib.nullcontext() if args.cluster is None else cluster("--cluster", args.cluster) as client:
            return bundle_from_record(
                own, name, command, args.out, progress_bar, threads=args.threads, seed=args.seed, tuned=tuned, cluster=client
            )


def _train_simulated(args: argparse.Namespace) -> Bundle | None:
    with needing("jetdvfs-lab train", "train", InputError):
        from ..measure.one_twin import measure_twin
        from ..train import error_bounds, production
        from ..train.engines import add_engines
    name = args.name or f"{args.board}-sim"
    quick = " --quick" if args.quick else ""
    seed = f" --seed {args.seed}" if args.seed else ""
    command = f"jetdvfs-lab train --board {args.board} --simulated{quick}{seed} --name {name} --out {name}"
    plan = production.plan_simulated(
        args.board, name, command, progress_bar, quick=args.quick, threads=args.threads, seed=args.seed
    )
    campaign = plan.campaign
    if args.dry_run:
        what = {
            "kernels": len(campaign.invocations), "calls": len(campaign.calls), "networks": len(campaign.networks),
            "boards": list(campaign.size.nodes), "silicon": campaign.silicon_version, "steps": len(campaign.units),
            "writes": str(args.out),
        }  # fmt: skip
        print_members(what, args.json, 10)
        return None
    measurements = measure_twin(campaign, args.campaign, progress_bar)
    bundle = production.make_bundle(plan, measurements, args.out, progress_bar)
    bounded = error_bounds.bound(bundle, args.out, args.seed, progress_bar)
    return add_engines(bounded, args.out, args.seed, progress_bar)
