# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab paper report``: a record's tables and figures next to MIRAGE's (SEC '21)."""

from __future__ import annotations

import argparse
import base64
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from .....daemon import arguments
from .....daemon.cli.output import print_json, progress_bar, table
from .....daemon.errors import InputError, UsageError
from .....kernels.stored_files import replacing
from .....kernels.text import needing
from ...paper.published import BOARD, NAMES
from ..arguments import add_seed, add_threads, individuals
from .sections import DIFFERENCES, FITTED, MEAN, PAPER, Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...paper.study import Study

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; }
body { max-width: 1180px; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.6rem; margin-bottom: .3rem; } h2 { font-size: 1.15rem; margin: 2.6rem 0 .4rem; }
h2 a { color: inherit; text-decoration: none; }
p { margin: .35rem 0; max-width: 60rem; } .notes { color: #444; font-size: .92rem; }
.simulated { background: #fff3d6; border-left: 4px solid #E69F00; padding: .5rem .8rem; }
.missing { color: #8a3b00; }
nav { columns: 2; font-size: .92rem; margin: 1rem 0; } nav a { display: block; color: #0072B2; text-decoration: none; }
.scroll { overflow-x: auto; } img { max-width: 100%; height: auto; margin: .6rem 0; }
table { border-collapse: collapse; font-size: .8rem; font-variant-numeric: tabular-nums; margin: .6rem 0; }
th, td { padding: .18rem .42rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #e5e5e5; }
th { border-bottom: 2px solid #888; font-weight: 600; vertical-align: bottom; white-space: normal; }
th:first-child, td:first-child { text-align: left; } .paper { color: #777; background: #f7f7f7; }
tr.mean td { border-top: 2px solid #888; font-weight: 600; }
dl { display: grid; grid-template-columns: max-content auto; gap: .1rem 1rem; margin: .6rem 0; }
dt { color: #666; } dd { margin: 0; }
@media print { nav { display: none; } h2 { break-after: avoid; } img, table { break-inside: avoid; } }
"""


def page(
    title: str,
    simulated: str,
    about: Mapping[str, str],
    sections: Sequence[Section],
    pictures: Mapping[str, Figure],
    missing: Mapping[str, str],
) -> str:
    """HTML text of the report; ``simulated`` is a note, ``missing`` has reasons by part."""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    facts = "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in about.items())
    links = "".join(f'<a href="#{one.part}">{one.name}: {escape(one.title)}</a>' for one in sections)
    body = [f"<h1>{escape(title)}</h1>"]
    if simulated:
        body.append(f'<p class="simulated">{escape(simulated)}</p>')
    body += [f"<dl>{facts}</dl>", f"<nav>{links}</nav>"]
    body += [_section(one, pictures.get(one.part)) for one in sections]
    if missing:
        lines = "".join(f'<p class="missing">{escape(_name(part))}: {escape(why)}</p>' for part, why in missing.items())
        body.append(f'<h2 id="missing">Missing in this record</h2>{lines}')
    body.append(f"<h2>Differences from the paper</h2>{''.join(f'<p>{escape(line)}</p>' for line in DIFFERENCES)}")
    text = "\n".join(body)
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}<style>{_STYLE}</style></head>\n<body>\n{text}\n</body></html>\n'


def _name(part: str) -> str:
    return part.replace("-", " ").capitalize()


def _section(section: Section, figure: Figure | None) -> str:
    name = f"{section.name}: {escape(section.title)}"
    notes = "".join(f"<p>{escape(note)}</p>" for note in section.notes)
    picture = "" if figure is None else f'<img src="{_embedded(figure)}" alt="{section.name}: {escape(section.title)}">'
    return (
        f'<section id="{section.part}"><h2><a href="#{section.part}">{name}</a></h2><div class="notes">{notes}</div>{picture}'
        f'<div class="scroll">{_table(section)}</div></section>'
    )


def _table(section: Section) -> str:
    paper = [header == PAPER for header in section.headers]

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f'<{tag} class="paper">{escape(cell)}</{tag}>' if theirs else f"<{tag}>{escape(cell)}</{tag}>"
            for cell, theirs in zip(row, paper, strict=True)
        )

    rows = "".join(
        f'<tr class="mean">{cells("td", row)}</tr>'
        if row[0].partition(" ")[0] in (MEAN, "all")
        else f"<tr>{cells('td', row)}</tr>"
        for row in section.rows
    )
    return f"<table><thead><tr>{cells('th', section.headers)}</tr></thead><tbody>{rows}</tbody></table>"


def _embedded(figure: Figure) -> str:
    """Picture as an SVG data URI, which isolates its element names."""
    import matplotlib

    written = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "jetdvfs"}):
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = written.getvalue().decode()
    return f"data:image/svg+xml;base64,{base64.b64encode(text[text.index('<svg') :].encode()).decode()}"


PARTS = "table-2, table-4 to table-8, figure-1 to figure-7"
BOARDS = 4


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    text = "compare a record with the tables and figures of MIRAGE (SEC '21), as one HTML file"
    sub = verb("report", f"{text}\n\nexample: jetdvfs-lab paper report board.npz --out report.html", run)
    sub.add_argument("record", type=arguments.named_file, metavar="RECORD", help="record of 'jetdvfs-lab collect' or 'import'")
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
        from ...train.tuned_recipes import TunedRecipes

        tuned = None if args.recipes is None else TunedRecipes.load(args.recipes)
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
        fitted = f"; {FITTED}" if found.board == BOARD else ""
        measured = f"Simulated: all that was measured is of simulated boards (silicon {found.silicon_version}), none real"
        simulated = f"{measured}{fitted}."
        made = [replace(one, title=f"{one.title} (simulated{fitted})") for one in made]
    if args.out is not None:
        _write(args.out, made, found, about, simulated)
    if args.json:
        parts = {one.part: one.to_json() for one in made}
        missing = dict(found.missing)
        print_json(
            {"simulated": bool(simulated), "about": about, "parts": parts, "missing": missing, "differences": DIFFERENCES}
        )
    else:
        print("\n".join([*([simulated] if simulated else []), *(f"{key}: {value}" for key, value in about.items())]))
        for one in made:
            print(f"\n{one.name}: {one.title}\n{table(one.headers, one.rows)}")
        print("\nDifferences from the paper:", *DIFFERENCES, sep="\n  ")
    for line in why:
        print(f"not made: {line}", file=sys.stderr)
    return 0


def _reasons(missing: Mapping[str, str]) -> list[str]:
    by_why: dict[str, list[str]] = {}
    for part, why in missing.items():
        by_why.setdefault(why, []).append(part)
    return [f"{', '.join(parts)}: {why}" for why, parts in by_why.items()]


def _about(found: Study) -> dict[str, str]:
    from ...paper.published import SAMPLES

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
    from .pictures import draw

    pictures = {one.part: figure for one in made if (figure := draw(one.part, found)) is not None}
    text = page(
        f"{found.board} compared with the tables and figures of MIRAGE", simulated, about, made, pictures, found.missing
    )
    try:
        with replacing(path, durable=False) as file:
            file.write(text.encode())
    except OSError as error:
        raise InputError(f"--out: {path}: {error.strerror or error}; nothing there was changed") from error
