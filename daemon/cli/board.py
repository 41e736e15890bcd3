# SPDX-License-Identifier: Apache-2.0
"""Show this board: its clocks, power rails and temperatures, and the reason for each clock that cannot be controlled.

`board list`, `board show NAME` and `board matrix` show descriptions of boards, and how surely each part is known. `board modes`
lists power modes. `board mode NAME|ID`, for root, switches to one and prints the way back; it never agrees to a reboot.
`board unlock` ends a lock of the memory clock that a dead process left behind.

examples:
  jetdvfs board show agx-orin-64gb
  sudo jetdvfs board mode MODE_30W
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from ...kernels.units import AXES, CLOCKS, mhz, mhz_text
from ...profiles.board import MARKS, SECTIONS, BoardDescription, load_board
from ...profiles.timing import SystemClock
from .. import arguments
from ..errors import HardwareHangs
from ..hardware.files import LONGEST_S, Files
from ..hardware.hardware import Hardware
from ..hardware.identity import described_boards
from ..hardware.jetson_stats import connect
from .modes import list_modes, switch_mode
from .output import answer

_INTRO = """\
# Boards

Knowledge of each board, by JetPack. *verified*: paths and rules were read in a kernel source, in a tool, or in a dump of a real
board; *derived*: inferred from those; *unknown*: neither, so the driver tries and reports the result. The running system's own
tables and limits take precedence over a description.

A board is one file in `profiles/boards`; to add one, add its file. `jetdvfs board show NAME` shows it part by part.

JetPack 4's stock Ubuntu 18.04 has too old a Python for this package; its kernels and boards are supported under newer
userlands. The table is printed by `jetdvfs board matrix`.
"""


def matrix(boards: Sequence[BoardDescription]) -> list[dict[str, str]]:
    """One row per board and JetPack, with the mark of every feature."""
    return [
        {
            "board": board.name,
            "jetpack": release.jetpack,
            "l4t": release.l4t,
            "kernel": release.kernel,
            **{section: board.mark(section, release) for section in SECTIONS},
        }
        for board in boards
        for release in board.releases
    ]


def markdown(boards: Sequence[BoardDescription]) -> Iterator[str]:
    yield from _INTRO.splitlines()
    yield ""
    rows = matrix(boards)
    yield f"| {' | '.join(rows[0])} |"
    yield f"|{'---|' * len(rows[0])}"
    for row in rows:
        yield f"| {' | '.join(row.values())} |"
    yield from ("", "## Sources", "")
    for board in boards:
        assumed = f"{board.sibling}, except where its file differs" if board.sibling else ""
        yield f"- **{board.name}** ({board.title}): {'; '.join(filter(None, (assumed, *board.sources)))}."


_NAMELESS, _NAMED = ("list", "matrix", "modes", "unlock"), ("show", "mode")
# Number of levels that a screen lists one by one.
_MOST_LISTED = 32


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=(*_NAMELESS, *_NAMED), help="instead of showing the running board")
    parser.add_argument("name", nargs="?", metavar="NAME", help="the description to show, or the power mode (or its ID)")
    parser.add_argument("--dry-run", action="store_true", help="with mode and unlock: print the changes, make none")
    arguments.add_root(parser)
    arguments.add_json(parser)
    parser.set_defaults(parser=parser)


def run(args: argparse.Namespace) -> int:
    if (args.action in _NAMED) != (args.name is not None):
        args.parser.error("board show and board mode take a NAME, the other forms take none")
    if args.dry_run and args.action not in ("mode", "unlock"):
        args.parser.error("--dry-run goes with board mode and board unlock only")
    if args.action == "list":
        boards = described_boards()
        shown: Any = [{"name": board.name, "title": board.title, **_sections(board)} for board in boards]
        names, titles = (max(map(len, texts)) for texts in zip(*((board.name, board.title) for board in boards), strict=True))
        lines = [f"{board.name:{names}}  {board.title:{titles}}  {_sections_text(board)}" for board in boards]
    elif args.action == "show":
        board = load_board(args.name)
        shown, lines = {**board.raw, "status": {**board.marks, **_sections(board)}}, list(_describe(board))
    elif args.action == "matrix":
        boards = described_boards()
        shown, lines = matrix(boards), list(markdown(boards))
    elif args.action == "modes":
        shown, lines = list_modes(str(args.root))
    elif args.action == "mode":
        shown, lines = switch_mode(str(args.root), args.name, dry_run=args.dry_run)
    elif args.action == "unlock":
        writes = Hardware.probe(Files(args.root, longest_s=LONGEST_S), SystemClock()).unlock_memory(dry_run=args.dry_run)
        shown = [write._asdict() for write in writes]
        lines = [f"{write.path} = {write.value}" for write in writes] or ["the memory clock is not locked"]
    else:
        hardware = Hardware.probe(Files(args.root, longest_s=LONGEST_S), SystemClock())
        shown = observe(hardware, _module() if args.root == Path("/") else "")
        lines = list(_report(shown))
    answer(args, shown, "\n".join(lines))
    return 0


def _sections(board: BoardDescription) -> dict[str, str]:
    return {section: board.mark(section) for section in SECTIONS}


def _sections_text(board: BoardDescription) -> str:
    marks = _sections(board)
    by_mark = {mark: [name for name in marks if marks[name] == mark] for mark in MARKS}
    return "; ".join(f"{mark}: {', '.join(names)}" for mark, names in by_mark.items() if names)


def _describe(board: BoardDescription) -> Iterable[str]:
    grid = board.grid
    yield f"{board.title} ({board.name}, {board.soc})"
    releases = ", ".join(f"{release.jetpack} (L4T {release.l4t}, kernel {release.kernel})" for release in board.releases)
    yield f"JetPack {releases}; modules {', '.join(board.modules) or 'of other boards'}"
    yield f"{grid.size} frequency configurations: {' x '.join(map(str, grid.shape))}"
    for axis in AXES:
        yield f"  {CLOCKS[axis]} MHz: {_megahertz(axis, grid.levels(axis))}"
    for name, other in board.firmware.items():
        tops = ", ".join(f"{CLOCKS[axis]} {mhz_text(axis, other.levels(axis)[-1])}" for axis in AXES)
        yield f"with firmware {name!r} up to (MHz): {tops}"
    rails = [rail for monitor in board.monitors for rail in monitor.channels]
    yield f"rails: {', '.join(f'{rail} (within {board.within[rail]})' if rail in board.within else rail for rail in rails)}"
    yield f"energy is the sum of: {', '.join(board.energy_rails)}; the module draws: {' + '.join(board.total_rails)}"
    for modes in board.modes:
        yield f"modes of {modes.conf}: {', '.join(f'{mode.id} {mode.name}' for mode in modes.table)} (default {modes.default})"
    if calibrated_on := board.raw.get("twin", {}).get("calibrated_on"):
        yield f"its simulated board was calibrated on: {calibrated_on}"
    yield from (f"read in: {source}" for source in board.sources)
    if board.sibling:
        yield f"inherited from {board.sibling}, except where its file differs"
    yield "how much of it is known:"
    for section, mark in _sections(board).items():
        parts = {name: of for name, of in board.marks.items() if name.startswith(f"{section}.")}
        detail = ", ".join(f"{name.partition('.')[2]} {of}" for name, of in parts.items())
        yield f"  {section:12} {mark:9} {f'({detail})' if detail else ''}".rstrip()


def _module() -> str:
    with connect() as stats:
        return stats.module if stats else ""


def observe(hardware: Hardware, module: str) -> dict[str, Any]:
    (grid, unknown), identity = hardware.seen(), hardware.identity
    now: dict[str, int | None] = dict.fromkeys(AXES)
    try:
        readings = hardware.read()
        now |= hardware.current(readings)._asdict()
    except HardwareHangs:  # the notes name the file
        readings = {}
    for axis, found in readings.items():
        if axis in now and all(one.accepted is one.effective is None for one in found):
            now[axis] = None
    clocks = {
        axis: {
            "levels": list(grid.levels(axis)),
            "current": now[axis],
            "mode": sorted({reading.mode for reading in readings.get(axis, ())}) or ["fixed"],
        }
        for axis in AXES
    }
    return {
        "board": hardware.description.name,
        "title": hardware.description.title,
        "module": module or None,
        **asdict(identity),
        "mode": None if (mode := hardware.mode()) is None else asdict(mode),
        "configurations": grid.size,
        "clocks": clocks,
        "rails_mw": hardware.sensors.rails_mw(),
        "energy_rails": list(hardware.sensors.energy_rails),
        "within": dict(hardware.description.within),
        "temperatures_mc": hardware.sensors.temperatures_mc(),
        "trips": [trip._asdict() for trip in hardware.sensors.trips],
        "throttled": list(hardware.throttled()),
        "over_current": hardware.sensors.over_current(),
        "fan": None if (fan := hardware.fan()) is None else fan._asdict(),
        "transition_ms": hardware.transition_ms(),
        "notes": [*hardware.notes, *unknown, *hardware.moved_limits()],
    }


def _report(shown: Mapping[str, Any]) -> Iterable[str]:
    yield f"{shown['title']} ({shown['board']})"
    software = f"JetPack {shown['jetpack'] or '?'}, L4T {shown['l4t'] or '?'}, kernel {shown['kernel'] or '?'}"
    yield f"device tree: {shown['model'] or 'no model'}; {software}"
    if shown["module"]:
        yield f"module {shown['module']} (jetson-stats)"
    if shown["mode"]:
        yield f"power mode {shown['mode']['id']} {shown['mode']['name']}"
    yield f"{shown['configurations']} frequency configurations allowed now"
    for axis, clock in shown["clocks"].items():
        none = "   unknown" if clock["current"] is None else "   without power"
        now = f"{mhz(axis, clock['current']):8.2f} MHz" if clock["current"] else none
        now += " at most, not measured" if clock["mode"] == ["cap"] else ""
        yield f"  {CLOCKS[axis]} {now}  {', '.join(clock['mode'])}"
        yield f"      of {_megahertz(axis, clock['levels'])}"
    yield "power rails (* counts towards energy)"
    for label, power_mw in shown["rails_mw"].items():
        inside = f"within {shown['within'][label]}" if label in shown["within"] else ""
        yield f"  {label:20} {power_mw / 1000:7.2f} W {'*' if label in shown['energy_rails'] else ' '} {inside}".rstrip()
    yield "temperatures"
    for zone, temperature_mc in shown["temperatures_mc"].items():
        yield f"  {zone:20} {temperature_mc / 1000:7.1f} C"
    if shown["fan"]:
        turning = "" if shown["fan"]["rpm"] is None else f", {shown['fan']['rpm']} rpm"
        yield f"fan at {shown['fan']['drive']:.0%}{turning}"
    if shown["over_current"]:
        yield f"over-current events since boot: {', '.join(f'{name} {count}' for name, count in shown['over_current'].items())}"
    for note in shown["notes"]:
        yield f"note: {note}"


def _megahertz(axis: str, levels: Sequence[int]) -> str:
    steps = {after - before for before, after in pairwise(levels[:-1])}
    if len(levels) <= _MOST_LISTED or len(steps) != 1:
        return " ".join(mhz_text(axis, level) for level in levels)
    first, last_but_one, last, step = (mhz_text(axis, one) for one in (levels[0], levels[-2], levels[-1], steps.pop()))
    return f"{first} to {last_but_one} in steps of {step}, and {last}"
