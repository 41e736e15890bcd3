# SPDX-License-Identifier: Apache-2.0
"""Ask the daemon to keep a target for a model, or a configuration, while a command runs; without one, until interrupted.

The command follows ``--`` and keeps its own output; this verb writes to standard error. The exit code is the command's, or 127
if there is no such command and 126 if it cannot be executed. If the daemon restarts, the command goes on and the lease is taken
again. Without a model the lease starts at the highest clocks, and frames of ``jetdvfs.qos`` or ``--metrics`` lower them.

examples:
  jetdvfs hold resnet18.pt --input 1x3x224x224 --target latency_ms=20 --fps 30 -- ./my-application
  jetdvfs hold --config max,675.75,max -- ./my-application
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ...kernels.grid import FrequencyConfiguration, governed, needs_levels
from ...kernels.language.folder import model_file
from ...kernels.text import printable
from .. import arguments
from ..errors import LeaseEnded, UsageError
from ..planning.targets import parse_target
from ..wire.client import Client
from ..wire.hold_request import HoldRequest
from ..wire.persistent_lease import PersistentLease
from . import output
from .children import ENDING, NEVER_RAN, refused, run_command
from .server_metrics import check_url, reported

if TYPE_CHECKING:
    from ...kernels.network import TensorSpec

TAKES_COMMAND = True
_LOOK_S = 1.0
_tell = partial(output.tell, "hold")
_MUCH_GUESSED = 0.1  # as the planner has it, which would load NumPy here
_OF_A_TARGET = ("--fps", "--confidence", "--battery-wh", "--trust-frames", "--no-standby")
_OF_A_MODEL = ("--input", "--accept-boundary", "--method", "--execution", "--host-ms", "--copied-bytes")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s ([MODEL --input SHAPE ...] --target TARGET | --config CPU,GPU,EMC) [options] [-- CMD ...]"
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="a TorchScript, torch.export or ONNX file, an engine's layers, GGUF, or the output of decompose --json",
    )
    arguments.add_input(parser)
    arguments.add_accept_boundary(parser)
    arguments.add_target(parser)
    arguments.add_method(parser)
    arguments.add_execution(parser)
    arguments.add_config(parser, "this configuration instead of a model and target")
    group = arguments.titled(parser, "lease")
    arguments.add_battery(group)
    group.add_argument("--ceiling", type=float, metavar="C", help="highest temperature of any zone meanwhile, in Celsius")
    group.add_argument(
        "--trust-frames", action="store_true", help="accept reported frames that contradict the roofline or the prediction"
    )
    group.add_argument("--no-standby", action="store_true", help="keep the clocks while no frames come (docs/use.md)")
    group.add_argument("--reason", default="", help="reason shown by jetdvfs status")
    group.add_argument(
        "--metrics",
        metavar="URL",
        help="report the inferences or tokens that a server counts: llama-server (http://HOST:8080/metrics, started with "
        "--metrics), vLLM (:8000) or Triton (:8002)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan of the running daemon; set nothing")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the reasons for the plan, too")
    arguments.add_socket(parser)
    parser.add_argument("--json", action="store_true", help="print the lease as one line of JSON, and its use as another")


def run(args: argparse.Namespace) -> int:
    model, command = args.model, args.command
    if command and (code := refused(command[0], _tell)) is not None:
        return code  # before any clock is touched
    if model is not None and not command and not Path(model).exists() and shutil.which(model):
        raise UsageError(f"{model}: no such file; a command follows --, as in: jetdvfs hold ... -- {model}")
    if (model is None and args.target is None) == (args.config is None):
        raise UsageError("expected either --target, with a MODEL or without, or --config")
    if model is not None and args.target is None:
        raise UsageError("a MODEL needs --target")
    options = (*(_OF_A_TARGET if args.target is None else ()), *(_OF_A_MODEL if model is None else ()))
    given = {**vars(args), "input": args.inputs}
    if useless := [option for option in options if given[option[2:].replace("-", "_")] not in (None, [], False)]:
        raise UsageError(
            f"{', '.join(useless)} need{'s' * (len(useless) == 1)} {'--target' if args.target is None else 'a MODEL'}"
        )
    if model is not None:
        model = args.model = str(model_file(Path(model)))
    check_url(args.metrics)
    inputs: Sequence[TensorSpec] = ()
    phase = None
    if model is not None:
        from ...kernels.inputs import parse_input, phase_of  # loaded on use

        inputs = [parse_input(text) for text in args.inputs]
        phase = phase_of(inputs or _listed(model))
    request = HoldRequest(
        target=args.target,
        configuration=_configuration(args.config),
        fps=args.fps,
        confidence=args.confidence,
        method=args.method,
        execution=args.execution,
        beside=arguments.stated_overhead(args) or None,
        reason=args.reason,
        app=Path(command[0]).name if command else "jetdvfs hold",
        ceiling_c=args.ceiling,
        battery_wh=args.battery_wh,
        trust_frames=args.trust_frames,
        standby=not args.no_standby,
    )
    if args.dry_run:
        return _dry_run(args, inputs, request)
    held = PersistentLease(
        model, inputs, request, accept_boundary=args.accept_boundary, socket_path=args.socket, on_change=_tell
    )
    with held as lease, reported(args.metrics, phase, lease, _tell):
        # From here on a request to end is for the command, or for the wait; none may fall in between.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        # A command's output is its own.
        stream = sys.stderr if command else sys.stdout
        _show(lease, args, stream)
        code = run_command(command, before, _tell) if command else _wait(lease)
    if held.used is not None and code not in NEVER_RAN:
        if args.json:
            print(json.dumps({"lease": held.id, "used": held.used}), file=stream, flush=True)
        else:
            _tell(_summary(held.used))
    return code


def _configuration(text: str | None) -> str | FrequencyConfiguration | None:
    return text if text is None or needs_levels(text) else arguments.requested_configuration(text)


def _summary(used: Mapping[str, Any]) -> str:
    parts = [f"held for {used['held_s']:.1f} s"]
    if used["energy_mj"] is None:
        parts.append("energy: too short to tell, or not measured")
    else:
        watts = used["mean_power_mw"] / 1e3
        parts.append(f"the board used {used['energy_mj'] / 1e3:.1f} J in {used['measured_s']:.1f} s ({watts:.2f} W)")
    if used["frames"]:
        parts.append(f"{used['frames']:,} frame{'s' * (used['frames'] != 1)}, {used['late']:,} late")
    if used["saved_share"] is not None:
        more = "less" if used["saved_share"] >= 0 else "more"
        parts.append(f"about {abs(used['saved_share']):.0%} {more} energy per frame than at top clocks, by prediction")
    return "; ".join(parts)


def _listed(model: str) -> Sequence[TensorSpec]:
    """Inputs of a list of launches; none for a model, which the daemon reads."""
    from ...kernels.decompose import refuse_other_kinds, says_its_inputs  # readers of models are loaded on use
    from .model_arguments import read_model

    path = Path(model)
    if path.suffix == ".json" and not says_its_inputs(path):
        return read_model(path, ()).inputs
    refuse_other_kinds(path)
    return ()


def _dry_run(args: argparse.Namespace, inputs: Sequence[TensorSpec], request: HoldRequest) -> int:
    with Client(args.socket) as client:
        if args.model is None:
            clocks, left = client.preview(request), governed(args.config or "")
            answer: dict[str, Any] = {"configuration": clocks, "governed": sorted(left)}
            line = f"{output.short_clocks(clocks, left)} would be set"
        else:
            network = client.load(args.model, inputs, accept_boundary=args.accept_boundary)
            answer = client.plan(network, request)
            line = f"{headline(answer, Path(args.model).stem)} (dry run: nothing is set{simulated(answer)})"
    lines = [line, *([answer["why"]] if args.verbose and "why" in answer else [])]
    output.answer(args, answer, "\n".join(map(printable, lines)))
    return 0


def headline(plan: Mapping[str, Any], network: str, *, in_force: bool = True) -> str:
    """A plan in one line; unless ``in_force``, it saves nothing yet."""
    choice, top, unit = plan["choice"], plan["top"], "a frame" if plan.get("fps") else ""
    keyword, _, limit = plan["target"].partition("=")
    figures = {"latency_ms": f"{choice['latency_ms']:.3g} ms"}
    energy = "energy_per_frame_mj" if choice.get("energy_per_frame_mj") else "energy_mj"
    if keyword in ("tokens_per_s", "mj_per_token"):
        figures["latency_ms"], unit = f"{1e3 / choice['latency_ms']:.4g} tokens/s", "a token"
    figures[energy] = f"{choice[energy]:.3g} mJ {unit}".rstrip()
    if keyword == "power_mw":
        figures[keyword] = f"{choice['power_mw'] / 1e3:.3g} W"
        limit = f"{float(limit) / 1e3:g}"
    asked = {"latency_ms": "latency_ms", "ttft_ms": "latency_ms", "tokens_per_s": "latency_ms", "power_mw": "power_mw"}
    asked |= dict.fromkeys(("energy_mj", "mj_per_token", "min-energy"), energy)
    if keyword in asked:
        figures[asked[keyword]] += f" (asked: {limit or keyword})"
    apart = "" if keyword in asked else f" (asked: {f'to last {limit} h' if keyword == 'hours' else plan['target']})"
    saved = 1 - choice[energy] / top[energy]
    compared = (
        "at top clocks"
        if choice["configuration"] == top["configuration"]
        else (f"{abs(saved):.0%} {'below' if saved >= 0 else 'above'} top clocks")
    )
    compared = f", {compared}" if in_force else ", predicted for clocks that are not in force"
    guessed = f", {choice['guessed_share']:.0%} of GPU time guessed" if choice["guessed_share"] >= _MUCH_GUESSED else ""
    clocks = output.short_clocks(choice["configuration"])
    end = plan.get("boundary")
    part = f", for a part of the network: up to {end['operator']} at {end['place']}" if end else ""
    return f"{network} at {clocks}{apart}: {', '.join(figures.values())}{compared}{guessed}{part}"


def simulated(plan: Mapping[str, Any]) -> str:
    return ", simulated" if plan["simulated"] else ""


def _show(lease: PersistentLease, args: argparse.Namespace, stream: TextIO) -> None:
    applied: Mapping[str, Any] = lease.applied or {}
    if args.json:
        answer = {"lease": lease.id, "plan": lease.plan, "applied": applied}
        print(json.dumps({**answer, "unkept": lease.unkept, "corrected": lease.corrected}), file=stream, flush=True)
        return
    clocks = output.short_clocks(applied["requested" if applied["verified"] else "effective"], applied.get("governed", ()))
    if lease.plan is not None:
        corrected = lease.corrected
        by = f", corrected by {corrected['frames']:,} frames of {corrected['app']}" if corrected else ""
        in_force = applied["verified"] and clocks == output.short_clocks(lease.plan["choice"]["configuration"])
        line = f"{headline(lease.plan, Path(args.model).stem, in_force=in_force)} (lease {lease.id}{simulated(lease.plan)}{by})"
    elif args.target is not None:
        line = f"{parse_target(args.target)}: {clocks} until frames are reported (lease {lease.id})"
    else:
        line = f"{clocks} in force (lease {lease.id})"
    print(printable(line), file=stream)
    if lease.plan is not None and args.verbose:
        print(printable(lease.plan["why"]), file=stream)
    if lease.plan is not None and clocks != output.short_clocks(lease.plan["choice"]["configuration"]):
        print(printable(f"lease {lease.id}: {clocks} in force"), file=stream)
    stream.flush()
    if lease.unkept is not None:
        _tell(f"not kept: {lease.unkept['target']}: {lease.unkept['reason']}")
    if not applied["verified"]:
        _tell(f"not as requested: {'; '.join(applied['notes'])}")


def _wait(lease: PersistentLease) -> int:
    print("held until interrupted", file=sys.stderr, flush=True)
    while signal.sigtimedwait(ENDING, _LOOK_S) is None:
        if isinstance(lease.error, LeaseEnded):
            return 0  # the user who ended it has been named
        if lease.over and lease.error is not None:
            raise lease.error
    return 0
