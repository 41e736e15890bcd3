# SPDX-License-Identifier: Apache-2.0
"""Compare a profiler trace of a run with the model's decomposed kernel list.

Shows matched and missing launches, further calls, and the time of each kind; with --profile, also predictions. Ends with 3 if
launches are missing or ran on another type.

TRACE is a file of PyTorch's profiler (export_chrome_trace). With a GPU, times are those of the kernels, by the operators that
launched them; on the CPU, the operators' own. With record_shapes=True calls are also matched by size. Or it is the profile of
an ONNX Runtime session (SessionOptions.enable_profiling); MODEL is then the model saved by that session
(SessionOptions.optimized_model_filepath).

examples:
  jetdvfs-lab trace trace.json resnet18.pt --input 1x3x224x224
  jetdvfs-lab trace onnxruntime_profile.json optimized.onnx --input 1x3x224x224 --profile agx-xavier-sim
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import sys
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from msgspec.structs import asdict

from ....daemon import arguments
from ....daemon.cli import model_arguments as common
from ....daemon.cli import output
from ....daemon.cli.model_arguments import read_model
from ....daemon.errors import InputError
from ....kernels.budget import Account, Budget
from ....kernels.cost.explain import explain
from ....kernels.decompose import decompose
from ....kernels.errors import KernelsError
from ....kernels.inputs import parse_input
from ....kernels.network import KernelInvocation, Network
from ....kernels.text import printable
from ..traces.comparing import Comparison, compare, compare_nodes, label
from ..traces.kineto import Kineto
from ..traces.onnxruntime import OnnxRuntime
from ..traces.reading import Event, read_events

_ROWS = 12
_NSYS = (
    "a report of Nsight Systems, whose kernels name no operators; record the run with "
    "torch.profiler.profile(record_shapes=True) and export_chrome_trace, or an engine's with trtexec --exportProfile for "
    "decompose --measured"
)
_NO_SHAPES = (
    "{trace}: has no shapes, so that launches are told apart by kind alone; "
    "record it with torch.profiler.profile(record_shapes=True)"
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", type=Path, metavar="TRACE.json", help="trace of PyTorch's or ONNX Runtime's profiler")
    common.add_model_arguments(parser, optimized=False)
    common.add_profile_arguments(parser)
    arguments.add_config(parser, "the configuration to predict for (default: the top clocks)")
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    kineto, session = _read(args.trace)
    calls = kineto.calls()
    if session.nodes:
        network = decompose(args.model, [parse_input(text) for text in args.inputs], by_node=True)
        comparison = compare_nodes(network, session.nodes, session.recorder)
    else:
        network = common.compiled(read_model(Path(args.model), args.inputs, optimized=args.optimized, default=False), args)
        comparison = compare(network, calls, kineto.recorder)
    network.check_whole(args.accept_boundary)
    if not session.nodes and calls and all(call.shapes is None for call in calls):
        print(_NO_SHAPES.format(trace=args.trace), file=sys.stderr)
    if not comparison.inferences:
        if {call.kind for call in calls}.intersection(network.kinds):
            raise InputError(f"{args.trace}: nothing of it is of the size that {network.label} has: was it run on that input?")
        raise InputError(f"{args.trace}: nothing of it is a kind that {network.label} launches")
    predicted_ms = _predicted_ms(network, args) if args.profile else None
    by_node = bool(session.nodes)
    if args.json:
        told = {"launches": [launch.to_json() for launch in network.launches], "missing": comparison.missing}
        output.print_json({"network": network.label, **told, **asdict(comparison), "predicted_ms": predicted_ms})
    else:
        print(_text(args.trace.name, network, comparison, predicted_ms, by_node))
    return InputError.exit_code if comparison.missing or comparison.retyped else 0


def _read(path: Path) -> tuple[Kineto, OnnxRuntime]:
    kineto, session = Kineto(), OnnxRuntime()

    def keep(event: Event) -> None:
        kineto.take(event)
        session.take(event)

    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
            account = Account(Budget())
            read_events(_unpacked(stream, account), account, keep)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except KernelsError as error:
        raise type(error)(f"{path}: {error}") from error
    return kineto, session


def _unpacked(stream: BinaryIO, account: Account) -> BinaryIO:
    """Trace text, decompressed if needed. Raises InputError."""
    head = stream.read(64)
    stream.seek(0)
    if head.startswith(b"SQLite format 3") or b"Total Time (ns)" in head or stream.name.endswith(".nsys-rep"):
        raise InputError(f"{stream.name}: {_NSYS}")
    if not head.startswith(b"\x1f\x8b"):
        return stream
    try:
        with gzip.open(stream) as text:
            return io.BytesIO(text.read(account.room() + 1))
    except (EOFError, zlib.error) as error:
        raise InputError(f"{stream.name}: damaged gzip file ({error})") from error


def _predicted_ms(network: Network, args: argparse.Namespace) -> list[float]:
    bundle = common.read_profile_at(args)
    grid = bundle.cost.grid
    configuration = common.on_grid(args.config, grid) if args.config is not None else grid.top
    explanation = explain(
        network, bundle.cost, configuration, args.method, execution=args.execution, frame_overhead=common.frame_overhead(args)
    )
    simulated = ", measured on a simulated board" if bundle.manifest.simulated else ""
    print(f"predicted: GPU time at {configuration}, by profile {bundle.manifest.name}{simulated}", file=sys.stderr)
    each = {part.kernel.signature: part.gpu_ms / part.launches for part in explanation.kernels}
    return [each[launch.signature] for launch in network.launches]


def _text(trace: str, network: Network, comparison: Comparison, predicted_ms: list[float] | None, by_node: bool) -> str:
    launches, missing = network.launches, comparison.missing
    matched = len(launches) - len(missing)
    besides = sum(count for count, _ in comparison.others.values())
    lines = [
        f"{printable(trace)}: {comparison.inferences} inferences ({printable(comparison.recorder)}), "
        f"against {printable(network.label)}: {matched} of {len(launches)} launches are there, {len(missing)} missing, "
        f"{besides:g} calls besides{_retyped(launches, comparison)}",
        "",
        _kinds(launches, comparison, predicted_ms, by_node),
    ]
    lines += [""] * bool(missing) + [_missing(place, launches[place]) for place in missing[:_ROWS]]
    if len(missing) > _ROWS:
        lines.append(f"{len(missing) - _ROWS} more are missing; --json has all")
    if comparison.others:
        dearest = sorted(comparison.others.items(), key=lambda item: -item[1][1])
        rows = [(name, f"{count:g}", f"{took_ms:.4f}") for name, (count, took_ms) in dearest[:_ROWS]]
        lines += ["", output.table(("besides", "calls", "measured ms"), rows)]
        if len(dearest) > _ROWS:
            lines.append(f"{len(dearest) - _ROWS} more; --json has all")
    return "\n".join(lines)


def _retyped(launches: Sequence[KernelInvocation], comparison: Comparison) -> str:
    pairs = Counter(f"{types} for {launches[place].dtype}" for place, types in comparison.retyped.items())
    return f", {len(comparison.retyped)} on another element type ({', '.join(pairs)})" if pairs else ""


def _missing(place: int, launch: KernelInvocation) -> str:
    shapes = " ".join(map(output.dimensions, launch.inputs))
    return printable(f"missing: launch {place}, {launch.kind} of {shapes}{f' ({launch.scope})' if launch.scope else ''}")


def _kinds(
    launches: tuple[KernelInvocation, ...], comparison: Comparison, predicted_ms: list[float] | None, by_node: bool
) -> str:
    kinds: dict[str, list[int]] = {}
    for place in range(len(launches)):
        kinds.setdefault(label(launches, place, by_node), []).append(place)
    rows = []
    for kind, places in kinds.items():
        took = [took for place in places if (took := comparison.measured_ms[place]) is not None]
        row = [kind, str(len(places)), str(len(took)), f"{sum(took):.4f}"]
        rows.append(row + ([f"{sum(predicted_ms[place] for place in places):.4f}"] if predicted_ms else []))
    rows.sort(key=lambda row: -float(row[3]))
    headers = ["kind", "launches", "there", "measured ms", *(["predicted ms"] if predicted_ms else [])]
    return output.table(headers, rows)
