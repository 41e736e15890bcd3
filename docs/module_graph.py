# SPDX-License-Identifier: Apache-2.0
"""Draw the imports between packages, as ``docs/modules.svg``.

    python docs/module_graph.py

Rooms and floors are those of ``tests/support/imports.py``; an import implied by other arrows has none.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jetdvfs.tests.support.imports import APART, FLOORS, PACKAGES, is_face, modules, passages, room_of

PICTURE = Path(__file__).resolve().with_name("modules.svg")
COLOURS = {
    "profiles.lab": "#6b4c8a",
    "profiles.twin": "#7a3b3b",
    "daemon": "#2f6690",
    "profiles": "#8a5a00",
    "kernels": "#3a7d44",
}
GREY = "#555555"
#: In pixels, and in characters.
WIDTH, BOX, GAP, ROW, LINE = 980, 210, 25, 26, 13
CHARACTERS = 33


class Text(NamedTuple):
    """Line in a box."""

    words: str
    colour: str


class Box(NamedTuple):
    """A room's box, in pixels."""

    room: str
    x: float
    y: float
    texts: Sequence[Text]

    @property
    def height(self) -> int:
        return 28 + LINE * len(self.texts)

    @property
    def middle(self) -> float:
        return self.x + BOX / 2


def package_of(room: str) -> str:
    """Package of a room; the lab and the simulated board are drawn separately."""
    return next((package for package in APART if f"{room}.".startswith(f"{package}.")), room.partition(".")[0])


def written(room: str) -> str:
    return room.replace(".", "/") + ("/" if is_face(room) else ".py")


def arrows() -> list[tuple[str, str]]:
    below: dict[str, set[str]] = {room: set() for floor in FLOORS for room in floor}
    for room, other in passages():
        below[room].add(other)
    reached: dict[str, set[str]] = {}
    for room in (room for floor in reversed(FLOORS) for room in floor):
        reached[room] = below[room].union(*(reached[other] for other in below[room]))
    around = {room: {far for other in below[room] for far in reached[other]} for room in below}
    return [(room, other) for room in below for other in sorted(below[room] - around[room])]


def contents(room: str, used: Sequence[str]) -> list[Text]:
    inside = {name.removeprefix(f"{room}.").partition(".")[0] for name in modules() if room_of(name) == room != name}
    own = [name + "/" * is_face(f"{room}.{name}") for name in sorted(inside)]
    lines = [Text(line, GREY) for line in textwrap.wrap("  ".join(own), CHARACTERS)]
    return lines + [Text(f"uses {written(other)}", COLOURS[package_of(other)]) for other in used]


def boxes_from(top: float, floors: Sequence[Sequence[str]], abroad: Mapping[str, Sequence[str]]) -> list[Box]:
    boxes: list[Box] = []
    for floor in floors:
        x = (WIDTH - len(floor) * (BOX + GAP) + GAP) / 2
        boxes += [Box(room, x + n * (BOX + GAP), top, contents(room, abroad[room])) for n, room in enumerate(floor)]
        top += ROW + max(box.height for box in boxes[-len(floor) :])
    return boxes


def picture() -> str:
    drawn: list[str] = []
    ways = arrows()
    abroad: dict[str, list[str]] = {room: [] for floor in FLOORS for room in floor}
    for room, other in ways:
        if package_of(other) != package_of(room):
            abroad[room].append(other)
    top = 10.0
    for package in (*APART, *PACKAGES):
        floors = [[room for room in floor if package_of(room) == package] for floor in FLOORS]
        boxes = boxes_from(top + 34, [floor for floor in floors if floor], abroad)
        bottom = max(box.y + box.height for box in boxes) + 14
        size = f'x="10" y="{top:.0f}" width="{WIDTH - 20}" height="{bottom - top:.0f}"'
        colour = COLOURS[package]
        drawn.append(f'<rect {size} rx="10" fill="{colour}" fill-opacity="0.07" stroke="{colour}" stroke-opacity="0.4"/>')
        drawn.append(f'<text x="24" y="{top + 24:.0f}" font-size="18" font-weight="bold" fill="{colour}">{package}</text>')
        places = {box.room: box for box in boxes}
        drawn += [arrow(places[a], places[b], colour) for a, b in ways if a in places and b in places]
        drawn += [line for box in boxes for line in box_drawn(box, colour)]
        top = bottom + 14
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top:.0f}" font-family="sans-serif" font-size="11">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="#ffffff"/>', *drawn, "</svg>", ""])


def arrow(upper: Box, lower: Box, colour: str) -> str:
    """Curve between two boxes; longer ones bend outwards, past the boxes between."""
    top, bottom = upper.y + upper.height, lower.y
    across = lower.middle - upper.middle
    outwards = (BOX / 2 - 8) * (bottom - top > 2 * ROW) * (-1 if across >= 0 else 1)
    start, end = upper.middle + across * 0.12, lower.middle - across * 0.12 + outwards
    end = min(max(end, lower.x + 8), lower.x + BOX - 8)
    bend = (bottom - top) / 2
    way = f"M{start:.0f},{top:.0f} C{start:.0f},{top + bend:.0f} {end:.0f},{bottom - bend:.0f} {end:.0f},{bottom - 5:.0f}"
    head = f"M{end - 4:.0f},{bottom - 7:.0f} L{end:.0f},{bottom:.0f} L{end + 4:.0f},{bottom - 7:.0f} Z"
    return f'<path d="{way}" fill="none" stroke="{colour}" stroke-width="1.2"/><path d="{head}" fill="{colour}"/>'


def box_drawn(box: Box, colour: str) -> Iterator[str]:
    size = f'x="{box.x:.0f}" y="{box.y:.0f}" width="{BOX}" height="{box.height:.0f}"'
    middle = f'x="{box.middle:.0f}" text-anchor="middle"'
    yield f'<rect {size} rx="5" fill="#ffffff" stroke="{colour}"/>'
    yield f'<text {middle} y="{box.y + 18:.0f}" font-weight="bold">{written(box.room)}</text>'
    for number, text in enumerate(box.texts):
        yield f'<text {middle} y="{box.y + 33 + LINE * number:.0f}" fill="{text.colour}">{text.words}</text>'


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    sys.exit(print(PICTURE))
