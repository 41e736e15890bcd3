# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab compare transfer``: errors of a profile on other boards."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from ....daemon import arguments
from ....daemon.cli.output import print_json, progress_bar, table
from ....daemon.errors import InputError, UsageError
from ....kernels.network import Network
from ....kernels.text import needing
from ...bundle.bundle import Bundle, load_bundle
from ...bundle.finding import find_bundles
from ...twin.cli.arguments import add_perturbed, add_simulated_board, add_tables
from .arguments import add_count, add_seed, named_networks, rounded

if TYPE_CHECKING:
    from ..train.transfer_real import TransferErrors

_NETWORKS = ("resnet18", "mobilenet_v2", "shufflenet_v2_x1_0", "densenet161", "vgg16", "squeezenet1_0")


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    text = "evaluate a profile on unseen boards, simulated or real, after 0 to 100 observations"
    sub = verb("transfer", f"{text}\n\nexample: jetdvfs-lab compare transfer agx-xavier-sim --board agx-orin-64gb", show)
    sub.add_argument(
        "profile",
        nargs="?",
        metavar="NAME|DIR",
        help="profile to start from (with --data, by default that of each board, simulated)",
    )
    sub.add_argument(
        "models", nargs="*", default=[], metavar="MODEL", help=f"networks to observe (default: {', '.join(_NETWORKS)})"
    )
    arguments.add_input(sub)
    add_simulated_board(sub)
    add_count(sub, "--node", "which individual of it (default: 3)", 3, least=0)
    add_perturbed(sub)
    sub.add_argument(
        "--orders",
        action="store_true",
        help="show instead the observations until plans are right, with configurations of 'setup --accuracy' and random ones",
    )
    add_tables(sub, "show instead the observations until programs of real boards are known, by the tables of 'compare replay'")
    add_seed(sub)


def show(args: argparse.Namespace) -> int:
    if args.data is not None:
        return _show_real(args)
    if args.profile is None:
        raise UsageError("compare transfer: expected a profile, or --data DIR")
    bundle, networks = load_bundle(args.profile), named_networks(args.models or _NETWORKS, args.inputs)
    where = {"board": args.board, "perturbed": args.perturbed, "node": args.node}
    about = {"profile": bundle.manifest.name, **where, "simulated": True}
    other = f" of another silicon ({args.perturbed})" if args.perturbed else ""
    title = f"profile {bundle.manifest.name} on a simulated {args.board}, individual {args.node}{other}"
    if args.orders:
        return _show_orders(args, bundle, networks, about, title)
    with needing("compare transfer", "train", InputError):
        from ..train.transfer_table import POWERTRAIN, transferred

        rows = transferred(bundle, args.board, args.perturbed, args.node, networks, args.seed, progress_bar)
    if args.json:
        names = [network.name for network in networks]
        print_json({**about, "networks": names, "rows": rounded(rows), "published": asdict(POWERTRAIN)})
        return 0
    print(title)
    print(f"mean absolute error over the grid, latency / power, {len(networks)} networks; observations of")
    shown = [
        [
            str(row.observations),
            _pair(row.others_latency_percent, row.others_power_percent),
            _pair(row.own_latency_percent, row.own_power_percent),
            _pair(row.overlap_latency_percent, row.overlap_power_percent),
            _pair(row.rates_latency_percent, None),
        ]
        for row in rows
    ]
    headers = ["observations", "of other networks", "of its own", "overlap fit", "launches, two rates"]
    print(table(headers, shown, text_columns=0))
    print(_published())
    return 0


def _show_real(args: argparse.Namespace) -> int:
    if args.models or args.orders:
        raise UsageError("compare transfer: --data takes no models and no --orders; the tables name their programs")
    with needing("compare transfer", "train", InputError):
        from ...twin.measured.tables import load_tables
        from ..train.transfer_real import WAYS, on_real_boards
        from ..train.transfer_table import POWERTRAIN

        rows = on_real_boards(load_tables(args.data, args.table), _profiles(args.profile), args.seed, progress_bar)
    if args.json:
        about = {"profile": args.profile, "simulated": False}
        print_json({**about, "rows": rounded(rows), "published": asdict(POWERTRAIN)})
        return 0
    print(
        "real boards, published measurements; latency / power, mean (median) absolute error of the configurations not observed"
    )
    shown = [
        [row.table, row.board, str(row.programs), str(row.observations), *(_errors(row.errors.get(way)) for way in WAYS)]
        for row in rows
    ]
    print(table(["table", "board", "programs", "observations", *WAYS], shown, text_columns=2))
    print(_published())
    return 0


def _profiles(named: str | None) -> Callable[[str], Bundle | None]:
    @cache
    def profile_of(board: str) -> Bundle | None:
        name = named or f"{board}-sim"
        return load_bundle(name) if named or name in find_bundles() else None

    return profile_of


def _pair(latency: float | None, power: float | None) -> str:
    if latency is None:
        return "-"
    return f"{latency:.1f}% / " + ("-" if power is None else f"{power:.1f}%")


def _errors(errors: TransferErrors | None) -> str:
    if errors is None:
        return "-"
    found = f"{errors.latency_mean_percent:.1f} ({errors.latency_median_percent:.1f})% / "
    return found + (
        "-" if errors.power_mean_percent is None else f"{errors.power_mean_percent:.1f} ({errors.power_median_percent:.1f})%"
    )


def _published() -> str:
    from ..train.transfer_table import POWERTRAIN as told

    errors = f"below {told.latency_percent:g}% / {told.power_percent:g}%"
    return f"{told.name}, as published ({told.source}): {errors} after {told.observations} modes"


def _show_orders(
    args: argparse.Namespace, bundle: Bundle, networks: Sequence[Network], about: Mapping[str, Any], title: str
) -> int:
    from ..train.transfer_orders import orders_compared

    rows = orders_compared(bundle, args.board, args.perturbed, args.node, networks, args.seed, progress_bar)
    if args.json:
        print_json({**about, "rows": rounded(rows)})
        return 0
    print(title)
    print(f"plans of {len(networks)} networks: mean error where they may choose, energy above the best's")
    cells = {(row.order, row.observations): row for row in rows}
    shown = []
    for count in sorted({row.observations for row in rows}):
        chosen, random = cells["chosen", count], cells["random", count]
        shown.append(
            [f"{chosen.minutes:.1f}", str(count), "-" if chosen.expected_percent is None else f"{chosen.expected_percent:.1f}%",
             f"{chosen.error_percent:.1f}%", f"{random.error_percent:.1f}%",
             f"{chosen.excess_percent:.1f}%", f"{random.excess_percent:.1f}%"]
        )  # fmt: skip
    headers = ["minutes", "observations", "expected", "error, chosen", "random", "energy, chosen", "random"]
    print(table(headers, shown, text_columns=0))
    return 0
