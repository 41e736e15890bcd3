# SPDX-License-Identifier: Apache-2.0
"""List the kernel invocations of a model: what PyTorch would launch on the device, in order, before device fusion.

The file is read without PyTorch and nothing in it is executed. Views, shape arithmetic and calls that do nothing launch no
kernel; they are counted as host-only calls. FLOPs count a multiply-add as two; bytes are inputs, weights and outputs, each
moved once.

examples:
  jetdvfs decompose resnet18.pt --input 1x3x224x224
  jetdvfs decompose resnet18.pt --input 8x3x224x224:float16 --launches
  jetdvfs decompose resnet18.pt --input 1x3x224x224 --json --host-calls > resnet18.json
"""

from __future__ import annotations

import argparse
import sys

from ...kernels.network import KernelInvocation, Network
from . import common, output


def configure(parser: argparse.ArgumentParser) -> None:
    common.add_model_arguments(parser)
    parser.add_argument(
        "--method", default="forward", metavar="NAME", help="the model's method to decompose (default: forward)"
    )
    parser.add_argument("--launches", action="store_true", help="list every launch instead of a summary by kind")
    parser.add_argument("--host-calls", action="store_true", help="list the host-only calls as well")
    common.add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    network = common.read_network(args, args.method)
    if args.json:
        output.print_json(network.to_json(host_calls=args.host_calls))
        return 0
    print(_headline(network))
    print()
    print(_list_of_calls(network, args.host_calls) if args.launches else _summary(network, args.host_calls))
    if network.boundary:
        print(f"note: {network.boundary}", file=sys.stderr)
    return 0


def _headline(network: Network) -> str:
    flops, moved = sum(call.flops for call in network.launches), sum(call.bytes for call in network.launches)
    hosts = len(network.calls) - len(network.launches)
    return (
        f"{network.name} ({', '.join(map(str, network.inputs))}): {len(network.launches)} launches of "
        f"{len({call.signature for call in network.launches})} distinct kernels, {hosts} host-only calls, "
        f"{output.amount(flops, 'FLOP')}, {output.amount(moved, 'B')}"
    )


def _summary(network: Network, host_calls: bool) -> str:
    flops, moved = sum(call.flops for call in network.launches), sum(call.bytes for call in network.launches)
    rows = []
    for kind, count in network.kinds.items():
        calls = [call for call in network.launches if call.kind == kind]
        own_flops, own_bytes = sum(call.flops for call in calls), sum(call.bytes for call in calls)
        rows.append(
            (
                kind, str(count), str(len({call.signature for call in calls})),
                output.amount(own_flops, "FLOP"), output.share(own_flops, flops),
                output.amount(own_bytes, "B"), output.share(own_bytes, moved),
            )
        )  # fmt: skip
    text = output.table(("kind", "launches", "distinct", "FLOPs", "", "bytes", ""), rows)
    if host_calls:
        hosts = [call.name for call in network.calls if not isinstance(call, KernelInvocation)]
        counts = [(name, str(hosts.count(name))) for name in dict.fromkeys(hosts)]
        text += "\n\n" + output.table(("host-only call", "calls"), counts)
    return text


def _list_of_calls(network: Network, host_calls: bool) -> str:
    rows = []
    launch = 0
    for call in network.calls:
        if isinstance(call, KernelInvocation):
            params = ", ".join(f"{name}={_value(value)}" for name, value in call.params.items())
            shapes = f"{' '.join(map(output.dimensions, call.inputs))} -> {output.dimensions(call.output)}"
            work = (output.amount(call.flops, "FLOP"), output.amount(call.bytes, "B"))
            rows.append((str(launch), call.kind, call.scope, shapes, params, *work))
            launch += 1
        elif host_calls:
            rows.append(("-", call.name, call.scope, "host only", "", "", ""))
    return output.table(("#", "kind", "scope", "shapes", "parameters", "FLOPs", "bytes"), rows, text_columns=5)


def _value(value: object) -> str:
    return output.dimensions(value) if isinstance(value, tuple) else str(value)
