# SPDX-License-Identifier: Apache-2.0
"""Predict latency, power and energy of one inference at every frequency configuration of a board.

The output shows notable configurations; --config adds your own, and --save writes the whole surface. The range next to a figure
holds two thirds of measurements. Kernels without a model, or unlike those of the profile, are guessed and widen it.

examples:
  jetdvfs predict resnet18.pt --input 1x3x224x224 --profile agx-xavier-sim
  jetdvfs predict resnet18.pt --input 1x3x224x224 --profile agx-xavier-sim --config 1190.4,905.25,1600
  jetdvfs predict resnet18.pt --input 1x3x224x224 --profile agx-xavier-sim --save surface.npz --plot surface.png
  jetdvfs predict resnet18.pt --input 1x3x224x224 --profile agx-xavier-sim --explain --config 1190.4,905.25,1600
  jetdvfs predict engine.json --profile agx-orin-64gb-sim --explain --measured profile.json

Saved arrays: cpu_khz, gpu_hz, emc_hz (the axes); latency_ms, power_mw, energy_mj, idle_mw, latency_sigma, energy_sigma and
guessed_share (over the axes, in that order); about, a JSON text with the method, guessed and unmodelled kernels, and the
boundary.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import asdict

from ...kernels.cost.explain import ClockStep, Explanation, KernelPart, explain
from ...kernels.engine.program import LayerTimes
from ...kernels.grid import governed
from ...kernels.network import Network
from ...kernels.surface import Prediction, Surface
from ...kernels.text import printable
from ...kernels.units import CLOCKS, mhz_text
from .. import arguments
from ..errors import UsageError
from . import model_arguments as common
from . import output
from .model_arguments import measured_text, read_measured

_OF_TIME = 6
_ROWS = 12


def configure(parser: argparse.ArgumentParser) -> None:
    common.add_model_arguments(parser)
    common.add_profile_arguments(parser)
    arguments.add_config(parser, "also show this configuration; may be repeated", repeatable=True)
    parser.add_argument("--save", type=arguments.named_file, metavar="FILE.npz", help="write the whole surface")
    group = parser.add_argument_group("one configuration in detail")
    group.add_argument(
        "--explain", action="store_true", help="show where time and energy go at --config (default: the top clocks), by kernel"
    )
    common.add_measured_argument(group)
    common.add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.explain:
        if args.save or args.plot or len(args.config) > 1:
            raise UsageError("--explain: takes one --config, no --save and no --plot")
        return _explain(args)
    if args.measured:
        raise UsageError("--measured needs --explain")
    bundle = common.read_profile_at(args)
    asked = [(_asked(text), common.on_grid(text, bundle.cost.grid)) for text in args.config]
    network = common.read_network(args)
    surface = common.predict_surface(network, bundle, args)
    powered = bool(bundle.manifest.rails)
    if args.save or args.plot:
        common.check_powered(bundle, "a surface")
    rows = [*_remarkable(surface, powered), *((name, surface.at(configuration)) for name, configuration in asked)]
    if args.save:
        surface.save(args.save)
    if args.plot:
        common.draw(network, bundle, args, surface)
    if args.json:
        output.print_json({**common.about(network, bundle, args), **_to_json(network, surface, rows, powered)})
        return 0
    common.print_heading(network, bundle, args, f", {surface.grid.size} configurations")
    print()
    print(_table(rows, powered))
    common.print_notes(network, bundle.cost, surface.guessed)
    return 0


def _asked(text: str) -> str:
    left = output.left_to_governors(governed(text))
    return f"asked for{left}, at most" if left else "asked for"


def _remarkable(surface: Surface, powered: bool) -> Iterator[tuple[str, Prediction]]:
    yield "top clocks", surface.at(surface.grid.top)
    figures = (
        ("lowest latency", surface.latency_ms),
        ("least energy", surface.energy_mj),
        ("least energy x delay", surface.energy_mj * surface.latency_ms),
        ("least power", surface.power_mw),
    )
    for name, figure in figures if powered else figures[:1]:
        yield name, surface.at(surface.grid.at(figure.argmin()))


def _table(rows: list[tuple[str, Prediction]], powered: bool) -> str:
    headers = ("", "CPU MHz", "GPU MHz", "EMC MHz", "latency ms", "", "power W", "energy mJ", "")
    shown = len(headers) if powered else _OF_TIME
    return output.table(headers[:shown], [_row(name, prediction)[:shown] for name, prediction in rows])


def _row(name: str, at: Prediction) -> tuple[str, ...]:
    return (
        name, *at.configuration.mhz_texts,
        f"{at.latency_ms:.2f}", output.spread(at.latency_ms, at.latency_sigma),
        f"{at.power_mw / 1e3:.2f}", f"{at.energy_mj:.1f}", output.spread(at.energy_mj, at.energy_sigma),
    )  # fmt: skip


def _to_json(network: Network, surface: Surface, rows: list[tuple[str, Prediction]], powered: bool) -> dict[str, Any]:
    unknown = () if powered else ("power_mw", "energy_mj", "idle_mw", "energy_sigma")
    return {
        "digest": network.digest,
        "method": surface.method,
        "guessed": [asdict(guess) for guess in surface.guessed],
        "unmodelled": [asdict(kind) for kind in surface.unmodelled],
        "points": [
            {"name": name, **asdict(at), "configuration": at.configuration._asdict(), **dict.fromkeys(unknown)}
            for name, at in rows
        ],
        "grid": surface.grid.to_json(),
        **{name: getattr(surface, name).tolist() for name in ("latency_ms", "power_mw", "energy_mj", "idle_mw")},
        **{name: None for name in unknown if name != "energy_sigma"},
    }


def _explain(args: argparse.Namespace) -> int:
    """Time and energy of an inference by kernel at one configuration, and one step of each clock.

    "bound by" is compute or memory, as in the kernel's roofline, or launch if the GPU waits longer for the host than it runs.
    "of roofline" is the bound as a part of the kernel's time; far below 100%, clocks are not the limit. Energy is above idle.
    A clock whose step changes little can go down.
    """
    bundle = common.read_profile_at(args)
    common.check_powered(bundle, "where energy goes")
    grid = bundle.cost.grid
    configuration = common.on_grid(args.config[0], grid) if args.config else grid.top
    network = common.read_network(args)
    times = read_measured(args.measured, network) if args.measured else None
    measured = _by_kernel(network, times) if times else {}
    with output.progress(f"predicting {network.name}"):
        explanation = explain(
            network,
            bundle.cost,
            configuration,
            args.method,
            execution=args.execution,
            frame_overhead=common.frame_overhead(args),
        )
    if args.json:
        output.print_json({**common.about(network, bundle, args), **_explained_json(explanation, measured)})
        return 0
    common.print_heading(network, bundle, args, f", at {configuration}")
    print(f"\n{_whole(explanation)}\n\n{_kernels(explanation, measured)}")
    if times:
        print(f"\n{measured_text(times)}")
    if explanation.host:
        print(f"\n{_host(explanation, network)}")
    rows = [_step(step, explanation.prediction) for step in explanation.steps]
    print(f"\none step of a clock would change:\n{output.table(('', 'latency ms', '', 'power W', 'energy mJ', ''), rows)}")
    common.print_notes(network, bundle.cost, explanation.guessed)
    return 0


def _by_kernel(network: Network, times: LayerTimes) -> dict[tuple[Any, ...], float]:
    taken = dict.fromkeys((launch.signature for launch in network.launches), 0.0)
    for launch, ms in zip(network.launches, times.launches_ms, strict=True):
        taken[launch.signature] += ms
    return taken


def _whole(explanation: Explanation) -> str:
    at = explanation.prediction
    latency, energy = at.latency_ms, at.energy_mj
    gpu = f"the GPU runs {explanation.gpu_ms:.2f} ms ({output.share(explanation.gpu_ms, latency)})"
    waits = f"waits for the host {explanation.waited_ms:.2f} ms ({output.share(explanation.waited_ms, latency)})"
    host = f"the host works {explanation.host_ms:.2f} ms ({output.share(explanation.host_ms, latency)})"
    parts = (("idle", explanation.idle_mj), ("host", explanation.host_mj), ("kernels above idle", explanation.kernels_mj))
    return (
        f"latency {latency:.2f} ms {output.spread(latency, at.latency_sigma)}: {gpu} and {waits}; meanwhile {host}\n"
        f"energy {energy:.1f} mJ {output.spread(energy, at.energy_sigma)}: "
        f"{', '.join(f'{name} {part:.1f} mJ ({output.share(part, energy)})' for name, part in parts)}\n"
        f"bound by {', '.join(f'{name} {output.share(ms, latency)}' for name, ms in explanation.limits_ms.items())}"
    )


def _kernels(explanation: Explanation, measured: Mapping[tuple[Any, ...], float]) -> str:
    at, shown = explanation.prediction, explanation.kernels[:_ROWS]
    rows = [
        (
            part.kernel.kind, part.kernel.scope, output.dimensions(part.kernel.output), part.limit,
            str(part.launches), f"{part.gpu_ms:.3f}", output.share(part.gpu_ms, at.latency_ms), f"{part.waited_ms:.3f}",
            f"{part.energy_mj:.2f}", output.share(part.energy_mj, at.energy_mj), _roofline(part),
            *([f"{measured[part.kernel.signature]:.3f}"] if measured else []),
        )
        for part in shown
    ]  # fmt: skip
    headers = (
        "kernel", "first called from", "output", "bound by", "launches", "GPU ms", "", "waited ms", "energy mJ", "",
        "of roofline", *(["measured ms"] if measured else []),
    )  # fmt: skip
    text = output.table(headers, rows, text_columns=4)
    rest = explanation.kernels[_ROWS:]
    if rest:
        gpu_ms, energy_mj = sum(part.gpu_ms for part in rest), sum(part.energy_mj for part in rest)
        share = output.share(gpu_ms, at.latency_ms)
        text += f"\n{len(rest)} more kernels: {gpu_ms:.3f} ms ({share}), {energy_mj:.2f} mJ; --json has all"
    return text


def _roofline(part: KernelPart) -> str:
    return f"{part.roofline_share:.0%}{' guessed' if part.guessed else ''}" if part.modelled else "no model"


def _host(explanation: Explanation, network: Network) -> str:
    dearest = printable(", ".join(f"{part.calls} x {part.name} {part.host_ms:.2f} ms" for part in explanation.host[:5]))
    what = f"issues {len(network.calls)} calls" if explanation.execution == "eager" else f"starts one {explanation.execution}"
    return f"the host {what} in {explanation.host_ms:.2f} ms: {dearest}"


def _step(step: ClockStep, here: Prediction) -> tuple[str, ...]:
    there = step.prediction
    level = getattr(there.configuration, step.axis)
    return (
        f"  {CLOCKS[step.axis]} {'up' if step.up else 'down'} to {mhz_text(step.axis, level)} MHz",
        f"{there.latency_ms:.2f}", _change(there.latency_ms, here.latency_ms), f"{there.power_mw / 1e3:.2f}",
        f"{there.energy_mj:.1f}", _change(there.energy_mj, here.energy_mj),
    )  # fmt: skip


def _change(there: float, here: float) -> str:
    return f"{there / here - 1:+.1%}"


def _explained_json(explanation: Explanation, measured: Mapping[tuple[Any, ...], float]) -> dict[str, Any]:
    def point(prediction: Prediction) -> dict[str, Any]:
        return {**asdict(prediction), "configuration": prediction.configuration._asdict()}

    return {
        **asdict(explanation),
        "limit": explanation.limit,
        "limits_ms": explanation.limits_ms,
        "prediction": point(explanation.prediction),
        "kernels": [
            {
                **asdict(part),
                "kernel": part.kernel.to_json(),
                **({"measured_ms": measured[part.kernel.signature]} if measured else {}),
            }
            for part in explanation.kernels
        ],
        "host": [asdict(part) for part in explanation.host],
        "guessed": [asdict(guess) for guess in explanation.guessed],
        "steps": [
            {"axis": step.axis, "direction": "up" if step.up else "down", "prediction": point(step.prediction)}
            for step in explanation.steps
        ],
    }
