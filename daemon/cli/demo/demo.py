# SPDX-License-Identifier: Apache-2.0
"""Run the whole product on a simulated board: a board, the real daemon on it, and an application that serves frames.

For each network the application runs at the top clocks of the board's power mode (as jetson_clocks sets them), then under a
latency target, then for minimum energy at a frame rate. The table puts what was predicted beside what was observed; the
files the daemon wrote are listed in order; a picture shows the trade-off and the choice; at the end every clock must be back
at its baseline.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from itertools import groupby, product
from pathlib import Path

from ....kernels.cost.model import surface
from ....kernels.grid import FrequencyConfiguration
from ....kernels.surface import Surface
from ....profiles.board import load_board
from ....profiles.bundle.bundle import load_bundle
from ....profiles.reference import reference_network
from ....profiles.twin.application import Application
from ....profiles.twin.silicon.chip import CURRENT
from ....profiles.twin.silicon.silicon import version_of
from ... import arguments
from ...errors import UsageError
from ...hardware.files import Files
from ...planner import Limits, plan
from ..output import print_json, table
from .scene import CONFIDENCE, Run, Scene, ask_text
from .stage import Stage, clock_files, offered

NETWORKS = ("resnet18", "mobilenet_v2")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, default=Path("demo-out"), metavar="DIR", help="where the pictures go (default: demo-out)"
    )
    arguments.add_simulated_board(parser)
    parser.add_argument("--profile", metavar="NAME|DIR", help="the daemon's profile (default: BOARD-sim)")
    parser.add_argument("--seed", type=arguments.whole(0), default=12, metavar="N", help="which individual board (default: 12)")
    parser.add_argument(
        "--latency-ms",
        type=float,
        metavar="MS",
        help="the latency target (default: twice what the slowest network is sure to take at the top clocks)",
    )
    parser.add_argument(
        "--fps", type=float, default=15.0, metavar="RATE", help="frames per second for minimum energy (default: 15)"
    )
    arguments.add_backend(parser)
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    say = (lambda *_: None) if args.json else print
    for option, value in (("--latency-ms", args.latency_ms), ("--fps", args.fps)):
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"{option} {value:g}: expected a positive number")
    description = load_board(args.board)
    profile = args.profile or f"{args.board}-sim"
    if Path(profile).is_dir():
        profile = str(Path(profile).resolve())  # the daemon runs in a folder of its own
    bundle = load_bundle(profile)
    if bundle.manifest.board != args.board:
        raise UsageError(
            f"profile {bundle.manifest.name}: is of board {bundle.manifest.board}, not of {args.board}; "
            f"valid: {args.board}-sim, or one made by jetdvfs profile train --board {args.board} --simulated --out DIR"
        )
    args.out.mkdir(parents=True, exist_ok=True)
    networks = {name: reference_network(name) for name in NETWORKS}
    surfaces = {name: surface(network, bundle.cost) for name, network in networks.items()}
    silicon = version_of(bundle.manifest.silicon_version, args.board) if bundle.manifest.simulated else CURRENT
    with Stage(args.board, args.seed, profile, args.backend, silicon) as stage:
        say(f"simulated {description.title}, individual {args.seed}, served by {stage.backend}; nothing here is a real board")
        if stage.notice:
            say(f"  note: {stage.notice}")
        files = Files(stage.root)
        before = clock_files(files, description)
        top, limits = offered(files, description)
        latency_ms = args.latency_ms or _comfortable_ms(surfaces.values(), top)
        client = stage.start_daemon()
        say(f"jetdvfsd answers; energy is that of the rails {', '.join(client.status()['energy_rails'])}\n")
        runs: list[Run] = []
        writes: list[tuple[str, list[dict[str, str]]]] = []
        with Application(stage.application_port) as application:
            for name, network in networks.items():
                scene = Scene(client, application, name, network, surfaces[name], top, latency_ms, args.fps)
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
        after = clock_files(files, description)
    restored = {path: (value, after.get(path)) for path, value in before.items()}
    astray = {path: values for path, values in restored.items() if values[0] != values[1]}
    say(f"\njetdvfsd ended with exit code {code}; its baseline:")
    for path, (old, new) in restored.items():
        say(f"  {path}  {old}  ->  {new}{'' if old == new else '   NOT RESTORED'}")
    plans = ((f"latency_ms={latency_ms:g}", None, "latency"), ("min-energy", args.fps, "energy"))
    pictures = _pictures(surfaces, plans, limits, description.title, args.out)
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
        "/".join(f"{mhz:.0f}" for mhz in item.configuration.mhz),
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


def _savings(runs: list[Run]) -> str:
    lines = []
    for before, after in zip(runs[0::2], runs[1::2], strict=True):
        saved = 1 - after.observed_mj / before.observed_mj
        ask = ask_text(after.ask, after.fps)
        lines.append(f"{after.network}, {ask}: {saved:.0%} less energy per frame than at top clocks (simulated)")
    return "\n".join(["", *lines])


def _comfortable_ms(surfaces: Iterable[Surface], top: FrequencyConfiguration) -> float:
    """A latency target that leaves something to choose, in whole ms."""
    return math.ceil(2 * max(surface.quantile(CONFIDENCE).at(top).latency_ms for surface in surfaces))


def _pictures(
    surfaces: Mapping[str, Surface],
    plans: Iterable[tuple[str, float | None, str]],
    limits: Limits,
    title: str,
    out: Path,
) -> list[Path]:
    from ..pictures.surfaces import draw_plan

    paths = []
    for (name, predicted), (target, fps, label) in product(surfaces.items(), plans):
        path = out / f"{name}-{label}.png"
        chosen = plan(predicted, target, fps=fps, confidence=CONFIDENCE, limits=limits)
        draw_plan(predicted, chosen, path, title=f"{name} on {title}", simulated=True)
        paths.append(path)
    return paths
