# SPDX-License-Identifier: Apache-2.0
"""Adapt a profile to the board of a record, by a few observations of networks.

example: jetdvfs-lab adapt agx-xavier-sim board.npz --out adapted
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ....daemon import arguments
from ....daemon.cli.output import print_json, progress_bar
from ....daemon.cli.profile import describe
from ...bundle.bundle import load_bundle
from .making import check_new


def configure(sub: argparse.ArgumentParser) -> None:
    arguments.add_json(sub)
    sub.add_argument("profile", metavar="NAME|DIR", help="profile of another board, or of simulated boards")
    sub.add_argument("record", type=arguments.named_file, metavar="RECORD", help="networks that were measured on the board")
    sub.add_argument("--out", type=Path, required=True, metavar="DIR", help="new folder for the profile")
    sub.add_argument("--name", help="its name (default: BOARD-adapted)")


def run(args: argparse.Namespace) -> int:
    from ...adapt.adapting import bundle_adapted
    from ...adapt.measurements import Measurements

    check_new(args.out)
    bundle, record = load_bundle(args.profile), Measurements.load(args.record)
    name = args.name or f"{record.board}-adapted"
    command = f"jetdvfs-lab adapt {bundle.manifest.name} {args.record.name} --name {name} --out {name}"
    found = bundle_adapted(bundle, record, name, command, args.out, progress_bar)
    if args.json:
        print_json({"path": str(args.out), **found.manifest.to_json()})
    else:
        print(describe(args.out, found.manifest))
    return 0
