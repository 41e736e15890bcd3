# SPDX-License-Identifier: Apache-2.0
"""Show this board: its clocks, power rails, temperatures, and what cannot be controlled and why; or what is described.

`jetdvfs board` looks at the running system, `board list` and `board show NAME` at the descriptions. Nothing is changed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from ...profiles.board import BoardDescription, load_board
from ..hardware.board import Hardware
from ..hardware.files import Files
from ..hardware.identity import described_boards
from ..hardware.timing import SystemClock

HELP = "show the board, its clocks, rails and limits"
_UNITS = {"cpu_khz": ("CPU", 1e3), "gpu_hz": ("GPU", 1e6), "emc_hz": ("EMC", 1e6)}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=("list", "show"), help="descriptions instead of the running board")
    parser.add_argument("name", nargs="?", metavar="NAME", help="the description to show")
    parser.add_argument("--root", default="/", metavar="DIR", help="directory that stands for the board's / (a twin's mount)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(parser=parser)


def run(args: argparse.Namespace) -> int:
    if (args.what == "show") != (args.name is not None):
        args.parser.error("board show takes the NAME of a description, the other forms take none")
    if args.what == "list":
        boards = described_boards()
        shown: Any = [{"name": board.name, "title": board.title, **_marks(board)} for board in boards]
        lines = [f"{board.name:20} {board.title:40} {_marks_text(board)}" for board in boards]
    elif args.what == "show":
        board = load_board(args.name)
        shown, lines = {**board.raw, "status": _marks(board)}, list(_describe(board))
    else:
        shown = _observe(Hardware.probe(Files(args.root), SystemClock()))
        lines = list(_report(shown))
    print(json.dumps(shown, indent=2) if args.json else "\n".join(lines))
    return 0


def _marks(board: BoardDescription) -> dict[str, str]:
    """Each section's mark: verified, derived or unknown; ``cpu.boot`` is the mark of a part of ``cpu``."""

    def collect(prefix: str, section: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        for name, part in section.items():
            if isinstance(part, Mapping):
                if "status" in part:
                    yield f"{prefix}{name}", str(part["status"])
                yield from collect(f"{prefix}{name}.", part)

    return dict(collect("", board.raw))


def _marks_text(board: BoardDescription) -> str:
    marks = _marks(board)
    return "; ".join(
        f"{mark}: {', '.join(name for name in marks if marks[name] == mark)}" for mark in dict.fromkeys(marks.values())
    )


def _describe(board: BoardDescription) -> Iterable[str]:
    grid = board.grid
    yield f"{board.title} ({board.name}, {board.soc})"
    yield f"described for JetPack {board.jetpack}, L4T {board.l4t}, kernel {board.kernel}; modules {', '.join(board.modules)}"
    yield f"{grid.size} frequency configurations: {' x '.join(map(str, grid.shape))}"
    for axis, (title, scale) in _UNITS.items():
        yield f"  {title} MHz: {_megahertz(getattr(grid, axis), scale)}"
    yield f"rails: {', '.join(rail for monitor in board.monitors for rail in monitor.channels)}"
    yield f"energy is the sum of: {', '.join(board.energy_rails)}"
    yield "how much of it is known:"
    for name, mark in _marks(board).items():
        yield f"  {name:16} {mark}"


def _observe(hardware: Hardware) -> dict[str, Any]:
    identity, grid, readings = hardware.identity, hardware.grid(), hardware.read()
    now = hardware.current()._asdict()
    clocks = {
        axis: {
            "levels": list(getattr(grid, axis)),
            "current": now[axis],
            "mode": sorted({reading.mode for reading in readings.get(axis, ())}) or ["fixed"],
        }
        for axis in _UNITS
    }
    return {
        "board": hardware.description.name,
        "title": hardware.description.title,
        **asdict(identity),
        "configurations": grid.size,
        "clocks": clocks,
        "rails_mw": hardware.rails_mw(),
        "energy_rails": list(hardware.description.energy_rails),
        "temperatures_mc": hardware.temperatures_mc(),
        "notes": list(hardware.notes),
    }


def _report(shown: Mapping[str, Any]) -> Iterable[str]:
    yield f"{shown['title']} ({shown['board']})"
    software = f"JetPack {shown['jetpack'] or '?'}, L4T {shown['l4t'] or '?'}, kernel {shown['kernel'] or '?'}"
    yield f"says it is {shown['model'] or 'unnamed'}; {software}"
    yield f"{shown['configurations']} frequency configurations allowed now"
    for axis, clock in shown["clocks"].items():
        title, scale = _UNITS[axis]
        yield f"  {title} {clock['current'] / scale:8.2f} MHz  {', '.join(clock['mode'])}"
        yield f"      of {_megahertz(clock['levels'], scale)}"
    yield "power rails (* counts towards energy)"
    for label, power_mw in shown["rails_mw"].items():
        yield f"  {label:20} {power_mw / 1000:7.2f} W {'*' if label in shown['energy_rails'] else ''}".rstrip()
    yield "temperatures"
    for zone, temperature_mc in shown["temperatures_mc"].items():
        yield f"  {zone:20} {temperature_mc / 1000:7.1f} C"
    for note in shown["notes"]:
        yield f"note: {note}"


def _megahertz(levels: Iterable[int], scale: float) -> str:
    return " ".join(f"{level / scale:g}" for level in levels)
