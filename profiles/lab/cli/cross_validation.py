# SPDX-License-Identifier: Apache-2.0
"""Predict each network of a record by models trained without it, and compare with its measurements.

examples:
  jetdvfs-lab cross-validate board.npz
  jetdvfs-lab cross-validate gpu.npz --groups 9
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING

from ....daemon import arguments
from ....daemon.cli.output import print_json, progress_bar, table
from ....daemon.errors import InputError
from ....kernels.text import needing
from .arguments import add_count, add_seed, add_threads, rounded

if TYPE_CHECKING:
    from ..train.held_out import HeldOutKind, HeldOutNetwork

_ROUNDS = 400
_MEANS = {
    "latency_percent": "mean error of latency",
    "energy_percent": "of energy",
    "graph_latency_percent": "of a graph's latency",
    "graph_percent": "of a graph's GPU time",
    "graph_energy_percent": "of a graph's energy",
}
_DEPTH, _RATE = 5, 0.05


def configure(sub: argparse.ArgumentParser) -> None:
    arguments.add_json(sub)
    sub.add_argument("record", type=arguments.named_file, metavar="RECORD", help="record of 'collect' or 'table import'")
    add_count(sub, "--groups", "leave networks out in N groups, which is faster (default: each alone)", 0, least=2)
    add_threads(sub)
    add_seed(sub)


def run(args: argparse.Namespace) -> int:
    from ...adapt.measurements import Measurements

    record = Measurements.load(args.record)
    with needing("cross-validate", "train", InputError):
        from ..train.held_out import leave_out
        from ..train.kernel_models import Recipe, TrainingOptions

        recipes = {"": (Recipe(_DEPTH, _RATE, min_child_weight=1.0),)}
        options = TrainingOptions(recipes, most_rounds=_ROUNDS, threads=args.threads, seed=args.seed)
        found, kinds = leave_out(record, options, progress_bar, args.groups)
    means = {
        name: mean(values) for name in _MEANS if (values := [each for one in found if (each := getattr(one, name)) is not None])
    }
    if args.json:
        about = {
            "device": record.described.name,
            "environment": dict(record.environment),
            "simulated": bool(record.silicon_version),
        }
        mean_percents = {f"mean_{name}": value for name, value in means.items()}
        print_json({**about, **rounded({**mean_percents, "networks": found, "kinds": kinds})})
        return 0
    print(f"{record.described.name}: each network predicted by models trained without it; no other device was seen")
    print(_table(found))
    print(f"\n{_kinds_table(kinds)}\n")
    print(", ".join(f"{_MEANS[name]} {value:.1f}%" for name, value in means.items()))
    return 0


def _table(found: Sequence[HeldOutNetwork]) -> str:
    optional = {
        "energy": "energy_percent",
        "graph latency": "graph_latency_percent",
        "graph GPU": "graph_percent",
        "graph energy": "graph_energy_percent",
    }
    shown = {title: name for title, name in optional.items() if any(getattr(one, name) is not None for one in found)}
    headers = ["network", "measured ms", "predicted ms", "error", "plain sum", "guessed", *shown]
    rows = []
    for one in found:
        errors = [one.latency_percent, one.sum_percent]
        more = [getattr(one, name) for name in shown.values()]
        rows.append(
            [
                one.network,
                f"{one.measured_ms:.3g}",
                f"{one.predicted_ms:.3g}",
                *(f"{each:.1f}%" for each in errors),
                f"{one.guessed:.0%}",
                *("-" if each is None else f"{each:.1f}%" for each in more),
            ]
        )
    return table(headers, rows)


def _kinds_table(kinds: Sequence[HeldOutKind]) -> str:
    headers = ["kind", "kernels", "error", "share of kernel time", "error of a network by it"]
    rows = [
        [one.kind, str(one.kernels), f"{one.percent:.1f}%", f"{one.share:.1%}", f"{one.network_percent:.2f}%"] for one in kinds
    ]
    return table(headers, rows)
