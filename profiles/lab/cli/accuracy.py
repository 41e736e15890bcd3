# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab compare engines`` and ``all``."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from .... import __version__
from ....daemon import arguments
from ....daemon.cli.output import print_json, table
from ....daemon.errors import InputError, UsageError
from ...bundle.bundle import load_bundle
from ...bundle.finding import find_bundles
from ..compare import engines as published
from ..compare.tokens import WITHIN_MJ, WITHIN_MS
from . import replaying
from .applications import REGRET
from .arguments import add_data, reading_data
from .silicon_gate import MISSED

_OF_RECORD = {
    "latency_percent": ("latency of eager execution", 0.08),
    "energy_percent": ("energy of eager execution", 0.10),
    "graph_latency_percent": ("latency of a CUDA graph", 0.08),
    "graph_percent": ("GPU time of a CUDA graph", 0.08),
    "graph_energy_percent": ("energy of a CUDA graph's replay", 0.10),
}
_OURS = ("rates", "rates and launches (ours)")
_OF_NETWORKS = {"in distribution": {"latency_ms": 5.0, "peak_mib": 3.0}, "unseen family": {"latency_ms": 7.0, "peak_mib": 2.5}}
_KINDS = 12  # that bring the largest errors
_FLEETS = "the fleet's"
_OF_FLEET = {
    "merge_s": ("processor time of merging records", "s", 1),
    "record_bytes": ("size of the merged record", "kB", 1e3),
    "train_s": ("processor time of training a third of the usual trees", "s", 1),
    "profile_bytes": ("size of the profile", "kB", 1e3),
}
_AFTER = "10"  # observed configurations
_EVALUATIONS = {
    "unseen_board": "unseen boards", "unseen_board_and_network": "and networks", "unseen_board_and_family": "and families",
    "unseen_board_engine": "engines", "unseen_board_engine_half": "engines in half precision",
    "unseen_board_engine_int8": "engines in 8 bits",
}  # fmt: skip


#: Parts compared by files: options of the command, and help.
_FILES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "record": ((), "record of a GPU, whose networks are predicted without their kernels, in 10 groups"),
    "fleet": (("--stored",), "stored output of 'jetdvfs-lab compare fleet --json'"),
    "networks": (("--networks",), "stored output of 'jetdvfs-lab evaluate --networks --json'"),
}


class AccuracyRow(Struct, frozen=True):
    """Value and goal as printed; ``met`` is None without a goal."""

    measure: str
    goal: str
    now: str
    met: bool | None = None


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    text = "predict published TensorRT engines (engines.csv: board,model,input,as,latency_ms)"
    add_data(verb("engines", f"{text}\n\nexample: jetdvfs-lab compare engines --data DIR", engines))
    text = "run all comparisons with real boards, and write one page"
    sub = verb("all", f"{text}\n\nexample: jetdvfs-lab compare all --data DIR --write accuracy.md", everything)
    add_data(sub)
    sub.add_argument("--only", choices=tuple(_PARTS), action="append", metavar="PART", help=f"of {', '.join(_PARTS)}")
    for name, (_, text) in _FILES.items():
        sub.add_argument(f"--{name}", type=arguments.named_file, metavar="FILE", help=text)
    sub.add_argument("--write", type=Path, metavar="FILE", help="write the page (docs/accuracy.md) instead of printing it")


def engines(args: argparse.Namespace) -> int:
    groups: dict[tuple[str, str], list[published.PublishedEngine]] = {}
    with reading_data("compare engines"):
        for one in published.engines(args.data):
            groups.setdefault((one.board, one.compiled), []).append(one)
    errors = {group: median(abs(one.error) for one in own) for group, own in groups.items()}
    every = [one for own in groups.values() for one in own]
    if args.json:
        rows = [{**asdict(one), "error": one.error} for one in every]
        print_json({"engines": rows, "groups": [{"board": b, "as": way, "error": e} for (b, way), e in errors.items()]})
    else:
        print("predicted by shipped profiles of simulated boards, and measured on real boards")
        cells = [
            [one.board, one.compiled, one.model, f"{one.latency_ms:.2f}", f"{one.predicted_ms:.2f}", f"{one.error:+.1%}"]
            for one in every
        ]
        print(table(["board", "as", "model", "real ms", "predicted ms", "error"], cells), end="\n\n")
        for (board, way), off in errors.items():
            said = f"of {len(groups[board, way])}, goal {published.GOAL:.0%}  {'ok' if off <= published.GOAL else 'MISSED'}"
            print(f"{board} {way}: median {off:.1%} {said}")
    return MISSED if any(off > published.GOAL for off in errors.values()) else 0


def everything(args: argparse.Namespace) -> int:
    found: dict[str, list[AccuracyRow]] = {}
    subjects = {part: ["--data", str(args.data)] for part in _PARTS}
    for name, (option, _) in _FILES.items():
        path = getattr(args, name)
        subjects[name] = [] if path is None else [*option, str(path)]
    for name in args.only or [part for part, subject in subjects.items() if subject]:
        print(f"{' '.join(_PARTS[name][0])} ...", file=sys.stderr, flush=True)
        if not subjects[name]:
            raise UsageError(f"--only {name}: needs --{name} FILE")
        found[name] = list(_rows(name, subjects[name]))
    if args.json:
        print_json({name: [asdict(row) for row in rows] for name, rows in found.items()})
    elif args.write is None:
        print("\n".join(_page(found)))
    else:
        try:
            args.write.write_text("\n".join(_page(found)) + "\n", encoding="utf-8")
        except OSError as error:
            raise InputError(f"--write {args.write}: {error.strerror}") from error
    return MISSED if any(row.met is False for rows in found.values() for row in rows) else 0


def _rows(name: str, subject: Sequence[str]) -> Iterator[AccuracyRow]:
    from . import main

    (command, rows_of), told = _PARTS[name], io.StringIO()
    with contextlib.redirect_stdout(told):
        code = main([*command, *subject, "--json"])
    if code in (0, MISSED):
        yield from rows_of(json.loads(told.getvalue()))
    else:
        yield AccuracyRow("not compared: the data lack its table", "", "")


_Json: TypeAlias = Any  # of a command


def _goal(measure: str, value: float, goal: float) -> AccuracyRow:
    digits = 2 if goal < value < goal + 0.0005 else 1  # a figure that is missed is not shown as its goal
    return AccuracyRow(measure, f"{goal:.1%}", f"{value:.{digits}%}", value <= goal)


def _replays(runs: _Json) -> Iterator[AccuracyRow]:
    for name in dict.fromkeys(run["table"] for run in runs):
        own = [run for run in runs if run["table"] == name]
        after = [run["after"][_AFTER] for run in own]
        yield _goal(f"{name}: latency", float(np.median([one["latency_error"] for one in after])), replaying.TIME)
        yield _goal(f"{name}: power", float(np.median([one["power_error"] for one in after])), replaying.POWER)
        regret = float(np.quantile([one["regret"] for one in after], 0.9))
        yield _goal(f"{name}: regret, 90th percentile", regret, replaying.REGRET)
        late = sum(number > 3 for run in own for number in run["late"])
        yield AccuracyRow(f"{name}: late configurations after the third, {len(own)} targets", "0", str(late), late == 0)


def _kernels(pairs: _Json) -> Iterator[AccuracyRow]:
    for pair in pairs:
        goal = min(pair["plain_percent"], pair["goal_percent"] or pair["plain_percent"])
        yield _goal(f"{pair['table']} on {pair['gpu']}, held out", pair["own_percent"] / 100, goal / 100)
        if pair["forest_percent"] is not None:
            yield AccuracyRow(
                f"{pair['table']} on {pair['gpu']}, by Jung et al.'s forest", "", f"{pair['forest_percent']:.1f}%"
            )


def _layers(found: _Json) -> Iterator[AccuracyRow]:
    for batch, own in found["batches"].items():
        yield _goal(f"networks at batch {batch}, each left out", own["percent"] / 100, own["goal"] / 100)
        if shipped := own.get("shipped"):
            yield AccuracyRow(
                f"shipped profile at batch {batch}, the interpreter's time told", "", f"{shipped['percent']:.1f}%"
            )


def _tokens(rows: _Json) -> Iterator[AccuracyRow]:
    predicted = [row["predicted"] for row in rows if row["predicted"]]
    for measure, name, goal in (
        ("tokens per second", "rate_error", WITHIN_MS),
        ("energy of a token", "energy_error", WITHIN_MJ),
    ):
        yield _goal(f"{measure}, median of {len(predicted)}", median(abs(one[name]) for one in predicted), goal)


def _batches(choices: _Json) -> Iterator[AccuracyRow]:
    for board in dict.fromkeys(one["board"] for one in choices):
        own = [one for one in choices if one["board"] == board and one["observed"]]
        yield _goal(f"{board}: regret of batch and clock, median", median(one["regret"] for one in own), REGRET)
        late = sum(one["late"] for one in own)
        yield AccuracyRow(f"{board}: late plans of {len(own)}", "0", str(late), late == 0)


def _engines(found: _Json) -> Iterator[AccuracyRow]:
    yield from (_goal(f"{one['board']}, {one['as']}: latency, median", one["error"], published.GOAL) for one in found["groups"])


def _record(found: _Json) -> Iterator[AccuracyRow]:
    for figure, (measure, goal) in _OF_RECORD.items():
        if (value := found.get(f"mean_{figure}")) is not None:
            yield _goal(f"{found['device']}: {measure}, mean of {len(found['networks'])} networks left out", value / 100, goal)
    for one in found["kinds"][:_KINDS]:
        title = f"kernels of kind {one['kind']}, {one['share']:.0%} of the time, {one['kernels']} left out"
        yield AccuracyRow(title, "", f"{one['percent']:.1f}%")


def fleet_rows(found: _Json) -> Iterator[AccuracyRow]:
    """Rows of ``jetdvfs-lab compare fleet``."""
    whole = f"{found['boards']} simulated boards measured by {found['workers']} workers"
    if found["killed_after"] is not None:
        whole += f", one of them killed after {found['killed_after']}"
    merged = found["growth"][-1]["boards"]
    yield AccuracyRow(whole, str(found["boards"]), str(merged), merged == found["boards"])
    record, learned = (f"{size / 1e3:.0f} kB" for size in found["file_bytes"])
    yield AccuracyRow("size of a board's record / learned observations", "", f"{record} / {learned}")
    for figure in ("latency", "energy"):
        parts = ", ".join(f"{name} {share:.1%}" for name, share in found["spread"][figure].items())
        yield AccuracyRow(f"spread of {figure} over the boards", "", parts)
    sizes, many = ", ".join(str(row["boards"]) for row in found["growth"]), found["extrapolated"]
    for name, (measure, unit, scale) in _OF_FLEET.items():
        each = ", ".join(f"{row[name] / scale:.3g}" for row in found["growth"])
        grows = f"grows by the power {found['powers'][name]:.2f}; {many['boards']:,} boards, extrapolated by it and by a line"
        expected = " or ".join(f"{value / scale:,.0f}" for value in many[name])
        yield AccuracyRow(f"{measure} of {sizes} boards; {grows}", "", f"{each} {unit}; {expected} {unit}")
    for profile, kind in dict.fromkeys((row["profile"], row["networks"]) for row in found["rows"]):
        own = [row for row in found["rows"] if (row["profile"], row["networks"]) == (profile, kind)]
        counts = ", ".join(str(row["observations"]) for row in own)
        errors = ", ".join(f"{row['latency_percent']:.1f} / {row['power_percent']:.1f}%" for row in own)
        plans = ", ".join(f"{row['regret']:.1%} / {row['missed']:.0%}" for row in own)
        where = f"{found['new_boards']} new boards, {kind} networks, {profile} profile, after {counts} observations"
        yield AccuracyRow(f"{where}: error of latency / power", "", errors)
        yield AccuracyRow(f"{where}: regret / missed targets", "", plans)
        if (last := own[-1])["profile"] != _FLEETS:
            mine = [row for row in found["rows"] if (row["profile"], row["networks"]) == (_FLEETS, kind)]
            least = [row["observations"] for row in mine if row["latency_percent"] <= last["latency_percent"]]
            reached = f"{kind} networks, observations with {_FLEETS} profile for the latency error of {profile} profile after"
            yield AccuracyRow(f"{reached} {last['observations']}", "", str(least[0]) if least else f"more than {counts[-2:]}")


def _networks(found: _Json) -> Iterator[AccuracyRow]:
    for split, method in dict.fromkeys((one["split"], one["method"]) for one in found["scores"]):
        own = [one for one in found["scores"] if (one["split"], one["method"]) == (split, method)]
        now = ", ".join(f"{one['metric']} {one['mape']:.1f}%" for one in own)
        goals = _OF_NETWORKS.get(split.partition(", in ")[0], {}) if method in _OURS else {}
        goal = ", ".join(f"{limit:.1f}%" for limit in goals.values())
        met = all(one["mape"] <= goals[one["metric"]] for one in own) if goals else None
        yield AccuracyRow(f"{split}, {own[0]['networks']} learnt, {own[0]['tested']} left out: {method}", goal, now, met)


def _silicon(found: _Json) -> Iterator[AccuracyRow]:
    for board in found["boards"]:
        for fit in board["fits"]:
            if fit["limit"] is not None:
                part = "median" if fit["limit_on"] == "median" else "largest"
                value = (fit.get("held_out") or fit.get("fitted") or fit["all"])[part]
                row = _goal(f"{board['board']}: {fit['quantity']}, {part} of {fit['points']}", value, fit["limit"])
                yield replace(row, met=fit["passed"])


_PARTS: dict[str, tuple[Sequence[str], Callable[[_Json], Iterator[AccuracyRow]]]] = {
    "replay": (("compare", "replay"), _replays),
    "engines": (("compare", "engines"), _engines),
    "batches": (("compare", "batches"), _batches),
    "tokens": (("compare", "tokens"), _tokens),
    "layers": (("compare", "layers"), _layers),
    "kernels": (("compare", "kernels"), _kernels),
    "record": (("cross-validate", "--groups", "10"), _record),
    "networks": (("evaluate",), _networks),
    "silicon": (("silicon", "comparison"), _silicon),
    "fleet": (("compare", "fleet"), fleet_rows),
}


_SIMULATED = {"silicon": "Simulated chips and real boards", "fleet": "A simulated fleet, and new boards of it"}
_NOTES = {
    "record": "That matrix products count in whole tiles, of 128 outputs, was chosen by these rows.",
    "engines": "Engines of simulated boards, on which profiles are trained, were set by these rows: fits, no predictions.",
    "networks": "How far rates count in rates and launches was chosen by rows of all splits.",
}
_SUBJECTS = {"record": "RECORD", "fleet": "--stored FILE", "networks": "--networks FILE"}


def _page(found: dict[str, list[AccuracyRow]]) -> Iterator[str]:
    yield "# Accuracy\n"
    how = f"on {date.today().isoformat()}, version {__version__}"
    stored = {"record": "h200.npz", "fleet": "fleet.json", "networks": "h200_networks.json"}
    more = "".join(f" --{name} tests/fixtures/records/{file}" for name, file in stored.items() if name in found)
    yield f"Written by `jetdvfs-lab compare all --data DIR{more} --write docs/accuracy.md` {how}."
    yield "All measurements except the record's are published elsewhere and not part of this repository.\n"
    yield "## Predictions for real boards and GPUs"
    for name, rows in found.items():
        if name not in _SIMULATED:
            yield from _shown(name, rows)
    for name, title in _SIMULATED.items():
        if name in found:
            yield f"\n## {title}"
            yield from _shown(name, found[name])
    yield "\n## Shipped profiles on simulated boards\n"
    yield "Simulated: mean error of latency / energy on boards, networks and families that a profile was not trained on.\n"
    yield "| Profile | " + " | ".join(_EVALUATIONS.values()) + " |"
    yield "|---" * (1 + len(_EVALUATIONS)) + "|"
    for name, path in sorted(find_bundles().items()):
        kept = load_bundle(path).manifest.evaluation
        means = [kept[part]["mean"]["timeline"] if part in kept else None for part in _EVALUATIONS]
        cells = [f"{one['latency_percent']:.1f} / {one['energy_percent']:.1f}%" if one else "" for one in means]
        yield f"| {name} | {' | '.join(cells)} |"


def _shown(name: str, rows: Sequence[AccuracyRow]) -> Iterator[str]:
    yield f"\n`jetdvfs-lab {' '.join(_PARTS[name][0])} {_SUBJECTS.get(name, '--data DIR')}`\n"
    if name in _NOTES:
        yield f"{_NOTES[name]}\n"
    yield "| Measure | Goal | Now | |\n|---|---|---|---|"
    for row in rows:
        yield f"| {row.measure} | {row.goal} | {row.now} | {'' if row.met is None else 'met' if row.met else 'missed'} |"
