# SPDX-License-Identifier: Apache-2.0
"""The verbs of ``jetdvfs``, and running a verb of a program.

A verb is a line of ``VERBS`` and a module with ``configure(parser)`` and ``run(args) -> int``, imported when called. With
``TAKES_COMMAND = True`` the words after ``--`` are in ``args.command``.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct, field

from ... import __version__
from ...kernels.errors import KernelsError
from ...kernels.text import printable
from ...profiles.errors import ProfilesError
from ..arguments import OneLineParser
from ..errors import DaemonError, InputError, UsageError
from .interrupts import interrupted_afterwards

EXIT_CODES = """exit codes:
  0  done
  2  wrong usage
  3  bad input (unreadable model, unknown operator, only a part of the network listed, wrong profile), or not permitted
  4  target not attainable
  5  the hardware refused or could not be verified
  6  no daemon"""


def terminal_size() -> tuple[int, int]:
    """Columns and rows; 80 and 24 on a serial line, where Python 3.10 finds 0."""
    columns, rows = shutil.get_terminal_size()
    return columns or 80, rows or 24


class Parser(OneLineParser):
    def __init__(self, **settings: Any) -> None:
        formatter = partial(argparse.RawDescriptionHelpFormatter, width=terminal_size()[0] - 2)
        super().__init__(epilog=EXIT_CODES, formatter_class=formatter, **settings)


COMMAND = "./my-application"

_TWIN = "profiles.twin"

#: Verb: its module (of the twin: below the product's root), and a summary.
VERBS: dict[str, tuple[str, str]] = {
    "decompose": ("decompose", "list the kernels of a model"),
    "predict": ("predict", "predict latency, power and energy at every frequency configuration"),
    "plan": ("plan", "choose the frequency configuration that meets a target best"),
    "hold": ("hold", "ask the daemon to keep a target or a configuration while a command runs"),
    "release": ("release", "end a lease"),
    "status": ("status", "show clocks, leases and their reasons"),
    "top": ("top", "watch the board and its leases"),
    "web": ("web.web", "show the board and its leases in a browser, with live plots"),
    "log": ("log", "show the daemon's last decisions and their reasons"),
    "board": ("board", "show the board, its clocks, rails and limits"),
    "config": ("config", "check, show or write the daemon's configuration"),
    "setup": ("setup.setup", "measure a new board for some minutes, and install a proven profile"),
    "doctor": ("doctor", "diagnose the installation"),
    "measure": ("measure", "measure time, power, energy and frames of a command"),
    "restore": ("restore", "restore the baseline by hand"),
    "profile": ("profile", "list, inspect and install profiles"),
    "twin": ("profiles.twin.cli.twin", "serve a simulated board, or run a demonstration on one"),
}

#: Former verbs, by their first words: the words of today.
MOVED = {
    "advise": "jetdvfs plan --modes",
    "explain": "jetdvfs predict --explain",
    "metrics": "jetdvfs status --prometheus",
    "demo": "jetdvfs twin demo",
    "characterize": "jetdvfs-lab paper characterize",
    "trace": "jetdvfs-lab trace",
    **{
        f"profile {old}": f"jetdvfs-lab {new}"
        for old, new in {
            "collect": "collect", "train": "train", "warm": "train", "bounds": "train", "engines": "train", "tune": "tune",
            "judge": "cross-validate", "adapt": "adapt", "evaluate": "evaluate", "networks": "networks measure",
            "predictor": "networks predictor", "counters": "networks counters", "import": "table import",
            "export": "table export", "merge": "table merge", "kernels": "compare kernels", "layers": "compare layers",
            "real": "compare real", "tokens": "compare tokens", "batches": "compare batches", "replay": "compare replay",
            "transfer": "compare transfer", "report": "paper report", "table1": "paper table1", "gate": "silicon gate",
            "comparison": "silicon comparison",
        }.items()
    },
}  # fmt: skip


class Program(Struct, frozen=True):
    """A command with verbs; ``moved`` has former verbs and their present words."""

    name: str
    description: str
    verbs: Mapping[str, str]
    module_of: Callable[[str], Any]
    moved: Mapping[str, str] = field(default_factory=dict)


def run(program: Program, arguments: list[str], verb: str) -> int:
    """Run a verb of a command line and return its exit code; every failure is one line on stderr."""
    warnings.formatwarning = lambda message, *_, **__: f"warning: {' '.join(str(message).split())}\n"
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may not know every letter of a name
    try:
        return _parse_and_run(program, arguments, verb)
    except (KernelsError, ProfilesError, DaemonError) as error:
        print(f"{program.name} {verb}: {printable(' '.join(str(error).split()))}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        _give_up_output()
        return 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"{program.name} {verb}: {printable(f'{where}{error.strerror or error}')}", file=sys.stderr)
        _give_up_output()
        return InputError.exit_code


def module_of(verb: str) -> Any:
    name = VERBS[verb][0]
    if not name.startswith(_TWIN):
        return importlib.import_module(f".{name}", __package__)
    try:
        return importlib.import_module(f"...{name}", __package__)
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.endswith(_TWIN):
            raise
        raise InputError("simulated boards are not installed; from a clone: pip install ./profiles/twin") from error


JETDVFS = Program(
    "jetdvfs",
    "Meet a latency, energy or power target on a Jetson at the right clocks.",
    {name: summary for name, (_, summary) in VERBS.items()},
    module_of,
    MOVED,
)


def parser_with(program: Program, modules: Mapping[str, Any]) -> tuple[Parser, Mapping[str, Parser]]:
    parser = Parser(prog=program.name, description=program.description)
    parser.add_argument("--version", action="version", version=f"{program.name} {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, summary in program.verbs.items():
        module = modules.get(name)
        sub = verbs.add_parser(name, help=summary, description=(module and module.__doc__) or summary)
        if module is not None:
            module.configure(sub)
    return parser, verbs.choices


def _parse_and_run(program: Program, arguments: list[str], verb: str) -> int:
    words = [word for word in arguments if not word.startswith("-")]
    for former in (" ".join(words[:2]), verb):
        if former in program.moved:
            raise UsageError(f"moved to: {program.moved[former]}")
    with interrupted_afterwards():
        module = program.module_of(verb) if verb in program.verbs else None
    parser, verbs = parser_with(program, {verb: module} if module is not None else {})
    command: list[str] = []
    takes_command = getattr(module, "TAKES_COMMAND", False)
    if takes_command and "--" in arguments:
        cut = arguments.index("--")
        arguments, command = arguments[:cut], arguments[cut + 1 :]
    args, unknown = parser.parse_known_args(arguments)
    if unknown:
        hint = f"; a command follows --, as in: {program.name} {verb} ... -- {COMMAND}" if takes_command and not command else ""
        verbs[verb].unknown(unknown, hint)
    args.command = command
    assert module is not None
    code = int(module.run(args))
    if sys.stdout is not None:
        sys.stdout.flush()
    return code


def _give_up_output() -> None:
    """Drop pending output without a reader, which the interpreter would report at its end."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
