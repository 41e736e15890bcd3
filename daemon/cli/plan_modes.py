# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs plan --modes``: the smallest power mode (nvpmodel) in which a model keeps its targets, or slice of an A100.

A mode is judged at its highest clocks, where governors go under load. If it leaves only a part of the GPU on, as a slice (MIG)
does, latency and power are upper bounds: latency scales with the part, power is that of the whole GPU. CPU cores do not count.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ...kernels.graph import MemoryBound, graph_of
from ...kernels.network import Network
from ...kernels.surface import Surface
from ...kernels.text import printable
from ...profiles.board import load_board
from .. import arguments
from ..errors import TargetNotAttainable, UsageError
from ..planning.limits import Limits
from ..planning.modes import A100_SLICES, GIB, ModeChoice, a100_slice, evaluated_modes, modes_of, smallest
from ..planning.plan import Plan, plan
from ..planning.targets import BatteryLifeTarget, Target, parse_target
from . import model_arguments as common
from . import output

_MIB = 1 << 20


def configure(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("power modes")
    group.add_argument("--modes", action="store_true", help="find the smallest power mode that keeps every --target and --fps")
    group.add_argument(
        "--memory-mib", type=arguments.whole(1), metavar="MIB", help="with --modes: memory that is free (default: all there is)"
    )
    group.add_argument("--firmware", metavar="NAME", help="with --modes: of this firmware (default: the newest described)")
    group.add_argument(
        "--mig",
        choices=("a100",),
        help="check slices of this GPU instead, by memory alone; needs no profile. A list of launches has the least memory, "
        "which tells slices that are too small",
    )
    group.add_argument(
        "--needs-mib",
        type=arguments.whole(1),
        metavar="MIB",
        help="with --mig: memory that the running model takes, as measured",
    )


def run(args: argparse.Namespace) -> int:
    if args.mig:
        return _slice(common.read_network(args), args)
    if args.needs_mib:
        raise UsageError("--needs-mib needs --mig")
    targets = [parse_target(text) for text in args.targets]
    if any(isinstance(target, BatteryLifeTarget) for target in targets):
        raise UsageError("--target hours: --modes knows no battery; valid: a power, as in power_mw=8000")
    if not targets and args.fps is None:
        raise UsageError("--modes needs --target, --fps, or both")
    bundle = common.read_profile_at(args)
    network = common.read_network(args)
    surface = common.predict_surface(network, bundle, args)
    board = load_board(bundle.manifest.board)
    modes = modes_of(board, args.firmware)
    memory = graph_of(network).memory
    choices = evaluated_modes(
        surface,
        board,
        modes,
        [target.bound for target in targets if target.bound],
        memory_bytes=memory.total_bytes,
        available_bytes=args.memory_mib * _MIB if args.memory_mib else board.chip.dram_gib * GIB,
        fps=args.fps,
        confidence=args.confidence,
    )
    advised = smallest(choices)
    within = _planned(surface, advised, targets[0] if targets else parse_target("min-energy"), args)
    if args.json:
        answer = {
            "board": board.name, "modes_of": modes.name, "advised": advised.to_json(),
            "modes": [one.to_json() for one in choices],
            "memory_bytes": memory.total_bytes, "within": within.choice.to_json() if within else None,
        }  # fmt: skip
        output.print_json({**common.about(network, bundle, args), **answer})
        return 0
    asked = [*map(str, targets), *([f"{args.fps:g} frames per second"] if args.fps else [])]
    common.print_heading(network, bundle, args, f": {' and '.join(asked)}")
    print(f"memory: at least {_needed(memory)}; libraries and workspaces take more\n")
    print(_table(choices, advised))
    print(f"\nenough: {printable(advised.name)} (sudo jetdvfs board mode {printable(advised.mode.name)})")
    if within is not None:
        figures = f"{within.latency_ms:.2f} ms, {within.power_mw / 1e3:.2f} W"
        print(f"within it 'jetdvfs hold' would set {within.configuration}: {figures}")
    common.print_notes(network, bundle.cost, surface.guessed)
    return 0


def _planned(surface: Surface, advised: ModeChoice, target: Target, args: argparse.Namespace) -> Plan | None:
    """Clocks of the daemon within a mode; None if only a part of the GPU is on."""
    if advised.gpu_share != 1:
        return None
    grid = surface.grid
    limits = Limits.within({axis: (grid.levels(axis)[0], level) for axis, level in advised.configuration._asdict().items()})
    try:
        return plan(surface, target, fps=args.fps, confidence=args.confidence, limits=limits)
    except TargetNotAttainable:  # the first target alone may be unattainable in a mode judged by all
        return None


def _slice(network: Network, args: argparse.Namespace) -> int:
    """Slices by memory (DIPPM, equation 2): the smallest for a measured need; else those too small for the least."""
    memory = graph_of(network).memory
    least = max(memory.total_bytes, (args.needs_mib or 0) * _MIB)
    first = a100_slice(least)
    if first is None:
        raise TargetNotAttainable(f"no slice of an A100 holds it; they have {', '.join(A100_SLICES)}")
    names = list(A100_SLICES)
    too_small, possible = names[: names.index(first)], names[names.index(first) :]
    enough = first if args.needs_mib else None
    if args.json:
        answer = {"memory_bytes": memory.total_bytes, "too_small": too_small, "possible": possible, "slice": enough}
        output.print_json({"network": network.name, "mig": args.mig, **answer})
        return 0
    print(f"{common.network_label(network, args)}: memory at least {_needed(memory)}")
    print(f"too small: {', '.join(too_small) or 'none'}")
    if enough:
        print(f"enough for {args.needs_mib} MiB: {enough}")
    else:
        print(f"possible: {', '.join(possible)}. The process takes more than its tensors: measure it, and give --needs-mib")
    return 0


def _needed(memory: MemoryBound) -> str:
    parts = (("weights", memory.weight_bytes), ("inputs", memory.input_bytes), ("activations", memory.activation_bytes))
    return f"{memory.total_bytes / _MIB:.4g} MiB ({', '.join(f'{name} {size / _MIB:.4g}' for name, size in parts)})"


def _table(choices: Sequence[ModeChoice], advised: ModeChoice) -> str:
    rows = []
    for one in choices:
        at_most = "<= " if one.gpu_share not in (1, None) else ""
        share = "?" if one.gpu_share is None else f"{one.gpu_share:.0%}"
        verdict = "; ".join(one.lacking) if one.lacking else "enough: the smallest" if one is advised else "enough"
        figures = (f"{at_most}{one.latency_ms:.2f}", f"{at_most}{one.power_mw / 1e3:.2f}")
        rows.append([one.name, *one.configuration.mhz_texts, share, *figures, f" {verdict}"])
    headers = ["mode", "CPU MHz", "GPU MHz", "EMC MHz", "of the GPU", "latency ms", "power W", ""]
    return output.table(headers, rows, right=range(1, 7))
