# SPDX-License-Identifier: Apache-2.0
"""List, inspect and install profiles; ``jetdvfs-lab`` measures, trains and evaluates them.

example: jetdvfs profile show agx-xavier-sim
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from ...kernels.cost.engines import SORTS
from ...profiles.bundle.bundle import bundle_bytes, read_manifest
from ...profiles.bundle.finding import bundle_folders, find_bundles, resolve_bundle
from ...profiles.bundle.manifest import UNSEEN_FAMILY, UNSEEN_NETWORK, Manifest
from ...profiles.bundle.writing import check_bundle, install_bundle
from ...profiles.errors import ProfilesError
from .. import arguments
from .output import answer, table

_NOT_SEEN = "other boards were not seen: errors are of networks and kernels held out on that board"
_UNPOWERED = "none: power was not measured; this profile predicts times only"


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="profile_verb", metavar="ACTION", required=True)

    def verb(name: str, text: str, action: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        sub = arguments.add_action(verbs, name, text)
        sub.set_defaults(action=action)
        return sub

    verb("list", "list profiles\n\nexample: jetdvfs profile list", _list)
    show = verb("show", "show the contents of a profile\n\nexample: jetdvfs profile show agx-xavier-sim", _show)
    show.add_argument("profile", metavar="NAME|DIR")
    text = "check a profile, convert its models and install it by name\n\nexample: jetdvfs profile install ./my-profile"
    install = verb("install", text, _install)
    install.add_argument("source", type=Path, metavar="DIR")
    arguments.add_into(install)
    install.add_argument("--dry-run", action="store_true", help="check only; write nothing but converted models in the cache")


def run(args: argparse.Namespace) -> int:
    action: Callable[[argparse.Namespace], int] = args.action
    return action(args)


def _list(args: argparse.Namespace) -> int:
    rows: list[dict[str, Any]] = []
    for name, path in find_bundles().items():
        try:
            manifest = read_manifest(path)
        except ProfilesError as error:
            rows.append({"name": name, "path": str(path), "error": str(error)})
        else:
            files = [file.stat() for file in path.iterdir() if file.is_file()]
            size, changed_s = sum(one.st_size for one in files), max(one.st_mtime for one in files)
            about = {"board": manifest.board, "simulated": manifest.simulated, "bytes": size, "changed_s": changed_s}
            rows.append({"name": name, "path": str(path), **about})
    if rows or args.json:
        headers = ["profile", "board", "", "size", "date", "folder"]
        answer(args, rows, table(headers, [_cells(row) for row in rows], right=(3,)))
    else:
        print(f"no profiles in {', '.join(map(str, bundle_folders()))}", file=sys.stderr)
    return 0


def _cells(row: Mapping[str, Any]) -> list[str]:
    if "error" in row:
        return [row["name"], row["error"], "", "", "", row["path"]]
    date = time.strftime("%Y-%m-%d", time.localtime(row["changed_s"]))
    return [row["name"], row["board"], "simulated" * row["simulated"], f"{row['bytes'] / 1e6:.1f} MB", date, row["path"]]


def _show(args: argparse.Namespace) -> int:
    path = resolve_bundle(args.profile)
    manifest = read_manifest(path)
    answer(args, {"path": str(path), **manifest.to_json()}, describe(path, manifest))
    return 0


def _install(args: argparse.Namespace) -> int:
    if args.dry_run:
        manifest = check_bundle(args.source)
        told = {"sound": str(args.source), "name": manifest.name, "board": manifest.board}
        answer(args, told, f"{args.source}: a sound profile, {manifest.name!r} for board {manifest.board}")
        return 0
    target = install_bundle(args.source, args.into)
    answer(args, {"installed": str(target)}, f"installed in {target}")
    return 0


def describe(path: Path, manifest: Manifest) -> str:
    cpu, gpu, emc = manifest.grid.shape
    powered = bool(manifest.rails)
    rails = f"{', '.join(manifest.rails)}, idle power at {manifest.temperature_c:g} C" if powered else _UNPOWERED
    origin = f"simulated, silicon {manifest.silicon_version}" if manifest.simulated else "measured"
    common = "; ".join(
        f"{figure} {sigma:.1%}, host {shares.host:.1%}, computation {shares.compute:.1%}, memory {shares.memory:.1%}"
        for figure, sigma, shares in (
            ("latency", manifest.sigma_latency, manifest.latency_shares),
            *((("energy", manifest.sigma_energy, manifest.energy_shares),) if powered else ()),
        )
    )
    lines = [
        f"{manifest.name}: board {manifest.board} ({origin}), {bundle_bytes(path, manifest) / 1e6:.2f} MB in {path}",
        f"  grid          {cpu} CPU x {gpu} GPU x {emc} EMC = {manifest.grid.size} configurations",
        f"  energy rails  {rails}",
        f"  temperature   {_temperature(manifest)}",
        f"  trained on    {manifest.fleet or 'boards ' + ', '.join(map(str, manifest.nodes))}"
        if manifest.other_boards_seen
        else f"  trained on    one board; {_NOT_SEEN}",
        *_carried(manifest),
        f"  reproduce     {manifest.command}",
        f"  bounds        {_bounds(manifest)}",
        f"  engines       {_engines(manifest)}",
        f"  made with     {', '.join(f'{name} {version}' for name, version in manifest.tools.items())}",
        f"  uncertainty   a whole network or board: {common}; a kernel:",
    ]
    for kind, entry in manifest.kinds.items():
        power = f"  power {entry.power_sigma:6.1%}" if powered else ""
        lines.append(f"    {kind:20} time {entry.time_sigma:6.1%}{power}  {entry.samples:8} samples")
    lines += _beyond(manifest)
    for name, record in manifest.evaluation.items():
        figures = "latency / energy" if powered else "latency"
        means = ", ".join(f"{method} {_mean_error(mean, powered=powered)}" for method, mean in record["mean"].items())
        lines.append(f"  mean error    {name.replace('_', ' ')}, {figures}: {means}")
    lines += [*_own_networks(manifest), *_families(manifest)]
    return "\n".join(lines)


def _mean_error(mean: Mapping[str, float | None], *, powered: bool) -> str:
    figures = [mean["latency_percent"], *([mean.get("energy_percent")] if powered else [])]
    return " / ".join("-" if figure is None else f"{figure:.1f}%" for figure in figures)


def _carried(manifest: Manifest) -> list[str]:
    carried = manifest.carried
    if carried is None:
        return []
    factors = ", ".join(f"{name} {value:.2f}" for name, value in asdict(carried.factors).items())
    seen = f"{carried.observations} observations of {len(carried.networks)} networks"
    return [f"  carried from  {carried.profile} (board {carried.board}), by {seen}: {factors}"]


def _own_networks(manifest: Manifest) -> list[str]:
    lines = []
    for row in manifest.evaluation.get(UNSEEN_NETWORK, {}).get("networks", ()):
        energy = "" if row.get("energy_percent") is None else f"  energy {row['energy_percent']:5.1f}%"
        lines.append(f"    {row['network']:20} latency {row['latency_percent']:5.1f}%{energy}")
    return lines


def _families(manifest: Manifest) -> list[str]:
    errors: dict[str, list[Mapping[str, float]]] = {}
    for row in manifest.evaluation.get(UNSEEN_FAMILY, {}).get("networks", ()):
        if row["method"] == "timeline" and row.get("energy_percent") is not None:
            errors.setdefault(row["network"], []).append(row)
    lines = []
    for network, rows in errors.items():
        latency, energy = (sum(row[f"{name}_percent"] for row in rows) / len(rows) for name in ("latency", "energy"))
        lines.append(f"    {network:20} latency {latency:5.1f}%  energy {energy:5.1f}%")
    return lines


def _beyond(manifest: Manifest) -> list[str]:
    lines = [
        "  beyond        less certain by: a kind, a form, a variety not measured; each doubling of a size beyond those measured"
    ]
    for kind, entry in manifest.kinds.items():
        if (region := entry.region) is not None:
            pairs = (region.kind_sigma, region.form_sigma, region.variety_sigma, region.doubling_sigma)
            figures = "".join(f"{pair.time:8.1%} / {pair.power:5.1%}" for pair in pairs)
            lines.append(f"    {kind:20}{figures}  {len(region.spans):4} varieties measured")
    return lines if len(lines) > 1 else ["  beyond        not known: it does not say where its models were trained"]


def _bounds(manifest: Manifest) -> str:
    if manifest.bounds is None:
        return "errors are taken to be log-normal; profile bounds fits them to networks that the profile does not know"
    at = "; ".join(
        f"{figure} {tail.quantile(0.95):.2f} deviations at 95%, {tail.quantile(0.99):.2f} at 99%"
        for figure, tail in (("latency", manifest.bounds.latency), ("energy", manifest.bounds.energy))
    )
    return f"fitted to {len(manifest.bounds.networks)} networks on {len(manifest.bounds.nodes)} boards: {at}"


def _engines(manifest: Manifest) -> str:
    entry = manifest.engines
    if entry is None:
        return "not measured: start and kernel times of engines are guessed"
    times = "; ".join(
        f"{dtype} " + ", ".join(f"{name} {getattr(rates, name):.2f}" for name in ("floor", *SORTS))
        for dtype, rates in entry.rates.items()
    )
    return (
        f"measured with {len(entry.networks)} networks on {len(entry.nodes)} boards; times relative to the framework's: {times}"
    )


def _temperature(manifest: Manifest) -> str:
    if not manifest.rails:
        return "of no account to times"
    if manifest.leakage_fold_c is None:
        return "not known: figures are for that of the idle power, whatever the board's is"
    return f"leakage grows e-fold in {manifest.leakage_fold_c:.1f} C; predictions can be made for any"
