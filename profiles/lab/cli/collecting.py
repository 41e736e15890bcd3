# SPDX-License-Identifier: Apache-2.0
"""Measure networks and kernels of a board, a GPU or a processor into a record.

examples:
  jetdvfs-lab collect --out cpu.npz
  jetdvfs-lab collect --meter nvml --out gpu.npz
  jetdvfs-lab collect --meter simulated --board agx-xavier --kernels 8 --out twin.npz
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ....daemon import arguments
from ....daemon.cli.output import progress_bar
from ....daemon.cli.setup.board import SetUpBoard
from ....daemon.errors import InputError, UsageError
from ....kernels.decompose import decompose
from ....kernels.inputs import SHORT_TYPES, parse_input
from ...adapt.torch_process import TorchProcess
from ...reference import reference_input, reference_model, reference_names
from ...twin.cli.arguments import BOARD
from ..measure.gpus import (
    SWITCH_S,
    WORKSTATION_PATIENCE,
    measure_board,
    measure_gpu,
    off_graphs,
    plan_board,
    plan_gpu,
    workstation,
)
from ..measure.meters.cpu import KERNEL_WORKER, TimingLimits
from ..measure.meters.notes import CampaignNotes
from ..measure.meters.nvml import installed_library
from ..measure.meters.restarting_worker import RestartingWorker
from ..measure.processor import MeasuredModel, about_s, measure_processor, plan_processor, processor_size, this_processor
from .arguments import add_count, add_seed, cluster, individuals, kept_for, named_networks, print_members, uneven_progress
from .held_clocks import HeldClocks, SampledRails
from .twin_worker import TwinWorker

if TYPE_CHECKING:
    from ....kernels.network import Network
    from ..measure.campaign import Campaign, CampaignSize

_POWER_S = 0.6
_QUICK = TimingLimits(kernel_s=0.02, network_s=0.2, power_s=0.3, timings=30)


def collect_board(args: argparse.Namespace, models: Sequence[MeasuredModel], kernels: int) -> dict[str, Any]:
    """Measure, write the record, and return its summary.

    Raises:
        InputError: a rail has no sensor.
        DaemonError: unknown board, or no daemon.
        MeasurementError: finished parts are kept.
    """
    board = SetUpBoard(args.root, args.board, args.socket)
    if missing := board.missing_rails():
        raise InputError(f"{board.description.title}: no sensor of rail {missing[0]} can be read; see 'sudo jetdvfs board'")
    mean_s = board.averaging_s()
    patience = replace(_QUICK if args.quick else TimingLimits(power_s=_POWER_S), lead_s=mean_s)
    with _worker(args, models) as worker:
        campaign = plan_board(board.description, board.grid, models, worker.about["kinds"], kernels, args.quick, args.seed)
        if args.bench is not None:
            campaign = replace(campaign, silicon_version="simulated")
        what = {
            "device": board.description.title, "measured by": worker.about["device_name"], "torch": worker.about["torch"],
            "power": ", ".join(campaign.board.energy_rails), "configurations": board.grid.size,
            **_plan(args, campaign, about_s(campaign, patience, SWITCH_S)),
        }  # fmt: skip
        if args.dry_run:
            return what
        with (
            kept_for(args, campaign) as folder,
            board.daemon(own=False) as client,
            SampledRails(board).sampling() as rails,
            contextlib.closing(HeldClocks(board, client, notebook := CampaignNotes(), worker)) as clocks,
        ):
            at_first = board.at_first()
            found = measure_board(campaign, models, worker, rails, clocks, patience, folder, uneven_progress(), notebook)
            replace(found, environment={**found.environment, **at_first}).save(args.out)
    return what


def _worker(
    args: argparse.Namespace, models: Sequence[MeasuredModel]
) -> contextlib.closing[RestartingWorker] | contextlib.closing[TwinWorker]:
    if args.bench is not None:
        return contextlib.closing(TwinWorker(args.bench, {model.path: model.network for model in models}))
    return contextlib.closing(RestartingWorker(lambda: _gpu_process(args)))


def _gpu_process(args: argparse.Namespace) -> TorchProcess:
    return TorchProcess(args.python, device="cuda", threads=args.threads, worker=KERNEL_WORKER)


def _plan(args: argparse.Namespace, campaign: Campaign, seconds: float | None = None) -> dict[str, Any]:
    return {
        "networks": len(campaign.networks), "kernels": len(campaign.invocations), "calls": len(campaign.calls),
        "steps": len(campaign.units), **({} if seconds is None else {"hours": round(seconds / 3600, 2)}),
        "writes": str(args.out),
    }  # fmt: skip


KERNELS, QUICK_KERNELS = 40, 8
_NETWORK_RUNS, _QUICK_NETWORK_RUNS = (120, 40), (24, 12)  # random configurations, and observations at those in common
_RUN = (".pt", ".pt2")
_OF_METERS = {
    "gpu_mhz": (("nvml",), "clocks are locked with --meter nvml"),
    "cpu_mhz": (("cpu",), "the processor's clock is locked with --meter cpu"),
    "boards": (("simulated",), "a cluster measures simulated boards"),
    "bench": (("board",), "replaces PyTorch with --meter board"),
    "dtype": (("simulated",), "is of --meter simulated"),
    "board": (("board", "simulated"), "is of --meter board or simulated"),
}


def configure(sub: argparse.ArgumentParser) -> None:
    arguments.add_json(sub)
    sub.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help="TorchScript or torch.export files (of a simulated board, any file that 'jetdvfs decompose' reads), or names of "
        "reference networks (default: all of those)",
    )
    arguments.add_input(sub)
    meter, size = arguments.titled(sub, "meter"), arguments.titled(sub, "size")
    meter.add_argument(
        "--meter",
        default="cpu",
        choices=("cpu", "board", "nvml", "simulated"),
        help="meter: PyTorch on this machine's processor (default); PyTorch on the GPU of the Jetson that this is, its "
        "clocks held by the daemon; PyTorch on a workstation's GPU with power by NVML; or one simulated board, in virtual time",
    )
    arguments.add_root(meter)
    arguments.add_socket(meter)
    meter.add_argument(
        "--bench",
        type=Path,
        metavar="PATH",
        help="with --meter board: a simulated board's application port, in place of PyTorch",
    )
    for name, what, stays in (
        ("gpu", "nvml: lock the GPU's clock", "clocks stay as they are"),
        ("cpu", "cpu: lock the processor's clock", "it stays as it is"),
    ):
        text = f"with --meter {what} there, and measure; may be repeated (default: {stays})"
        meter.add_argument(f"--{name}-mhz", type=arguments.whole(1), action="append", default=[], metavar="MHZ", help=text)
    meter.add_argument(
        "--board",
        metavar="NAME",
        help=f"which board to simulate (default: {BOARD}); with --meter board its description, if it is not recognised",
    )
    meter.add_argument(
        "--node",
        type=individuals,
        default=(0,),
        metavar="N[,N|-N]",
        help="which individuals of the simulated board, as 3 or 0-12 (default: 0); several share the random kernels, eight "
        "times as many, each timed once, and are compared at configurations that all have in common",
    )
    meter.add_argument(
        "--boards",
        metavar="N|ADDRESS",
        help="with --meter simulated: individuals from --node on, measured by this number of local processes, or by "
        "the workers of the Dask cluster whose scheduler is there, such as tcp://10.0.0.1:8786",
    )
    sub.add_argument("--out", type=arguments.named_file, required=True, metavar="FILE", help="the record to write (.npz)")
    sub.add_argument(
        "--folder",
        type=Path,
        metavar="DIR",
        help="keep finished parts here, and resume from them (default: FILE.parts until FILE is written; "
        "nothing with --meter simulated)",
    )
    add_count(
        size,
        "--kernels",
        f"random kernels of each kind, and several times as many convolutions and products (default {KERNELS})",
    )
    size.add_argument(
        "--dtype",
        type=lambda text: SHORT_TYPES.get(text, text),
        choices=("float32", "float16", "bfloat16"),
        help="with --meter simulated: random kernels of this element type alone, also fp32, fp16 or bf16 (default: several)",
    )
    size.add_argument("--quick", action="store_true", help=f"{QUICK_KERNELS} of each, fewer timings: to try the command out")
    sub.add_argument("--python", default=sys.executable, metavar="FILE", help="the Python that has PyTorch (default: this one)")
    add_count(sub, "--threads", "PyTorch's threads (default 1)", 1)
    add_seed(size)
    sub.add_argument("--dry-run", action="store_true", help="print the plan, and measure nothing")


def run(args: argparse.Namespace) -> int:
    if not args.out.parent.is_dir():
        raise InputError(f"--out: {args.out.parent} is not a folder")
    for option, (meters, why) in _OF_METERS.items():
        if getattr(args, option) not in (None, []) and args.meter not in meters:
            raise UsageError(f"--{option.replace('_', '-')}: {why}; --meter is {args.meter}")
    kernels = args.kernels or (QUICK_KERNELS if args.quick else KERNELS)
    if args.meter == "simulated":
        what = _collect_simulated(args, kernels)
    else:
        collect = {"cpu": _collect_processor, "board": collect_board, "nvml": _collect_gpu}[args.meter]
        what = collect(args, _models(args.models, args.inputs), kernels)
    print_members(what, args.json, 14)
    return 0


def _collect_simulated(args: argparse.Namespace, kernels: int) -> dict[str, Any]:
    from ..measure.one_twin import TwinMeters, plan_twin
    from ..measure.steps import run_units

    args.board = args.board or BOARD
    networks = named_networks(args.models, args.inputs)
    if args.boards is not None:
        return _collect_fleet(args, networks, kernels)
    campaign = plan_twin(args.board, networks, _twins_size(args, args.node, kernels), args.seed, args.dtype or "")
    if not args.dry_run:
        meters = TwinMeters(args.board, args.seed)
        run_units(campaign, meters, args.folder, progress_bar).save(args.out)
    return _about_twins(args, campaign)


def _collect_fleet(args: argparse.Namespace, networks: Sequence[Network], kernels: int) -> dict[str, Any]:
    from ..measure.fleet import run_on_fleet, worker_names
    from ..measure.one_twin import TwinMeters, plan_twin

    if len(args.node) > 1:
        raise UsageError("--boards: counts individuals from --node on; valid: --node N --boards ..., or --node 0-12 without it")
    with cluster("--boards", args.boards) as client:
        nodes = tuple(range(args.node[0], args.node[0] + len(worker_names(client))))
        campaign = plan_twin(args.board, networks, _twins_size(args, nodes, kernels), args.seed, args.dtype or "")
        what = _about_twins(args, campaign)
        if not args.dry_run:
            meters = TwinMeters(args.board, args.seed)
            found = run_on_fleet(campaign, client, meters, args.folder, progress_bar)
            what["lost"] = ", ".join(map(str, found.environment["lost"])) or "none"
    if not args.dry_run:
        found.save(args.out)
    return what


def _about_twins(args: argparse.Namespace, campaign: Campaign) -> dict[str, Any]:
    nodes = campaign.size.nodes
    individuals = f"individual{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}"
    return {
        "device": f"simulated {args.board}, {individuals}, silicon {campaign.silicon_version}",
        "power": ", ".join(campaign.board.energy_rails),
        **_plan(args, campaign),
    }


def _twins_size(args: argparse.Namespace, nodes: Sequence[int], kernels: int) -> CampaignSize:
    from ..measure.one_twin import one_board_size, several_boards_size

    if len(nodes) == 1:
        return one_board_size(nodes[0], kernels)
    return several_boards_size(nodes, kernels, *(_QUICK_NETWORK_RUNS if args.quick else _NETWORK_RUNS))


def _collect_processor(args: argparse.Namespace, models: Sequence[MeasuredModel], kernels: int) -> dict[str, Any]:
    with this_processor(args.python, args.threads, args.cpu_mhz) as machine:
        process, device = machine.process, machine.device
        patience = TimingLimits(0.05, 0.5, 0.3, 30) if args.quick else TimingLimits()
        campaign = plan_processor(device, models, process.about["kinds"], processor_size(kernels, device.grid.size), args.seed)
        what = {
            "device": process.about["device_name"], "torch": process.about["torch"], "threads": process.about["threads"],
            "clocks": f"{device.grid.size} locked" if args.cpu_mhz else "as they are",
            "power": ", ".join(device.energy_rails) or "none: no counter can be read",
            **_plan(args, campaign, about_s(campaign, patience)),
        }  # fmt: skip
        if not args.dry_run:
            with kept_for(args, campaign) as folder:
                measure_processor(campaign, models, machine, patience, folder, uneven_progress()).save(args.out)
    return what


def _collect_gpu(args: argparse.Namespace, models: Sequence[MeasuredModel], kernels: int) -> dict[str, Any]:
    with workstation(installed_library(), lambda: _gpu_process(args), args.gpu_mhz) as gpu:
        patience = TimingLimits(0.05, 0.5, 0.3, 30, power_timings=0) if args.quick else WORKSTATION_PATIENCE
        campaign = plan_gpu(gpu.device, models, gpu.process.about["kinds"], kernels, args.seed)
        what = {
            "device": gpu.process.about["device_name"], "torch": gpu.process.about["torch"],
            "clocks": f"{gpu.device.grid.size} locked" if args.gpu_mhz else "as they are",
            **_plan(args, campaign, about_s(campaign, patience)),
        }  # fmt: skip
        if not args.dry_run:
            with kept_for(args, campaign) as folder:
                record = measure_gpu(campaign, models, gpu, patience, folder, uneven_progress())
                record.save(args.out)
            what["refused"] = len(record.environment.get("refused", {}))
            if errors := off_graphs(record):
                what["kernels_off_graphs_percent"] = round(100 * sum(map(abs, errors)) / len(errors), 1)
    return what


def _models(names: Sequence[str], inputs: Sequence[str]) -> list[MeasuredModel]:
    known = reference_names()
    models = []
    for name in names or known:
        path = reference_model(name) if name in known else Path(name)
        if path.suffix not in _RUN:
            raise UsageError(f"{name}: not a file that PyTorch runs; valid: {', '.join(_RUN)}, or one of {', '.join(known)}")
        specs = (reference_input(name),) if name in known and not inputs else tuple(parse_input(text) for text in inputs)
        network = decompose(path, specs, name=path.stem)
        models.append(MeasuredModel(path, network, network.inputs))
    return models
