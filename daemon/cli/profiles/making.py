# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs profile train``, and what a profile says of itself."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from ....kernels.text import needing, printable
from ....profiles.bundle.bundle import Bundle, bundle_bytes, load_bundle
from ....profiles.bundle.manifest import UNSEEN_FAMILY, UNSEEN_NETWORK, Manifest
from ....profiles.errors import BundleError
from ....profiles.twin.silicon.chip import CURRENT
from ... import arguments
from ...errors import InputError, UsageError
from ..clusters import cluster
from ..output import print_json, progress_bar
from . import tables

NOT_SEEN = "other boards were not seen: errors are of networks and kernels left out on the one that was measured"
_UNPOWERED = "none: power was not measured; this profile knows times only"


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    """Add the actions; ``verb(name, summary, action)`` gives the parser of a new one."""
    sub = verb("train", "train models of what was measured, write and evaluate a profile", train)
    sub.add_argument(
        "record",
        nargs="?",
        type=arguments.named_file,
        metavar="RECORD",
        help="what 'profile collect' or 'import' wrote, be it of one board",
    )
    sub.add_argument("--simulated", action="store_true", help="instead of a record: measure on simulated boards")
    tables.add_arguments(sub)
    sub.add_argument(
        "--board",
        metavar="NAME",
        help="with --simulated: the board, for instance agx-xavier; with --from-csv: the one that was measured, where the "
        "mapping does not say",
    )
    sub.add_argument("--out", type=Path, metavar="DIR", help="new folder for the profile")
    sub.add_argument("--name", help="its name (default: BOARD, or BOARD-sim if simulated)")
    sub.add_argument(
        "--recipes",
        type=arguments.named_file,
        metavar="FILE",
        help="with RECORD: the hyperparameters that 'profile tune' found (default: those that did well on simulated boards)",
    )
    sub.add_argument(
        "--cluster",
        metavar="N|ADDRESS",
        help="with RECORD: train on so many processes of this machine, or on the workers of the Dask cluster whose scheduler "
        "is there, such as tcp://10.0.0.1:8786; each has a part of the rows",
    )
    sub.add_argument("--quick", action="store_true", help="with --simulated: little, to try the command out")
    sub.add_argument(
        "--campaign", type=Path, metavar="DIR", help="with --simulated: keep measurements here, and go on from those"
    )
    arguments.add_threads(sub)
    arguments.add_seed(sub)
    arguments.add_silicon(sub)
    sub.add_argument("--dry-run", action="store_true", help="say what would be measured and written")

    sub = verb("warm", "measure how a simulated board's idle power grows with temperature, and add it to a profile", warm)
    _add_finished(sub)

    sub = verb("bounds", "fit a profile's bounds to simulated networks and boards that it does not know", bounds)
    _add_finished(sub)

    sub = verb("engines", "measure what engines cost on simulated boards, and add it to a profile", engines)
    _add_finished(sub)


def _add_finished(sub: argparse.ArgumentParser) -> None:
    """The arguments of what adds something to a profile that was trained."""
    sub.add_argument("profile", metavar="NAME|DIR")
    sub.add_argument("--out", type=Path, required=True, metavar="DIR", help="new folder for the profile")
    arguments.add_seed(sub)


def describe(path: Path, manifest: Manifest) -> str:
    """What a profile says of itself, for people."""
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
        f"  trained on    boards {', '.join(map(str, manifest.nodes))}"
        if manifest.other_boards_seen
        else f"  trained on    one board; {NOT_SEEN}",
        *_carried(manifest),
        f"  reproduce     {manifest.command}",
        f"  bounds        {_bounds(manifest)}",
        *_predictor(manifest),
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
    """Where a carried profile comes from."""
    carried = manifest.carried
    if carried is None:
        return []
    factors = ", ".join(f"{name} {value:.2f}" for name, value in vars(carried.factors).items())
    seen = f"{carried.observations} observations of {len(carried.networks)} networks"
    return [f"  carried from  {carried.profile} (board {carried.board}), by {seen}: {factors}"]


def _own_networks(manifest: Manifest) -> list[str]:
    """The error of each network that was left out, where no other board was seen."""
    lines = []
    for row in manifest.evaluation.get(UNSEEN_NETWORK, {}).get("networks", ()):
        energy = "" if row.get("energy_percent") is None else f"  energy {row['energy_percent']:5.1f}%"
        lines.append(f"    {row['network']:20} latency {row['latency_percent']:5.1f}%{energy}")
    return lines


def _families(manifest: Manifest) -> list[str]:
    """How the networks do whose whole families were left out of training, each by itself; boards are averaged."""
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
    """How uncertain kernels are that lie outside of what models were trained on, time and power."""
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
        return "not measured: what starts and kernels of engines take is guessed"
    times = "; ".join(
        f"{dtype} " + ", ".join(f"{name} {getattr(rates, name):.2f}" for name in ("windows", "products", "others", "floor"))
        for dtype, rates in entry.rates.items()
    )
    return f"measured with {len(entry.networks)} networks on {len(entry.nodes)} boards; times beside the framework's: {times}"


def _temperature(manifest: Manifest) -> str:
    if not manifest.rails:
        return "of no account to times"
    if manifest.leakage_fold_c is None:
        return "not known: figures are for that of the idle power, whatever the board's is"
    return f"leakage grows e-fold in {manifest.leakage_fold_c:.1f} C; predictions can be made for any"


def _predictor(manifest: Manifest) -> list[str]:
    entry = manifest.predictor
    if entry is None:
        return []
    errors = f"latency {entry.latency_percent:.1f}%" + (f", energy {entry.energy_percent:.1f}%" if manifest.rails else "")
    return [
        f"  predictor     {entry.name} (--method network), learnt from {entry.networks} networks of {printable(entry.source)}; "
        f"off by {errors} on families it did not know ({', '.join(entry.families)}); {printable(entry.command)}"
    ]


def check_new(folder: Path) -> None:
    """Refuse a folder that holds something.

    Raises:
        BundleError: it does, or is none.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise BundleError(f"{folder}: is not empty, or no folder; give a new one")


def warm(args: argparse.Namespace) -> int:
    return _finished(args, "warm")


def bounds(args: argparse.Namespace) -> int:
    return _finished(args, "bounds")


def engines(args: argparse.Namespace) -> int:
    return _finished(args, "engines")


def _finished(args: argparse.Namespace, what: Literal["warm", "bounds", "engines"]) -> int:
    """Add to a profile that was trained what simulated boards show besides."""
    check_new(args.out)
    bundle = load_bundle(args.profile)
    if not bundle.manifest.simulated:
        raise BundleError(
            f"profile {bundle.manifest.name}: was measured on real boards; there is no simulated board to measure for {what}"
        )
    with needing(f"profile {what}", "train", InputError):
        from ....profiles.training import bounding, warming
        from ....profiles.training.compiled.adding import add_engines

        add = {"warm": warming.warm, "bounds": bounding.bound, "engines": add_engines}[what]
        found = add(bundle, args.out, args.seed, progress_bar)
    if args.json:
        print_json({"path": str(args.out), **found.manifest.to_json()})
    else:
        print(describe(args.out, found.manifest))
    return 0


def train(args: argparse.Namespace) -> int:
    if args.from_csv:
        return tables.run(args)
    if args.mapping is not None or args.device:
        raise UsageError("--mapping, --device: are of a table; valid: --from-csv TABLE --mapping NAME|FILE")
    if args.out is None:
        raise UsageError("--out: expected a new folder for the profile")
    check_new(args.out)
    if args.record is not None:
        of_simulated = [option for option in ("simulated", "board", "quick", "campaign") if getattr(args, option)]
        if of_simulated:
            raise UsageError(f"--{of_simulated[0]}: RECORD says what was measured; valid: RECORD, or --simulated --board")
        bundle = _train_on_record(args)
    elif args.recipes is not None:
        raise UsageError("--recipes: are of a record; valid: RECORD --recipes FILE")
    elif args.cluster is not None:
        raise UsageError("--cluster: trains on a record; valid: RECORD --cluster N|ADDRESS")
    elif not args.simulated or args.board is None:
        raise UsageError("say what to train on: RECORD, as 'jetdvfs profile collect' writes it, or --simulated --board NAME")
    else:
        bundle = _train_simulated(args)
    if bundle is None:
        return 0
    if args.json:
        print_json({"path": str(args.out), **bundle.manifest.to_json()})
    else:
        print(describe(args.out, bundle.manifest))
    return 0


def _print_plan(what: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(what)
    else:
        print("\n".join(f"{key:10} {value}" for key, value in what.items()))


def _train_on_record(args: argparse.Namespace) -> Bundle | None:
    """The bundle of a record; None with --dry-run."""
    from ....profiles.measuring.measurements import Measurements

    record = Measurements.load(args.record)
    with needing("profile train", "train", InputError):
        from ....profiles.training.left_out import measured_kinds, whole_networks
        from ....profiles.training.making import bundle_from_record
        from ....profiles.training.tuning.tuned import Tuned

        own = whole_networks(record)
        kinds = measured_kinds(own)
        if args.dry_run:
            what = {
                "device": own.described.name, "simulated": bool(own.silicon_version), "boards": list(own.nodes),
                "kernels": len(own.invocations), "kinds": len(kinds), "networks": len(own.networks),
                "power": own.powered, "writes": str(args.out),
            }  # fmt: skip
            _print_plan(what, args.json)
            return None
        name = args.name or f"{record.board}{'-sim' if record.silicon_version else ''}"
        seed = f" --seed {args.seed}" if args.seed else ""
        tuned = None if args.recipes is None else Tuned.load(args.recipes).recipes()
        recipes = "" if args.recipes is None else f" --recipes {args.recipes.name}"
        command = f"jetdvfs profile train {args.record.name}{recipes}{seed} --name {name} --out {name}"
        with contextlib.nullcontext() if args.cluster is None else cluster("--cluster", args.cluster) as client:
            return bundle_from_record(
                own, name, command, args.out, progress_bar, threads=args.threads, seed=args.seed, tuned=tuned, cluster=client
            )


def _train_simulated(args: argparse.Namespace) -> Bundle | None:
    """The bundle of simulated boards; None with --dry-run."""
    with needing("profile train", "train", InputError):
        from ....profiles.training import bounding, production
        from ....profiles.training.compiled.adding import add_engines
    name = args.name or f"{args.board}-sim"
    quick = " --quick" if args.quick else ""
    seed = f" --seed {args.seed}" if args.seed else ""
    silicon = f" --silicon {args.silicon}" if args.silicon != CURRENT else ""
    command = f"jetdvfs profile train --board {args.board} --simulated{silicon}{quick}{seed} --name {name} --out {name}"
    plan = production.plan_simulated(
        args.board, name, command, progress_bar, quick=args.quick, threads=args.threads, seed=args.seed, silicon=args.silicon
    )
    campaign = plan.campaign
    if args.dry_run:
        what = {
            "kernels": len(campaign.invocations), "calls": len(campaign.calls), "networks": len(campaign.networks),
            "boards": list(campaign.size.nodes), "silicon": campaign.silicon_version, "steps": len(campaign.units),
            "writes": str(args.out),
        }  # fmt: skip
        _print_plan(what, args.json)
        return None
    measurements = production.measure_simulated(plan, args.campaign, progress_bar)
    bundle = production.make_bundle(plan, measurements, args.out, progress_bar)
    bounded = bounding.bound(bundle, args.out, args.seed, progress_bar)
    return add_engines(bounded, args.out, args.seed, progress_bar) if plan.has_engines else bounded
