# SPDX-License-Identifier: Apache-2.0
"""Read or count a host GPU's work in networks, for predictors that use counters.

A TABLE is output of Nsight Compute for one network (ncu --csv --page raw --print-units base), or has a row per launch, a column
'network', and columns whose names end with _bytes, _cycles, _ns or _inst. Sums over launches are kept, ratios are not. Without
a TABLE, Nsight Compute counts the networks of a record that lack counters: this needs an NVIDIA GPU, PyTorch, and permission to
count.

examples:
  jetdvfs-lab networks counters ncu.csv --network resnet-0 --into records/orin
  jetdvfs-lab networks counters --into records/orin
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from ....daemon.cli import output
from ....daemon.errors import UsageError
from ...errors import RecordError
from .arguments import add_count


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    sub = verb("counters", __doc__ or "", counters)
    sub.add_argument("table", type=Path, nargs="?", metavar="TABLE", help="a table of counters (default: count here)")
    sub.add_argument("--network", metavar="NAME", help="whose table it is (default: the file's name)")
    sub.add_argument("--into", type=Path, metavar="FOLDER", help="the record of networks that they are added to")
    sub.add_argument("--ncu", default="ncu", metavar="PROGRAM", help="Nsight Compute (default ncu)")
    sub.add_argument(
        "--metrics",
        default="",
        metavar="NAMES",
        help="counters, as its own --metrics (default: those of some twenty that the GPU has)",
    )
    add_count(sub, "--count", "count N networks more (default: all of the record)")
    add_count(sub, "--processes", "make networks in N processes (default 1)", 1)


def counters(args: argparse.Namespace) -> int:
    from ..networks.counters import read_counters
    from ..networks.record import add_counted, read_record

    if args.table is None:
        return _count(args)
    found = read_counters(args.table, args.network or "")
    if args.into is not None:
        known = {one.name for one in read_record(args.into).networks}
        strange = sorted(set(found) - known)
        if strange:
            raise RecordError(f"{args.into}: has no network {', '.join(strange):.200}; say with --network whose table it is")
        for name, own in found.items():
            add_counted(args.into, name, own)
    if args.json:
        output.print_json({"networks": found})
        return 0
    rows = [(name, counter, f"{value:.6g}") for name, own in found.items() for counter, value in own.items()]
    print(output.table(("network", "counter", "sum over its launches"), rows, text_columns=2))
    return 0


def _count(args: argparse.Namespace) -> int:
    from ..networks.campaign import count_networks
    from ..networks.counters import NsightCompute
    from ..networks.record import read_counted

    if args.into is None:
        raise UsageError("counters: say a TABLE to read, or with --into a record whose networks are to be counted here")
    if args.network:
        raise UsageError("--network says whose TABLE it is; all networks of a record are counted")
    before, began = len(read_counted(args.into)), time.monotonic()
    failed = count_networks(args.into, NsightCompute(args.ncu, args.metrics), output.progress_bar, args.count, args.processes)
    counted, took_s = len(read_counted(args.into)), time.monotonic() - began
    new = counted - before
    each_s = took_s / new if new else None
    if args.json:
        output.print_json({"counted": counted, "failed": failed, "took_s": took_s, "each_s": each_s})
    else:
        print(
            f"{counted} networks of {args.into} are counted" + (f", {new} of them now, in {each_s:.3g} s each" if new else "")
        )
        for name, why in failed.items():
            print(f"not counted: {name}: {why}")
    return 0
