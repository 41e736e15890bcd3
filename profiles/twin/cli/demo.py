# SPDX-License-Identifier: Apache-2.0
"""Run the whole product on a simulated board: a board, the real daemon on it, and an application that serves frames.

For each network the application runs at the top clocks of the board's power mode (as jetson_clocks sets them), then under a
latency target, then for minimum energy at a frame rate. The table has the predicted figures next to the observed ones; a
picture of each plan shows the trade-off and the choice; the files that the daemon wrote are listed in DIR/writes.txt, in order;
at the end every clock must be back at its baseline.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

from ....daemon import arguments
from ....daemon.cli.figures import new_figure
from ....daemon.cli.output import print_json, table
from ....daemon.errors import TargetNotAttainable, UsageError
from ....daemon.hardware.files import Files
from ....daemon.planning.limits import Limits
from ....daemon.planning.plan import Plan, plan
from ....kernels.cost.model import surface
from ....kernels.grid import FrequencyConfiguration
from ....kernels.surface import Surface
from ...adapt.application import Application
from ...board import load_board
from ...bundle.bundle import load_bundle
from ...reference import reference_network
from ..silicon.silicon import check_version
from .arguments import add_backend, add_simulated_board
from .scene import CONFIDENCE, Run, Scene, ask_text
from .stage import Stage, clock_files, offered

NETWORKS = ("resnet18", "mobilenet_v2")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("demo-out"),
        metavar="DIR",
        help="folder for the pictures and the list of writes (default: demo-out)",
    )
    add_simulated_board(parser)
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
    add_backend(parser)
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
            f"valid: {args.board}-sim, or one made by jetdvfs-lab train --board {args.board} --simulated --out DIR"
        )
    new_figure(1, 1)  # refuses where nothing can be drawn, before anything is measured
    args.out.mkdir(parents=True, exist_ok=True)
    networks = {name: reference_network(name) for name in NETWORKS}
    surfaces = {name: surface(network, bundle.cost) for name, network in networks.items()}
    if bundle.manifest.simulated:
        check_version(bundle.manifest.silicon_version, args.board)
    with Stage(args.board, args.seed, profile, args.backend) as stage:
        say(f"simulated {description.title}, individual {args.seed}, served by {stage.backend}; nothing here is a real board")
        if stage.notice:
            say(f"  note: {stage.notice}")
        files = Files(stage.root)
        before = clock_files(files, description)
        top, _ = offered(files, description)
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
        say("simulated: latency in ms, mean power in W and energy of a frame, predicted and observed;")
        say(f"targets and frame rates are asked for with {CONFIDENCE:.0%} confidence")
        say(_table(runs))
        say(_savings(runs))
        code = stage.stop_daemon()
        after = clock_files(files, description)
    restored = {path: (value, after.get(path)) for path, value in before.items()}
    astray = {path: values for path, values in restored.items() if values[0] != values[1]}
    written = sum(len(each) for _, each in writes)
    listed = args.out / "writes.txt"
    listed.write_text(_listed(writes, restored), encoding="utf-8")
    say(f"\n{written} writes to {len({write['path'] for _, each in writes for write in each})} files: {listed}")
    pictures = _pictures(surfaces, [item for item in runs if item.met is not None], description.title, args.out, say)
    say("pictures: " + ", ".join(str(path) for path in pictures))
    for path, (old, new) in astray.items():
        say(f"NOT RESTORED: {path}: {old} before, {new} after")
    say(f"jetdvfsd ended with exit code {code}")
    if args.json:
        print_json(
            {
                "simulated": True,
                "board": args.board,
                "backend": stage.backend,
                "runs": [{**asdict(item), "configuration": item.configuration._asdict()} for item in runs],
                "writes": [{"hold": title, "files": written} for title, written in writes],
                "baseline": {path: {"before": old, "after": new} for path, (old, new) in restored.items()},
                "writes_listed": str(listed),
                "pictures": [str(path) for path in pictures],
            }
        )
    say(f"every clock is back at its baseline ({len(before)} files)" if not astray else f"{len(astray)} files are not back")
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


def _listed(writes: Iterable[tuple[str, Iterable[Mapping[str, str]]]], restored: Mapping[str, tuple[str, str | None]]) -> str:
    """Text of all writes by lease, then of the baseline's files before and after."""
    lines = ["Files written, in order"]
    for title, written in writes:
        lines += ["", title, *(f"  {write['path']}  <-  {write['value']}" for write in written)]
    lines += ["", "Baseline, before and after"]
    lines += [f"  {path}  {old}  ->  {new}{'' if old == new else '   NOT RESTORED'}" for path, (old, new) in restored.items()]
    return "\n".join((*lines, ""))


def _pictures(
    surfaces: Mapping[str, Surface], runs: Iterable[Run], title: str, out: Path, say: Callable[[str], None]
) -> list[Path]:
    """A picture of each run's plan: the configuration that the daemon applied, at the die temperature it planned for."""
    from ....daemon.cli.surface_pictures import draw_plan

    paths = []
    for item in runs:
        predicted = surfaces[item.network]
        if item.temperature_c is not None:
            predicted = predicted.warmed(item.temperature_c)
        path = out / f"{item.network}-{'energy' if item.fps else 'latency'}.png"
        try:
            draw_plan(predicted, applied_plan(predicted, item), path, title=f"{item.network} on {title}", simulated=True)
            paths.append(path)
        except TargetNotAttainable as error:  # by the prediction before any frame was observed
            say(f"no picture of {item.network}, {ask_text(item.ask, item.fps)}: {error}")
    return paths


def applied_plan(predicted: Surface, run: Run) -> Plan:
    """Plan of a run within nothing but the configuration that was applied.

    Raises:
        TargetNotAttainable: the surface misses the run's target there.
    """
    applied = Limits.within({axis: (clock, clock) for axis, clock in run.configuration._asdict().items()})
    return plan(predicted, run.ask, fps=run.fps, confidence=CONFIDENCE, limits=applied)
