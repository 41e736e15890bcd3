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
from collections.abc import Iterator
from typing import Any

from msgspec.structs import asdict

from ...kernels.grid import governed
from ...kernels.network import Network
from ...kernels.surface import Prediction, Surface
from .. import arguments
from ..errors import UsageError
from . import explain, output
from . import model_arguments as common

_OF_TIME = 6


def configure(parser: argparse.ArgumentParser) -> None:
    common.add_model_arguments(parser)
    common.add_profile_arguments(parser)
    arguments.add_config(parser, "also show this configuration; may be repeated", repeatable=True)
    parser.add_argument("--save", type=arguments.named_file, metavar="FILE.npz", help="write the whole surface")
    explain.configure(parser)
    common.add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.explain:
        if args.save or args.plot or len(args.config) > 1:
            raise UsageError("--explain: takes one --config, no --save and no --plot")
        return explain.run(args)
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
