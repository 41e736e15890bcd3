# SPDX-License-Identifier: Apache-2.0
"""Set a new board up: measure networks for some minutes, adapt a profile, install it and prove it.

First the profiles, clocks and rails of the board are listed. The daemon, or one started for this, then holds one configuration
after the other while MODEL runs, and latency and power are observed. The closest profile is adapted to them and installed.
Last, MODEL runs at new configurations, next to the new profile's predictions. The clocks always return to their baseline.

examples:
  sudo jetdvfs setup resnet18.pt --input 1x3x224x224 --minutes 10
  sudo jetdvfs setup resnet18.engine --trtexec --minutes 10
  jetdvfs setup --dry-run
  jetdvfs twin serve --board orin-nano-8gb --mount board &
  jetdvfs setup --root board --bench board.bench --minutes 1
"""

from __future__ import annotations

import argparse
import contextlib
import math
import shlex
import sys
from pathlib import Path
from typing import Any

from ....kernels.inputs import parse_input
from ....profiles.adapt.trtexec import TRTEXEC, Trtexec
from ....profiles.reference import reference_input, reference_model, reference_names
from ... import arguments
from ...errors import InputError, UsageError
from ..model_arguments import read_model
from ..output import print_json, progress_bar, table
from .board import SetUpBoard, known_facts
from .measuring import SetupPlan, adapt, measure, prove
from .runners import Candidate, EngineRunner, Runner, TorchRunner, TwinRunner

_NETWORKS = ("resnet18", "mobilenet_v2", "squeezenet1_0")
_LEAST_MINUTES = 0.2


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help="TorchScript or torch.export files, names of reference networks, or with --trtexec TensorRT engines; the first is "
        f"proven (default: {', '.join(_NETWORKS)})",
    )
    arguments.add_input(parser)
    board, profile = arguments.titled(parser, "board"), arguments.titled(parser, "profile")
    runner = arguments.titled(parser, "runner of networks")
    parser.add_argument("--minutes", type=float, default=10.0, metavar="N", help="how long to measure (default 10)")
    parser.add_argument(
        "--accuracy",
        type=float,
        metavar="PERCENT",
        help="measure where plans of MODEL are least certain, and end early at this accuracy (default: evenly over all clocks)",
    )
    arguments.add_root(board)
    arguments.add_socket(board)
    board.add_argument("--board", metavar="NAME", help="description of a board that does not name itself")
    profile.add_argument("--prior", metavar="NAME|DIR", help="the profile to adapt (default: the one of the closest board)")
    profile.add_argument("--name", help="the new profile's name (default: BOARD-adapted)")
    arguments.add_into(profile)
    profile.add_argument("--record", type=Path, metavar="FILE", help="record to write or continue (default: BOARD-setup.npz)")
    runner.add_argument(
        "--python", default=sys.executable, metavar="FILE", help="the Python that has PyTorch (default: this one)"
    )
    runner.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="PyTorch's device (default: cuda, the GPU)")
    runner.add_argument(
        "--trtexec",
        type=arguments.named_file,
        nargs="?",
        const=TRTEXEC,
        metavar="FILE",
        help=f"MODEL are TensorRT engines, which this trtexec runs, their layers timed as well (default file: {TRTEXEC}); "
        "--input is of engines that take several shapes, by name",
    )
    board.add_argument(
        "--bench", type=Path, metavar="PATH", help="a simulated board's application port: networks run there, not under PyTorch"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan and the known facts; change nothing")
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    if not _LEAST_MINUTES <= args.minutes < math.inf:
        raise UsageError(f"--minutes {args.minutes:g}: expected {_LEAST_MINUTES:g} or more")
    if args.accuracy is not None and not 0 < args.accuracy < 100:
        raise UsageError(f"--accuracy {args.accuracy:g}: expected a percentage between 0 and 100")
    say = (lambda text: None) if args.json else print
    board = SetUpBoard(args.root, args.board, args.socket)
    known = known_facts(board, args.prior)
    candidates = _candidates(args)
    told: dict[str, Any] = {"simulated": args.bench is not None, **known.to_json()}
    for line in known.lines():
        say(line)
    plan = SetupPlan(
        board, known, tuple(candidates), args.minutes * 60, args.record or Path(f"{board.description.name}-setup.npz"),
        args.name or f"{board.description.name}-adapted", args.into, args.accuracy and args.accuracy / 100,
    )  # fmt: skip
    if args.dry_run and args.json:
        print_json({**told, "minutes": args.minutes, "networks": [one.network.name for one in candidates], "done": False})
    if known.missing:
        rails = ", ".join(known.missing)
        raise InputError(f"power rails {rails} cannot be read: a profile needs them; 'jetdvfs doctor' says more")
    most = "" if args.accuracy is None else f", or until plans are known to {args.accuracy:g}%"
    say(f"would take     {args.minutes:g} minutes{most}, {len(candidates)} networks; stores its measurements in {plan.record}")
    if args.dry_run:
        return 0
    with contextlib.closing(_runner(args)) as runner, board.daemon(own=False) as client:
        say(f"measured by    {runner.what}")
        record = measure(plan, runner, client, progress_bar)
        bundle, installed = adapt(plan, record)
        rows = prove(plan, bundle, runner, client)
    told |= {
        "done": True, "observations": len(record.tables["network_ms"]), "record": str(plan.record), "profile": plan.name,
        "installed": str(installed), "evaluation": dict(bundle.manifest.evaluation), "proof": [row.to_json() for row in rows],
    }  # fmt: skip
    if args.json:
        print_json(told)
        return 0
    print(f"profile        {plan.name}, from {len(record.tables['network_ms'])} observations, in {installed}")
    for row in bundle.manifest.evaluation.values():
        mean = row["mean"]["timeline"]
        print(f"held out       each network by the rest: latency {mean['latency_percent']:.1f}%, energy "
              f"{mean['energy_percent']:.1f}% off")  # fmt: skip
    print(f"\n{candidates[0].network.name}, predicted and observed at clocks not observed before")
    headers = ["", "CPU MHz", "GPU MHz", "EMC MHz", "ms", "observed", "", "W", "observed", ""]
    print(table(headers, [row.cells() for row in rows]))
    print(f"\nnext: {_next(args, candidates[0], plan, installed)}")
    return 0


def _next(args: argparse.Namespace, first: Candidate, plan: SetupPlan, installed: Path) -> str:
    about, profile = "", plan.name if args.into is None else shlex.quote(str(installed))
    served = (
        "the daemon takes the profile when it starts again: sudo systemctl restart jetdvfsd"
        if args.into is None
        else f"sudo jetdvfs profile install {profile} installs it for the daemon"
    )
    if args.trtexec is None:
        inputs = " ".join(f"--input {spec}" for spec in (args.inputs or ["x".join(map(str, first.inputs[0].shape))]))
        model = f"{first.path} {inputs}"
    else:
        model = f"{first.network.name}.json"
        about = f"      that file: {args.trtexec.name} --loadEngine={first.path} --exportLayerInfo={model}\n"
    return (
        f"jetdvfs plan {model} --profile {profile} --target min-energy --fps 15\n{about}"
        f"      {served}\n"
        "      more networks and minutes make it better: run setup again with them"
    )


def _runner(args: argparse.Namespace) -> Runner:
    if args.trtexec is not None:
        return EngineRunner(Trtexec(args.trtexec))
    return TwinRunner(args.bench) if args.bench is not None else TorchRunner(args.python, args.device)


def _candidates(args: argparse.Namespace) -> list[Candidate]:
    if args.trtexec is not None:
        return _engines(args)
    known, found = reference_names(), []
    for name in args.models or _NETWORKS:
        path = reference_model(name) if name in known else Path(name)
        texts = args.inputs if name not in known or args.inputs else [str(reference_input(name))]
        network = read_model(path, texts, default=True)
        network.check_whole()
        found.append(Candidate(path, network, network.inputs))
    return found


def _engines(args: argparse.Namespace) -> list[Candidate]:
    if not args.models or args.bench is not None:
        raise UsageError("--trtexec: expected TensorRT engines as MODEL, and a board's own GPU: no --bench")
    given = tuple(parse_input(text) for text in args.inputs)
    if unnamed := [str(spec) for spec in given if not spec.name]:
        raise UsageError(f"--input {unnamed[0]}: an engine's input needs a name, for instance images=1x3x224x224")
    trtexec, found = Trtexec(args.trtexec), []
    for name in args.models:
        network = trtexec.network(Path(name), given)
        found.append(Candidate(Path(name), network, given))
    return found
