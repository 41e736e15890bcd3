# SPDX-License-Identifier: Apache-2.0
"""Arguments shared by several verbs. Loads the standard library only."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ..kernels.errors import GridError
from ..kernels.grid import CONFIGURATION_FORM, FrequencyConfiguration, parse_configuration
from ..kernels.text import closest_match, valid_instead
from ..kernels.units import METHODS
from .errors import UsageError
from .planning import targets

MOST = 2**32 - 1


def whole(low: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        with contextlib.suppress(ValueError):
            if low <= (number := int(text)) <= MOST:
                return number
        raise argparse.ArgumentTypeError(f"expected a whole number from {low} to {MOST}, got {text!r:.40}")

    return read


def named_file(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("expected the name of a file, got none")
    return Path(text)


def folder(text: str) -> Path:
    if not Path(text or "?").is_dir():
        raise argparse.ArgumentTypeError(f"expected a folder, got {text!r}")
    return Path(text)


class OneLineParser(argparse.ArgumentParser):
    """Parser that reports wrong usage in one line, and takes options between any number of file names."""

    _inner = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        numbers = {action.nargs for action in self._get_positional_actions()}
        if self._inner or not numbers & {argparse.ZERO_OR_MORE, argparse.ONE_OR_MORE}:
            return super().parse_known_args(args, namespace)
        self._inner = True  # the next call recurses here, for options and for the rest
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._inner = False

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        read, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.unknown(unknown)
        return read

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}{valid_instead(str(value), known)}")

    def unknown(self, arguments: Sequence[str], hint: str = "") -> NoReturn:
        """End with one line on unknown arguments, and a close option, or the hint."""
        first = next((one.partition("=")[0] for one in arguments if one.startswith("--")), "")
        meant = closest_match(first, self._options())
        self.error(f"{' '.join(arguments)}: not known{f'; did you mean {meant!r}?' if meant else hint}")

    def _options(self) -> list[str]:
        found = [name for action in self._actions for name in action.option_strings if name.startswith("--")]
        for action in self._actions:
            inner = action.choices.values() if isinstance(action.choices, Mapping) else ()
            found += [name for parser in inner if isinstance(parser, OneLineParser) for name in parser._options()]
        return found

    def error(self, message: str) -> NoReturn:
        stop = "" if message.endswith("?") else ";"
        self.exit(UsageError.exit_code, f"{self.prog}: {message}{stop} '{self.prog} --help' says more\n")


def titled(parser: argparse._ActionsContainer, title: str) -> argparse._ArgumentGroup:
    found = (group for group in parser._action_groups if group.title == title)
    return next(found, None) or parser.add_argument_group(title)


def option(name: str, *, group: str = "", **settings: Any) -> Callable[[argparse._ActionsContainer], None]:
    def add(parser: argparse._ActionsContainer) -> None:
        (titled(parser, group) if group else parser).add_argument(name, **settings)

    return add


add_json = option("--json", action="store_true", help="print JSON instead of text")
add_accept_boundary = option(
    "--accept-boundary",
    group="model",
    action="append",
    default=[],
    metavar="OPERATOR",
    help="accept a list of kernels that ends early at this operator, such as aten::index; the answer then says so "
    "(default: refuse it and name the operator)",
)
add_method = option(
    "--method", group="prediction", choices=METHODS, help="timeline of host and GPU (default), or sum of kernel times"
)
add_temperature = option(
    "--temperature",
    group="prediction",
    type=float,
    metavar="C",
    help="of the die, in degrees Celsius: leakage grows with it (default: that of the profile's idle power)",
)
add_battery = option(
    "--battery-wh", type=float, metavar="WH", help="with a target of hours: charge of the battery, in watt hours"
)
add_into = option("--into", type=Path, metavar="DIR", help="folder of profiles (default: the user's, or the system's as root)")
add_socket = option(
    "--socket",
    type=Path,
    metavar="PATH",
    help="socket of the daemon (default: $JETDVFS_SOCKET; /run/jetdvfs/jetdvfs.sock; of an ordinary user's daemon "
    "jetdvfs.sock in $XDG_RUNTIME_DIR/jetdvfs or /tmp/jetdvfs-UID)",
)
add_state_dir = option(
    "--state-dir",
    type=Path,
    metavar="DIR",
    help="where surfaces and tables are kept (default: /var/lib/jetdvfs; ~/.local/state/jetdvfs for an ordinary user; "
    "with --root a folder in it for that board)",
)
add_runtime_dir = option(
    "--runtime-dir",
    type=Path,
    metavar="DIR",
    help="where the baseline is kept until the next boot (default: /run/jetdvfs; $XDG_RUNTIME_DIR/jetdvfs or "
    "/tmp/jetdvfs-UID for an ordinary user; with --root a folder in it for that board)",
)


def add_input(parser: argparse.ArgumentParser) -> None:
    """--input, --prefill and --decode, as texts for :func:`jetdvfs.kernels.inputs.parse_input`."""
    group = titled(parser, "model")
    group.add_argument(
        "--input",
        dest="inputs",
        action="append",
        default=[],
        metavar="[NAME=]SHAPE[:DTYPE]",
        help="shape of an input, such as 1x3x224x224 or scalar, and its type (fp16, int8, ...; default: the file's, or "
        "float32), or a value that is no tensor, such as 16000:int, 0.5:float, true or none; once per input, in order or by "
        "name (mask=1x128:bool); only needed if the file leaves it open",
    )
    for option, metavar, text in (
        ("prefill", "TOKENS", "of a language model (GGUF, safetensors): a prompt of this number of tokens"),
        ("decode", "CONTEXT", "of a language model: one token that sees this number of positions, its own included"),
    ):
        group.add_argument(f"--{option}", dest="inputs", action="append", type=_phase(option), metavar=metavar, help=text)


def _phase(name: str) -> Callable[[str], str]:
    read = whole(1)
    return lambda text: f"{name}={read(text)}:int"


def add_execution(parser: argparse.ArgumentParser) -> None:
    group = titled(parser, "prediction")
    group.add_argument(
        "--execution",
        choices=("eager", "graph", "engine"),
        help="launches are issued one by one, captured in a graph, or started as an engine (default: engine for TensorRT's "
        "layers, else eager)",
    )
    group.add_argument("--host-ms", type=float, metavar="MS", help="CPU time of a frame outside the network, at the top clock")
    group.add_argument("--copied-bytes", type=whole(0), metavar="N", help="copies of a frame between host and device memory")


def stated_overhead(args: argparse.Namespace) -> dict[str, Any]:
    return {name: value for name in ("host_ms", "copied_bytes") if (value := getattr(args, name)) is not None}


def add_config(parser: argparse.ArgumentParser, what: str, *, repeatable: bool = False) -> None:
    help_text = (
        f"{what}: each clock in MHz, or CPU in kHz, GPU and EMC (memory) in Hz; max or min, for one clock (max,612,max) or all "
        "three; empty (,612,): left to its governor"
    )
    repeated: dict[str, Any] = {"action": "append", "default": []} if repeatable else {}
    parser.add_argument("--config", metavar=CONFIGURATION_FORM, help=help_text, **repeated)


def requested_configuration(text: str, levels: Mapping[str, Sequence[int]] | None = None) -> FrequencyConfiguration:
    try:
        return parse_configuration(text, levels)
    except GridError as error:
        raise UsageError(f"--config: {error}") from error


def add_target(parser: argparse.ArgumentParser, *, several: str = "") -> None:
    group = parser.add_argument_group("targets", targets.listing())
    what = "requirement, in one of these forms"
    repeated: dict[str, Any] = {"dest": "targets", "action": "append", "default": []} if several else {}
    group.add_argument("--target", help=f"{what}; {several}" if several else what, **repeated)
    group.add_argument("--fps", type=float, metavar="RATE", help="frames per second the application runs at")
    group.add_argument(
        "--confidence",
        type=float,
        metavar="P",
        help="share of frames that meet the target, such as 0.95 (at least 0.5, below 1)",
    )


def add_action(actions: Any, name: str, text: str) -> argparse.ArgumentParser:
    """Add the parser of a verb's action, with --json; the first paragraph of ``text`` is its summary."""
    summary, *more = text.strip().split("\n\n", 1)
    summary = f"{summary[0].lower()}{summary[1:].rstrip('.')}"
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=summary, description="\n\n".join((f"{summary[0].upper()}{summary[1:]}.", *more))
    )
    add_json(parser)
    return parser


def board_socket(root: Path) -> Path:
    from .system.state import socket_of
    from .wire.protocol import default_socket

    return socket_of(root) or default_socket()


def add_root(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--root",
        type=folder,
        default=os.environ.get("JETDVFS_ROOT") or "/",
        metavar="DIR",
        help="where the board's /sys and /proc are (default: $JETDVFS_ROOT, else /), for instance a simulated board's mount",
    )
