# SPDX-License-Identifier: Apache-2.0
"""Watch the board and its leases: clocks, rails, temperatures, and each lease's target, predicted and observed latency.

"first ms" is the median of frames that come after a pause or at other clocks. The screen is drawn every second until q or an
interrupt, also while the daemon restarts; without a terminal, screens follow each other.

example: jetdvfs top --every 5
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...kernels.text import printable
from ...kernels.units import AXES, CLOCKS, mhz
from .. import arguments
from ..errors import NoDaemon, UsageError
from ..hardware.sensors.energy import total_mw
from ..wire.client import Client
from . import output
from .output import BoldText, RedText, shown, table
from .verbs import terminal_size

_CLEAR, _HOME, _REST = "\x1b[2J", "\x1b[H", "\x1b[K"
_SHOWN, _HIDDEN = "\x1b[?25h", "\x1b[?25l"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="draw once, and end")
    parser.add_argument("--every", type=float, default=1.0, metavar="S", help="seconds between two (default: %(default)s)")
    arguments.add_socket(parser)
    parser.add_argument("--json", action="store_true", help="print the daemon's status as JSON, a line each time")


def run(args: argparse.Namespace) -> int:
    if not 0.1 <= args.every <= 3600:
        raise UsageError("expected --every from 0.1 to 3600 seconds")
    drawn = sys.stdout.isatty() and not (args.once or args.json)
    with contextlib.ExitStack() as stack:
        client: Client | None = stack.enter_context(Client(args.socket))
        stack.enter_context(_screen(drawn))
        stack.enter_context(contextlib.suppress(KeyboardInterrupt))
        while True:
            try:
                client = client or stack.enter_context(Client(args.socket))
                status = client.status()
            except NoDaemon as error:
                if not drawn:
                    raise
                client = None
                _draw([printable(str(error)), "waiting for it; q ends"])
            else:
                lines = _lines(status, width=terminal_size()[0] if drawn else None)
                if args.json:
                    print(json.dumps(status), flush=True)
                elif drawn:
                    _draw([part for line in lines for part in line.split("\n")])
                else:
                    print("\n".join(lines), flush=True)
            if args.once or _ends(args.every, keys=drawn):
                break
    return 0


@contextlib.contextmanager
def _screen(drawn: bool) -> Iterator[None]:
    if not drawn:
        yield
        return
    keys = sys.stdin.isatty()
    before = termios.tcgetattr(sys.stdin) if keys else None
    print(_HIDDEN + _CLEAR, end="", flush=True)
    try:
        if keys:
            tty.setcbreak(sys.stdin)
        yield
    finally:
        if before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        print(_SHOWN, flush=True)


def _ends(every_s: float, *, keys: bool) -> bool:
    if not keys or not sys.stdin.isatty():
        time.sleep(every_s)
        return False
    ready, _, _ = select.select([sys.stdin], [], [], every_s)
    return bool(ready) and sys.stdin.read(1) in ("q", "Q")


def _draw(lines: list[str]) -> None:
    width, height = terminal_size()
    if len(lines) > height - 1:
        lines = [*lines[: height - 2], f"{len(lines) - height + 2} more lines in a taller terminal"]
    text = "".join(f"{_cut(line, width)}{_REST}\n" for line in lines)
    print(f"{_HOME}{text}\x1b[J", end="", flush=True)


def _cut(line: str, width: int) -> str:
    parts, room = [], width
    for part in re.split(r"(\x1b\[\d*m)", line):
        parts.append(part if part.startswith("\x1b") else part[:room])
        room -= 0 if part.startswith("\x1b") else len(parts[-1])
    return "".join(parts)


def _lines(status: Mapping[str, Any], *, width: int | None = None) -> Iterator[str]:
    mode = status["mode"]
    yield f"{shown(BoldText(status['title']))}  " + (f"mode {mode['id']} {printable(mode['name'])}" if mode else "")
    yield ""
    measured, applied = status["configuration"] or {}, status["applied"]
    rows = []
    for axis in AXES:
        held = f"{mhz(axis, applied['requested'][axis]):.1f}" if applied and axis not in applied.get("governed", ()) else "-"
        off = "off" if measured and axis not in status.get("unmeasured", ()) else "-"
        now = f"{mhz(axis, measured[axis]):.1f}" if measured.get(axis) else off
        rows.append([CLOCKS[axis], now, held])
    yield table(["clock", f"MHz{output.age(status)}", "held"], rows)
    rails = status["rails_mw"]
    power, hottest = total_mw(rails, status["energy_rails"]), max(status["temperatures_mc"].values(), default=None)
    yield ""
    drawn = output.power(rails, status["energy_rails"]) if power is None else f"{power / 1e3:6.2f} W"
    yield f"power  {drawn}   {_listed(rails, 1e3, 'W', 2)}"
    zones = _listed(status["temperatures_mc"], 1e3, "C", 1)
    yield "heat   unknown" if hottest is None else f"heat   {hottest / 1e3:6.1f} C   {zones}"
    if budget := status.get("budget"):
        yield f"budget {budget['limit_mw'] / 1e3:6.2f} W   {printable(budget['reason'])}"
    if battery := status.get("battery"):
        yield f"battery {battery['left_wh']:5.4g} Wh  {printable(output.battery(battery))}"
    yield ""
    if status["leases"]:
        yield lease_table(status["leases"], width)
    else:
        yield "no lease is held"
    for lease in status["leases"]:
        if missed := lease["missed"]:
            yield shown(RedText(f"{lease['lease']} misses {missed['target']}: {missed['reason']}"))
            if missed["doing"]:
                yield f"  {printable(missed['doing'])}"
        for text in ((lease.get("doubted") or {}).get("reason"), lease.get("silent")):
            if text:
                yield shown(RedText(f"{lease['lease']}: {text}"))
    reasons = [*(f"throttled: {reason}" for reason in status["throttled"]), *status["degraded"]]
    for reason in dict.fromkeys(reasons):
        yield shown(RedText(reason))


def _listed(values: Mapping[str, float], scale: float, unit: str, digits: int) -> str:
    return ", ".join(f"{printable(name)} {value / scale:.{digits}f} {unit}" for name, value in values.items())


_FIRST_TO_GO = ("first ms", "board's J", "application", "p95 ms", "predicted ms", "frames")


def lease_table(leases: Sequence[Mapping[str, Any]], width: int | None) -> str:
    rows = [_row(lease) for lease in leases]
    for leave_out in range(len(_FIRST_TO_GO) + 1):
        headers = [name for name in rows[0] if name not in _FIRST_TO_GO[:leave_out]]
        text = "application" in headers
        shown = table(headers, [[row[name] for name in headers] for row in rows], text_columns=4 if text else 3)
        if width is None or len(shown.split("\n")[0]) <= width:
            break
    return shown


def _row(lease: Mapping[str, Any]) -> dict[str, str]:
    predicted, observed, energy_mj = lease["predicted"], lease["observed"], lease["energy_mj"]
    rate = f" at {lease['fps']:g}/s" if lease["fps"] else ""
    return {
        "lease": lease["lease"],
        "model": (lease["network"] or "-")[:24],
        "application": lease["app"][:24],
        "target": f"{lease['target'] or 'configuration'}{rate}",
        "predicted ms": f"{predicted['latency_ms']:.2f}" if predicted else "-",
        "observed ms": f"{observed['p50_ms']:.2f}" if observed else "-",
        "p95 ms": f"{observed['p95_ms']:.2f}" if observed else "-",
        "first ms": "-" if lease["first_ms"] is None else f"{lease['first_ms']:.2f}",
        "frames": str(lease["frames"]),
        "late": str(lease["late"]),
        "board's J": "-" if energy_mj is None else f"{energy_mj / 1e3:.1f}",
    }
