# SPDX-License-Identifier: Apache-2.0
"""The table of a run: how many models of each format are equal, explained, refused and wrong; a line for all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from jetdvfs.tests.zoo.comparison import UNJUDGED, VERDICTS

_PACKAGES = (
    *("torch", "torchvision", "timm", "transformers", "diffusers", "ultralytics", "segmentation-models-pytorch", "torchaudio"),
    *("torch-geometric", "onnx", "onnxscript"),
)
Record = dict[str, Any]


def counts(records: Sequence[Record]) -> dict[str, Counter[str]]:
    """How many of each verdict, by format."""
    found: dict[str, Counter[str]] = {}
    for record in records:
        found.setdefault(record["format"], Counter())[record["verdict"]] += 1
    return found


def summary(records: Sequence[Record]) -> dict[str, Any]:
    """The table, and what is not equal, as JSON."""
    return {
        "versions": _versions(),
        "models": len({record["model"] for record in records if record["verdict"] in VERDICTS}),
        "models_in_every_format": in_every_format(records),
        "counts": {how: dict(number) for how, number in counts(records).items()},
        "others": [record for record in records if record["verdict"] != "equal"],
    }


def in_every_format(records: Sequence[Record]) -> int:
    """How many models were tried in every format that the records have."""
    tried = {(record["model"], record["format"]) for record in records}
    formats, times = {how for _, how in tried}, Counter(model for model, _ in tried)
    return sum(count == len(formats) for count in times.values())


def text(records: Sequence[Record]) -> str:
    """The same for people: the table in Markdown."""
    by_format = counts(records)
    total: Counter[str] = sum(by_format.values(), Counter())
    columns = (*VERDICTS, *UNJUDGED)
    lines = [f"| format | {' | '.join(columns)} | equal or explained |", f"|---|{'---:|' * (len(columns) + 1)}"]
    for how, number in (*by_format.items(), ("all", total)):
        judged = sum(number[verdict] for verdict in VERDICTS)
        share = f"{(number['equal'] + number['explained']) / judged:.1%}" if judged else "-"
        lines.append(f"| {how} | {' | '.join(str(number[column]) for column in columns)} | {share} |")
    models = len({record["model"] for record in records if record["verdict"] in VERDICTS})
    codes = Counter(record.get("code", "unknown") for record in records if record["verdict"] != "not written")
    by = f", judged by {len(codes)} states of the code" if len(codes) > 1 else ""
    whole = f"{in_every_format(records)} of them tried in every format"
    lines += ["", f"{models} models, {whole}{by}; {', '.join(f'{name} {number}' for name, number in _versions().items())}", ""]
    order = {verdict: place for place, verdict in enumerate(("wrong", "refused", "explained", *UNJUDGED))}
    others = sorted((r for r in records if r["verdict"] != "equal"), key=lambda r: (order[r["verdict"]], r["why"]))
    lines += [f"{record['verdict']}: {record['model']} {record['format']}: {record['why']}" for record in others]
    return "\n".join(lines)


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
