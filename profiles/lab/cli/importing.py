# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab table import``: published tables as records."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ....daemon import arguments
from ....daemon.cli.output import print_json, progress, table
from ....daemon.errors import InputError

if TYPE_CHECKING:
    from ...adapt.measurements import Measurements
    from ...twin.measured.mapping import TableMapping


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    text = "check a table of measurements, and write one record per device"
    sub = verb("import", f"{text}\n\nexample: jetdvfs-lab table import TABLE --mapping mine.yaml --out DIR", run)
    sub.add_argument("table", type=arguments.named_file, metavar="TABLE", help="a CSV file, which may be gzipped, or Parquet")
    sub.add_argument(
        "--mapping", required=True, metavar="NAME|FILE", help="meaning of its columns: a .yaml file, or a shipped mapping"
    )
    sub.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the records, each called DEVICE.npz")
    sub.add_argument("--board", metavar="NAME", help="the board that was measured, where the mapping does not say")
    sub.add_argument("--device", action="append", default=[], metavar="NAME", help="only this one; may be repeated")
    sub.add_argument("--dry-run", action="store_true", help="check the table; write nothing")
    text = "write a first mapping of a table from its heading, with a question for each unknown"
    sub = verb("guess", f"{text}\n\nexample: jetdvfs-lab table guess TABLE --board agx-orin-64gb --out mine.yaml", first)
    sub.add_argument("table", type=arguments.named_file, metavar="TABLE", help="a CSV file, which may be gzipped, or Parquet")
    sub.add_argument("--board", default="", metavar="NAME", help="the board that was measured: its clocks tell missing units")
    sub.add_argument("--out", type=Path, metavar="FILE", help="file of the mapping (default: print it)")


def first(args: argparse.Namespace) -> int:
    from ..measure.mapping_guess import guess

    found = guess(args.table, args.board)
    if args.out is not None:
        if args.out.exists():
            raise InputError(f"--out: {args.out} is there already; give another file")
        args.out.write_text(found.text, encoding="utf-8")
    if args.json:
        print_json({"table": str(args.table), "mapping": found.text, "questions": list(found.questions)})
    elif args.out is None:
        print(found.text, end="")
    else:
        print("\n".join((f"{args.out}: written; it asks", *(f"  {one}" for one in found.questions))))
    return 0


def imported(table: Path, args: argparse.Namespace) -> tuple[TableMapping, dict[str, Measurements]]:
    """Mapping of a table, and a record per device. Raises MeasurementError."""
    from ...twin.measured.mapping import load_mapping
    from ..measure.tables import import_table

    mapping = load_mapping(args.mapping)
    if args.board is not None:
        mapping = replace(mapping, device=args.board)
    with progress(f"reading {table.name}"):
        return mapping, import_table(table, mapping, args.device)


def run(args: argparse.Namespace) -> int:
    mapping, records = imported(args.table, args)
    written = {name: args.out / f"{name}.npz" for name in records}
    if not args.dry_run:
        there = [str(path) for path in written.values() if path.exists()]
        if there:
            raise InputError(f"--out: {', '.join(there)}: is there already; give another folder")
        args.out.mkdir(parents=True, exist_ok=True)
        for name, record in records.items():
            record.save(written[name])
    found = [_about(name, record, written[name]) for name, record in records.items()]
    if args.json:
        print_json({"table": str(args.table), "source": mapping.source, "written": not args.dry_run, "records": found})
    else:
        print(table(list(found[0]), [[str(value) for value in one.values()] for one in found]))
    return 0


def _about(name: str, record: Measurements, path: Path) -> dict[str, Any]:
    times = sum(len(record.tables[table]) for table in ("kernel_ms", "network_ms"))
    powers = sum(len(record.tables[table]) for table in ("kernel_mw", "network_mw"))
    kinds = sorted({kernel.kind for kernel in record.invocations})
    shown = ", ".join(kinds) if len(kinds) <= 3 else f"{len(kinds)} kinds"
    return {
        "device": name, "kernels": len(record.invocations), "kinds": shown, "networks": len(record.networks), "times": times,
        "powers": powers, "record": str(path),
    }  # fmt: skip
