# SPDX-License-Identifier: Apache-2.0
"""Measure, train, evaluate and inspect profiles."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ....profiles.bundle.bundle import read_manifest
from ....profiles.bundle.finding import bundle_folders, find_bundles, resolve_bundle
from ....profiles.bundle.writing import check_bundle, install_bundle
from ....profiles.errors import ProfilesError
from ... import arguments
from ..output import print_json, table
from ..paper import report
from ..records import importing, sharing, tuning
from . import (
    adapting,
    applications,
    collecting,
    counting,
    evaluating,
    making,
    networks,
    real,
    replaying,
)
from .silicon import calibration, checks, comparison


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="profile_verb", metavar="ACTION", required=True)

    def verb(name: str, summary: str, action: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        arguments.add_json(sub)
        sub.set_defaults(action=action)
        return sub

    verb("list", "list the profiles there are", _list)
    show = verb("show", "show what a profile says of itself", _show)
    show.add_argument("profile", metavar="NAME|DIR")
    install = verb("install", "check a profile, convert its models once and put it where it is found by name", _install)
    install.add_argument("source", type=Path, metavar="DIR")
    install.add_argument(
        "--into", type=Path, metavar="DIR", help="folder of profiles (default: the user's, or the system's as root)"
    )
    install.add_argument("--dry-run", action="store_true", help="check only; write nothing but converted models in the cache")
    made = (making, tuning, collecting, report, networks, counting, adapting, importing, sharing, evaluating, checks)
    for actions in (*made, comparison, calibration, real, replaying, applications):
        actions.configure(verb)


def run(args: argparse.Namespace) -> int:
    action: Callable[[argparse.Namespace], int] = args.action
    return action(args)


def _list(args: argparse.Namespace) -> int:
    rows: list[dict[str, Any]] = []
    for name, path in find_bundles().items():
        try:
            manifest = read_manifest(path)
        except ProfilesError as error:
            rows.append({"name": name, "path": str(path), "error": str(error)})
        else:
            files = [file.stat() for file in path.iterdir() if file.is_file()]
            size, changed_s = sum(one.st_size for one in files), max(one.st_mtime for one in files)
            about = {"board": manifest.board, "simulated": manifest.simulated, "bytes": size, "changed_s": changed_s}
            rows.append({"name": name, "path": str(path), **about})
    if args.json:
        print_json(rows)
    elif rows:
        print(table(["profile", "board", "", "size", "date", "folder"], [_cells(row) for row in rows], right=(3,)))
    if not rows and not args.json:
        print(f"no profiles in {', '.join(map(str, bundle_folders()))}", file=sys.stderr)
    return 0


def _cells(row: Mapping[str, Any]) -> list[str]:
    if "error" in row:
        return [row["name"], row["error"], "", "", "", row["path"]]
    date = time.strftime("%Y-%m-%d", time.localtime(row["changed_s"]))
    return [row["name"], row["board"], "simulated" * row["simulated"], f"{row['bytes'] / 1e6:.1f} MB", date, row["path"]]


def _show(args: argparse.Namespace) -> int:
    path = resolve_bundle(args.profile)
    manifest = read_manifest(path)
    if args.json:
        print_json({"path": str(path), **manifest.to_json()})
        return 0
    print(making.describe(path, manifest))
    return 0


def _install(args: argparse.Namespace) -> int:
    if args.dry_run:
        manifest = check_bundle(args.source)
        if args.json:
            print_json({"sound": str(args.source), "name": manifest.name, "board": manifest.board})
        else:
            print(f"{args.source}: a sound profile, {manifest.name!r} for board {manifest.board}")
        return 0
    target = install_bundle(args.source, args.into)
    if args.json:
        print_json({"installed": str(target)})
    else:
        print(f"installed in {target}")
    return 0
