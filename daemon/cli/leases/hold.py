# SPDX-License-Identifier: Apache-2.0
"""Ask the daemon to keep a target for a model, or a configuration, while a command runs; without one, until interrupted.

A command stands after ``--``. Its output is its own: what this verb has to say beside it goes to standard error. The exit code
is the command's; 127 if there is no such command and 126 if it cannot be executed, and nothing stays held then. Where the
daemon goes away meanwhile, the command goes on, and the lease is held again as soon as there is a daemon.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from ....kernels.inputs import parse_input, phase_of
from ....kernels.text import printable
from ... import arguments
from ...errors import UsageError
from ...wire.kept import KeptLease
from .. import output
from .served import check_url, reported

TAKES_COMMAND = True
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)
_LOOK_S = 1.0
_CANNOT_EXECUTE, _NO_SUCH_COMMAND = 126, 127
_OF_A_MODEL = {
    "--target": "target",
    "--fps": "fps",
    "--confidence": "confidence",
    "--input": "inputs",
    "--accept-boundary": "accept_boundary",
    "--execution": "execution",
    "--host-ms": "host_ms",
    "--copied-bytes": "copied_bytes",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s (MODEL --input SHAPE ... --target TARGET | --config CPU,GPU,EMC) [options] [-- CMD ...]"
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="a TorchScript, torch.export or ONNX file, an engine's layers or GGUF"
    )
    arguments.add_input(parser)
    arguments.add_accept_boundary(parser)
    arguments.add_target(parser)
    arguments.add_execution(parser)
    arguments.add_config(parser, "this configuration instead of a model and target")
    parser.add_argument("--reason", default="", help="why, for whoever looks at the status")
    parser.add_argument(
        "--metrics",
        metavar="URL",
        help="report what the metrics of a server say that its inferences or tokens take: of llama-server "
        "(http://HOST:8080/metrics, started with --metrics), vLLM (:8000) or Triton (:8002)",
    )
    arguments.add_socket(parser)
    parser.add_argument("--json", action="store_true", help="print the lease as JSON, on one line")


def run(args: argparse.Namespace) -> int:
    model, command = args.model, args.command
    if command and shutil.which(command[0]) is None:
        # As shells do, and before any clock is touched.
        found = bool(command[0]) and Path(command[0]).exists()
        _tell(f"{command[0]}: {'cannot be executed' if found else 'no such command'}")
        return _CANNOT_EXECUTE if found else _NO_SUCH_COMMAND
    if model is not None and not command and not Path(model).exists() and shutil.which(model):
        raise UsageError(f"{model}: no such file; a command stands after --, as in: jetdvfs hold ... -- {model}")
    if (model is None) == (args.config is None):
        raise UsageError("expected either a MODEL with --target, or --config")
    if model is not None and (args.target is None or (not args.inputs and not _says_its_inputs(model))):
        raise UsageError("a MODEL needs --target and an --input for each of its inputs")
    useless = [option for option, name in _OF_A_MODEL.items() if vars(args)[name] not in (None, [])]
    if model is None and useless:
        raise UsageError(f"{', '.join(useless)}: said of a MODEL; --config goes without")
    check_url(args.metrics)
    inputs = [parse_input(text) for text in args.inputs]
    held = KeptLease(
        model,
        inputs,
        args.target,
        configuration=None if args.config is None else arguments.asked_configuration(args.config),
        fps=args.fps,
        confidence=args.confidence,
        reason=args.reason,
        app=Path(command[0]).name if command else "jetdvfs hold",
        execution=args.execution,
        beside=arguments.stated_beside(args) or None,
        accept_boundary=args.accept_boundary,
        socket_path=args.socket,
        told=_tell,
    )
    with held as lease, reported(args.metrics, phase_of(inputs), lease, _tell):
        # From here on a request to end is for the command, or for the wait; none may fall in between.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        # A command's output is its own.
        _show(lease, sys.stderr if command else sys.stdout, as_json=args.json)
        return _run_command(command, before) if command else _wait(lease)


def _says_its_inputs(model: str) -> bool:
    from ....kernels.decompose import says_its_inputs  # what reads models is loaded where it is needed

    return says_its_inputs(Path(model))


def _tell(text: str) -> None:
    print(f"jetdvfs hold: {printable(text)}", file=sys.stderr, flush=True)


def _show(lease: KeptLease, stream: TextIO, *, as_json: bool) -> None:
    applied: Mapping[str, Any] = lease.applied or {}
    if as_json:
        print(json.dumps({"lease": lease.id, "plan": lease.plan, "applied": applied}), file=stream, flush=True)
        return
    if lease.plan is not None:
        choice = lease.plan["choice"]
        simulated = " (simulated profile)" if lease.plan["simulated"] else ""
        figures = f"{choice['latency_ms']:.2f} ms, {choice['power_mw'] / 1e3:.2f} W, {choice['energy_mj']:.1f} mJ"
        print(printable(f"lease {lease.id}: {lease.plan['target']}; predicted {figures}{simulated}"), file=stream)
        print(printable(lease.plan["why"]), file=stream)
    print(printable(f"lease {lease.id}: {output.clocks(applied['effective'])} in force"), file=stream, flush=True)
    if not applied["verified"]:
        _tell(f"not as requested: {'; '.join(applied['notes'])}")


def _run_command(command: list[str], mask: Iterable[int]) -> int:
    """Run the command with this signal mask and return its exit code, 128 + N where signal N ended it, as shells do."""
    try:
        # It takes signals from its first moment on: until it has replaced this program, by their default.
        pid = os.posix_spawnp(command[0], command, os.environ, setsigmask=mask, setsigdef=[*_ENDING, *_PYTHON_IGNORES])
    except OSError as error:
        _tell(f"{command[0]}: {error.strerror}")
        return _NO_SUCH_COMMAND if isinstance(error, FileNotFoundError) else _CANNOT_EXECUTE

    def pass_on(number: int, _: object) -> None:
        os.kill(pid, number)

    # The lease must outlive the command. A terminal's interrupt reaches the command by itself, if it was there already.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    if signal.SIGINT in signal.sigpending():
        os.kill(pid, signal.SIGINT)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    # Once it is waited for, its number may be somebody else's.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if code >= 0 else 128 - code


def _wait(lease: KeptLease) -> int:
    """Wait for an interrupt or a request to end.

    Raises:
        DaemonError: the lease was lost with the daemon, and the next one refuses it.
    """
    print("held until interrupted", file=sys.stderr, flush=True)
    while signal.sigtimedwait(_ENDING, _LOOK_S) is None:
        if lease.over and lease.error is not None:
            raise lease.error
    return 0
