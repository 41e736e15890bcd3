# SPDX-License-Identifier: Apache-2.0
"""Choose the frequency configuration that meets a target best, without touching any clock.

With --fps every inference ends within its period, energy includes the idle time until the next frame, and power is the mean
over the period. With --confidence the target is met with that probability, else by the median prediction.

examples:
  jetdvfs plan resnet18.pt --input 1x3x224x224 --profile agx-xavier-sim --target latency_ms=20
  jetdvfs plan resnet18.pt --input 1x3x224x224 --profile agx-xavier-sim --target latency_ms=20 --confidence 0.95
  jetdvfs plan resnet18.pt --input 1x3x224x224 --profile agx-xavier-sim --target min-energy --fps 30 --plot plan.png
  jetdvfs plan resnet18.pt --input 1x3x224x224 --profile agx-xavier-sim --target min-energy --fps 30 --compare --battery-wh 50
  jetdvfs plan qwen3.gguf --prefill 512 --decode 1024 --profile agx-orin-64gb-sim --target ttft_ms=800 --target tokens_per_s=20

Power modes: --modes finds the smallest one that keeps the targets; --target may then be given several times.
  jetdvfs plan resnet18.pt --input 1x3x224x224 --profile agx-xavier-sim --modes --fps 60
  jetdvfs plan resnet18.pt --input 1x3x224x224 --profile agx-orin-64gb-sim --modes --target latency_ms=8 --target power_mw=20000
  jetdvfs plan resnet18.pt --input 64x3x224x224 --mig a100

Throughput: --batches tries batch sizes, with the inputs' first size in the place of 1.
  jetdvfs plan resnet18.pt --input 1x3x224x224 --profile agx-xavier-sim --batches 1,2,4,8 --deadline 100

Language models: --prefill and --decode plan prompts and tokens together, each with its own clocks. A target for one phase
counts there, any other target for both.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from ...kernels.execution import Phase
from ...kernels.grid import FrequencyConfiguration
from ...kernels.inputs import parse_input, phase_of
from ...kernels.text import printable
from ...profiles.board import BoardDescription, load_board
from .. import arguments
from ..errors import UsageError
from ..planning.lease_plan import PlanRequest
from ..planning.limits import Limits, lasting
from ..planning.modes import ModeProposal, against_default, highest, modes_of, share_on
from ..planning.plan import Plan, PlannedOption, Planning, longest_ms, outlook, plan
from ..planning.targets import BatteryLifeTarget, Target, check_phase, parse_target
from . import model_arguments as common
from . import output
from . import plan_batches as batches
from . import plan_modes as modes

if TYPE_CHECKING:
    from ...kernels.network import Network
    from ...kernels.surface import Surface
    from ...profiles.bundle.bundle import Bundle

_FRONT_ROWS = 12
_NOTES = {1.0: "", None: "how much of the GPU it leaves on is not known"}


class SettingRow(Struct, frozen=True):
    """One setting of the board, with energy per frame and mean power over the period if there is a rate."""

    name: str
    configuration: FrequencyConfiguration
    latency_ms: float
    energy_mj: float
    power_mw: float
    late: bool
    battery_h: float | None = None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "configuration": self.configuration._asdict()}


def configure(parser: argparse.ArgumentParser) -> None:
    common.add_model_arguments(parser)
    common.add_profile_arguments(parser)
    arguments.add_target(parser, several="with --modes any number; of a language model one each for prompts and tokens")
    arguments.add_battery(parser)
    parser.add_argument(
        "--compare",
        action="store_true",
        help="compare the plan with every power mode and the top clocks; with --battery-wh by battery hours, too",
    )
    parser.add_argument(
        "--batches",
        type=batches.sizes,
        metavar="N,N,...",
        help="choose the batch size, too: of these, the one whose items cost least energy within --deadline; --fps: items",
    )
    parser.add_argument("--deadline", type=float, metavar="MS", help="with --batches: how long a batch may take")
    modes.configure(parser)
    common.add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.modes or args.mig:
        for option in ("batches", "deadline", "compare", "plot", "battery_wh"):
            if getattr(args, option):
                raise UsageError(f"--{option.replace('_', '-')}: not with {'--modes' if args.modes else '--mig'}")
        return modes.run(args)
    for option in ("memory_mib", "firmware"):
        if getattr(args, option):
            raise UsageError(f"--{option.replace('_', '-')} needs --modes")
    if args.batches:
        if args.battery_wh is not None:
            raise UsageError("--battery-wh needs a target of hours, not --batches")
        return batches.run(args)
    if args.deadline is not None or not args.targets:
        raise UsageError("expected a --target, or --batches with a --deadline")
    requests = list(_requests(args))
    if args.plot and len(requests) > 1:
        raise UsageError("--plot draws one plan: say --prefill or --decode, not both")
    bundle = common.read_profile_at(args)
    common.check_powered(bundle, "a plan")
    answers = []
    for inputs, target in requests:
        one = argparse.Namespace(**{**vars(args), "inputs": inputs})
        network = common.read_network(one)
        answers.append(_planned(network, target, bundle, one))
    if args.json:
        output.print_json(answers[0] if len(answers) == 1 else {answer["phase"]: answer for answer in answers})
    return 0


def _requests(args: argparse.Namespace) -> Iterator[tuple[list[str], Target]]:
    targets = [parse_target(text) for text in args.targets]
    specs = [parse_input(text) for text in args.inputs]
    phases = [phase_of([spec]) for spec in specs]
    if len(specs) != 2 or None in phases or phases[0] == phases[1]:
        if len(targets) > 1:
            raise UsageError("--target: one of each network; two are for a language model with --prefill and --decode")
        yield args.inputs, targets[0]
        return
    for text, phase in zip(args.inputs, phases, strict=True):
        own = [target for target in targets if target.phase == phase] or [target for target in targets if target.phase is None]
        if len(own) != 1:
            found = " and ".join(map(str, own)) or "none"
            raise UsageError(f"--target: expected one for --{phase}, got {found}")
        yield [text], own[0]


def _planned(network: Network, target: Target, bundle: Bundle, args: argparse.Namespace) -> dict[str, Any]:
    phase = phase_of(network.inputs)
    check_phase(target, phase)
    surface = common.predict_surface(network, bundle, args)
    battery_wh = args.battery_wh if isinstance(target, BatteryLifeTarget) or not args.compare else None
    limits = lasting(target, battery_wh, Limits())
    chosen = plan(surface, target, fps=args.fps, confidence=args.confidence, limits=limits)
    proposal = _proposal(network, surface, target, bundle, args)
    rows = _compared(surface, load_board(bundle.manifest.board), chosen, args.battery_wh) if args.compare else []
    if args.plot:
        common.draw(network, bundle, args, surface, chosen)
    if args.json:
        told = {"phase": phase, **_in_tokens(chosen.choice, phase)} if phase else {}
        about, mode = common.about(network, bundle, args), proposal and proposal.to_json()
        comparison = {"compare": [one.to_json() for one in rows]} if args.compare else {}
        return {**about, "method": surface.method, **told, **chosen.to_json(), "proposal": mode, **comparison}
    inputs = f" ({network.inputs[0].name} of {network.inputs[0].value[0]})" if phase and network.inputs[0].value else ""
    if chosen.caution:
        print(printable(chosen.caution))
    common.print_heading(network, bundle, args, f", target {target}", inputs)
    print(f"\nset {chosen.configuration}\n")
    print(_table([("chosen", chosen.choice), ("top clocks", chosen.top)], chosen))
    if phase:
        print(f"\n{', '.join(f'{name} {value:.4g}' for name, value in _in_tokens(chosen.choice, phase).items())}")
    print(f"\n{chosen.reason}\n{chosen.saving}\n")
    if rows:
        print(_comparison(rows, per_frame=args.fps is not None))
        print("nvpmodel: at the mode's highest clocks, where governors go under load\n")
    if chosen.configuration.cpu_khz == surface.grid.cpu_khz[0]:
        print("The CPU is at its lowest clock, which other programs will feel; limits.cpu_khz of the daemon keeps it up.\n")
    print("one step of a clock would change:")
    print(output.table(("", "", "latency ms", "per frame mJ" if args.fps else "energy mJ"), _steps(chosen), text_columns=2))
    print(f"\nthe trade-off: no configuration beats these in both latency and energy ({_front_note(chosen)})")
    print(_table([("", option) for option in chosen.thinned_front(_FRONT_ROWS)], chosen))
    if proposal is not None:
        print(f"\nas the board boots: {printable(proposal.note)}")
    common.print_notes(network, bundle.cost, chosen.caveats.guessed)
    return {}


def _proposal(
    network: Network, surface: Surface, target: Target, bundle: Bundle, args: argparse.Namespace
) -> ModeProposal | None:
    board = load_board(bundle.manifest.board)
    if not board.modes or isinstance(target, BatteryLifeTarget):
        return None
    simulated = bundle.manifest.simulated
    request = PlanRequest(Planning(), surface, str(target), args.fps, args.confidence, network.name, simulated)
    return against_default(request, board.modes[-1])


def _in_tokens(choice: PlannedOption, phase: Phase) -> dict[str, float]:
    if phase == "prefill":
        return {"ttft_ms": choice.latency_ms, "mj_per_prompt": choice.energy_mj}
    return {"tokens_per_s": 1e3 / choice.latency_ms, "mj_per_token": choice.energy_mj}


def _table(rows: list[tuple[str, PlannedOption]], chosen: Plan) -> str:
    headers = ["", "CPU MHz", "GPU MHz", "EMC MHz", "latency ms", "power W", "energy mJ"]
    headers += ["per frame mJ"] if chosen.fps else []
    headers += [f"latency p{100 * chosen.confidence:g}", f"energy p{100 * chosen.confidence:g}"] if chosen.confidence else []
    return output.table(headers, [[name, *_cells(option)] for name, option in rows])


def _cells(option: PlannedOption) -> list[str]:
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


def _compared(surface: Surface, board: BoardDescription, chosen: Plan, battery_wh: float | None) -> list[SettingRow]:
    figures, bounds = outlook(surface, chosen.fps, None), outlook(surface, chosen.fps, chosen.confidence)
    limit_ms = longest_ms(chosen.target, chosen.fps)

    def row(name: str, configuration: FrequencyConfiguration, note: str = "") -> SettingRow:
        index = surface.grid.index(configuration)
        latency_ms, power_mw = float(figures.latency_ms[index]), float(figures.power_mw[index])
        hours = None if battery_wh is None else 1e3 * battery_wh / power_mw
        late = limit_ms is not None and float(bounds.latency_ms[index]) > limit_ms
        return SettingRow(name, configuration, latency_ms, float(figures.energy_mj[index]), power_mw, late, hours, note)

    rows = []
    if board.modes:
        described = modes_of(board, None)
        for mode in described.table:
            note = _NOTES.get(share_on(mode.masks, described), "a part of the GPU is off, which is not predicted")
            rows.append(row(f"nvpmodel {mode.name}", highest(surface.grid, mode), note))
    rows.append(row("MAXN + jetson_clocks", surface.grid.top))
    rows.append(row("jetdvfs", chosen.configuration))
    return rows


def _comparison(rows: Sequence[SettingRow], *, per_frame: bool) -> str:
    battery = any(one.battery_h is not None for one in rows)
    headers = ["", "clocks", "latency ms", "mJ a frame" if per_frame else "mJ", "W", *(["battery h"] if battery else []), ""]
    cells = [
        [
            one.name,
            output.short_clocks(one.configuration._asdict()),
            f"{one.latency_ms:.2f}",
            f"{one.energy_mj:.1f}",
            f"{one.power_mw / 1e3:.2f}",
            *([f"{one.battery_h:.1f}"] if one.battery_h is not None else []),
            ", ".join(text for text in ("late" if one.late else "", one.note) if text),
        ]
        for one in rows
    ]
    return output.table(headers, cells, text_columns=2, right=range(2, len(headers) - 1))
