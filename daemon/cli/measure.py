# SPDX-License-Identifier: Apache-2.0
"""Measure the cost of a command: time, power and energy of every rail and frame. No daemon and no profile are needed.

The command follows ``--`` and keeps its own output; figures go to standard error, or as JSON into a file. Frames are those that
the command times with ``jetdvfs.qos``, or --frames. The exit code is the command's, or 127 if there is no such command and 126
if it cannot be executed.

example: jetdvfs measure -- ./my-application
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ...profiles.timing import SystemClock
from .. import arguments
from ..errors import UsageError
from ..hardware.files import LONGEST_S, Files
from ..hardware.hardware import Hardware
from ..hardware.sensors.energy import PowerTrace
from ..hardware.sensors.sensors import Sensors
from ..wire.reporter import COUNTED
from .children import ENDING, refused, run_command
from .output import table, tell

TAKES_COMMAND = True
_EVERY_S = 0.1
_tell = partial(tell, "measure")
_LEAST_READINGS, _SHORTEST_S = 2, 0.2
_TOO_SHORT = "energy: too short to tell ({elapsed_s:.3f} s, {readings} readings of the rails meanwhile)"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [options] -- CMD ..."
    parser.add_argument("--frames", type=int, metavar="N", help="number of frames of a command that does not report them")
    parser.add_argument(
        "--every", type=float, default=_EVERY_S, metavar="S", help="seconds between readings of rails (default: %(default)s)"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the figures as JSON into a file")
    parser.add_argument("--json", action="store_true", help="print the figures as one line of JSON, on standard error")
    arguments.add_root(parser)


def run(args: argparse.Namespace) -> int:
    if not args.command:
        raise UsageError("expected a command after --, as in: jetdvfs measure -- ./my-application")
    if not 0.01 <= args.every <= 60 or (args.frames is not None and args.frames < 1):
        raise UsageError("expected --every from 0.01 to 60 seconds and --frames of at least 1")
    if (code := refused(args.command[0], _tell)) is not None:
        return code
    hardware = Hardware.probe(Files(args.root, longest_s=LONGEST_S), SystemClock())
    files = Files(args.root, longest_s=LONGEST_S)  # for the thread
    sensors = Sensors(files, hardware.description)
    traces: dict[str, PowerTrace] = {}

    def read() -> None:
        for channel in sensors.channels():
            power_mw = channel.read_mw(files)
            if power_mw is not None:
                traces.setdefault(channel.label, PowerTrace()).add(power_mw, time.monotonic())

    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    with _frames() as frames:
        read()
        with repeated(read, args.every):
            started_s = time.monotonic()
            code = run_command(args.command, before, _tell)
            ended_s = time.monotonic()
        read()
    counted = list(frames) or [0.0] * (args.frames or 0)
    figures = _figures(sensors, traces, started_s, ended_s, counted, known=bool(frames))
    figures = {"board": hardware.description.name, **figures}
    if args.output is not None:
        args.output.write_text(json.dumps({**figures, "exit_code": code}) + "\n", encoding="utf-8")
    text = json.dumps({**figures, "exit_code": code}) if args.json else "\n".join(_lines(figures))
    print(text, file=sys.stderr, flush=True)
    return code


@contextlib.contextmanager
def repeated(work: Callable[[], object], every_s: float) -> Iterator[None]:
    over = threading.Event()

    def run() -> None:
        while not over.wait(every_s):
            work()

    thread = threading.Thread(target=run, name="repeated", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def _frames() -> Iterator[list[float]]:
    found: list[float] = []
    with tempfile.TemporaryDirectory(prefix="jetdvfs-") as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        path = str(Path(folder) / "frames")
        sock.bind(path)
        sock.settimeout(0.1)
        os.environ[COUNTED] = path

        def receive() -> bool:
            try:
                data = sock.recv(1 << 16)
            except TimeoutError:
                return False
            count = len(data) // 8
            found.extend(struct.unpack(f"<{count}d", data[: 8 * count]))
            return True

        try:
            with repeated(receive, 0.0):
                yield found
            while receive():
                pass
        finally:
            del os.environ[COUNTED]


def _figures(
    sensors: Sensors, traces: Mapping[str, PowerTrace], started_s: float, ended_s: float, frames: list[float], *, known: bool
) -> dict[str, Any]:
    counted, elapsed_s = sensors.energy_rails, ended_s - started_s
    readings = min((trace.readings(started_s, ended_s) for trace in traces.values()), default=0)
    figures = elapsed_s >= _SHORTEST_S and readings >= _LEAST_READINGS
    each = {
        name: {"energy_mj": found[0], "mean_mw": found[0] / elapsed_s, "peak_mw": found[1]}
        for name, trace in traces.items()
        if figures and (found := trace.between(started_s, ended_s)) is not None
    }
    notes = list(sensors.notes)
    if traces and not figures:
        notes.append(_TOO_SHORT.format(elapsed_s=elapsed_s, readings=readings))
    whole = sum(each[name]["energy_mj"] for name in counted) if counted and all(name in each for name in counted) else None
    ranked = sorted(frames) if known else []
    return {
        "elapsed_s": elapsed_s,
        "rails": each,
        "energy_rails": list(counted),
        "energy_mj": whole,
        "mean_power_mw": None if whole is None else whole / elapsed_s,
        "readings": readings,
        "frames": len(frames),
        "energy_per_frame_mj": None if whole is None or not frames else whole / len(frames),
        "p50_ms": ranked[len(ranked) // 2] if ranked else None,
        "p95_ms": ranked[min(len(ranked) - 1, int(0.95 * len(ranked)))] if ranked else None,
        "notes": notes,
    }


def _lines(figures: Mapping[str, Any]) -> Iterator[str]:
    rows = [
        [name, f"{one['mean_mw'] / 1e3:.3f}", f"{one['peak_mw'] / 1e3:.3f}", f"{one['energy_mj'] / 1e3:.3f}"]
        for name, one in figures["rails"].items()
    ]
    if rows:
        yield table(["rail", "mean W", "peak W", "J"], rows)
    whole = figures["energy_mj"]
    missing = [rail for rail in figures["energy_rails"] if rail not in figures["rails"]]
    energy = "energy unknown" if whole is None else f"{whole / 1e3:.3f} J, {figures['mean_power_mw'] / 1e3:.3f} W"
    yield (
        f"{figures['elapsed_s']:.3f} s; {energy} ({'+'.join(missing or figures['energy_rails'])}), "
        f"from {figures['readings']} readings"
    )
    if figures["frames"]:
        each = "" if figures["energy_per_frame_mj"] is None else f", {figures['energy_per_frame_mj']:.1f} mJ each"
        late = "" if figures["p50_ms"] is None else f", p50 {figures['p50_ms']:.2f} ms, p95 {figures['p95_ms']:.2f} ms"
        yield f"{figures['frames']} frames, {figures['frames'] / figures['elapsed_s']:.1f} a second{each}{late}"
    yield from figures["notes"]
