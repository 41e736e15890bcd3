# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab collect --meter board``: kernels and networks of a board over its clocks, which its daemon holds."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ....daemon.cli.setup.board import SetUpBoard
from ....daemon.errors import InputError
from ...adapt.torch_process import TorchProcess
from ..measure.gpus import SWITCH_S, measure_board, plan_board
from ..measure.meters.cpu import KERNEL_WORKER, Patience
from ..measure.meters.notes import Notebook
from ..measure.processor import about_s
from .arguments import kept_for, uneven_progress
from .held_clocks import HeldClocks, SampledRails
from .twin_worker import TwinWorker

if TYPE_CHECKING:
    from ..measure.processor import Model

_POWER_S = 0.6
_QUICK = Patience(kernel_s=0.02, network_s=0.2, power_s=0.3, timings=30)


def collect_board(args: argparse.Namespace, models: Sequence[Model], kernels: int) -> dict[str, Any]:
    """Measure, write the record, and return what is said of it.

    Raises:
        InputError: a rail has no sensor.
        DaemonError: it is no board that is known, or no daemon can be had.
        MeasurementError: a measurement did not come out; what was measured is kept.
    """
    board = SetUpBoard(args.root, args.board, args.socket)
    if missing := board.missing_rails():
        raise InputError(f"{board.description.title}: no sensor of rail {missing[0]} can be read; see 'sudo jetdvfs board'")
    mean_s = board.averaging_s()
    patience = replace(_QUICK if args.quick else Patience(power_s=_POWER_S), lead_s=mean_s)
    with _worker(args, models) as worker:
        campaign = plan_board(board.description, board.grid, models, worker.about["kinds"], kernels, args.quick, args.seed)
        if args.bench is not None:
            campaign = replace(campaign, silicon_version="simulated")
        what = {
            "device": board.description.title, "measured by": worker.about["device_name"], "torch": worker.about["torch"],
            "power": ", ".join(campaign.board.energy_rails), "configurations": board.grid.size,
            "networks": len(campaign.networks), "kernels": len(campaign.invocations), "calls": len(campaign.calls),
            "steps": len(campaign.units), "hours": round(about_s(campaign, patience, SWITCH_S) / 3600, 2),
            "writes": str(args.out),
        }  # fmt: skip
        if args.dry_run:
            return what
        with (
            kept_for(args, campaign) as folder,
            board.daemon(own=False) as client,
            SampledRails(board).sampling() as rails,
            contextlib.closing(HeldClocks(board, client, notebook := Notebook(), worker)) as clocks,
        ):
            at_first = board.at_first()
            found = measure_board(campaign, models, worker, rails, clocks, patience, folder, uneven_progress(), notebook)
            replace(found, environment={**found.environment, **at_first}).save(args.out)
    return what


def _worker(
    args: argparse.Namespace, models: Sequence[Model]
) -> contextlib.closing[TorchProcess] | contextlib.closing[TwinWorker]:
    if args.bench is not None:
        return contextlib.closing(TwinWorker(args.bench, {model.path: model.network for model in models}))
    return contextlib.closing(TorchProcess(args.python, device="cuda", threads=args.threads, worker=KERNEL_WORKER))
