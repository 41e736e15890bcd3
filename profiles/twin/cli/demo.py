# SPDX-License-Identifier: Apache-2.0
"""Run the whole product on a simulated board: a board, the real daemon on it, and an application that serves frames.

The application runs each network at the top clocks, under a latency target, and for minimum energy at a frame rate. The table
compares predictions with observations, pictures show each trade-off, and DIR/writes.txt lists the daemon's writes in order. At
the end every clock must be back at its baseline.

example: jetdvfs twin demo --board agx-xavier
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import select
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from ....daemon import arguments
from ....daemon.cli.children import START_S, Child, ChildError, spawn, when_it_answers
from ....daemon.cli.output import print_json, table
from ....daemon.cli.pictures import draw_surface, new_figure
from ....daemon.errors import TargetNotAttainable, UsageError
from ....daemon.hardware.files import Files
from ....daemon.hardware.hardware import Hardware
from ....daemon.planning.limits import Limits
from ....daemon.planning.plan import Plan, plan
from ....daemon.wire.client import Client, HeldLease
from ....kernels.cost.model import surface
from ....kernels.grid import FrequencyConfiguration
from ....kernels.network import Network
from ....kernels.surface import Surface
from ....kernels.units import AXES
from ...adapt.application import Application
from ...board import BoardDescription, load_board
from ...bundle.bundle import load_bundle
from ...reference import reference_input, reference_model, reference_network
from ...timing import SystemClock
from ..silicon.silicon import check_version
from .arguments import add_backend, add_simulated_board


class DemoBoard:
    """Simulated board and ``jetdvfsd`` on it, within the context. Raises ChildError.

    Args:
        profile: of the daemon; empty for none.
        backend: ``auto``, ``fuse`` or ``folder``.
        perturbed: variant of the silicon (:func:`~jetdvfs.profiles.twin.silicon.chip.perturbed`); 0 for itself.

    Attributes:
        root: file tree of the board.
        notice: limits of the backend, or empty.
        socket: of the daemon.
    """

    def __init__(self, board: str, node: int, profile: str, backend: str, perturbed: int = 0) -> None:
        self._names = (board, node, profile)
        self._perturbed = perturbed
        self._stack = contextlib.ExitStack()
        self.root = Path()
        self.application_port = ""
        self.backend = backend
        self.notice = ""
        self.socket = Path()
        self._daemon: Child | None = None

    def __enter__(self) -> DemoBoard:
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jetdvfs-demo-")))
            self._start_twin(stack, folder)
            self._folder = folder
            self.socket = folder / "jetdvfs.sock"
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def _start_twin(self, stack: contextlib.ExitStack, folder: Path) -> None:
        board, node, _ = self._names
        mount = folder / "board"
        mount.mkdir()
        command = ["jetdvfs.daemon.cli", "twin", "serve", "--json", "--board", board, "--mount", str(mount)]
        command += ["--seed", str(node), "--backend", self.backend, "--perturbed", str(self._perturbed)]
        twin = spawn("the simulated board", command, folder)
        stack.callback(twin.stop)
        said: dict[str, Any] = json.loads(_first_line(twin))
        self.root = Path(said["mount"])
        self.application_port = said["bench"]
        self.backend = said["backend"]
        self.notice = said.get("notice") or ""

    def start_daemon(self) -> Client:
        """Start ``jetdvfsd`` on the board and connect to it. Raises ChildError."""
        board, _, profile = self._names
        folders = ["--state-dir", str(self._folder / "state"), "--runtime-dir", str(self._folder / "run")]
        command = ["jetdvfs.daemon.service", "--root", str(self.root), "--socket", str(self.socket), *folders]
        chosen = ["--profile", profile] if profile else []
        self._daemon = spawn("jetdvfsd", [*command, "--board", board, *chosen], self._folder)
        self._stack.callback(self._daemon.stop)
        client = when_it_answers(self._daemon, self.socket)
        self._stack.callback(client.close)
        return client

    def stop_daemon(self) -> int | None:
        """End the daemon as ``systemctl stop`` does; return its exit code."""
        assert self._daemon is not None
        return self._daemon.stop()


def clock_files(files: Files, description: BoardDescription) -> dict[str, str]:
    places: list[tuple[str, tuple[str, ...]]] = [
        (f"/sys/devices/system/cpu/cpufreq/{policy.name}", ("scaling_governor", "scaling_min_freq", "scaling_max_freq"))
        for policy in description.cpu_policies
    ]
    devfreq = [path for path in description.section("gpu")["devfreq"] if files.exists(path)]
    places += [(path, ("governor", "min_freq", "max_freq")) for path in devfreq[:1]]  # the rest are links to it
    emc = description.section("emc")
    names = {"bpmp": ("mrq_rate_locked",), "override": ("clk_state",), "devfreq": ("min_freq", "max_freq")}
    places += [(emc[way], names[way]) for way in names if way in emc]
    paths = [f"{folder}/{name}" for folder, each in places for name in each]
    paths += [emc[way] for way in ("halt", "cap") if way in emc]
    return {path: text.strip() for path in paths if (text := files.find_text(path)) is not None}


def offered(files: Files, description: BoardDescription) -> tuple[FrequencyConfiguration, Limits]:
    grid = Hardware.probe(files, SystemClock(), board=description.name).grid()
    axes = {axis: grid.levels(axis) for axis in AXES}
    return grid.top, Limits.within({axis: (levels[0], levels[-1]) for axis, levels in axes.items()})


def _first_line(process: Child) -> str:
    assert process.popen.stdout is not None
    descriptor = process.popen.stdout.fileno()
    deadline = time.monotonic() + START_S
    text = b""
    while b"\n" not in text:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        chunk = os.read(descriptor, 1 << 16) if ready else b""
        if not chunk:
            raise ChildError(f"{process.name} did not start: {process.last_words()}")
        text += chunk
    return text.split(b"\n")[0].decode()


CONFIDENCE = 0.95
"""Confidence of latency targets and of the frame's period."""

_PACED_S = 1.5
_FRAMES = 60


class DemoRun(Struct, frozen=True):
    """One run of a network: clocks, prediction and observation.

    Attributes:
        ask: the request.
        fps: frames per second, None for back to back.
        p50_ms, p95_ms: quantiles of a frame's latency.
        predicted_mw, observed_mw: mean power of the energy rails, idle time included.
        predicted_mj, observed_mj: energy of a frame, idle time included.
        met: True if the target was met; None without a target.
        temperature_c: die temperature of the plan; None if unknown.
    """

    network: str
    ask: str
    fps: float | None
    configuration: FrequencyConfiguration
    predicted_ms: float
    p50_ms: float
    predicted_p95_ms: float
    p95_ms: float
    predicted_mw: float
    observed_mw: float
    predicted_mj: float
    observed_mj: float
    met: bool | None
    temperature_c: float | None = None


class DemoRuns:
    """Runs of one network by an application; ``writes`` lists each lease's files in order."""

    def __init__(
        self,
        client: Client,
        application: Application,
        name: str,
        network: Network,
        predicted: Surface,
        top: FrequencyConfiguration,
        latency_ms: float,
        fps: float,
    ) -> None:
        self.writes: list[tuple[str, list[dict[str, str]]]] = []
        self._client, self._application, self._name = client, application, name
        self._rails: list[str] = client.status()["energy_rails"]
        self._top = top
        self._cautious = predicted.quantile(CONFIDENCE)
        self._fps, self._latency_ms = fps, latency_ms
        self._loaded = application.load(network)
        self._known = client.load(reference_model(name), [reference_input(name).shape], name=name)

    def runs(self) -> Iterable[DemoRun]:
        yield self._at_top(None)
        yield self._for_target(f"latency_ms={self._latency_ms:g}", None)
        yield self._at_top(self._fps)
        yield self._for_target("min-energy", self._fps)

    def _at_top(self, fps: float | None) -> DemoRun:
        predicted = self._client.predict(self._known, self._top, fps=fps)["at"]
        with self._hold("top clocks", fps, configuration=self._top) as lease:
            return self._observe("top clocks", fps, lease, predicted, None)

    def _for_target(self, target: str, fps: float | None) -> DemoRun:
        with self._hold(target, fps, network=self._known, target=target, fps=fps, confidence=CONFIDENCE) as lease:
            assert lease.plan is not None
            limit_ms = self._latency_ms if "=" in target else 1e3 / (fps or 1.0)
            return self._observe(target, fps, lease, lease.plan["choice"], limit_ms)

    @contextmanager
    def _hold(self, ask: str, rate: float | None, **what: Any) -> Iterator[HeldLease]:
        with self._client.hold(**what, reason=f"demo: {ask}", app="demo") as lease:
            assert lease.applied is not None
            self.writes.append((f"{self._name}, {ask_text(ask, rate)}", lease.applied["writes"]))
            yield lease
        self.writes.append(("released: back to the baseline", self._written_since(lease.applied["writes"])))

    def _written_since(self, writes: list[dict[str, str]]) -> list[dict[str, str]]:
        everything: list[dict[str, str]] = self._client.status()["writes"]
        ends = (end for end in range(len(everything), 0, -1) if everything[end - len(writes) : end] == writes)
        return everything[next(ends, len(everything)) :]

    def _observe(
        self, ask: str, fps: float | None, lease: HeldLease, predicted: Mapping[str, Any], limit_ms: float | None
    ) -> DemoRun:
        if fps is None:
            seen = self._application.stream(self._loaded, frames=_FRAMES)
        else:
            seen = self._application.stream(self._loaded, fps=fps, seconds=_PACED_S)
        latencies = seen["latencies_ms"]
        p95 = statistics.quantiles(latencies, n=20, method="inclusive")[-1]
        assert lease.applied is not None
        configuration = FrequencyConfiguration(**lease.applied["accepted"])
        energy_mj = predicted["energy_mj"] if fps is None else predicted["energy_per_frame_mj"]
        return DemoRun(
            network=self._name,
            ask=ask,
            fps=fps,
            configuration=configuration,
            predicted_ms=predicted["latency_ms"],
            p50_ms=statistics.median(latencies),
            predicted_p95_ms=self._cautious.at(configuration).latency_ms,
            p95_ms=p95,
            predicted_mw=predicted["power_mw"] if fps is None else energy_mj * fps,
            observed_mw=sum(seen["rails_mw"][rail] for rail in self._rails),
            predicted_mj=energy_mj,
            observed_mj=sum(seen["rails_mj"][rail] for rail in self._rails) / len(latencies),
            met=None if limit_ms is None else p95 <= limit_ms,
            temperature_c=None if limit_ms is None else predicted.get("temperature_c"),
        )


def ask_text(ask: str, fps: float | None) -> str:
    return f"{ask}, back to back" if fps is None else f"{ask} at {fps:g} frames/s"


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
        help="latency target (default: twice the 95%% bound of the slowest network at the top clocks)",
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
    with DemoBoard(args.board, args.seed, profile, args.backend) as stage:
        say(f"simulated {description.title}, individual {args.seed}, served by {stage.backend}; nothing here is a real board")
        if stage.notice:
            say(f"  note: {stage.notice}")
        files = Files(stage.root)
        before = clock_files(files, description)
        top, _ = offered(files, description)
        latency_ms = args.latency_ms or _comfortable_ms(surfaces.values(), top)
        client = stage.start_daemon()
        say(f"jetdvfsd answers; energy is that of the rails {', '.join(client.status()['energy_rails'])}\n")
        runs: list[DemoRun] = []
        writes: list[tuple[str, list[dict[str, str]]]] = []
        with Application(stage.application_port) as application:
            for name, network in networks.items():
                scene = DemoRuns(client, application, name, network, surfaces[name], top, latency_ms, args.fps)
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


def _table(runs: Iterable[DemoRun]) -> str:
    headers = ("", "CPU/GPU/EMC MHz", "p50 pred.", "obs.", "p95 pred.", "obs.", "W pred.", "obs.", "mJ pred.", "obs.", "target")
    rows: list[tuple[str, ...]] = []
    for name, block in groupby(runs, lambda item: item.network):
        rows.append((name, *[""] * (len(headers) - 1)))
        rows += [_row(item) for item in block]
    return table(headers, rows, text_columns=2)


def _row(item: DemoRun) -> tuple[str, ...]:
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


def _savings(runs: list[DemoRun]) -> str:
    lines = []
    for before, after in zip(runs[0::2], runs[1::2], strict=True):
        saved = 1 - after.observed_mj / before.observed_mj
        ask = ask_text(after.ask, after.fps)
        lines.append(f"{after.network}, {ask}: {saved:.0%} less energy per frame than at top clocks (simulated)")
    return "\n".join(["", *lines])


def _comfortable_ms(surfaces: Iterable[Surface], top: FrequencyConfiguration) -> float:
    return math.ceil(2 * max(surface.quantile(CONFIDENCE).at(top).latency_ms for surface in surfaces))


def _listed(writes: Iterable[tuple[str, Iterable[Mapping[str, str]]]], restored: Mapping[str, tuple[str, str | None]]) -> str:
    lines = ["Files written, in order"]
    for title, written in writes:
        lines += ["", title, *(f"  {write['path']}  <-  {write['value']}" for write in written)]
    lines += ["", "Baseline, before and after"]
    lines += [f"  {path}  {old}  ->  {new}{'' if old == new else '   NOT RESTORED'}" for path, (old, new) in restored.items()]
    return "\n".join((*lines, ""))


def _pictures(
    surfaces: Mapping[str, Surface], runs: Iterable[DemoRun], title: str, out: Path, say: Callable[[str], None]
) -> list[Path]:
    paths = []
    for item in runs:
        predicted = surfaces[item.network]
        if item.temperature_c is not None:
            predicted = predicted.warmed(item.temperature_c)
        path = out / f"{item.network}-{'energy' if item.fps else 'latency'}.png"
        try:
            chosen = applied_plan(predicted, item)
            draw_surface(predicted, path, title=f"{item.network} on {title}", simulated=True, plan=chosen)
            paths.append(path)
        except TargetNotAttainable as error:  # by the prediction before any frame was observed
            say(f"no picture of {item.network}, {ask_text(item.ask, item.fps)}: {error}")
    return paths


def applied_plan(predicted: Surface, run: DemoRun) -> Plan:
    """Plan of a run at its applied configuration. Raises TargetNotAttainable."""
    applied = Limits.within({axis: (clock, clock) for axis, clock in run.configuration._asdict().items()})
    return plan(predicted, run.ask, fps=run.fps, confidence=CONFIDENCE, limits=applied)
