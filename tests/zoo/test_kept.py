# SPDX-License-Identifier: Apache-2.0
"""What is kept of an attempt: lists are judged from it as they were from the file itself, by the code as it stands."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.network import TensorSpec
from jetdvfs.tests.zoo import kept, run
from jetdvfs.tests.zoo.attempt import again
from jetdvfs.tests.zoo.comparison import Dispatched
from jetdvfs.tests.zoo.kept import Evidence
from jetdvfs.tests.zoo.table import entries

INPUTS = (TensorSpec((2, 160)),)
HOW = {".pt": "traced", ".pt2": "exported", ".onnx": "onnx"}
pytestmark = [pytest.mark.tool, pytest.mark.torch, pytest.mark.filterwarnings("ignore::Warning")]


@pytest.fixture(scope="module", params=[".pt", ".pt2", ".onnx"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network with a weight of 100 KiB, in a format."""
    torch = pytest.importorskip("torch", reason="PyTorch writes the files; it is not installed")
    module = torch.nn.Sequential(torch.nn.Linear(160, 160), torch.nn.ReLU()).eval().requires_grad_(False)
    path: Path = tmp_path_factory.mktemp("written") / f"network{request.param}"
    x = torch.rand(2, 160)
    if path.suffix == ".pt":
        torch.jit.save(torch.jit.trace(module, x), path)
    elif path.suffix == ".pt2":
        torch.export.save(torch.export.export(module, (x,)), path)
    else:
        pytest.importorskip("onnx", reason="PyTorch's ONNX exporter needs it; it is not installed")
        torch.onnx.export(module, x, path, dynamo=False)
    return path


def evidence(path: Path) -> Evidence:
    """As though PyTorch had dispatched what is listed."""
    launches = decompose(path, list(INPUTS)).launches
    return Evidence(INPUTS, Dispatched(launches, (), ("",) * len(launches), sources=(-1,) * len(launches)))


def test_a_file_keeps_its_length_and_its_list_without_the_numbers_of_its_weights(written: Path, tmp_path: Path) -> None:
    whole, blank = written.read_bytes(), kept.without_weights(written)
    assert len(blank) == len(whole) > 100 << 10
    assert blank.count(0) > 100 << 10 > whole.count(0)
    copy = tmp_path / written.name
    copy.write_bytes(blank)
    assert decompose(copy, list(INPUTS)).launches == decompose(written, list(INPUTS)).launches


def test_a_list_is_judged_again_by_what_is_kept_alone(written: Path, tmp_path: Path) -> None:
    how = HOW[written.suffix]
    assert again("a/b", how, tmp_path) is None
    found = evidence(written)
    assert kept.keep(tmp_path, "a/b", how, written, found)
    record = again("a/b", how, tmp_path)
    assert record is not None
    assert (record["model"], record["format"], record["verdict"]) == ("a/b", how, "equal")
    assert sum(entry.stat().st_size for entry in tmp_path.iterdir()) < 20 << 10

    more = msgspec.structs.replace(found.dispatched, launches=found.dispatched.launches[:1], sorts=("",), sources=(-1,))
    assert kept.keep(tmp_path, "a/b", how, written, msgspec.structs.replace(found, dispatched=more))
    record = again("a/b", how, tmp_path)
    assert record is not None and record["verdict"] == "wrong" and "relu" in record["why"]


def test_a_list_of_a_module_that_was_told_that_it_is_exported_says_so_and_is_wrong_if_it_is_not_that(
    written: Path, tmp_path: Path
) -> None:
    how = HOW[written.suffix]
    told = msgspec.structs.replace(evidence(written), exporting=True)
    assert kept.keep(tmp_path, "a/b", how, written, told)
    record = again("a/b", how, tmp_path)
    assert record is not None
    assert (record["verdict"], record["why"]) == ("explained", "the module does otherwise where it is exported")
    fewer = msgspec.structs.replace(told.dispatched, launches=told.dispatched.launches[:1], sorts=("",), sources=(-1,))
    assert kept.keep(tmp_path, "a/b", how, written, msgspec.structs.replace(told, dispatched=fewer))
    record = again("a/b", how, tmp_path)
    assert record is not None and record["verdict"] == "wrong" and "exported" not in record["why"]


def test_what_is_large_however_it_is_packed_is_not_kept(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_KEPT_BYTES", 100)
    assert not kept.keep(tmp_path, "a/b", "traced", written, evidence(written))
    assert again("a/b", "traced", tmp_path) is None


def test_judging_again_writes_a_record_for_each_kept_export_and_for_no_other(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    how = HOW[written.suffix]
    entry = entries()[0]
    results = tmp_path / "results.jsonl"
    old: dict[str, Any] = {"model": entry.title, "format": how, "verdict": "wrong", "why": "so it was", "seconds": 1}
    results.write_text(json.dumps(old) + "\n", encoding="utf-8")
    kept.keep(tmp_path / "kept", entry.title, how, written, evidence(written))
    monkeypatch.setattr(sys, "argv", ["run", "--results", str(results), "--judge-again"])
    assert run.main() == 0
    assert [record["verdict"] for record in run.results_in(results).values()] == ["equal"]
    assert f"| {how} | 1 | 0 | 0 | 0 |" in capsys.readouterr().out
