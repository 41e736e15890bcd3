# SPDX-License-Identifier: Apache-2.0
"""Run the whole product on a simulated board: a board, the real daemon on it, and an application that serves frames.

For each network the application runs at the top clocks (as mode MAXN with jetson_clocks would), then under a latency
target, then for minimum energy at a frame rate. The table puts what was predicted beside what was observed; the files the
daemon wrote are listed in order; a picture shows the trade-off and the choice; at the end every clock must be back at its
baseline.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from ...kernels.cost import surface
from ...kernels.grid import FrequencyConfiguration
from ...kernels.network import Network
from ...profiles.board import load_board
from ...profiles.bundle import load_bundle
from ...profiles.reference import reference_input, reference_model, reference_network
from ...profiles.twin.bench import Application
from ..client import Client, Lease
from ..hardware.files import Files
from ..planner import plan
from .demo_stage import Stage
from .output import print_json, table

HELP = "run the whole product on a simulated board"

NETWORKS = ("resnet18", "mobilenet_v2")
_CONFIDENCE = 0.95
_PACED_S = 2.0
_BACK_TO_BACK_FRAMES = 60


@dataclass(frozen=True)
class Run:
    """One way of running one network: what was set, predicted and observed.

    Attributes:
        ask: what the application asked for.
        fps: frames per second, None for back to back.
        configuration: the clocks in effect.
        predicted_ms, p50_ms, p95_ms: latency of a frame.
        predicted_mw, observed_mw: mean power of the energy rails over the run, idle between frames included.
        predicted_mj, observed_mj: energy of one frame, idle up to the next included.
        met: whether the target was met by what was observed; None where there was none.
    """

    network: str
    ask: str
    fps: float | None
    configuration: FrequencyConfiguration
    predicted_ms: float
    p50_ms: float
    p95_ms: float
    predicted_mw: float
    observed_mw: float
    predicted_mj: float
    observed_mj: float
    met: bool | None


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
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(args: argparse.Namespace) -> int:
    say = (lambda *_: None) if args.json else print
    bundle = load_bundle(args.profile)
    networks = {name: reference_network(name) for name in NETWORKS}
    with Stage(args.board, args.seed, args.profile) as stage:
        title = load_board(args.board).title
        say(f"simulated {title}, individual {args.seed}, served by {stage.backend}; nothing here is a real board")
        if stage.notice:
            say(f"  note: {stage.notice}")
        before = _clock_files(stage.root, args.board)
        client = stage.start_daemon()
        rails = client.status()["energy_rails"]
        say(f"jetdvfsd answers; energy is that of the rails {', '.join(rails)}\n")
        runs: list[Run] = []
        writes: list[tuple[str, list[dict[str, str]]]] = []
        with Application(stage.application_port) as application:
            for name, network in networks.items():
                scene = _Scene(client, application, rails, name, network, args)
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
    pictures = _pictures(networks, bundle, args)
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


class _Scene:
    """One network's part: what the application asks, runs and sees. ``writes`` lists each hold's files in order."""

    def __init__(
        self, client: Client, application: Application, rails: list[str], name: str, network: Network, args: argparse.Namespace
    ) -> None:
        self.writes: list[tuple[str, list[dict[str, str]]]] = []
        self._client, self._application, self._rails, self._name = client, application, rails, name
        self._top = load_board(args.board).grid.top
        self._fps, self._latency_ms = args.fps, args.latency_ms
        self._loaded = application.load(network)
        self._known = client.load(reference_model(name), [reference_input(name).shape], name=name)

    def runs(self) -> Iterable[Run]:
        yield self._at_top(None)
        yield self._for_target(f"latency_ms={self._latency_ms:g}", None)
        yield self._at_top(self._fps)
        yield self._for_target("min-energy", self._fps)

    def _at_top(self, fps: float | None) -> Run:
        predicted = self._client.predict(self._known, self._top, fps=fps)["at"]
        with self._hold("MAXN clocks", fps, configuration=self._top) as lease:
            return self._observe("MAXN clocks", fps, lease, predicted, None)

    def _for_target(self, target: str, fps: float | None) -> Run:
        confidence = _CONFIDENCE if "=" in target else None
        with self._hold(target, fps, network=self._known, target=target, fps=fps, confidence=confidence) as lease:
            assert lease.plan is not None
            limit_ms = self._latency_ms if "=" in target else 1e3 / (fps or 1.0)
            return self._observe(target, fps, lease, lease.plan["choice"], limit_ms)

    @contextmanager
    def _hold(self, ask: str, rate: float | None, **what: Any) -> Iterator[Lease]:
        with self._client.hold(**what, reason=f"demo: {ask}", app="demo") as lease:
            assert lease.applied is not None
            self.writes.append((f"{self._name}, {_ask(ask, rate)}", lease.applied["writes"]))
            yield lease
        self.writes.append(("released: back to the baseline", self._written_since(lease.applied["writes"])))

    def _written_since(self, writes: list[dict[str, str]]) -> list[dict[str, str]]:
        """What the daemon wrote after these writes."""
        everything: list[dict[str, str]] = self._client.status()["writes"]
        ends = (end for end in range(len(everything), 0, -1) if everything[end - len(writes) : end] == writes)
        return everything[next(ends, len(everything)) :]

    def _observe(self, ask: str, fps: float | None, lease: Lease, predicted: Mapping[str, Any], limit_ms: float | None) -> Run:
        if fps is None:
            seen = self._application.run(self._loaded, frames=_BACK_TO_BACK_FRAMES)
        else:
            seen = self._application.run(self._loaded, fps=fps, seconds=_PACED_S)
        latencies = seen["latencies_ms"]
        p95 = statistics.quantiles(latencies, n=20, method="inclusive")[-1]
        assert lease.applied is not None
        energy_mj = predicted["energy_mj"] if fps is None else predicted["energy_per_frame_mj"]
        return Run(
            network=self._name,
            ask=ask,
            fps=fps,
            configuration=FrequencyConfiguration(**lease.applied["accepted"]),
            predicted_ms=predicted["latency_ms"],
            p50_ms=statistics.median(latencies),
            p95_ms=p95,
            predicted_mw=predicted["power_mw"] if fps is None else energy_mj * fps,
            observed_mw=sum(seen["rails_mw"][rail] for rail in self._rails),
            predicted_mj=energy_mj,
            observed_mj=sum(seen["rails_mj"][rail] for rail in self._rails) / len(latencies),
            met=None if limit_ms is None else p95 <= limit_ms,
        )


def _ask(ask: str, fps: float | None) -> str:
    return f"{ask}, back to back" if fps is None else f"{ask} at {fps:g} frames/s"


def _table(runs: Iterable[Run]) -> str:
    """One table, a block per network: what was predicted beside what was observed."""
    headers = ("", "CPU/GPU/EMC MHz", "ms pred.", "p50", "p95", "W pred.", "obs.", "mJ/frame pred.", "obs.", "target")
    rows: list[tuple[str, ...]] = []
    for name, block in groupby(runs, lambda item: item.network):
        rows.append((name, *[""] * (len(headers) - 1)))
        rows += [_row(item) for item in block]
    return table(headers, rows, text_columns=2)


def _row(item: Run) -> tuple[str, ...]:
    return (
        f"  {_ask(item.ask, item.fps)}",
        "/".join(f"{mhz:.0f}" for mhz in _mhz(item.configuration)),
        f"{item.predicted_ms:.2f}",
        f"{item.p50_ms:.2f}",
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
        lines.append(
            f"{after.network}, {_ask(after.ask, after.fps)}: {saved:.0%} less energy per frame than at MAXN clocks (simulated)"
        )
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


def _pictures(networks: Mapping[str, Network], bundle: Any, args: argparse.Namespace) -> list[Path]:
    from .pictures import draw_plan

    args.out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, network in networks.items():
        predicted = surface(network, bundle.cost)
        for target, fps, label in ((f"latency_ms={args.latency_ms:g}", None, "latency"), ("min-energy", args.fps, "energy")):
            path = args.out / f"{name}-{label}.png"
            chosen = plan(predicted, target, fps=fps, confidence=_CONFIDENCE if "=" in target else None)
            draw_plan(predicted, chosen, path, title=f"{name} on {load_board(args.board).title}", simulated=True)
            paths.append(path)
    return paths
