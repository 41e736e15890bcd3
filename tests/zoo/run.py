# SPDX-License-Identifier: Apache-2.0
"""Exports the models of ``models.yaml`` in every format, lists each file, and holds the list against PyTorch.

    make zoo                        # all, going on where it was left
    make zoo MODELS=timm/.*net      # those whose title matches
    make zoo-judge                  # list and judge anew what was exported before

One process for each model and format, one after the other. Results are lines of JSON in ``build/zoo/results.jsonl``; what has a
line is not done again, but for the verdicts that ``--again`` names. Beside it ``kept/`` has what ``--judge-again`` takes in
place of an export (``kept.py``), and the whole files whose lists are refused or wrong.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any, TextIO
from zlib import crc32

from jetdvfs.tests.support.paths import ROOT
from jetdvfs.tests.zoo import kept, report
from jetdvfs.tests.zoo.attempt import again, attempt, said
from jetdvfs.tests.zoo.table import Entry, entries

#: In the order of the table.
FORMATS = ("traced", "scripted", "frozen", "exported", "onnx", "onnx-dynamo")
_LOADED = ("onnx", "onnxscript", "torch.onnx._internal.exporter._core", "torch.export", "torch.utils.flop_counter")


def main() -> int:
    parser = argparse.ArgumentParser(description="Holds what jetdvfs lists of many models in many formats against PyTorch.")
    parser.add_argument("--results", type=Path, default=ROOT / "build/zoo/results.jsonl", help="where results are kept")
    parser.add_argument("--models", default="", help="a pattern: only models whose title has it")
    parser.add_argument("--formats", default="", help="a pattern: only formats whose name has it")
    parser.add_argument("--again", default="", help="a pattern: do these verdicts again (refused|wrong)")
    parser.add_argument("--judge-again", action="store_true", help="only list and judge anew what was exported before")
    parser.add_argument("--seconds", type=float, default=180, help="the longest that one model may take in one format")
    parser.add_argument("--report", action="store_true", help="only print what there is")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    args = parser.parse_args()
    # In no order, but always the same: a run that was interrupted has tried something of every package.
    mixed = sorted(entries(), key=lambda entry: crc32(entry.title.encode()))
    chosen = [entry for entry in mixed if re.search(args.models, entry.title)]
    formats = [how for how in FORMATS if re.search(args.formats, how)]
    if not chosen or not formats:
        print(f"no model of models.yaml matches {args.models!r} in a format that matches {args.formats!r}", file=sys.stderr)
        return 2
    args.results.parent.mkdir(parents=True, exist_ok=True)
    if args.judge_again:
        _judge_again(chosen, formats, args.results)
    elif not args.report:
        _run(chosen, formats, args)
    wanted = {(entry.title, how) for entry in chosen for how in formats}
    records = [record for place, record in results_in(args.results).items() if place in wanted]
    print(json.dumps(report.summary(records), indent=1) if args.json else report.text(records))
    return 1 if any(record["verdict"] == "wrong" for record in records) else 0


def results_in(results: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The last record of each model and format; a line that an interruption cut off counts as none."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    if results.exists():
        for line in results.read_text(encoding="utf-8").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            found[record["model"], record["format"]] = record
    return found


def _run(chosen: list[Entry], formats: list[str], args: argparse.Namespace) -> None:
    done = results_in(args.results)
    again = re.compile(args.again) if args.again else None
    left = [
        (entry, how)
        for entry in chosen
        for how in formats
        if (record := done.get((entry.title, how))) is None or (again and again.search(record["verdict"]))
    ]
    if not left:
        return
    _load(left)
    kept.code()  # before it changes while this runs
    with open(args.results, "a", encoding="utf-8") as stream:
        progress = Progress(stream, len(left))
        for entry, how in left:
            progress.note(attempt(entry, how, args.seconds, args.results.parent / "kept"))


def _judge_again(chosen: list[Entry], formats: list[str], results: Path) -> None:
    done, code = results_in(results), kept.code()
    places = [(entry, how) for entry in chosen for how in formats if done.get((entry.title, how), {}).get("code") != code]
    with open(results, "a", encoding="utf-8") as stream:
        progress = Progress(stream, len(places))
        for entry, how in places:
            progress.note(again(entry.title, how, results.parent / "kept", done.get((entry.title, how))))


class Progress:
    """Writes records down as they are made, and says how far that is."""

    def __init__(self, stream: TextIO, total: int) -> None:
        self._stream, self._total, self._number, self._began = stream, total, 0, time.monotonic()

    def note(self, record: dict[str, Any] | None) -> None:
        self._number += 1
        if record is None:
            return
        self._stream.write(json.dumps(record) + "\n")
        self._stream.flush()
        minutes = (time.monotonic() - self._began) / self._number * (self._total - self._number) / 60
        told = f"{record['model']} {record['format']}: {record['verdict']} {record['why'][:200]} ({record['seconds']:.1f} s)"
        print(f"{self._number} of {self._total}, {minutes:.0f} min left: {told}", file=sys.stderr, flush=True)


def _load(left: list[tuple[Entry, str]]) -> None:
    """Load the packages and what exporters load as they work, before processes part: it takes longer than a small model.

    With one thread, for threads are lost there.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch

    from jetdvfs.tests.support.models import oracle
    from jetdvfs.tests.zoo import formats

    torch.set_num_threads(1)
    oracle.torchvision()
    packages = {entry.package: entry for entry, _ in left}
    for name in (*sorted(packages), *_LOADED):
        try:
            importlib.import_module(name)
            if name in packages:
                packages[name].make()
        except Exception as error:
            print(f"{name}: {said(error)}", file=sys.stderr)
    formats.warm_up()


if __name__ == "__main__":
    sys.exit(main())
