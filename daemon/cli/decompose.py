# SPDX-License-Identifier: Apache-2.0
"""List the kernels that PyTorch would launch for a model on the GPU, in order.

The file is read without PyTorch, and nothing in it is executed. Views and shape arithmetic launch no kernel; they are counted
as host-only calls. FLOPs count a multiply-add as two. Bytes are inputs, weights and outputs, each moved once.

Kernels without a cost model are listed as unmodelled, with their share of FLOPs and bytes; with --profile, those that it has no
model for, or guesses. Predictions bound them by the roofline.

--optimized lists a TorchScript file as PyTorch's JIT leaves it: without dead code, repeated calls, work on constants, sums with
0 and nested cat. Predictions use this view. A saved list keeps its view.

--fused lists the file as TorchScript's fusers leave it on CUDA: groups of pointwise operators (fused_pointwise), in-place ones
excepted, and conv2d_relu and conv2d_add_relu if torch.jit.optimize_for_inference wrote them. They pass on no bytes.

--as engine lists the kernels that TensorRT would make of the model; --as engine-half in half precision.

A TensorRT engine is read from the JSON of trtexec --exportLayerInfo, built with --profilingVerbosity=detailed, without --input.
--measured adds the layer times of trtexec --exportProfile. Of a language model (GGUF; safetensors with config.json) only the
header is read: --prefill N is a prompt of N tokens, --decode N one token that sees N positions.

--graph adds an edge for each tensor between two kernels, totals, and the least memory of weights, inputs and activations.

--json prints one object: name; inputs (shape, dtype); launches in execution order (kind, scope, inputs, output, dtype, params,
flops, bytes); kinds (launches by kind); reads (for each input of a launch, its writing launch, or -1); operators (of ATen, by
launch); views (of inputs: 1 by a cast to its own type, 2 or 3 else); optimized and fused (the view); unmodelled (kind,
launches, flops_share, bytes_share) and unmodelled_by (the profile); guessed (kind, why, launches, flops_share, bytes_share)
with --profile; graph (nodes, edges, globals, memory) with --graph; boundary (operator, place, reason) if the list ends early;
unread (weights that no launch reads); runtime of a compiled network; host_calls and tree on request; measured_ms (per launch)
and measured_others_ms (by layer) with --measured.

examples:
  jetdvfs decompose resnet18.pt --input 1x3x224x224
  jetdvfs decompose resnet18.pt --input 1x3x224x224 --tree --depth 2
  jetdvfs decompose resnet18.pt --input 1x3x224x224 --profile agx-xavier-sim --fused --plot resnet18.png
  jetdvfs decompose resnet18.pt --input 1x3x224x224 --json --host-calls > resnet18.json
  jetdvfs decompose engine.json --measured profile.json --launches
  jetdvfs decompose resnet18.onnx --input 1x3x224x224 --as engine-half --launches
  jetdvfs decompose llama.gguf --decode 2048
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from ...kernels.cost.board import KernelModel
from ...kernels.cost.features import can_be_modelled
from ...kernels.cost.guesses import GuessedKind, guessed_kinds, unmodelled_kinds
from ...kernels.execution import check_execution
from ...kernels.graph import Module, PerformanceGraph, graph_of, modules_of
from ...kernels.kinds import is_fused
from ...kernels.network import KernelInvocation, Network
from ...kernels.text import counted, printable
from .. import arguments
from ..errors import UsageError
from . import model_arguments as common
from . import output
from .model_arguments import measured_text, read_measured, read_model
from .pictures import announce_picture, draw_network

_NO_PROFILE = "kinds without a cost model in any profile"


def configure(parser: argparse.ArgumentParser) -> None:
    common.add_model_arguments(parser, optimized=False)
    arguments.titled(parser, "model").add_argument(
        "--method", default="forward", metavar="NAME", help="the model's method to decompose (default: forward)"
    )
    parser.add_argument("--launches", action="store_true", help="list every launch instead of a summary by kind")
    parser.add_argument("--tree", action="store_true", help="list the modules with the totals of their kernels")
    parser.add_argument("--depth", type=int, metavar="N", help="with --tree: only N levels of modules")
    parser.add_argument("--host-calls", action="store_true", help="list the host-only calls as well")
    parser.add_argument("--graph", action="store_true", help="show the tensors between kernels, and the memory needed")
    common.add_measured_argument(parser)
    parser.add_argument("--profile", metavar="NAME|DIR", help="say which launches this profile has no model for")
    common.add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.depth is not None and (args.depth < 0 or not args.tree):
        raise UsageError(f"--depth {args.depth}: expected a number of levels from 0 on, together with --tree")
    if args.tree and args.launches:
        raise UsageError("--tree and --launches are two lists: ask for one of them")
    bundle = common.read_profile(args) if args.profile else None
    network = read_model(Path(args.model), args.inputs, args.method, optimized=args.optimized)
    if note := network.boundary.note if network.boundary else network.unread:
        print(printable(f"note: {network.name}: {note}"), file=sys.stderr)
    if not network.launches and not network.boundary:
        why = "its calls are the host's (views, sizes)" if network.calls else "its method calls no operator"
        print(printable(f"note: {network.name} launches no kernel: {why}"), file=sys.stderr)
    assumed = sum(bool(launch.params.get("assumed")) for launch in network.launches)
    if assumed:
        copies = f"{assumed} copies are" if assumed > 1 else "1 copy is"
        why = "the file does not say where its author calls contiguous(), as many do with tokens of a picture"
        print(printable(f"note: {network.name}: {copies} assumed: {why}"), file=sys.stderr)
    network = common.compiled(network, args)
    if args.tree and network.runtime:
        raise UsageError(f"--tree: the launches of {network.runtime} do not say which modules they come from")
    times = read_measured(args.measured, network) if args.measured else None
    model_for = bundle.cost.model_for if bundle else can_be_modelled
    cost = bundle.cost.run_by(check_execution(None, network)) if bundle else None
    against = f"profile {bundle.manifest.name}" if bundle else ""
    if args.plot:
        if not network.launches:
            raise UsageError(f"--plot {args.plot}: {network.name} launches nothing that could be drawn")
        draw_network(network, args.plot, title=_headline(network, _is_fused(network, args)))
        announce_picture(args.plot)
    if args.json:
        guessed = {"guessed": [asdict(kind) for kind in guessed_kinds(network, cost)]} if cost else {}
        measured = {"measured_ms": times.launches_ms, "measured_others_ms": times.others_ms} if times else {}
        graph = {"graph": graph_of(network).to_json()} if args.graph else {}
        output.print_json({**_to_json(network, args, model_for, against), **guessed, **measured, **graph})
        return 0
    print(_headline(network, _is_fused(network, args)))
    print()
    if args.tree:
        print(_tree(network, args.depth))
    else:
        ms = times.launches_ms if times else ()
        listed = (
            _list_of_calls(network, args.host_calls, ms) if args.launches else _summary(network, model_for, bool(bundle), ms)
        )
        print(listed)
    if times:
        print(f"\n{measured_text(times)}")
    if args.host_calls and not args.launches:
        print(f"\n{_host_calls(network)}")
    if args.graph:
        print(f"\n{_graph(graph_of(network))}")
    if not args.launches:
        print(f"\n{_coverage(network, model_for, against)}")
        if cost:
            print(_guessed(guessed_kinds(network, cost), against))
    return 0


def _to_json(
    network: Network, args: argparse.Namespace, model_for: Callable[[KernelInvocation], object], against: str
) -> dict[str, Any]:
    data = network.to_json(host_calls=args.host_calls)
    data["fused"] = _is_fused(network, args)
    data["unmodelled_by"] = against or None
    data["unmodelled"] = [asdict(kind) for kind in unmodelled_kinds(network, model_for)]
    if args.tree:
        data["tree"] = [module.to_json() for module in _shown(network, args.depth)]
    return data


def _is_fused(network: Network, args: argparse.Namespace) -> bool:
    return bool(args.fused) or any(map(is_fused, network.kinds))


def _headline(network: Network, fused: bool) -> str:
    flops, moved = _totals(network)
    hosts, distinct = len(network.calls) - len(network.launches), len({call.signature for call in network.launches})
    views = "".join(f", {view}" for view, shown in (("optimized", network.optimized), ("fused", fused)) if shown)
    views = f", {network.runtime}" if network.runtime else views
    name = f"{printable(network.label)} ({', '.join(map(str, network.inputs))}){views}"
    return (
        f"{name}: {counted(len(network.launches), 'launch')} of {counted(distinct, 'distinct kernel')}, "
        f"{counted(hosts, 'host-only call')}, "
        f"{output.amount(flops, 'FLOP')}, {output.amount(moved, 'B')}"
    )


def _totals(network: Network) -> tuple[int, int]:
    return sum(call.flops for call in network.launches), sum(call.bytes for call in network.launches)


def _summary(
    network: Network, model_for: Callable[[KernelInvocation], object], by_profile: bool, ms: Sequence[float] = ()
) -> str:
    flops, moved = _totals(network)
    rows = []
    for kind, count in network.kinds.items():
        calls = [call for call in network.launches if call.kind == kind]
        own_flops, own_bytes = sum(call.flops for call in calls), sum(call.bytes for call in calls)
        largest = max(calls, key=lambda call: call.bytes)
        measured_ms = [own for own, call in zip(ms, network.launches, strict=False) if call.kind == kind]
        rows.append(
            [
                kind, str(count), str(len({call.signature for call in calls})),
                output.amount(own_flops, "FLOP"), output.share(own_flops, flops),
                output.amount(own_bytes, "B"), output.share(own_bytes, moved), _shapes(largest, most=3),
                *([_model_name(calls, model_for)] if by_profile else []),
                *([f"{sum(measured_ms):.4f}"] if ms else []),
            ]
        )  # fmt: skip
    headers = ["kind", "launches", "distinct", "FLOPs", "", "bytes", "", "the one that moves most"]
    headers += (["model"] if by_profile else []) + (["measured ms"] if ms else [])
    return output.table(headers, rows, right=range(1, 7))


def _model_name(calls: list[KernelInvocation], model_for: Callable[[KernelInvocation], object]) -> str:
    names = []
    for call in calls:
        model = model_for(call)
        names.append("none" if not isinstance(model, KernelModel) else "own" if model.kind == call.kind else model.kind)
    counts = Counter(names)
    return ", ".join(counts) if len(counts) == 1 else ", ".join(f"{name} {count}" for name, count in counts.items())


def _coverage(network: Network, model_for: Callable[[KernelInvocation], object], against: str) -> str:
    kinds = unmodelled_kinds(network, model_for)
    if not kinds:
        return f"unmodelled by {against}: nothing" if against else "unmodelled by any profile: nothing"
    rows = [
        (f"  {kind.kind}", str(kind.launches), f"{kind.flops_share:.2%} of FLOPs", f"{kind.bytes_share:.2%} of bytes")
        for kind in kinds
    ]
    if len(kinds) > 1:
        sums = [sum(column) for column in zip(*((k.launches, k.flops_share, k.bytes_share) for k in kinds), strict=True)]
        rows.append(("  together", str(sums[0]), f"{sums[1]:.2%} of FLOPs", f"{sums[2]:.2%} of bytes"))
    title = f"unmodelled by {against}" if against else f"unmodelled ({_NO_PROFILE})"
    return f"{title}, bounded by the roofline in predictions:\n" + output.table(("", "", "", ""), rows).lstrip("\n")


def _guessed(kinds: Sequence[GuessedKind], against: str) -> str:
    if not kinds:
        return f"guessed by {against}: nothing"
    rows = [
        (f"  {kind.kind}", kind.why, str(kind.launches), f"{kind.flops_share:.2%} of FLOPs", f"{kind.bytes_share:.2%} of bytes")
        for kind in kinds
    ]
    title = f"guessed by {against}, whose models were trained on nothing like them:\n"
    return title + output.table(("",) * 5, rows, text_columns=2).lstrip("\n")


def _host_calls(network: Network) -> str:
    hosts = Counter(call.name for call in network.calls if not isinstance(call, KernelInvocation))
    return output.table(("host-only call", "calls"), [(name, str(count)) for name, count in hosts.items()])


def _graph(graph: PerformanceGraph) -> str:
    named = [f"{edge.source} {graph.nodes[edge.source].kind}" for edge in graph.edges]
    rows = [
        (name, f"{edge.target} {graph.nodes[edge.target].kind}", output.dimensions(edge.shape), output.amount(edge.bytes, "B"))
        for name, edge in zip(named, graph.edges, strict=True)
    ]
    memory = graph.memory
    parts = (("weights", memory.weight_bytes), ("inputs", memory.input_bytes), ("activations", memory.activation_bytes))
    needed = ", ".join(f"{name} {output.amount(size, 'B')}" for name, size in parts)
    total = output.amount(memory.total_bytes, "B")
    return (
        f"{counted(len(graph.nodes), 'node')}, {counted(len(graph.edges), 'edge')}; memory at least {total} ({needed})"
        f"\n{output.table(('written by', 'read by', 'tensor', 'bytes'), rows, text_columns=3)}"
    )


def _list_of_calls(network: Network, host_calls: bool, ms: Sequence[float] = ()) -> str:
    rows = []
    launch = 0
    for call in network.calls:
        if isinstance(call, KernelInvocation):
            params = ", ".join(f"{name}={_value(value)}" for name, value in call.params.items())
            work = (output.amount(call.flops, "FLOP"), output.amount(call.bytes, "B"))
            measured = (f"{ms[launch]:.4f}",) if ms else ()
            rows.append((str(launch), call.kind, call.scope, _shapes(call), params, *work, *measured))
            launch += 1
        elif host_calls:
            rows.append(("-", call.name, call.scope, "host only", "", "", ""))
    headers = ("#", "kind", "scope", "shapes", "parameters", "FLOPs", "bytes", *(("measured ms",) if ms else ()))
    return output.table(headers, rows, text_columns=5)


def _shown(network: Network, depth: int | None) -> list[Module]:
    return [module for module in modules_of(network) if depth is None or module.depth <= depth]


def _tree(network: Network, depth: int | None) -> str:
    flops, moved = _totals(network)
    rows = [
        (
            "  " * module.depth + (module.name or network.name), str(module.launches),
            output.amount(module.flops, "FLOP"), output.share(module.flops, flops),
            output.amount(module.bytes, "B"), output.share(module.bytes, moved),
            _own(module) if module.depth != depth else _counts(module.kinds),
        )
        for module in _shown(network, depth)
    ]  # fmt: skip
    return output.table(("module", "launches", "FLOPs", "", "bytes", "", "kernels"), rows, right=range(1, 6))


def _own(module: Module) -> str:
    if len(module.own) == 1:
        return f"{module.own[0].kind} -> {output.dimensions(module.own[0].output)}"
    return _counts(Counter(launch.kind for launch in module.own))


def _counts(kinds: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())


def _shapes(call: KernelInvocation, most: int | None = None) -> str:
    inputs = " ".join(map(output.dimensions, call.inputs[:most]))
    more = f" and {len(call.inputs) - most} more" if most and len(call.inputs) > most else ""
    return f"{inputs}{more} -> {output.dimensions(call.output)}"


def _value(value: object) -> str:
    return output.dimensions(value) if isinstance(value, tuple) else str(value)
