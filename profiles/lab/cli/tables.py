# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab train --from-csv``: kernel models from published tables, and their errors on held-out kernels.

No profile is made, since a table lacks the host's issue cost.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from ....daemon import arguments
from ....daemon.cli.output import print_json, progress_bar, table
from ....daemon.errors import InputError, UsageError
from ....kernels.text import needing
from ...errors import MeasurementError
from .importing import imported
from .real import show_layers

if TYPE_CHECKING:
    from ...adapt.measurements import Measurements
    from ..compare.real.kernels import TableDevice

_OF_OTHERS = ("record", "simulated", "name", "recipes", "cluster", "quick", "campaign")  # ways to train, and their options


def add_arguments(sub: argparse._ActionsContainer) -> None:
    sub.add_argument(
        "--from-csv",
        type=arguments.named_file,
        nargs="+",
        metavar="TABLE",
        help="published tables; prints how well models of their kernels predict a fifth that "
        "is left out, and writes nothing. Tables of pointwise kernels give the least time of a launch",
    )
    sub.add_argument(
        "--mapping", metavar="NAME|FILE", help="with --from-csv: meaning of its columns, as for 'jetdvfs-lab table import'"
    )
    sub.add_argument(
        "--device", action="append", default=[], metavar="NAME", help="with --from-csv: only this one; may be repeated"
    )


def run(args: argparse.Namespace) -> int:
    """Check the tables as ``jetdvfs-lab table import`` does, train, and print the errors.

    Raises UsageError, InputError for a requested profile or a missing library, MeasurementError, ComparisonDataError.
    """
    others = [name for name in _OF_OTHERS if getattr(args, name)]
    if others:
        raise UsageError(f"{'RECORD' if others[0] == 'record' else '--' + others[0]}: does not go with --from-csv")
    if args.mapping is None:
        raise UsageError("--from-csv needs --mapping NAME|FILE")
    records = {path: imported(path, args)[1] for path in args.from_csv}
    if args.out is not None:
        lacking = "; ".join(f"{path.name} has no {_lacking(found)}" for path, found in records.items())
        raise InputError(f"--out: not enough for a profile: {lacking}; valid: no --out, or the RECORD of 'jetdvfs-lab collect'")
    with needing("jetdvfs-lab train", "train", InputError):
        return _evaluate(records, args)


def _lacking(records: Mapping[str, Measurements]) -> str:
    found = list(records.values())
    lacks = {
        "kernels with known sizes": not any(kernel.output for record in found for kernel in record.invocations),
        "networks measured as a whole": not any(len(record.tables["network_ms"]) for record in found),
        "issue times of the host": True,
    }
    return " and no ".join(what for what, lacking in lacks.items() if lacking)


def _evaluate(records: Mapping[Path, Mapping[str, Measurements]], args: argparse.Namespace) -> int:
    from ..compare.real.layers import MAPPING, read_layers

    if args.dry_run:
        return _tell(records, args)
    if args.mapping == MAPPING:
        if len(records) > 1:
            raise UsageError(f"--from-csv: expected one table of {MAPPING}, got {len(records)}")
        for path in records:
            show_layers(read_layers(path), args)
        return 0
    pairs = list(_pairs(records, args))
    if args.json:
        print_json({"mapping": args.mapping, "written": False, "kernels": [asdict(pair) for pair in pairs]})
        return 0
    headers = ("table", "device", "kind", "kernels", "plain", "own")
    print("mean error of the times of a fifth of the kernels, left out of training; no profile comes of it")
    print(table(headers, [_cells(pair) for pair in pairs], text_columns=3))
    return 0


def _pairs(records: Mapping[Path, Mapping[str, Measurements]], args: argparse.Namespace) -> Iterator[TableDevice]:
    from ..compare.real.kernels import pairs_of

    for path, found in records.items():
        for device, record in sorted(found.items()):
            others = [of[device] for other, of in records.items() if other != path and device in of]
            try:
                yield from pairs_of(path.name.partition(".")[0], record, others, args.threads, args.seed, progress_bar)
            except MeasurementError as error:
                raise MeasurementError(f"{path}: {device}: {error}") from error


def _cells(pair: TableDevice) -> list[str]:
    return [pair.table, pair.gpu, pair.kind, str(pair.kernels), f"{pair.plain_percent:.2f}%", f"{pair.own_percent:.2f}%"]


def _tell(records: Mapping[Path, Mapping[str, Measurements]], args: argparse.Namespace) -> int:
    told = [
        {"table": path.name, "device": device, "kernels": len(record.invocations), "networks": len(record.networks)}
        for path, found in records.items()
        for device, record in found.items()
    ]
    if args.json:
        print_json(told)
    else:
        print(table(list(told[0]), [[str(value) for value in one.values()] for one in told]))
    return 0
