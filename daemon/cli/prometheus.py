# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs status --prometheus``: the daemon's figures in Prometheus' text format, or as a textfile.

Any client of the daemon may run this; the daemon opens no port and writes no such file. docs/operate.md has a timer. Without a
daemon, ``jetdvfs_up`` is 0 and the only figure.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...kernels.stored_files import replacing
from ..errors import NoDaemon, UsageError
from ..wire.client import Client
from .output import is_old

Status = Mapping[str, Any]
Labels = Mapping[str, str]


class Metric(NamedTuple):
    name: str
    kind: str
    meaning: str
    samples: Callable[[Status], Iterable[tuple[Labels, float | None]]]


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
        print(f"jetdvfs status: {error}", file=sys.stderr)
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


def _one(get: Callable[[Status], float | None]) -> Callable[[Status], list[tuple[Labels, float | None]]]:
    return lambda status: [({}, get(status))]


def _of_leases(get: Callable[[Mapping[str, Any]], float | None]) -> Callable[[Status], list[tuple[Labels, float | None]]]:
    def samples(status: Status) -> list[tuple[Labels, float | None]]:
        return [(_about(lease), get(lease)) for lease in status.get("leases", ())]

    return samples


def _about(lease: Mapping[str, Any]) -> Labels:
    return {
        "lease": lease["lease"],
        "app": lease["app"],
        "network": lease["network"] or "",
        "target": lease["target"] or "configuration",
    }


def _clocks(which: str) -> Callable[[Status], list[tuple[Labels, float | None]]]:
    def samples(status: Status) -> list[tuple[Labels, float | None]]:
        measured = None if status and is_old(status) else status.get("configuration")
        applied = status.get("applied") or {}
        found = measured if which == "measured" else applied.get("requested")
        left = status.get("unmeasured", ()) if which == "measured" else applied.get("governed", ())
        hz = {"cpu_khz": 1e3, "gpu_hz": 1.0, "emc_hz": 1.0}
        return [({"clock": axis.split("_")[0]}, value * hz[axis]) for axis, value in (found or {}).items() if axis not in left]

    return samples


def _named(member: str, label: str, scale: float) -> Callable[[Status], list[tuple[Labels, float | None]]]:
    return lambda status: [({label: name}, value / scale) for name, value in status.get(member, {}).items()]


METRICS = (
    Metric("jetdvfs_up", "gauge", "1 where the daemon answers.", _one(lambda status: float(bool(status)))),
    Metric("jetdvfs_uptime_seconds", "gauge", "How long the daemon runs.", _one(lambda status: status.get("uptime_s"))),
    Metric(
        "jetdvfs_energy_joules_total",
        "counter",
        "Energy of each rail since the daemon began.",
        _named("energy_mj", "rail", 1e3),
    ),
    Metric("jetdvfs_power_watts", "gauge", "Power of each rail.", _named("rails_mw", "rail", 1e3)),
    Metric("jetdvfs_temperature_celsius", "gauge", "Temperature of each zone.", _named("temperatures_mc", "zone", 1e3)),
    Metric(
        "jetdvfs_clock_hertz",
        "gauge",
        "Each clock as measured, or the cap of a capped memory clock; absent if the board has not answered for two seconds.",
        _clocks("measured"),
    ),
    Metric("jetdvfs_clock_age_seconds", "gauge", "Age of the measured clocks.", _one(lambda status: status.get("age_s"))),
    Metric("jetdvfs_clock_held_hertz", "gauge", "Each clock as held, while anything is held.", _clocks("held")),
    Metric(
        "jetdvfs_clock_changes_total",
        "counter",
        "How often clocks were set otherwise for leases.",
        _one(lambda s: s["changes"]["count"] if "changes" in s else None),
    ),
    Metric(
        "jetdvfs_clock_changes_seconds_total",
        "counter",
        "How long that took in all.",
        _one(lambda s: s["changes"]["total_ms"] / 1e3 if "changes" in s else None),
    ),
    Metric(
        "jetdvfs_budget_watts",
        "gauge",
        "Power limit from the battery or a temperature ceiling.",
        _one(lambda s: s["budget"]["limit_mw"] / 1e3 if s.get("budget") else None),
    ),
    Metric(
        "jetdvfs_throttled",
        "gauge",
        "1 while the kernel slows the board down.",
        _one(lambda s: float(bool(s.get("throttled")))),
    ),
    Metric(
        "jetdvfs_over_current_events_total",
        "counter",
        "Over-current events since boot.",
        lambda status: [({"event": one["event"]}, one["count"]) for one in status.get("over_current", ())],
    ),
    Metric(
        "jetdvfs_degraded",
        "gauge",
        "How many reasons keep the daemon from all of its job.",
        _one(lambda s: float(len(s.get("degraded", ())))),
    ),
    Metric("jetdvfs_leases", "gauge", "How many leases are held.", _one(lambda status: float(len(status.get("leases", ()))))),
    Metric("jetdvfs_lease_held_seconds", "gauge", "How long a lease is held.", _of_leases(lambda lease: lease["held_s"])),
    Metric(
        "jetdvfs_lease_energy_joules_total",
        "counter",
        "Energy of the board's energy rails since a lease began.",
        _of_leases(lambda lease: None if lease["energy_mj"] is None else lease["energy_mj"] / 1e3),
    ),
    Metric(
        "jetdvfs_lease_frames_total",
        "counter",
        "Frames that a lease's application reported.",
        _of_leases(lambda lease: lease["frames"]),
    ),
    Metric(
        "jetdvfs_lease_late_frames_total",
        "counter",
        "Those of them that took longer than target and frame rate allow.",
        _of_leases(lambda lease: lease["late"]),
    ),
    Metric(
        "jetdvfs_lease_missed",
        "gauge",
        "1 while a lease's frames miss its target.",
        _of_leases(lambda lease: float(lease["missed"] is not None)),
    ),
    Metric(
        "jetdvfs_lease_predicted_seconds",
        "gauge",
        "Latency predicted at the clocks that a lease needs.",
        _of_leases(lambda lease: lease["predicted"]["latency_ms"] / 1e3 if lease["predicted"] else None),
    ),
    Metric(
        "jetdvfs_lease_observed_seconds",
        "gauge",
        "Median latency of a lease's last frames.",
        _of_leases(lambda lease: lease["observed"]["p50_ms"] / 1e3 if lease["observed"] else None),
    ),
)
