# SPDX-License-Identifier: Apache-2.0
"""`jetdvfs-lab trace` on recorded runs: what it says, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jetdvfs.profiles.lab.cli import main
from jetdvfs.tests.support.paths import ROOT

FOLDER = ROOT / "tests" / "fixtures" / "traces"
INPUT = ("--input", "1x3x16x16")


def said(capsys: pytest.CaptureFixture[str], trace: Path, model: Path, *more: str) -> tuple[int, str, str]:
    code = main(["trace", str(trace), str(model), *INPUT, *more])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_run_of_pytorch_beside_what_is_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    trace, model = FOLDER / "kineto.json", FOLDER / "small.pt"
    code, text, noted = said(capsys, trace, model, "--profile", "agx-xavier-sim")
    assert code == 0 and "14 of 14 launches are there, 0 missing, 0 calls besides" in text
    assert "predicted ms" in text and "measured on a simulated board" in noted
    told = json.loads(said(capsys, trace, model, "--profile", "agx-xavier-sim", "--json")[1])
    assert len(told["launches"]) == len(told["measured_ms"]) == len(told["predicted_ms"]) == 14
    assert told["inferences"] == 2 and told["missing"] == []


def test_a_profile_of_onnx_runtime_is_of_the_model_that_it_optimised(capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = said(capsys, FOLDER / "blocked.json", FOLDER / "blocked.onnx")
    assert code == 0 and "conv2d+add+relu" in text and "ONNX Runtime, CPUExecutionProvider" in text
    code, text, _ = said(capsys, FOLDER / "blocked.json", FOLDER / "extended.onnx")
    assert code == 3 and "missing: launch 0, conv2d of 1x3x16x16" in text and "ReorderOutput" in text


def test_a_trace_of_another_size_is_said_to_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["trace", str(FOLDER / "kineto.json"), str(FOLDER / "small.pt"), "--input", "2x3x16x16"])
    error = capsys.readouterr().err
    assert code == 3 and error.count("\n") == 1 and "nothing of it is of the size that small has" in error


def test_what_is_no_trace_of_the_model_is_refused_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    torn = tmp_path / "torn.json"
    torn.write_bytes((FOLDER / "kineto.json").read_bytes()[:5000])
    empty = tmp_path / "empty.json"
    empty.write_text('{"traceEvents": []}')
    for trace, says in (
        (torn, "expected a trace of PyTorch's profiler"),
        (empty, "nothing of it is a kind that small launches"),
        (tmp_path / "none.json", "No such file"),
        (tmp_path, "Is a directory"),
    ):
        code, text, error = said(capsys, trace, FOLDER / "small.pt")
        assert (code, text, error.count("\n")) == (3, "", 1) and says in error and error.startswith("jetdvfs-lab trace: ")
