# SPDX-License-Identifier: Apache-2.0
"""Study kernel kinds by their share of inference time, as MIRAGE does (SEC '21, section 3.2 and Table 1).

For each network: every kind's share of the inference time; T, one inference from end to end; T_K, the launches of the selected
kinds, each timed alone; T_K', those of the rest; how many kinds it launches (unique kernels), and how often. A selected kind is
significant (among the largest kinds that together make 95% of some network's kernel time) and common (launched by 40% of the
networks). Adaptive pooling to one element is a "mean", as PyTorch runs it.

MODEL is a model file, the .json of 'jetdvfs decompose --json', or a reference network, to which --input does not apply.
Default: the paper's ten networks and eight kinds; 'jetdvfs-lab paper table1' compares them.

where the figures come from:
  without --profile   measured on simulated boards: medians over thirteen of them, without noise
  with --profile      predicted: T by --method, kernels by the profile's models, a kind without one by the roofline

examples:
  jetdvfs-lab paper characterize
  jetdvfs-lab paper characterize resnet18 mobilenet_v2 --profile agx-xavier-sim --plot study.png
  jetdvfs-lab paper characterize mine.pt other.pt --input 1x3x224x224 --profile agx-xavier-sim --config 1190.4,905.25,1600
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from statistics import fmean

from msgspec import Struct
from msgspec.structs import asdict

from .....daemon import arguments
from .....daemon.cli import model_arguments as common
from .....daemon.cli import output
from .....daemon.cli.pictures import announce_picture, picture_file
from .....daemon.errors import UsageError
from .....kernels.fusion import fuse
from .....kernels.grid import FrequencyConfiguration, FrequencyGrid
from .....kernels.text import printable
from .....kernels.units import METHODS
from ....board import load_board
from ....twin.cli.arguments import BOARD
from ...paper.characterization import NODES, KindFigures, NetworkRun, measured, predicted, select
from ..arguments import named_networks


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    parser = verb("characterize", __doc__ or "", run)
    arguments.add_input(parser)
    arguments.add_accept_boundary(parser)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="a model file, or the name of a reference network")
    parser.add_argument("--profile", metavar="NAME|DIR", help="predict with this profile instead of measuring simulated boards")
    parser.add_argument("--board", help=f"the simulated board to measure on (default: {BOARD})")
    arguments.add_config(parser, "the configuration (default: the top clocks)")
    parser.add_argument("--method", choices=METHODS, default=METHODS[0], help="with --profile: how T is predicted")
    common.add_optimized_argument(parser, default=True)
    common.add_fused_argument(parser)
    parser.add_argument("--plot", type=picture_file, metavar="FILE.png", help="also draw a picture (needs matplotlib)")


class _StudyFigures(Struct, frozen=True):
    board: str
    configuration: FrequencyConfiguration
    origin: str
    simulated: bool
    runs: tuple[NetworkRun, ...]
    kinds: tuple[KindFigures, ...]
    columns: tuple[str, ...]


def run(args: argparse.Namespace) -> int:
    if args.profile and args.board:
        raise UsageError("--profile and --board: a profile is of one board already; give one of the two")
    if args.fused and not args.profile:
        raise UsageError("--fused: the simulated board runs networks unfused; valid with --profile")
    study = _predict(args) if args.profile else _measure(args)
    if args.plot:
        from ..pictures import draw_study

        title = f"{_title(study)}, {study.origin.split()[0]}"
        draw_study(study.runs, args.plot, title=title, simulated=study.simulated)
        announce_picture(args.plot)
    if args.json:
        output.print_json(_to_json(study))
        return 0
    print(f"{_title(study)}: {study.origin}")
    if study.simulated:
        print("simulated: these figures are not those of a real board")
    print(f"\n{_shares(study)}\n\n{_launches(study)}\n\n{_selection(study)}")
    for run in study.runs:
        if run.boundary:
            print(printable(f"a part of {run.network}: {run.boundary.note}"))
        if run.unmodelled:
            print(printable(f"no model for {', '.join(run.unmodelled)} in {run.network}: bounded by the roofline"))
        if run.guessed_share:
            print(printable(f"guessed in {run.network}: {run.guessed_share:.1%} of the GPU's time; explain has the kernels"))
    return 0


def _predict(args: argparse.Namespace) -> _StudyFigures:
    bundle = common.read_profile(args)
    configuration = _configuration(args, bundle.cost.grid)
    runs = []
    for network in named_networks(args.models, args.inputs, args.accept_boundary, args.optimized):
        with output.progress(f"predicting {network.name}"):
            runs.append(predicted(fuse(network) if args.fused else network, bundle.cost, configuration, args.method))
    origin = f"predicted by profile {bundle.manifest.name} ({args.method}){', fused' if args.fused else ''}"
    return _study(bundle.manifest.board, configuration, origin, bundle.manifest.simulated, runs, ())


def _measure(args: argparse.Namespace) -> _StudyFigures:
    from ...paper.published import KINDS

    board = load_board(args.board or BOARD)
    configuration = _configuration(args, board.grid)
    runs = []
    for network in named_networks(args.models, args.inputs, args.accept_boundary, args.optimized):
        with output.progress(f"running {network.name} on simulated boards"):
            runs.append(measured(network, board, configuration))
    origin = f"measured on simulated boards, medians of {NODES}"
    return _study(board.name, configuration, origin, True, runs, () if args.models else KINDS)


def _configuration(args: argparse.Namespace, grid: FrequencyGrid) -> FrequencyConfiguration:
    return common.on_grid(args.config, grid) if args.config is not None else grid.top


def _study(
    board: str,
    configuration: FrequencyConfiguration,
    origin: str,
    simulated: bool,
    runs: list[NetworkRun],
    kinds: tuple[str, ...],
) -> _StudyFigures:
    figures = select(runs)
    columns = kinds or tuple(figure.kind for figure in figures if figure.selected)
    return _StudyFigures(board, configuration, origin, simulated, tuple(runs), figures, columns)


def _title(study: _StudyFigures) -> str:
    count = len(study.runs)
    return f"{count} network{'s' if count > 1 else ''} on {study.board} at {study.configuration}"


def _shares(study: _StudyFigures) -> str:
    rows = []
    for run in study.runs:
        own_ms = run.selected_ms(study.columns)
        shares = [run.share(kind) if kind in run.kernel_ms else None for kind in study.columns]
        times_ms = [own_ms, run.others_ms(study.columns), run.time_ms]
        rows.append([*shares, *times_ms, own_ms / run.time_ms, own_ms / run.all_ms, run.all_ms / run.time_ms])
    means = [_mean(column) for column in zip(*rows, strict=True)]
    headers = ["network", *study.columns, "T_K ms", "T_K' ms", "T ms", "T_K/T", "T_K/(T_K+T_K')", "(T_K+T_K')/T"]
    times = range(len(study.columns), len(study.columns) + 3)

    def cells(name: str, row: Sequence[float | None]) -> list[str]:
        return [name, *(_cell(value, index in times) for index, value in enumerate(row))]

    lines = [cells(run.label, row) for run, row in zip(study.runs, rows, strict=True)]
    table = output.table(headers, [*lines, *([cells("mean", means)] if len(rows) > 1 else [])])
    return f"share of the inference time T by kind, each kernel timed by itself\n{table}"


def _mean(column: Sequence[float | None]) -> float | None:
    values = [value for value in column if value is not None]
    return fmean(values) if values else None


def _cell(value: float | None, time: bool) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if time else f"{value:.2%}"


def _launches(study: _StudyFigures) -> str:
    rows = [
        (
            run.label, str(len(run.kernel_ms)), str(run.launches), str(run.distinct), f"{run.host_ms:.2f}",
            f"{run.power_mw / 1e3:.1f}", ", ".join(run.significant()),
        )
        for run in study.runs
    ]  # fmt: skip
    headers = ("network", "unique kernels", "launches", "distinct", "host ms", "power W", "95% of the kernel time")
    return output.table(headers, rows, right=range(1, 6))


def _selection(study: _StudyFigures) -> str:
    rows = [
        (
            figure.kind, f"{figure.mean_share:.2%}", f"{figure.networks} of {len(study.runs)}",
            f"{figure.significant} of {len(study.runs)}", "yes" if figure.selected else "",
        )
        for figure in study.kinds
    ]  # fmt: skip
    headers = ("kind", "mean share", "launched by", "needed for 95% in", "selected")
    note = "" if all(figure.selected == (figure.kind in study.columns) for figure in study.kinds) else (
        f"\nT_K above is of the {len(study.columns)} kinds of the paper's Table 1: {', '.join(study.columns)}"
    )  # fmt: skip
    return output.table(headers, rows, right=range(1, 4)) + note


def _to_json(study: _StudyFigures) -> dict[str, object]:
    return {
        "board": study.board,
        "simulated": study.simulated,
        "origin": study.origin,
        "configuration": study.configuration._asdict(),
        "selected": [figure.kind for figure in study.kinds if figure.selected],
        "t_k_kinds": list(study.columns),
        "kinds": [asdict(figure) for figure in study.kinds],
        "networks": [run.to_json(study.columns) for run in study.runs],
    }
