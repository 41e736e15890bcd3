# SPDX-License-Identifier: Apache-2.0
"""Arguments of several verbs, and their values."""

from __future__ import annotations

import argparse
import json
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from ...kernels.budget import Account, Budget
from ...kernels.cost.board import BoardCost
from ...kernels.cost.execution import execution_note
from ...kernels.cost.guesses import NO_MODEL, unmodelled_kinds
from ...kernels.cost.model import surface
from ...kernels.decompose import decompose, says_its_inputs
from ...kernels.engine.fusing import ENGINE_TYPES, as_engine
from ...kernels.engine.program import RUNTIME, LayerTimes, read_times
from ...kernels.errors import GridError, ModelError, ShapeError
from ...kernels.execution import FrameOverhead, check_execution
from ...kernels.fusion import fuse
from ...kernels.grid import FrequencyConfiguration, FrequencyGrid, governed
from ...kernels.inputs import parse_input
from ...kernels.kinds import GATES, is_fused
from ...kernels.language.folder import model_file, nonblocking
from ...kernels.network import Network
from ...kernels.surface import Guess, Surface
from ...kernels.text import counted, printable
from ...kernels.units import AXES, METHODS
from .. import arguments
from ..errors import InputError, UsageError
from .output import SIMULATED, progress
from .pictures import announce_picture, draw_surface, picture_file

if TYPE_CHECKING:
    from ...profiles.bundle.bundle import Bundle
    from ..planning.plan import Plan

_MAX_JSON_BYTES = 64 << 20


def read_model(
    path: Path, inputs: Sequence[str], method: str = "forward", *, optimized: bool | None = None, default: bool = False
) -> Network:
    """A network, or its listed part, by its file and inputs; ``optimized`` is the JIT's view, None for ``default``. Raises
    UsageError, or KernelsError for an unreadable file.
    """
    path = model_file(path)
    says_its_own = says_its_inputs(path)
    if path.suffix == ".json" and not says_its_own:
        if method != "forward":
            raise InputError(f"{path}: a list of launches has no method {method!r:.80}; valid: forward")
        network = _network_from_json(path)
        if optimized not in (None, network.optimized):
            have = "as the JIT's passes leave them" if network.optimized else "as the model's file has them"
            raise UsageError(f"{path}: its launches are listed {have}; the other view is taken of the model's file alone")
        return network
    specs = [parse_input(text) for text in inputs]
    try:
        with progress(f"reading {path.name}"):
            return decompose(path, specs, method=method, optimized=default if optimized is None else optimized)
    except ShapeError as error:
        if inputs or says_its_own:
            raise
        raise UsageError(str(error)) from error


def read_measured(path: Path, network: Network) -> LayerTimes:
    if network.runtime != RUNTIME:
        raise UsageError(f"--measured {path}: its times are of an engine's layers, and the model is no engine")
    try:
        with open(path, "rb", opener=nonblocking) as stream:
            return read_times(stream, network, Account(Budget()))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except ModelError as error:
        raise type(error)(f"{path}: {error}") from error


def measured_text(times: LayerTimes) -> str:
    listed, others = sum(times.launches_ms), sum(times.others_ms.values())
    return f"measured by trtexec: {listed:.4g} ms of launches, {others:.4g} ms of {len(times.others_ms)} other layers"


def _network_from_json(path: Path) -> Network:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_JSON_BYTES:
            raise InputError(f"{path}: expected a regular file of at most {_MAX_JSON_BYTES >> 20} MiB")
        return Network.from_json(json.loads(path.read_bytes()))
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error})") from error


_GUESSES = 8


def add_model_arguments(parser: argparse.ArgumentParser, *, optimized: bool = True) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a TorchScript, torch.export or ONNX file, an engine's layers (trtexec --exportLayerInfo), a language model "
        "(GGUF, or safetensors with its config.json), or the output of 'jetdvfs decompose --json'",
    )
    arguments.add_input(parser)
    add_optimized_argument(parser, default=optimized)
    add_fused_argument(parser)
    arguments.titled(parser, "model").add_argument(
        "--as",
        dest="compiled",
        choices=tuple(ENGINE_TYPES),
        help="kernels as TensorRT would fuse them; engine-half: in half precision (trtexec --fp16); engine-int8: calibrated "
        "for 8 bits too (--int8 --fp16). The layers of a built engine are more exact (--exportLayerInfo)",
    )


def add_optimized_argument(parser: argparse.ArgumentParser, *, default: bool) -> None:
    """--optimized and --no-optimized; None without either, which keeps a saved list's view."""
    arguments.titled(parser, "model").add_argument(
        "--optimized",
        action=argparse.BooleanOptionalAction,
        help="a TorchScript file as PyTorch's JIT leaves it: without dead code, repeated calls, work on constants, sums with 0 "
        f"and nested cat (default: {'on' if default else 'off'})",
    )


add_fused_argument = arguments.option(
    "--fused",
    group="model",
    action="store_true",
    help="kernels as TorchScript's fusers leave them on CUDA: pointwise groups without in-place operators, and cuDNN's "
    "convolutions if optimize_for_inference wrote them; assumed of a list that names no operators (default: off)",
)
add_measured_argument = arguments.option(
    "--measured",
    type=arguments.named_file,
    metavar="PROFILE.json",
    help="of an engine: show the time of each layer that trtexec --exportProfile measured",
)


def add_profile_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_accept_boundary(parser)
    group = arguments.titled(parser, "prediction")
    group.add_argument(
        "--profile", metavar="NAME|DIR", help="board profile (required): a name ('jetdvfs profile list' lists them) or a folder"
    )
    group.add_argument(
        "--method",
        choices=METHODS,
        default=METHODS[0],
        help="timeline of host and GPU (default), or sum of kernel times, as in MIRAGE",
    )
    arguments.add_temperature(parser)
    arguments.add_execution(parser)


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_json(parser)
    parser.add_argument("--plot", type=picture_file, metavar="FILE.png", help="also draw a picture (needs matplotlib)")


def read_network(args: argparse.Namespace) -> Network:
    network = read_model(Path(args.model), args.inputs, optimized=args.optimized, default=True)
    network.check_whole(args.accept_boundary)
    return compiled(network, args)


def compiled(network: Network, args: argparse.Namespace) -> Network:
    """A network in the view of --fused or --as; both raise UsageError."""
    if args.compiled and args.fused:
        raise UsageError("--fused is PyTorch's view, --as engine TensorRT's: ask for one of them")
    if args.compiled:
        return as_engine(network, ENGINE_TYPES[args.compiled])
    return fuse(network) if args.fused else network


def read_profile(args: argparse.Namespace) -> Bundle:
    from ...profiles.bundle.bundle import load_bundle
    from ...profiles.bundle.finding import find_bundles

    if args.profile is None:
        raise UsageError(f"say the board's profile: --profile NAME, one of {', '.join(find_bundles()) or 'none'}, or a folder")
    with progress(f"loading profile {args.profile}"):
        return load_bundle(args.profile)


def read_profile_at(args: argparse.Namespace) -> Bundle:
    bundle = read_profile(args)
    return bundle if args.temperature is None else replace(bundle, cost=bundle.cost.warmed(args.temperature))


def check_powered(bundle: Bundle, what: str) -> None:
    """Raise InputError if ``what`` needs power, and the profile has none."""
    if not bundle.manifest.rails:
        raise InputError(f"profile {bundle.manifest.name}: power was not measured, and {what} needs it; valid: jetdvfs predict")


def predict_surface(network: Network, bundle: Bundle, args: argparse.Namespace) -> Surface:
    with progress(f"predicting {network.name}"):
        return surface(network, bundle.cost, args.method, execution=args.execution, frame_overhead=frame_overhead(args))


def frame_overhead(args: argparse.Namespace) -> FrameOverhead:
    return FrameOverhead(**arguments.stated_overhead(args))


def about(network: Network, bundle: Bundle, args: argparse.Namespace) -> dict[str, Any]:
    manifest = bundle.manifest
    data = {"network": network.name, "profile": manifest.name, "simulated": manifest.simulated}
    data |= {"optimized": network.optimized, "fused": args.fused, "temperature_c": _temperature_c(bundle, args)}
    data |= {"runtime": network.runtime} if network.runtime else {}
    way = check_execution(args.execution, network)
    data |= {
        "execution": way,
        "execution_note": execution_note(network, bundle.cost, way),
        "beside": asdict(frame_overhead(args)),
    }
    return data | ({"boundary": network.boundary.to_json()} if network.boundary else {})


def network_label(network: Network, args: argparse.Namespace) -> str:
    views = [view for view, shown in (("optimized", network.optimized), ("fused", args.fused)) if shown]
    return printable(network.label) + (f" ({', '.join(views)})" if views else "")


def draw(network: Network, bundle: Bundle, args: argparse.Namespace, surface: Surface, plan: Plan | None = None) -> None:
    title = f"{network_label(network, args)} on {bundle.manifest.described().title}"
    draw_surface(surface, args.plot, title=title, simulated=bundle.manifest.simulated, plan=plan)
    announce_picture(args.plot)


def print_heading(network: Network, bundle: Bundle, args: argparse.Namespace, rest: str, inputs: str = "") -> None:
    print(f"{network_label(network, args)}{inputs} on {bundle.manifest.board}, profile {bundle.manifest.name}{rest}")
    if network.boundary:
        print(printable(f"a part of the network: {network.boundary.note}"))
    way = check_execution(args.execution, network)
    note = execution_note(network, bundle.cost, way)
    if note or way != "eager":
        print(printable(f"executed as {way}" + (f": {note}" if note else "")))
    only = "" if bundle.manifest.leakage_fold_c else "; this profile knows no other temperature"
    if (temperature_c := _temperature_c(bundle, args)) is not None:
        print(f"with the die at {temperature_c:g} C{only}")
    else:
        print("power was not measured: this profile knows times only")
    if bundle.manifest.fleet is not None:
        print(f"trained on {bundle.manifest.fleet}")
    if bundle.manifest.simulated:
        print(SIMULATED)


def _temperature_c(bundle: Bundle, args: argparse.Namespace) -> float | None:
    return bundle.manifest.temperature_c if args.temperature is None else float(args.temperature)


def print_notes(network: Network, cost: BoardCost, guessed: Sequence[Guess]) -> None:
    for note in _model_notes(network, cost, guessed):
        print(note)


def _model_notes(network: Network, cost: BoardCost, guessed: Sequence[Guess]) -> Iterator[str]:
    if network.unread:
        yield printable(network.unread)
    modelled = [guess for guess in guessed if guess.why != NO_MODEL]
    if modelled:
        share = sum(guess.time_share for guess in modelled)
        yield f"guessed, for want of kernels like them in the profile: {share:.1%} of the GPU's time at the top clocks"
    for guess in modelled[:_GUESSES]:
        yield printable(f"  {guess.kind}, {guess.why} ({counted(guess.launches, 'launch')}, {guess.time_share:.1%})")
    if len(modelled) > _GUESSES:
        yield f"  and {len(modelled) - _GUESSES} more; --json has all"
    for kind in unmodelled_kinds(network, cost.model_for):
        part = f"{counted(kind.launches, 'launch')}, {kind.flops_share:.1%} of FLOPs, {kind.bytes_share:.1%} of bytes"
        how = "taken for the products it is made of, step by step" if kind.kind in GATES else "bounded by the roofline"
        yield f"no model for {printable(kind.kind)} ({part}): {how}"
    served = {launch.kind: cost.model_for(launch) for launch in network.launches if is_fused(launch.kind)}
    for fused, model in served.items():
        if model is not None and model.kind != fused:
            yield f"no model for {fused}: the model of {model.kind} is used instead, less certainly"


def on_grid(text: str, grid: FrequencyGrid) -> FrequencyConfiguration:
    """Configuration of a --config on a grid, or UsageError; the highest level of a clock left to its governor."""
    if left := governed(text):
        text = ",".join("max" if axis in left else word for axis, word in zip(AXES, text.split(","), strict=True))
    configuration = arguments.requested_configuration(text, grid.to_json())
    try:
        grid.index(configuration)
    except GridError as error:
        raise UsageError(str(error)) from error
    return configuration
