# SPDX-License-Identifier: Apache-2.0
"""Predict each network of a record by models trained without it, and compare with its measurements.

example: jetdvfs-lab cross-validate board.npz
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....daemon import arguments
from ....daemon.cli.output import print_json, progress_bar, table
from ....daemon.errors import InputError
from ....kernels.text import needing
from .arguments import add_seed, add_threads

if TYPE_CHECKING:
    from ..train.held_out import HeldOutNetwork

_ROUNDS = 200
_DEPTH, _RATE = 5, 0.1


def configure(sub: argparse.ArgumentParser) -> None:
    arguments.add_json(sub)
    sub.add_argument("record", type=arguments.named_file, metavar="RECORD", help="record of 'collect' or 'table import'")
    add_threads(sub)
    add_seed(sub)


def run(args: argparse.Namespace) -> int:
    from ...adapt.measurements import Measurements

    record = Measurements.load(args.record)
    with needing("cross-validate", "train", InputError):
        from ..train.held_out import leave_each_out
        from ..train.kernel_models import Recipe, TrainingOptions

        recipes = {"": (Recipe(_DEPTH, _RATE, min_child_weight=1.0),)}
        options = TrainingOptions(recipes, most_rounds=_ROUNDS, threads=args.threads, seed=args.seed)
        found = leave_each_out(record, options, progress_bar)
    mean = sum(one.latency_percent for one in found) / len(found)
    if args.json:
        about = {
            "device": record.described.name,
            "environment": dict(record.environment),
            "simulated": bool(record.silicon_version),
        }
        print_json({**about, "mean_latency_percent": round(mean, 4), "networks": [one.to_json() for one in found]})
        return 0
    print(f"{record.described.name}: each network predicted by models trained without it; no other device was seen")
    print(_table(found))
    print(f"mean latency error {mean:.1f}%")
    return 0


def _table(found: Sequence[HeldOutNetwork]) -> str:
    powered = any(one.energy_percent is not None for one in found)
    headers = ["network", "measured ms", "predicted ms", "error", "plain sum", "guessed", *(["energy"] if powered else [])]
    rows = []
    for one in found:
        energy = "-" if one.energy_percent is None else f"{one.energy_percent:.1f}%"
        errors = [
            f"{one.latency_percent:.1f}%",
            f"{one.sum_percent:.1f}%",
            f"{one.guessed:.0%}",
            *([energy] if powered else []),
        ]
        rows.append([one.network, f"{one.measured_ms:.3g}", f"{one.predicted_ms:.3g}", *errors])
    return table(headers, rows)
