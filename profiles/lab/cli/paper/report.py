# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab paper report``: a record's tables and figures beside those of MIRAGE (SEC '21), as text and as a page."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .....daemon import arguments
from .....daemon.cli.output import print_json, progress_bar, table
from .....daemon.errors import InputError, UsageError
from .....kernels.text import needing
from ..arguments import add_seed, add_threads, individuals

if TYPE_CHECKING:
    from ...paper.study import Study
    from .sections import Section

PARTS = "table-2, table-4 to table-8, figure-1 to figure-7"
BOARDS = 4


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    """Add the action; ``verb(name, summary, action)`` gives the parser of a new one."""
    sub = verb(
        "report", "show a record beside the tables and figures of MIRAGE (SEC '21), and write them as one HTML file", run
    )
    sub.add_argument("record", type=arguments.named_file, metavar="RECORD", help="what 'jetdvfs-lab collect' or 'import' wrote")
    sub.add_argument(
        "--out", type=arguments.named_file, metavar="FILE", help="the page to write (.html); it needs no other file"
    )
    sub.add_argument("--only", action="append", metavar="PART", help=f"just this table or figure (repeatable); valid: {PARTS}")
    sub.add_argument(
        "--left-out",
        type=individuals,
        metavar="N[,N|-N]",
        help=f"which boards of the record are left out, one after the other, as 3 or 0-12 (default: {BOARDS} of them)",
    )
    sub.add_argument(
        "--recipes",
        type=arguments.named_file,
        metavar="FILE",
        help="train with the hyperparameters that 'jetdvfs-lab tune' found, and show them (Table 2)",
    )
    add_threads(sub)
    add_seed(sub)


def run(args: argparse.Namespace) -> int:
    from ....adapt.measurements import Measurements
    from ...paper.study import PARTS as KNOWN

    for part in args.only or ():
        if part not in KNOWN:
            raise UsageError(f"--only: no {part!r:.40}; valid: {PARTS}")
    if args.out is not None:
        if args.out.suffix != ".html":
            raise UsageError(f"--out: {args.out}: expected a name that ends in .html")
        if not args.out.parent.is_dir():
            raise InputError(f"--out: {args.out.parent} is not a folder")
    wanted = [part for part in KNOWN if not args.only or part in args.only]
    record = Measurements.load(args.record)
    with needing("jetdvfs-lab paper report", "train,plot", InputError):
        from ...paper.study import options_for, some_of, study
        from ...train.tuning.tuned import Tuned

        tuned = None if args.recipes is None else Tuned.load(args.recipes)
        left_out = args.left_out or some_of(record.nodes, BOARDS)
        if strange := sorted(set(left_out) - set(record.nodes)):
            known = ", ".join(map(str, record.nodes))
            raise InputError(f"--left-out: {args.record} has no board {strange[0]}; it has {known}")
        options = options_for(record, args.threads, args.seed, tuned)
        found = study(record, wanted, left_out, options, progress_bar, tuned)
        return _show(args, found, wanted)


def _show(args: argparse.Namespace, found: Study, wanted: Sequence[str]) -> int:
    from .accuracies import TABLES
    from .variabilities import FIGURES

    why = _reasons(found.missing)
    if len(found.missing) == len(wanted) or (args.only and found.missing):
        raise InputError(f"{args.record}: {'; '.join(why)}")
    make = {**TABLES, **FIGURES}
    made = [make[part](found) for part in wanted if part not in found.missing]
    about = _about(found)
    simulated = ""
    if found.silicon_version:
        simulated = f"Simulated: all that was measured is of simulated boards (silicon {found.silicon_version}), none real."
    if args.out is not None:
        _write(args.out, made, found, about, simulated)
    if args.json:
        parts = {one.part: one.to_json() for one in made}
        print_json({"simulated": bool(simulated), "about": about, "parts": parts, "missing": dict(found.missing)})
    else:
        print("\n".join([*([simulated] if simulated else []), *(f"{key}: {value}" for key, value in about.items())]))
        for one in made:
            print(f"\n{one.name}: {one.title}\n{table(one.headers, one.rows)}")
    for line in why:
        print(f"not made: {line}", file=sys.stderr)
    return 0


def _reasons(missing: Mapping[str, str]) -> list[str]:
    """What is missing, by why."""
    by_why: dict[str, list[str]] = {}
    for part, why in missing.items():
        by_why.setdefault(why, []).append(part)
    return [f"{', '.join(parts)}: {why}" for why, parts in by_why.items()]


def _about(found: Study) -> dict[str, str]:
    from ...paper.published import NAMES, SAMPLES

    about = {"board": found.board, "boards": f"{len(found.nodes)} ({', '.join(map(str, found.nodes))})"}
    if found.rotation and found.rotation.left_out:
        about["left out, one at a time"] = ", ".join(map(str, found.rotation.left_out))
    elif found.rotation:
        about["left out"] = f"networks and kernels, in {found.rotation.parts} parts; other boards were not seen"
    counts = [
        f"{kind} {found.samples.get(kind, 0):,} (paper: {theirs:,}; {found.samples.get(kind, 0) / theirs:.1%})"
        for kind, theirs in SAMPLES.items()
    ]
    eight = sum(found.samples.get(kind, 0) for kind in NAMES)
    about["kernel timings"] = f"{sum(found.samples.values()):,} in all, {eight:,} of the eight kinds; {', '.join(counts)}"
    about["configurations"] = f"{found.grid.size:,}"
    about["beside"] = "MIRAGE, SEC '21: 13 real Jetson AGX Xavier"
    return about


def _write(path: Path, made: Sequence[Section], found: Study, about: Mapping[str, str], simulated: str) -> None:
    from .page import page
    from .pictures import draw

    pictures = {one.part: figure for one in made if (figure := draw(one.part, found)) is not None}
    text = page(f"{found.board} beside the tables and figures of MIRAGE", simulated, about, made, pictures, found.missing)
    fresh = path.with_name(f"{path.name}.tmp")
    try:
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise InputError(f"--out: {path}: {error.strerror or error}; nothing there was changed") from error
