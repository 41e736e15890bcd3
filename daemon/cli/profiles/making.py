# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs profile train``, and what a profile says of itself."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from ....profiles.bundle.bundle import bundle_bytes, load_bundle
from ....profiles.bundle.manifest import UNSEEN_FAMILY, Manifest
from ....profiles.errors import BundleError
from ... import arguments
from ...errors import InputError, UsageError
from ..output import print_json, progress_bar
from .checks import add_seed, add_threads


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    """Add the actions; ``verb(name, summary, action)`` gives the parser of a new one."""
    sub = verb("train", "measure kernels, train their models, write and evaluate a profile", train)
    sub.add_argument("--board", required=True, help="board description, for instance agx-xavier")
    sub.add_argument("--simulated", action="store_true", help="measure on simulated boards")
    sub.add_argument("--out", type=Path, required=True, metavar="DIR", help="new folder for the profile")
    sub.add_argument("--name", help="its name (default: BOARD-sim)")
    sub.add_argument("--quick", action="store_true", help="a small campaign and small models, to try the command out")
    sub.add_argument("--campaign", type=Path, metavar="DIR", help="keep measurements here, and go on from those that are here")
    add_threads(sub)
    add_seed(sub)
    arguments.add_silicon(sub)
    sub.add_argument("--dry-run", action="store_true", help="say what would be measured and written")

    sub = verb("warm", "measure how a simulated board's idle power grows with temperature, and add it to a profile", warm)
    _add_finished(sub)

    sub = verb("bounds", "fit a profile's bounds to simulated networks and boards that it does not know", bounds)
    _add_finished(sub)


def _add_finished(sub: argparse.ArgumentParser) -> None:
    """The arguments of what adds something to a profile that was trained."""
    sub.add_argument("profile", metavar="NAME|DIR")
    sub.add_argument("--out", type=Path, required=True, metavar="DIR", help="new folder for the profile")
    add_seed(sub)


def describe(path: Path, manifest: Manifest) -> str:
    """What a profile says of itself, for people."""
    cpu, gpu, emc = manifest.grid.shape
    origin = f"simulated, silicon {manifest.silicon_version}" if manifest.simulated else "measured"
    common = "; ".join(
        f"{figure} {sigma:.1%}, host {shares.host:.1%}, computation {shares.compute:.1%}, memory {shares.memory:.1%}"
        for figure, sigma, shares in (
            ("latency", manifest.sigma_latency, manifest.latency_shares),
            ("energy", manifest.sigma_energy, manifest.energy_shares),
        )
    )
    lines = [
        f"{manifest.name}: board {manifest.board} ({origin}), {bundle_bytes(path, manifest) / 1e6:.2f} MB in {path}",
        f"  grid          {cpu} CPU x {gpu} GPU x {emc} EMC = {manifest.grid.size} configurations",
        f"  energy rails  {', '.join(manifest.rails)}, idle power at {manifest.temperature_c:g} C",
        f"  temperature   {_temperature(manifest)}",
        f"  trained on    boards {', '.join(map(str, manifest.nodes))}",
        f"  reproduce     {manifest.command}",
        f"  bounds        {_bounds(manifest)}",
        f"  made with     {', '.join(f'{name} {version}' for name, version in manifest.tools.items())}",
        f"  uncertainty   a whole network or board: {common}; a kernel:",
    ]
    for kind, entry in manifest.kinds.items():
        lines.append(f"    {kind:20} time {entry.time_sigma:6.1%}  power {entry.power_sigma:6.1%}  {entry.samples:8} samples")
    lines += _beyond(manifest)
    for name, record in manifest.evaluation.items():
        means = (
            f"{method} {mean['latency_percent']:.1f}% / {mean['energy_percent']:.1f}%"
            for method, mean in record["mean"].items()
        )
        lines.append(f"  mean error    {name.replace('_', ' ')}, latency / energy: {', '.join(means)}")
    lines += _families(manifest)
    return "\n".join(lines)


def _families(manifest: Manifest) -> list[str]:
    """How the networks do whose whole families were left out of training, each by itself; boards are averaged."""
    errors: dict[str, list[Mapping[str, float]]] = {}
    for row in manifest.evaluation.get(UNSEEN_FAMILY, {}).get("networks", ()):
        if row["method"] == "timeline":
            errors.setdefault(row["network"], []).append(row)
    lines = []
    for network, rows in errors.items():
        latency, energy = (sum(row[f"{name}_percent"] for row in rows) / len(rows) for name in ("latency", "energy"))
        lines.append(f"    {network:20} latency {latency:5.1f}%  energy {energy:5.1f}%")
    return lines


def _beyond(manifest: Manifest) -> list[str]:
    """How uncertain kernels are that lie outside of what models were trained on, time and power."""
    lines = ["  beyond        less certain by: a form, a variety not measured; each doubling of a size beyond those measured"]
    for kind, entry in manifest.kinds.items():
        if (region := entry.region) is not None:
            pairs = (region.form_sigma, region.variety_sigma, region.doubling_sigma)
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


def _temperature(manifest: Manifest) -> str:
    if manifest.leakage_fold_c is None:
        return "not known: figures are for that of the idle power, whatever the board's is"
    return f"leakage grows e-fold in {manifest.leakage_fold_c:.1f} C; predictions can be made for any"


def _check_new(folder: Path) -> None:
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise BundleError(f"{folder}: is not empty, or no folder; give a new one")


def warm(args: argparse.Namespace) -> int:
    return _finished(args, "warm")


def bounds(args: argparse.Namespace) -> int:
    return _finished(args, "bounds")


def _finished(args: argparse.Namespace, what: Literal["warm", "bounds"]) -> int:
    """Add to a profile that was trained what simulated boards show besides."""
    _check_new(args.out)
    bundle = load_bundle(args.profile)
    if not bundle.manifest.simulated:
        raise BundleError(
            f"profile {bundle.manifest.name}: was measured on real boards; there is no simulated board to measure for {what}"
        )
    try:
        from ....profiles.training import bounding, warming

        add = warming.warm if what == "warm" else bounding.bound
        found = add(bundle, args.out, args.seed, progress_bar)
    except ModuleNotFoundError as error:
        raise InputError(f"profile {what}: needs the Python package {error.name} (jetdvfs[train])") from error
    if args.json:
        print_json({"path": str(args.out), **found.manifest.to_json()})
    else:
        print(describe(args.out, found.manifest))
    return 0


def train(args: argparse.Namespace) -> int:
    if not args.simulated:
        raise UsageError("profile train: measuring real boards is not possible from here; valid: --simulated")
    _check_new(args.out)
    try:
        from ....profiles.training import production
    except ModuleNotFoundError as error:
        raise InputError(f"profile train: needs the Python package {error.name} (jetdvfs[train])") from error
    name = args.name or f"{args.board}-sim"
    quick = " --quick" if args.quick else ""
    seed = f" --seed {args.seed}" if args.seed else ""
    silicon = f" --silicon {args.silicon}" if args.silicon != 1 else ""
    command = f"jetdvfs profile train --board {args.board} --simulated{silicon}{quick}{seed} --name {name} --out {name}"
    plan = production.plan_simulated(
        args.board, name, command, quick=args.quick, threads=args.threads, seed=args.seed, silicon=args.silicon
    )
    campaign = plan.campaign
    if args.dry_run:
        what = {
            "kernels": len(campaign.invocations), "calls": len(campaign.calls), "networks": len(campaign.networks),
            "boards": list(campaign.size.nodes), "silicon": campaign.silicon_version, "steps": len(campaign.units),
            "writes": str(args.out),
        }  # fmt: skip
        if args.json:
            print_json(what)
        else:
            print("\n".join(f"{key:10} {value}" for key, value in what.items()))
        return 0
    measurements = production.measure_simulated(plan, args.campaign, progress_bar)
    bundle = production.make_bundle(plan, measurements, args.out, progress_bar)
    if args.json:
        print_json({"path": str(args.out), **bundle.manifest.to_json()})
    else:
        print(describe(args.out, bundle.manifest))
    return 0
