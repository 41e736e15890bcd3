# SPDX-License-Identifier: Apache-2.0
"""A report as one HTML file that needs nothing else: no network, no script, pictures inside."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from .sections import MEAN, PAPER, Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    """The file's text.

    Args:
        simulated: the sentence that says that figures are a simulated board's; empty where they are not.
        about: what was measured, with how much, for people.
        sections: the tables.
        pictures: by part.
        missing: what could not be made, and why, by part.
    """
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
        body.append(f'<h2 id="missing">What this record is not enough for</h2>{lines}')
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
    """The picture as a data URI: an SVG of its own, so that names inside do not meet those of others."""
    import matplotlib

    written = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "jetdvfs"}):
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = written.getvalue().decode()
    return f"data:image/svg+xml;base64,{base64.b64encode(text[text.index('<svg') :].encode()).decode()}"
