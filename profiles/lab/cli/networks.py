# SPDX-License-Identifier: Apache-2.0
"""Measure random networks, for whole-network predictors.

Random networks, the same ones every time, are exported as TorchScript and measured on this machine's processor (latency of one
thread, memory), on its NVIDIA GPU (latency and energy of a CUDA graph, memory, eager latency), or on simulated boards at random
clocks (latency, energy). Started again on the same folder, it resumes. Needs PyTorch. --published makes a record of published
measurements instead.

FAMILIES

examples:
  jetdvfs-lab networks measure records/cpu --count 2000
  jetdvfs-lab networks measure records/gpu --gpu --count 300 --processes 4
  jetdvfs-lab networks measure records/boards --board agx-xavier --board orin-nano-8gb --nodes 2 --configs 8 --count 500
"""

from __future__ import annotations

import argparse
import contextlib
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ....daemon import arguments
from ....daemon.cli.output import print_json, progress, progress_bar
from ....daemon.errors import UsageError
from ...board import load_board
from ..networks.families import FAMILIES
from .arguments import add_count

if TYPE_CHECKING:
    from ..networks.gpu_meter import GpuNetworkMeter

PUBLISHED = ("agx-orin-layers", "gpu-clock-sweeps")


def _families() -> str:
    return textwrap.fill(f"families: {', '.join(FAMILIES)}", 100, subsequent_indent="  ")


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    sub = verb("measure", (__doc__ or "").replace("FAMILIES", _families()), measure)
    meter, published = arguments.titled(sub, "meter"), arguments.titled(sub, "published measurements")
    sub.add_argument("folder", type=Path, metavar="FOLDER", help="where the record is, or is to be")
    sub.add_argument("--count", type=arguments.whole(1), default=2000, help="how many networks in all (default 2000)")
    sub.add_argument("--family", action="append", metavar="NAME", help="only networks of this family; may be repeated")
    add_count(sub, "--first", "of each family, from its network N on", 0, least=0)
    meter.add_argument("--board", action="append", metavar="NAME", help="simulate this board; may be repeated")
    meter.add_argument("--gpu", action="store_true", help="measure on this machine's NVIDIA GPU, its clocks as they are")
    add_count(
        meter,
        "--processes",
        "with --gpu or --board: make networks in N processes during measurements (default 1: one after the other)",
        1,
    )
    meter.add_argument("--nodes", type=arguments.whole(1), default=1, help="with --board: number of boards of each (default 1)")
    meter.add_argument("--configs", type=arguments.whole(1), default=8, help="with --board: configurations of each (default 8)")
    add_count(sub, "--again", "record nothing: measure N networks of the record again and compare")
    published.add_argument(
        "--published", choices=PUBLISHED, help="measure nothing: published measurements of real boards, of --data"
    )
    published.add_argument(
        "--data", type=arguments.folder, metavar="DIR", help="with --published: the measurements, anywhere below"
    )


def measure(args: argparse.Namespace) -> int:
    from ..networks.campaign import BoardMeter, NetworkMeter, ProcessorMeter, measure_again, measure_networks
    from ..networks.record import about_of

    if (args.published is None) != (args.data is None):
        raise UsageError("--published and --data: expected both or neither")
    if args.published:
        return _import(args)
    if args.gpu and args.board:
        raise UsageError("--gpu and --board: expected one of them")
    if args.processes > 1 and not (args.gpu or args.board):
        raise UsageError("--processes needs --gpu or --board: other work would disturb this processor")
    families = tuple(dict.fromkeys(args.family or FAMILIES))
    meter: NetworkMeter
    with contextlib.ExitStack() as stack:
        if args.gpu:
            meter = stack.enter_context(contextlib.closing(_gpu_meter(stack, args.folder)))
        elif args.board:
            boards = [(load_board(name), node) for name in dict.fromkeys(args.board) for node in range(args.nodes)]
            meter = BoardMeter(boards, args.configs)
        else:
            known = about_of(args.folder)
            meter = stack.enter_context(contextlib.closing(ProcessorMeter(known.speed if known else None)))
        if args.again is not None:
            return _show_again(args, measure_again(args.folder, meter, args.again, progress_bar))
        recorder = measure_networks(
            args.folder, meter, args.count, families, progress_bar, first=args.first, processes=args.processes
        )
    left_out = recorder.left_out
    if args.json:
        print_json({"folder": str(args.folder), "measured": len(recorder.done) - len(left_out), "left_out": left_out})
    else:
        print(f"{len(recorder.done) - len(left_out)} networks of {meter.about.source} in {args.folder}")
        for name, why in left_out.items():
            print(f"left out: {name}: {why}")
    return 0


def _gpu_meter(stack: contextlib.ExitStack, folder: Path) -> GpuNetworkMeter:
    from ...adapt.torch_process import TorchProcess
    from ..measure.gpus import workstation
    from ..measure.meters.cpu import KERNEL_WORKER
    from ..measure.meters.nvml import installed_library
    from ..networks.gpu_meter import GpuNetworkMeter
    from ..networks.record import about_of

    known = about_of(folder)
    gpu = stack.enter_context(
        workstation(installed_library(), lambda: TorchProcess(device="cuda", threads=1, worker=KERNEL_WORKER))
    )
    return GpuNetworkMeter(gpu, known.speed if known else None)


def _import(args: argparse.Namespace) -> int:
    from ..compare.real.whole import PUBLISHED as FOUND
    from ..networks.record import NetworkRecorder

    about, networks = FOUND[args.published]
    recorder = NetworkRecorder(args.folder, about)
    with progress(f"reading {args.published}"):
        for network in networks(args.data):
            if network.name not in recorder.done:
                recorder.add(network)
    if args.json:
        print_json({"folder": str(args.folder), "measured": len(recorder.done), "left_out": {}})
    else:
        print(f"{len(recorder.done)} networks of {about.source} in {args.folder}")
    return 0


def _show_again(args: argparse.Namespace, off: Mapping[str, NDArray[np.float64]]) -> int:
    found = {
        metric: {
            "mean": float(abs(own).mean()),
            "median": float(np.median(abs(own))),
            "shift": float(own.mean()),
            "rows": len(own),
        }
        for metric, own in off.items()
    }
    if args.json:
        print_json({"folder": str(args.folder), "again": found})
        return 0
    for metric, own in found.items():
        print(
            f"{metric}: {own['rows']} figures once more, off by {own['mean']:.1%} in the mean, {own['median']:.1%} in the "
            f"median, {own['shift']:+.1%} with signs"
        )
    return 0
