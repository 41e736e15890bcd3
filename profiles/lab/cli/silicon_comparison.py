# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab silicon comparison``: simulated boards compared with measurements of real ones."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from ....daemon.cli.output import print_json
from ....daemon.cli.pictures import announce_picture, new_figure, picture_file, save
from ....daemon.errors import InputError, UsageError
from ....kernels.text import valid_instead
from ...errors import ComparisonDataError
from ...twin.silicon.chip import own_parameters
from ..compare.fit import FittedQuantity, Report
from .arguments import add_data
from .silicon_gate import MISSED

_COLUMNS = 5  # panels side by side
_DECADE = 20.0  # a wider range than this is drawn on logarithmic axes


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    text = "compare simulated boards with measurements of real ones\n\nexample: jetdvfs-lab silicon comparison --data DIR"
    sub = verb("comparison", text, run)
    add_data(sub)
    sub.add_argument("--board", action="append", metavar="NAME", help="may be repeated (default: every board compared)")
    sub.add_argument(
        "--plot", type=picture_file, metavar="FILE", help="draw simulated against measured values (needs matplotlib)"
    )


def run(args: argparse.Namespace) -> int:
    from ..compare.boards import COMPARISONS, not_compared

    derived = not_compared()
    for board in args.board or ():
        if board not in COMPARISONS:
            known = derived.get(board)
            reason = f"{board} was calibrated on {known}" if known else f"there is no simulated board {board}"
            raise UsageError(f"--board: {reason}{valid_instead(board, list(COMPARISONS))}")
    reports, missing = [], {}
    for board in args.board or COMPARISONS:
        try:
            report = COMPARISONS[board](args.data)
        except ComparisonDataError as error:
            if args.board:
                raise InputError(str(error)) from error
            missing[board] = str(error)
            continue
        reports.append(report)
        if not args.json:
            print("\n".join([*_lines(report), *(_parameters(report) if args.board else ())]), flush=True)
    if not reports:
        raise InputError("; ".join(missing.values()))
    if args.json:
        print_json(_json(reports, missing, {} if args.board else derived))
    else:
        for board, reason in missing.items():
            print(f"\n{board}: not compared: {reason}")
        for board, basis in () if args.board else derived.items():
            print(f"\n{board}: calibrated on {basis}" if board == next(iter(derived)) else f"{board}: calibrated on {basis}")
    if args.plot is not None:
        draw(reports, args.plot)
    return 0 if all(report.passed for report in reports) else MISSED


def _json(reports: Sequence[Report], missing: dict[str, str], derived: dict[str, str]) -> dict[str, object]:
    return {
        "what": "simulated boards against measurements of real ones",
        "boards": [report.to_json() for report in reports],
        "not_compared": missing,
        "calibrated_on": derived,
    }


def _lines(report: Report) -> list[str]:
    lines = [
        f"{report.board}: simulated board (silicon {report.chip.version}) against measurements of a real one",
        f"  {report.source}",
        f"  {'relative error of':<44}{'points':>7}{'median':>9}{'90%':>8}{'largest':>9}   held out: median, 90%, largest",
    ]
    lines += [_line(fit) for fit in report.fits]
    return [*lines, *(f"  {note}" for note in report.notes)]


def _parameters(report: Report) -> list[str]:
    own = ", ".join(f"{name} {_short(value)}" for name, value in own_parameters(report.chip.name).items())
    text = f"set in its file ({report.chip.name}.yaml): {own}"
    return textwrap.wrap(text, 150, initial_indent="  ", subsequent_indent="    ")


def _short(value: object) -> str:
    if isinstance(value, list):
        return f"[{' '.join(map(_short, value))}]"
    return f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def _line(fit: FittedQuantity) -> str:
    text = f"  {fit.quantity:<44}{len(fit.measured):>7}" + _quantiles(fit, held_out=False)
    text += "   " + (_quantiles(fit, held_out=True) if fit.held_out is not None else " " * 26)
    if fit.limit is None:
        return text.rstrip()
    return f"{text}   {'ok' if fit.passed else 'MISSED'} ({'every point' if fit.every else 'median'} within {fit.limit:.0%})"


def _quantiles(fit: FittedQuantity, *, held_out: bool) -> str:
    values = (fit.quantile(share, held_out=held_out) for share in (0.5, 0.9, 1.0))
    return "".join(f"{value:>{width}.1%}" for value, width in zip(values, (9, 8, 9), strict=True))


def draw(reports: Sequence[Report], path: Path) -> None:
    """Draw simulated against measured values, a row of panels per board. Raises InputError."""
    panels = [(report.board, fit) for report in reports for fit in report.fits if len(fit.measured) > 1]
    rows = -(-len(panels) // _COLUMNS)
    figure = new_figure(3.2 * _COLUMNS, 3.1 * rows)
    axes = figure.subplots(rows, _COLUMNS, squeeze=False).ravel()
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    for axis, (board, fit) in zip(axes, panels, strict=False):
        ends = [min(fit.measured.min(), fit.simulated.min()), max(fit.measured.max(), fit.simulated.max())]
        axis.plot(ends, ends, color="0.4", linewidth=1)
        axis.plot(fit.measured, fit.simulated, ".", markersize=4, alpha=0.5)
        if ends[1] > _DECADE * ends[0]:
            axis.set_xscale("log")
            axis.set_yscale("log")
        axis.set_title(f"{board}: {fit.quantity}", fontsize=8)
        axis.set_xlabel("measured", fontsize=8)
        axis.set_ylabel("simulated", fontsize=8)
        axis.tick_params(labelsize=7)
    save(figure, path)
    announce_picture(path)
