# SPDX-License-Identifier: Apache-2.0
"""`jetdvfs-lab trace` on recorded runs: what it says, and how it ends."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.profiles.lab.cli import main
from jetdvfs.tests.support.models.handmade import archive, forward
from jetdvfs.tests.support.models.handmade_onnx import declared, graph, model, node
from jetdvfs.tests.support.paths import ROOT

FOLDER = ROOT / "tests" / "fixtures" / "traces"
X = declared("x", (2, 3))
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


def test_a_run_under_autocast_is_not_called_equal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """PyTorch's profiler shows the call as it was made, around it as autocast makes it, and the casts before that."""
    model, trace = tmp_path / "model.pt", tmp_path / "trace.json"
    model.write_bytes(archive(forward("return torch.matmul(x, x)")))

    def event(name: str, ts: float, dur: float, kind: str) -> dict[str, Any]:
        args = {"Input Dims": [[8, 8], [8, 8]], "Input type": [kind, kind], "Concrete Inputs": ["", ""]}
        return {"ph": "X", "cat": "cpu_op", "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": 1, "args": args}

    events = [event("aten::matmul", 0, 10, "float"), event("aten::_to_copy", 1, 1, "float")]
    events[1]["args"] = {"Input Dims": [[8, 8], *[[]] * 6], "Input type": ["float", *[""] * 6], "Concrete Inputs": [""] * 7}
    events.append(event("aten::matmul", 3, 5, "c10::BFloat16"))
    for kind, ends in (("c10::BFloat16", 3), ("float", 0)):
        events[2]["args"]["Input type"] = [kind, kind]
        trace.write_text(json.dumps({"traceEvents": events}))
        code, out = main(["trace", str(trace), str(model), "--input", "8x8"]), capsys.readouterr().out
        assert code == ends and ("1 on another element type (bfloat16 for float32)" in out) is (ends == 3)
        assert "1 calls besides" in out


def test_a_trace_may_be_compressed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress((FOLDER / "kineto.json").read_bytes()))
    code, text, _ = said(capsys, packed, FOLDER / "small.pt")
    assert code == 0 and "14 of 14 launches are there" in text
    packed.write_bytes(packed.read_bytes()[:200])
    code, _, error = said(capsys, packed, FOLDER / "small.pt")
    assert code == 3 and "damaged gzip file" in error


@pytest.mark.parametrize(("name", "content"), [
    ("run.nsys-rep", b"any"),
    ("run.sqlite", b"SQLite format 3\0"),
    ("cuda_gpu_kern_sum.csv", b'Time (%),Total Time (ns),Instances,Avg (ns)\n'),
])  # fmt: skip
def test_reports_of_nsight_systems_are_named(
    name: str, content: bytes, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    code, _, error = said(capsys, tmp_path / name, FOLDER / "small.pt")
    assert code == 3 and "Nsight Systems" in error and "export_chrome_trace" in error


def test_nodes_without_a_name_are_told_apart_as_onnx_runtime_calls_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    content = graph([node("Relu", ["x"], ["a"]), node("Tanh", ["a"], ["b"]), node("Relu", ["b"], ["y"])], [X], ["y"])
    (tmp_path / "model.onnx").write_bytes(model(content))
    events = [
        {
            "cat": "Node",
            "name": f"{name}_kernel_time",
            "ph": "X",
            "ts": at,
            "dur": 1,
            "args": {"op_name": name.partition("_")[0]},
        }
        for at, name in enumerate(("Relu_0", "Tanh_1", "Relu_2"))
    ]
    (tmp_path / "run.json").write_text(json.dumps(events))
    code, text = main(["trace", str(tmp_path / "run.json"), str(tmp_path / "model.onnx")]), capsys.readouterr().out
    assert code == 0 and "3 of 3 launches are there, 0 missing, 0 calls besides" in text
    assert "relu+" not in text
