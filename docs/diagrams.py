# SPDX-License-Identifier: Apache-2.0
"""Draw the diagrams of docs/how-it-works.md: data flow, packages, and lease states.

python docs/diagrams.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent
BLUE, AMBER, GREEN, GREY = "#2f6690", "#8a5a00", "#3a7d44", "#555555"


class Box(NamedTuple):
    """Labelled box; x, y, width and height in pixels."""

    x: float
    y: float
    width: float
    height: float
    title: str
    lines: Sequence[str] = ()
    colour: str = GREY


class Arrow(NamedTuple):
    """Arrow along points, labelled near its middle."""

    points: Sequence[tuple[float, float]]
    label: str = ""


def box(one: Box) -> Iterator[str]:
    middle = one.x + one.width / 2
    place = f'x="{one.x:.0f}" y="{one.y:.0f}" width="{one.width:.0f}" height="{one.height:.0f}"'
    yield f'<rect {place} rx="6" fill="{one.colour}" fill-opacity="0.08" stroke="{one.colour}"/>'
    top = one.y + one.height / 2 - 8 * len(one.lines) + 5
    yield f'<text x="{middle:.0f}" y="{top:.0f}" text-anchor="middle" font-weight="bold">{escape(one.title)}</text>'
    for number, line in enumerate(one.lines, 1):
        yield f'<text x="{middle:.0f}" y="{top + 17 * number:.0f}" text-anchor="middle" fill="{GREY}">{escape(line)}</text>'


def arrow(one: Arrow) -> Iterator[str]:
    points = " ".join(f"{x:.0f},{y:.0f}" for x, y in one.points)
    yield f'<polyline points="{points}" fill="none" stroke="{GREY}" stroke-width="1.5" marker-end="url(#head)"/>'
    if one.label:
        (x, y), (end_x, end_y) = one.points[len(one.points) // 2 - 1 : len(one.points) // 2 + 1]
        level = y == end_y
        place = f'x="{(x + end_x) / 2 + 8 * (not level):.0f}" y="{(y + end_y) / 2 + (-6 if level else 4):.0f}"'
        yield f'<text {place} text-anchor="{"middle" if level else "start"}" fill="{GREY}">{escape(one.label)}</text>'


def svg(width: int, height: int, parts: Sequence[Box | Arrow]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">'
    marker = '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    defs = f'<defs>{marker}<path d="M0,0 L8,4 L0,8 Z" fill="{GREY}"/></marker></defs>'
    lines = [line for one in parts for line in (box(one) if isinstance(one, Box) else arrow(one))]
    return "\n".join([head, defs, '<rect width="100%" height="100%" fill="#ffffff"/>', *lines, "</svg>", ""])


def data() -> str:
    steps = (
        ("Network", "kernels with shapes", GREEN, "decompose: read the file, run nothing"),
        (
            "Surface",
            "latency, power, energy at every configuration",
            GREEN,
            "predict: kernel models, host and GPU timeline",
        ),
        ("Plan", "one configuration, and the reason", BLUE, "plan: target, limits, demand, budgets"),
        ("Transition", "writes in an order that is safe at every step", BLUE, "combine: the highest clock of any lease"),
        ("Applied", "requested, accepted, effective", BLUE, "write, then read back"),
    )
    parts: list[Box | Arrow] = [Box(20, 10, 330, 46, "Model file", ("TorchScript, torch.export, ONNX, engine, GGUF",), AMBER)]
    for number, (title, line, colour, label) in enumerate(steps, 1):
        y = 10 + 86 * number
        parts += [Arrow([(185, y - 40), (185, y)], label), Box(20, y, 330, 46, title, (line,), colour)]
    parts += [Box(610, 354, 240, 46, "Observations", ("reported frames, power of the rails",), AMBER)]
    parts += [Arrow([(350, 463), (730, 463), (730, 400)], "the application runs")]
    parts += [Arrow([(730, 354), (730, 205), (350, 205)], "correct the surface")]
    return svg(880, 500, parts)


def layers() -> str:
    parts: list[Box | Arrow] = [
        Box(20, 20, 190, 62, "jetdvfs-lab", ("measure, train, compare",), "#6b4c8a"),
        Box(230, 20, 330, 62, "daemon", ("socket, leases, planning, clocks, command line",), BLUE),
        Box(580, 20, 190, 62, "jetdvfs-twin", ("simulated boards",), "#7a3b3b"),
        Box(230, 130, 330, 62, "profiles", ("boards, profiles, adaptation",), AMBER),
        Box(230, 240, 330, 62, "kernels", ("model files, cost of kernels, correction",), GREEN),
        Arrow([(395, 82), (395, 130)], "imports"),
        Arrow([(395, 192), (395, 240)], "imports"),
        Arrow([(115, 82), (115, 271), (230, 271)]),
        Arrow([(675, 82), (675, 271), (560, 271)]),
    ]
    return svg(790, 320, parts)


def lease() -> str:
    boxes: Mapping[str, Box] = {
        "request": Box(20, 30, 150, 56, "request", ("target or clocks",), AMBER),
        "planned": Box(240, 30, 150, 56, "planned", ("one configuration",), BLUE),
        "held": Box(460, 30, 150, 56, "held", ("set and read back",), GREEN),
        "released": Box(690, 30, 150, 56, "released", ("baseline restored",), AMBER),
        "standby": Box(560, 160, 150, 56, "standby", ("low clocks",), GREY),
        "missed": Box(240, 160, 150, 56, "missed", ("surface corrected",), GREY),
        "refused": Box(20, 160, 150, 56, "refused", ("reason, valid values",), GREY),
    }
    return svg(
        860,
        236,
        [
            *boxes.values(),
            Arrow([(170, 58), (240, 58)]),
            Arrow([(390, 58), (460, 58)], "granted"),
            Arrow([(610, 58), (690, 58)], "ends"),
            Arrow([(95, 86), (95, 160)]),
            Arrow([(475, 86), (475, 188), (390, 188)], "late frames"),
            Arrow([(315, 160), (315, 86)], "plan again"),
            Arrow([(580, 86), (580, 160)]),
            Arrow([(597, 160), (597, 86)], "frames stop, then come again"),
        ],
    )


if __name__ == "__main__":
    for name, made in (("data", data()), ("layers", layers()), ("lease", lease())):
        (FOLDER / f"{name}.svg").write_text(made, encoding="utf-8")
