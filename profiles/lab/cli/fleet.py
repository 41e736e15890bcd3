# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab compare fleet``: one profile of many boards."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ....daemon import arguments
from ....daemon.cli.output import print_json, progress_bar, table
from ....daemon.errors import InputError, UsageError
from ....kernels.text import needing
from .accuracy import fleet_rows
from .arguments import add_count, add_seed, cluster, named_networks, stored_output

_NETWORKS = ("resnet18", "mobilenet_v2", "squeezenet1_0", "shufflenet_v2_x1_0", "alexnet", "mnasnet1_0")
_UNSEEN = ("googlenet", "vgg16")


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    text = "train on records and learned observations of a simulated fleet, and evaluate the profile on new boards of it"
    sub = verb("fleet", f"{text}\n\nexample: jetdvfs-lab compare fleet --folder DIR --kill --json", show)
    sub.add_argument("--folder", type=Path, metavar="DIR", help="folder for the boards' files; finished boards are kept")
    sub.add_argument("--board", default="orin-nano-8gb", metavar="NAME", help="kind of board (default: orin-nano-8gb)")
    add_count(sub, "--perturbed", "variant of the silicon (default 1)", 1, least=0)
    add_count(sub, "--boards", "boards of the fleet (default 200)", 200, least=10)
    add_count(sub, "--new", "new boards (default 10)", 10)
    on_cluster = arguments.titled(sub, "cluster")
    on_cluster.add_argument(
        "--workers", default="2", metavar="N|ADDRESS", help="local processes, or a Dask scheduler (default 2)"
    )
    on_cluster.add_argument("--kill", action="store_true", help="kill a worker after a third of the boards")
    sub.add_argument("--stored", type=arguments.named_file, metavar="FILE", help="print the stored output of --json instead")
    add_seed(sub)


def show(args: argparse.Namespace) -> int:
    path = args.stored
    found = _studied(args) if path is None else stored_output(path, "--stored", "fleet", "compare fleet", fleet_rows)
    if args.json:
        print_json(found)
    else:
        print(f"simulated: {found['boards']} boards {found['board']}, silicon {found['silicon']}")
        print(table(["measure", ""], [[row.measure, row.now] for row in fleet_rows(found)]))
    return 0


def _studied(args: argparse.Namespace) -> dict[str, Any]:
    from ..compare.fleet import FleetBoards, collected, studied

    if args.folder is None:
        raise UsageError("compare fleet: expected --folder DIR, or --stored FILE")
    if args.kill and not args.workers.isdigit():
        raise UsageError(f"--kill: kills a process of this machine; --workers is {args.workers}")
    fleet = FleetBoards(args.board, args.perturbed, tuple(named_networks(_NETWORKS, ())), args.seed)
    args.folder.mkdir(parents=True, exist_ok=True)
    with needing("compare fleet", "train", InputError):
        with cluster("--workers", args.workers) as client:
            workers = len(client.scheduler_info(n_workers=-1)["workers"])
            kill_after = args.boards // 3 if args.kill else None
            files, killed = collected(fleet, args.boards, args.folder, client, progress_bar, kill_after)
        found = studied(fleet, files, args.new, args.folder, named_networks(_UNSEEN, ()), progress_bar)
    return {**found, "workers": workers, "killed_after": killed}
