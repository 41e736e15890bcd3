# SPDX-License-Identifier: Apache-2.0
"""Run the whole product on a simulated board: a board, the real daemon on it, and an application that serves frames.

For each network the application runs at the top clocks (as mode MAXN with jetson_clocks would), then under a latency
target, then for minimum energy at a frame rate. The table puts what was predicted beside what was observed; the files the
daemon wrote are listed in order; a picture shows the trade-off and the choice; at the end every clock must be back at its
baseline.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

from ...kernels.cost import surface
from ...kernels.grid import FrequencyConfiguration
from ...kernels.surface import Surface
from ...profiles.board import load_board
from ...profiles.bundle import load_bundle
from ...profiles.reference import reference_network
from ...profiles.twin.bench import Application
from ..errors import UsageError
from ..hardware.files import Files
from ..planner import plan
from .demo_scene import CONFIDENCE, Run, Scene, ask_text
from .demo_stage import Stage
from .output import print_json, table

NETWORKS = ("resnet18", "mobilenet_v2")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, default=Path("demo-out"), metavar="DIR", help="where the pictures go (default: demo-out)"
    )
    parser.add_argument("--board", default="agx-xavier", metavar="NAME", help="which board to simulate (default: agx-xavier)")
    parser.add_argument(
        "--profile", default="agx-xavier-sim", metavar="NAME|DIR", help="the daemon's profile (default: agx-xavier-sim)"
    )
    parser.add_argument("--seed", type=int, default=12, metavar="N", help="which individual board (default: 12)")
    parser.add_argument("--latency-ms", type=float, default=15.0, metavar="MS", help="the latency target (default: 15)")
    parser.add_argument(
        "--fps", type=float, default=15.0, metavar="RATE", help="frames per second for minimum energy (default: 15)"
    )
    parser.add_argument(
        "--backend",
        default="auto",
        choices=("auto", "fuse", "folder"),
        help="how the simulated board's files are served (default: FUSE where it can be had)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(args: argparse.Namespace) -> int:
    say = (lambda *_: None) if args.json else print
    for option, value in (("--latency-ms", args.latency_ms), ("--fps", args.fps)):
        if not 0 < value < math.inf:
            raise UsageError(f"{option} {value:g}: expected a positive number")
    args.out.mkdir(parents=True, exist_ok=True)
    bundle = load_bundle(args.profile)
    networks = {name: reference_network(name) for name in NETWORKS}
    surfaces = {name: surface(network, bundle.cost) for name, network in networks.items()}
    with Stage(args.board, args.seed, args.profile, args.backend) as stage:
        title = load_board(args.board).title
        say(f"simulated {title}, individual {args.seed}, served by {stage.backend}; nothing here is a real board")
        if stage.notice:
            say(f"  note: {stage.notice}")
        before = _clock_files(stage.root, args.board)
        client = stage.start_daemon()
        say(f"jetdvfsd answers; energy is that of the rails {', '.join(client.status()['energy_rails'])}\n")
        runs: list[Run] = []
        writes: list[tuple[str, list[dict[str, str]]]] = []
        with Application(stage.application_port) as application:
            for name, network in networks.items():
                scene = Scene(client, application, name, network, surfaces[name], args.latency_ms, args.fps)
                runs += scene.runs()
                writes += scene.writes
        say("simulated: latency in ms, mean power in W and energy of a frame, predicted and observed")
        say(_table(runs))
        say(_savings(runs))
        say("\nfiles written, in order:")
        for title, written in writes:
            say(f"  {title}")
            for write in written:
                say(f"    {write['path']}  <-  {write['value']}")
        code = stage.stop_daemon()
        after = _clock_files(stage.root, args.board)
    restored = {path: (value, after.get(path)) for path, value in before.items()}
    astray = {path: values for path, values in restored.items() if values[0] != values[1]}
    say(f"\njetdvfsd ended with exit code {code}; its baseline:")
    for path, (old, new) in restored.items():
        say(f"  {path}  {old}  ->  {new}{'' if old == new else '   NOT RESTORED'}")
    pictures = _pictures(surfaces, args)
    say("\npictures: " + ", ".join(str(path) for path in pictures))
    if args.json:
        print_json(
            {
                "simulated": True,
                "board": args.board,
                "backend": stage.backend,
                "runs": [{**asdict(item), "configuration": item.configuration._asdict()} for item in runs],
                "writes": [{"hold": title, "files": written} for title, written in writes],
                "baseline": {path: {"before": old, "after": new} for path, (old, new) in restored.items()},
                "pictures": [str(path) for path in pictures],
            }
        )
    say("every clock is back at its baseline" if not astray else f"{len(astray)} files are not back at their baseline")
    return 0 if not astray and code == 0 else 5


def _table(runs: Iterable[Run]) -> str:
    """One table, a block per network: what was predicted beside what was observed."""
    headers = ("", "CPU/GPU/EMC MHz", "p50 pred.", "obs.", "p95 pred.", "obs.", "W pred.", "obs.", "mJ pred.", "obs.", "target")
    rows: list[tuple[str, ...]] = []
    for name, block in groupby(runs, lambda item: item.network):
        rows.append((name, *[""] * (len(headers) - 1)))
        rows += [_row(item) for item in block]
    return table(headers, rows, text_columns=2)


def _row(item: Run) -> tuple[str, ...]:
    return (
        f"  {ask_text(item.ask, item.fps)}",
        "/".join(f"{mhz:.0f}" for mhz in _mhz(item.configuration)),
        f"{item.predicted_ms:.2f}",
        f"{item.p50_ms:.2f}",
        f"{item.predicted_p95_ms:.2f}",
        f"{item.p95_ms:.2f}",
        f"{item.predicted_mw / 1e3:.2f}",
        f"{item.observed_mw / 1e3:.2f}",
        f"{item.predicted_mj:.0f}",
        f"{item.observed_mj:.0f}",
        {None: "-", True: "met", False: "MISSED"}[item.met],
    )


def _mhz(configuration: FrequencyConfiguration) -> tuple[float, float, float]:
    return configuration.cpu_khz / 1e3, configuration.gpu_hz / 1e6, configuration.emc_hz / 1e6


def _savings(runs: list[Run]) -> str:
    lines = []
    for before, after in zip(runs[0::2], runs[1::2], strict=True):
        saved = 1 - after.observed_mj / before.observed_mj
        ask = ask_text(after.ask, after.fps)
        lines.append(f"{after.network}, {ask}: {saved:.0%} less energy per frame than at MAXN clocks (simulated)")
    return "\n".join(["", *lines])


def _clock_files(root: Path, board: str) -> dict[str, str]:
    """The files that a setting can change, with their values, read as anybody would."""
    files = Files(root)
    description = load_board(board)
    paths = [
        f"/sys/devices/system/cpu/cpufreq/{policy.name}/{name}"
        for policy in description.cpu_policies
        for name in ("scaling_governor", "scaling_min_freq", "scaling_max_freq")
    ]
    devfreq = next(path for path in description.section("gpu")["devfreq"] if files.exists(path))
    paths += [f"{devfreq}/{name}" for name in ("governor", "min_freq", "max_freq")]
    paths.append(f"{description.section('emc')['bpmp']}/mrq_rate_locked")
    return {path: files.read_text(path).strip() for path in paths}


def _pictures(surfaces: Mapping[str, Surface], args: argparse.Namespace) -> list[Path]:
    from .pictures import draw_plan

    paths = []
    for name, predicted in surfaces.items():
        for target, fps, label in ((f"latency_ms={args.latency_ms:g}", None, "latency"), ("min-energy", args.fps, "energy")):
            path = args.out / f"{name}-{label}.png"
            chosen = plan(predicted, target, fps=fps, confidence=CONFIDENCE if "=" in target else None)
            draw_plan(predicted, chosen, path, title=f"{name} on {load_board(args.board).title}", simulated=True)
            paths.append(path)
    return paths
