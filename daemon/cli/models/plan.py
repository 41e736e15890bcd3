# SPDX-License-Identifier: Apache-2.0
"""Choose the frequency configuration that meets a target best, without touching any clock.

With --fps every inference must end within its period, energy is that of a frame (the idle energy until the next one included)
and power is the mean over the period. With --confidence the target is met with that probability, by the profile's own account
of its errors; without it, by the median prediction.

examples:
  jetdvfs plan resnet18.pt --input 1x3x224x224 --profile agx-xavier-sim --target latency_ms=20
  jetdvfs plan resnet18.pt --input 1x3x224x224 --profile agx-xavier-sim --target latency_ms=20 --confidence 0.95
  jetdvfs plan resnet18.pt --input 1x3x224x224 --profile agx-xavier-sim --target min-energy --fps 30 --plot plan.png
"""

from __future__ import annotations

import argparse

from ....kernels.text import printable
from ... import arguments
from ...planner import Option, Plan, parse_target, plan
from .. import output
from . import common

_FRONT_ROWS = 12


def configure(parser: argparse.ArgumentParser) -> None:
    common.add_model_arguments(parser)
    common.add_profile_arguments(parser)
    arguments.add_target(parser, required=True)
    common.add_output_arguments(parser, plot=True)


def run(args: argparse.Namespace) -> int:
    target = parse_target(args.target)
    bundle = common.read_profile_at(args)
    common.check_powered(bundle, "a plan")
    network = common.read_network(args)
    surface = common.predict_surface(network, bundle, args)
    chosen = plan(surface, target, fps=args.fps, confidence=args.confidence)
    if args.plot:
        from ..pictures.surfaces import draw_plan

        title = common.picture_title(network, bundle, args)
        draw_plan(surface, chosen, args.plot, title=title, simulated=bundle.manifest.simulated)
    if args.json:
        output.print_json({**common.about(network, bundle, args), "method": surface.method, **chosen.to_json()})
        return 0
    name = common.network_label(network, args)
    print(f"{name} on {bundle.manifest.board}, profile {bundle.manifest.name}, target {target}")
    common.print_origin(network, bundle, args)
    if chosen.caution:
        print(printable(chosen.caution))
    print(f"\nset {chosen.configuration}\n")
    print(_comparison(chosen))
    print(f"\n{chosen.reason}\n{chosen.saving}\n")
    print("one step of a clock would change:")
    print(output.table(("", "", "latency ms", "per frame mJ" if args.fps else "energy mJ"), _steps(chosen), text_columns=2))
    print(f"\nthe trade-off: no configuration beats these in both latency and energy ({_front_note(chosen)})")
    print(_table([("", option) for option in chosen.thinned_front(_FRONT_ROWS)], chosen))
    for note in common.model_notes(network, bundle.cost, chosen.guessed):
        print(note)
    return 0


def _comparison(chosen: Plan) -> str:
    return _table([("chosen", chosen.choice), ("top clocks", chosen.top)], chosen)


def _table(rows: list[tuple[str, Option]], chosen: Plan) -> str:
    headers = ["", "CPU MHz", "GPU MHz", "EMC MHz", "latency ms", "power W", "energy mJ"]
    headers += ["per frame mJ"] if chosen.fps else []
    headers += [f"latency p{100 * chosen.confidence:g}", f"energy p{100 * chosen.confidence:g}"] if chosen.confidence else []
    return output.table(headers, [[name, *_cells(option)] for name, option in rows])


def _cells(option: Option) -> list[str]:
    cells = [*option.configuration.mhz_texts]
    cells += [f"{option.latency_ms:.2f}", f"{option.power_mw / 1e3:.2f}", f"{option.energy_mj:.1f}"]
    extra = (option.energy_per_frame_mj, option.latency_high_ms, option.energy_high_mj)
    return cells + [f"{value:.1f}" for value in extra if value is not None]


def _steps(chosen: Plan) -> list[list[str]]:
    rows = []
    for other in chosen.alternatives:
        energy_mj = other.option.energy_per_frame_mj or other.option.energy_mj
        rows.append([f"  {other.step}", other.verdict, f"{other.option.latency_ms:.2f}", f"{energy_mj:.1f}"])
    return rows


def _front_note(chosen: Plan) -> str:
    shown, all_of_them = len(chosen.thinned_front(_FRONT_ROWS)), len(chosen.front)
    return f"{shown} of {all_of_them} shown; --json has all" if shown < all_of_them else f"{shown}"
