# SPDX-License-Identifier: Apache-2.0
"""Common arguments of ``jetdvfs-lab``."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from ....daemon.arguments import folder, whole
from ....daemon.cli.model_arguments import read_model
from ....daemon.cli.output import print_json, show_progress
from ....daemon.errors import InputError, UsageError
from ....kernels.network import Network
from ....kernels.text import needing
from ...documents import load_json
from ...errors import ComparisonDataError
from ...reference import reference_input, reference_model, reference_names
from ..measure.unit_store import forget_parts, kept_of_another, parts_folder

if TYPE_CHECKING:
    from ..measure.campaign import Campaign

_MOST = 64
_PATIENCE_S = 10


@contextlib.contextmanager
def cluster(option: str, text: str) -> Iterator[Any]:
    """``distributed.Client`` of ``text`` local processes, or of the scheduler at that address.

    Raises UsageError, InputError.
    """
    if text.isdigit() and not 0 < int(text) <= _MOST:
        raise UsageError(f"{option} {text}: expected 1 to {_MOST}, or a scheduler's address")
    with needing(option, "tune", InputError):
        from distributed import Client, LocalCluster
    with contextlib.ExitStack() as stack:
        try:
            address = text
            if text.isdigit():
                options = {"n_workers": int(text), "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
                address = stack.enter_context(LocalCluster(**options, silence_logs=logging.CRITICAL))
            client = stack.enter_context(Client(address, timeout=_PATIENCE_S))
        except (OSError, ValueError) as error:
            raise InputError(f"{option} {text}: no scheduler of a Dask cluster answers there ({error!s:.100})") from error
        yield client


def stored_output(path: Path, option: str, study: str, command: str, shown: Callable[[Any], Iterable[Any]]) -> Any:
    """Stored output of a command's ``--json``, which ``shown`` can show. Raises InputError."""
    wanted = f"expected the output of 'jetdvfs-lab {command} --json'"
    try:
        found = load_json(path.read_bytes())
        if not isinstance(found, dict) or found.get("study") != study:
            raise InputError(f"{option} {path}: of another command; {wanted}")
        list(shown(found))
    except (OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{option} {path}: cannot be shown ({error!r:.100}); {wanted}") from error
    return found


@contextmanager
def kept_for(args: argparse.Namespace, campaign: Campaign) -> Iterator[Path]:
    """Folder of a campaign's parts: ``--folder``, or one next to ``--out``, removed on success."""
    folder = parts_folder(args.out, args.folder)
    if told := kept_of_another(folder, campaign.digest, campaign.about):
        print(told, file=sys.stderr)
    yield folder
    if args.folder is None:
        forget_parts(folder, campaign.digest)


MOST_INDIVIDUALS = 100


def individuals(text: str) -> tuple[int, ...]:
    """Parse board numbers: ``3``, ``0,4,7`` or ``0-12``."""
    numbers: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            low, high = whole(0)(first), whole(0)(last or first)
            if not low <= high < low + MOST_INDIVIDUALS:
                raise argparse.ArgumentTypeError(text)
            numbers += range(low, high + 1)
    except argparse.ArgumentTypeError:
        numbers = []
    if not numbers or len(set(numbers)) < len(numbers) or len(numbers) > MOST_INDIVIDUALS:
        what = f"expected up to {MOST_INDIVIDUALS} different boards' numbers as 3, 0,4,7 or 0-12"
        raise argparse.ArgumentTypeError(f"{what}, got {text!r:.40}")
    return tuple(numbers)


def add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", type=folder, required=True, metavar="DIR", help="folder with the measurements, anywhere below it"
    )


@contextmanager
def reading_data(command: str) -> Iterator[None]:
    """Raise InputError for bad ``--data``."""
    try:
        with needing(f"jetdvfs-lab {command}", "train", InputError):
            yield
    except ComparisonDataError as error:
        raise InputError(f"--data: {error}") from error


def add_count(parser: argparse._ActionsContainer, name: str, text: str, default: int | None = None, *, least: int = 1) -> None:
    parser.add_argument(name, type=whole(least), default=default, metavar="N", help=text)


def add_threads(parser: argparse.ArgumentParser) -> None:
    add_count(parser, "--threads", "threads for training (default 2)", 2)


def add_seed(parser: argparse._ActionsContainer) -> None:
    add_count(parser, "--seed", "seed of every random choice (default 0)", 0, least=0)


def named_networks(
    models: Sequence[str], inputs: Sequence[str], accepted: Sequence[str] = (), optimized: bool | None = None
) -> list[Network]:
    """Networks of model files or reference names; all reference networks by default.

    ``accepted`` are operators at which a list of launches may end early. Raises InputError, UsageError, KernelsError.
    """
    names = reference_names()
    networks = []
    for model in models or names:
        if model in names and not Path(model).exists():
            own = inputs or [str(reference_input(model))]
            network = read_model(reference_model(model), own, optimized=optimized, default=True)
        elif Path(model).exists():
            network = read_model(Path(model), inputs, optimized=optimized, default=True)
        else:
            raise InputError(f"{model}: no such file; reference networks: {', '.join(names)}")
        network.check_whole(accepted)
        if not network.launches:
            raise InputError(f"{model}: launches no kernel; there is nothing to study")
        networks.append(network)
    return networks


def print_members(what: Mapping[str, Any], as_json: bool, width: int) -> None:
    """Print a plan or summary: JSON, or a line per member."""
    if as_json:
        print_json(what)
    else:
        print("\n".join(f"{name:{width}} {value}" for name, value in what.items()))


def rounded(value: Any) -> Any:
    if isinstance(value, Struct):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return round(value, 4) if isinstance(value, float) else value


def uneven_progress() -> Callable[[int, int, str], None]:
    last = -1

    def show(done: int, total: int, text: str) -> None:
        nonlocal last
        before, last = last, done * 10 // max(total, 1)
        show_progress(done, total, text, last != before)

    return show
