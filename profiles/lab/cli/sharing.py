# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab table export`` and ``merge``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from ....daemon import arguments
from ....daemon.cli.output import print_json, progress, table
from ....daemon.errors import InputError, UsageError
from .arguments import print_members


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    text = "copy a record for publication: board and versions, no names of hosts or paths"
    sub = verb("export", f"{text}\n\nexample: jetdvfs-lab table export board.npz --out public.npz", export)
    sub.add_argument("record", type=arguments.named_file, metavar="RECORD", help="a record of this machine")
    sub.add_argument("--out", type=arguments.named_file, required=True, metavar="FILE", help="the copy to write (.npz)")
    text = "merge records and learned observations of one board type"
    sub = verb("merge", f"{text}\n\nexample: jetdvfs-lab table merge theirs.npz mine.npz learned.json --out all.npz", merge)
    sub.add_argument(
        "records",
        type=arguments.named_file,
        nargs="+",
        metavar="FILE",
        help="two or more: records, exported or of this machine, and copies (.json) of daemons' learned.json",
    )
    sub.add_argument("--out", type=arguments.named_file, required=True, metavar="FILE", help="the record to write (.npz)")


def export(args: argparse.Namespace) -> int:
    from ...adapt.measurements import Measurements
    from ..measure.merging import shareable

    _check_new(args.out)
    with progress(f"reading {args.record.name}"):
        record = shareable(Measurements.load(args.record))
        record.save(args.out)
    rows = sum(len(rows) for rows in record.tables.values())
    networks = [network.name for network in record.networks]
    about: dict[str, Any] = {
        "board": record.board, "silicon": record.silicon_version or "real", "boards": len(record.nodes), "figures": rows,
        "networks": networks, "says": dict(record.environment), "written": str(args.out),
    }  # fmt: skip
    print_members(about if args.json else {**about, "networks": ", ".join(networks)}, args.json, 9)
    return 0


def merge(args: argparse.Namespace) -> int:
    from ...adapt.measurements import Measurements
    from ..measure.learned import read_learned
    from ..measure.merging import merged

    learned = [path for path in args.records if path.suffix == ".json"]
    records = [path for path in args.records if path not in learned]
    if len(args.records) < 2 or len(set(args.records)) < len(args.records) or not records:
        raise UsageError("expected two or more different files, and a record among them")
    _check_new(args.out)
    with progress(f"reading {len(args.records)} files"):
        record, parts = merged(
            {str(path): Measurements.load(path) for path in records}, {str(path): read_learned(path) for path in learned}
        )
        record.save(args.out)
    told = [{"record": Path(name).name, **asdict(part)} for name, part in parts.items()]
    if args.json:
        print_json({"written": str(args.out), "boards": list(record.nodes), "parts": told})
        return 0
    shown = [
        [Path(name).name, part.board, part.silicon_version or "real", ", ".join(map(str, part.nodes)), str(part.rows),
         str(part.made_by.get("torch", "-")), str(part.made_by.get("jetdvfs", "-"))]
        for name, part in parts.items()
    ]  # fmt: skip
    print(table(["record", "board", "silicon", "boards", "figures", "torch", "jetdvfs"], shown, text_columns=4))
    print(f"{len(record.invocations)} kernels, {len(record.networks)} networks on {len(record.nodes)} boards, in {args.out}")
    return 0


def _check_new(path: Path) -> None:
    if not path.parent.is_dir():
        raise InputError(f"--out: {path.parent} is not a folder")
    if path.exists():
        raise InputError(f"--out: {path} is there already; give another name")
