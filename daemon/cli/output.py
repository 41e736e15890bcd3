# SPDX-License-Identifier: Apache-2.0
"""Output of verbs: tables, JSON, readable figures, and progress."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import threading
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ...kernels.grid import FrequencyConfiguration
from ...kernels.text import printable
from ...kernels.units import AXES, CLOCKS, mhz
from ..hardware.sensors.energy import total_mw


class BoldText(str):
    """Bold text."""


class RedText(str):
    """Red text."""


def shown(text: str) -> str:
    code = {BoldText: "\x1b[1m", RedText: "\x1b[31m"}.get(type(text), "")
    coloured = code and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return f"{code}{printable(text)}\x1b[0m" if coloured else printable(text)


SIMULATED = "simulated: this profile was measured on a simulated board; its figures are not those of a real one"

_PATIENCE_S = 0.5
_OLD_S = 2.0
_PREFIXES = ("", "k", "M", "G", "T", "P", "E")


def table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, text_columns: int = 1, right: Container[int] | None = None
) -> str:
    headers, *rows = ([printable(cell) for cell in row] for row in (headers, *rows))
    figures = range(text_columns, len(headers)) if right is None else right
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    lines = []
    for row in (headers, *rows):
        cells = (
            cell.rjust(width) if index in figures else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def amount(value: float, unit: str) -> str:
    """A count with a decimal prefix: ``3.64 GFLOP``."""
    prefix = 0
    while value >= 999.5 and prefix < len(_PREFIXES) - 1:
        value /= 1e3
        prefix += 1
    return f"{value:.3g} {_PREFIXES[prefix]}{unit}"


def dimensions(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def spread(value: float, sigma: float) -> str:
    return f"({value * math.exp(-sigma):.4g} to {value * math.exp(sigma):.4g})"


def age(status: Mapping[str, Any]) -> str:
    return f", read {status['age_s']:.0f} s ago" if is_old(status) else ""


def is_old(status: Mapping[str, Any]) -> bool:
    return bool(status["age_s"] > _OLD_S)


def clocks(configuration: Mapping[str, int], governed: Collection[str] = ()) -> str:
    parts = zip(AXES, str(FrequencyConfiguration(**configuration)).split(", "), strict=True)
    return ", ".join(text for axis, text in parts if axis not in governed) + left_to_governors(governed)


def short_clocks(configuration: Mapping[str, int], governed: Collection[str] = ()) -> str:
    parts = (f"{CLOCKS[axis]} {mhz(axis, configuration[axis]):.0f}" for axis in AXES if axis not in governed)
    return f"{', '.join(parts)} MHz{left_to_governors(governed)}"


def left_to_governors(governed: Collection[str]) -> str:
    names = " and ".join(CLOCKS[axis] for axis in AXES if axis in governed)
    return f", {names} left to {'their governors' if len(governed) > 1 else 'its governor'}" if names else ""


def power(rails_mw: Mapping[str, float], energy_rails: Sequence[str]) -> str:
    total = total_mw(rails_mw, energy_rails)
    if total is None:
        return f"unknown ({', '.join(rail for rail in energy_rails if rail not in rails_mw)})"
    return f"{total / 1e3:.2f} W ({'+'.join(energy_rails)})"


def print_json(data: Any) -> None:
    print(json.dumps(data, indent=2 if sys.stdout.isatty() else None))


def tell(verb: str, text: str) -> None:
    print(f"jetdvfs {verb}: {printable(text)}", file=sys.stderr, flush=True)


def answer(args: argparse.Namespace, data: Any, text: str) -> None:
    if args.json:
        print_json(data)
    else:
        print(text)


@contextmanager
def progress(doing: str) -> Iterator[None]:
    """Show an activity on a terminal's standard error after half a second; leave no trace."""
    if not sys.stderr.isatty():
        yield
        return

    said = threading.Event()

    def say() -> None:
        said.set()
        print(f"{doing} ...", end="", file=sys.stderr, flush=True)

    timer = threading.Timer(_PATIENCE_S, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if said.is_set():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def progress_bar(done: int, total: int, text: str) -> None:
    show_progress(done, total, text, done * 10 // max(total, 1) != (done - 1) * 10 // max(total, 1))


def show_progress(done: int, total: int, text: str, another_tenth: bool) -> None:
    share = done / max(total, 1)
    if sys.stderr.isatty():
        filled = int(share * 30)
        end = "\n" if done == total else ""
        print(f"\r[{'#' * filled}{'.' * (30 - filled)}] {share:4.0%} {text:40.40}", end=end, file=sys.stderr, flush=True)
    elif done == total or another_tenth:
        print(f"{share:4.0%} {text}", file=sys.stderr)


def battery(status: Mapping[str, Any]) -> str:
    lasts = "" if status.get("lasts_h") is None else f"; {status['lasts_h']:.3g} h at the present power"
    name = status.get("battery") or "stated"
    return f"{name}: {status['left_wh']:.3g} Wh left, to last for {status['hours']:.3g} h{lasts}"
