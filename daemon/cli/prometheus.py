# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs status --prometheus``: the daemon's figures in Prometheus' text format, or as a textfile.

Any client of the daemon may run this; the daemon opens no port and writes no such file. docs/operate.md has a timer. Without a
daemon, ``jetdvfs_up`` is 0 and the only figure.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...kernels.stored_files import replacing
from ..errors import NoDaemon, UsageError
from ..wire.client import Client
from .output import is_old, tell

Status = Mapping[str, Any]
Labels = Mapping[str, str]


Samples = Iterable[tuple[Labels, float | None]]

_THOUSANDTHS = ("_ms", "_mw", "_mj")


class Metric(NamedTuple):
    name: str
    meaning: str
    samples: Callable[[Status], Samples]

    @property
    def kind(self) -> str:
        return "counter" if self.name.endswith("_total") else "gauge"


def configure(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Prometheus")
    group.add_argument("--prometheus", action="store_true", help="print the figures for Prometheus; with --json by metric")
    group.add_argument("--textfile", type=Path, metavar="FILE", help="with --prometheus: replace this file (NAME.prom)")
    group.add_argument("--describe", action="store_true", help="with --prometheus: print a table of the metrics")


def run(args: argparse.Namespace) -> int:
    if args.json and args.textfile is not None:
        raise UsageError("--json --textfile: Prometheus reads no JSON; say one of them")
    if args.describe:
        print("\n".join(described()))
        return 0
    status: Status | None = None
    try:
        with Client(args.socket) as client:
            status = client.status()
        code = 0
    except NoDaemon as error:
        code = error.exit_code
        tell("status", str(error))
    text = json.dumps(_samples_by_name(status)) + "\n" if args.json else exposition(status)
    if args.textfile is None:
        sys.stdout.write(text)
    else:
        with replacing(args.textfile, 0o644) as file:
            file.write(text.encode())
    return code


def described() -> Iterator[str]:
    yield "| metric | type | meaning |"
    yield "|---|---|---|"
    for metric in METRICS:
        yield f"| `{metric.name}` | {metric.kind} | {metric.meaning} |"


def _sampled(status: Status | None) -> Iterator[tuple[Metric, list[tuple[Labels, float]]]]:
    for metric in METRICS:
        if status is not None or metric.name == "jetdvfs_up":
            samples = [(labels, value) for labels, value in metric.samples(status or {}) if value is not None]
            if samples:
                yield metric, samples


def _samples_by_name(status: Status | None) -> dict[str, list[dict[str, Any]]]:
    return {metric.name: [{**labels, "value": value} for labels, value in samples] for metric, samples in _sampled(status)}


def exposition(status: Status | None) -> str:
    lines = []
    for metric, samples in _sampled(status):
        lines += [f"# HELP {metric.name} {metric.meaning}", f"# TYPE {metric.name} {metric.kind}"]
        lines += [f"{metric.name}{_labels(labels)} {value:.10g}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    def quoted(text: str) -> str:
        return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

    return "{" + ",".join(f'{name}="{quoted(text)}"' for name, text in labels.items()) + "}" if labels else ""


def _at(told: Any, path: Sequence[str], of: Callable[[Any], float] | None) -> float | None:
    for name in path:
        told = (told or {}).get(name)
    value: float | None = told if of is None else float(of(told))
    return value / 1e3 if value is not None and path and path[-1].endswith(_THOUSANDTHS) else value


def _one(*path: str, of: Callable[[Any], float] | None = None) -> Callable[[Status], Samples]:
    return lambda status: [({}, _at(status, path, of))]


def _of_leases(*path: str, of: Callable[[Any], float] | None = None) -> Callable[[Status], Samples]:
    return lambda status: [(_about(lease), _at(lease, path, of)) for lease in status.get("leases", ())]


def _about(lease: Mapping[str, Any]) -> Labels:
    network, target = lease["network"] or "", lease["target"] or "configuration"
    return {"lease": lease["lease"], "app": lease["app"], "network": network, "target": target}


def _measured_clocks(status: Status) -> Samples:
    return _clocks(None if status and is_old(status) else status.get("configuration"), status.get("unmeasured", ()))


def _held_clocks(status: Status) -> Samples:
    applied = status.get("applied") or {}
    return _clocks(applied.get("requested"), applied.get("governed", ()))


def _clocks(found: Mapping[str, int] | None, left: Collection[str]) -> Samples:
    hz = {"cpu_khz": 1e3, "gpu_hz": 1.0, "emc_hz": 1.0}
    return [({"clock": axis.split("_")[0]}, value * hz[axis]) for axis, value in (found or {}).items() if axis not in left]


def _named(member: str, label: str) -> Callable[[Status], Samples]:
    return lambda status: [({label: name}, value / 1e3) for name, value in status.get(member, {}).items()]


def _over_current(status: Status) -> Samples:
    return [({"event": one["event"]}, one["count"]) for one in status.get("over_current", ())]


METRICS = (
    Metric("jetdvfs_up", "1 where the daemon answers.", _one(of=bool)),
    Metric("jetdvfs_uptime_seconds", "How long the daemon runs.", _one("uptime_s")),
    Metric("jetdvfs_energy_joules_total", "Energy of each rail since the daemon began.", _named("energy_mj", "rail")),
    Metric("jetdvfs_power_watts", "Power of each rail.", _named("rails_mw", "rail")),
    Metric("jetdvfs_temperature_celsius", "Temperature of each zone.", _named("temperatures_mc", "zone")),
    Metric(
        "jetdvfs_clock_hertz",
        "Each clock as measured, or the cap of a capped memory clock; absent if the board has not answered for two seconds.",
        _measured_clocks,
    ),
    Metric("jetdvfs_clock_age_seconds", "Age of the measured clocks.", _one("age_s")),
    Metric("jetdvfs_clock_held_hertz", "Each clock as held, while anything is held.", _held_clocks),
    Metric("jetdvfs_clock_changes_total", "How often clocks were set otherwise for leases.", _one("changes", "count")),
    Metric("jetdvfs_clock_changes_seconds_total", "How long that took in all.", _one("changes", "total_ms")),
    Metric("jetdvfs_budget_watts", "Power limit from the battery or a temperature ceiling.", _one("budget", "limit_mw")),
    Metric("jetdvfs_throttled", "1 while the kernel slows the board down.", _one("throttled", of=bool)),
    Metric("jetdvfs_over_current_events_total", "Over-current events since boot.", _over_current),
    Metric("jetdvfs_degraded", "How many reasons keep the daemon from all of its job.", _one("degraded", of=len)),
    Metric("jetdvfs_leases", "How many leases are held.", _one("leases", of=len)),
    Metric("jetdvfs_lease_held_seconds", "How long a lease is held.", _of_leases("held_s")),
    Metric(
        "jetdvfs_lease_energy_joules_total", "Energy of the board's energy rails since a lease began.", _of_leases("energy_mj")
    ),
    Metric("jetdvfs_lease_frames_total", "Frames that a lease's application reported.", _of_leases("frames")),
    Metric(
        "jetdvfs_lease_late_frames_total",
        "Those of them that took longer than target and frame rate allow.",
        _of_leases("late"),
    ),
    Metric("jetdvfs_lease_missed", "1 while a lease's frames miss its target.", _of_leases("missed", of=bool)),
    Metric(
        "jetdvfs_lease_predicted_seconds",
        "Latency predicted at the clocks that a lease needs.",
        _of_leases("predicted", "latency_ms"),
    ),
    Metric("jetdvfs_lease_observed_seconds", "Median latency of a lease's last frames.", _of_leases("observed", "p50_ms")),
)
