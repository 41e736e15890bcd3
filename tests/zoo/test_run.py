# SPDX-License-Identifier: Apache-2.0
"""A run over the table of models: where it goes on, what its table counts, and which models it takes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from jetdvfs.tests.zoo import report, run
from jetdvfs.tests.zoo.table import entries

pytestmark = pytest.mark.tool


def test_a_run_goes_on_where_it_was_cut_off_and_its_table_counts_each_once(tmp_path: Path) -> None:
    records = [{"model": "a/b", "format": "traced", "verdict": verdict, "why": "so"} for verdict in ("wrong", "equal")]
    lines = [json.dumps(record) for record in (*records, records[0] | {"format": "onnx", "verdict": "refused"})]
    results = tmp_path / "results.jsonl"
    results.write_text("\n".join(lines) + '\n{"model": "a/b", "for', encoding="utf-8")
    found = list(run.results_in(results).values())
    assert report.summary(found)["counts"] == {"traced": {"equal": 1}, "onnx": {"refused": 1}}
    assert report.in_every_format(found) == 1 and report.in_every_format([*found, records[0] | {"model": "a/c"}]) == 1
    table = report.text(found)
    assert "| all | 1 | 0 | 1 | 0 |" in table and "50.0%" in table and "refused: a/b onnx: so" in table


def test_every_model_stands_in_the_table_once() -> None:
    titles = [entry.title for entry in entries()]
    assert len(titles) == len(set(titles)) > 200


def test_a_pattern_that_no_model_matches_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["run", "--models", "no such model"])
    assert run.main() == 2
    assert "no such model" in capsys.readouterr().err
