# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs profile collect`` and ``judge``: from this machine's processor to predictions of networks left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jetdvfs.daemon.cli import main
from jetdvfs.profiles.measuring.measurements import Measurements
from jetdvfs.tests.support.paths import REFERENCE

IMAGE = ("--input", "1x3x32x32")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    torch = pytest.importorskip("torch", reason="PyTorch is what measures; it is not installed")
    folder, paths = tmp_path_factory.mktemp("models"), []
    for name, width in (("narrow", 8), ("wide", 24)):
        layers = (torch.nn.Conv2d(3, width, 3), torch.nn.ReLU(), torch.nn.Conv2d(width, width, 3), torch.nn.ReLU())
        path = folder / f"{name}.pt"
        torch.jit.save(torch.jit.script(torch.nn.Sequential(*layers).eval()), path)
        paths.append(str(path))
    return paths


def test_networks_left_out_are_predicted_beside_what_they_took(
    models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("xgboost", reason="training needs xgboost")
    record = tmp_path / "cpu.npz"
    arguments = ["profile", "collect", *models, *IMAGE, "--quick", "--kernels", "4", "--out", str(record)]
    assert main([*arguments, "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["networks"] == 2 and planned["kernels"] > 8 and not record.exists()
    assert main([*arguments, "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["kernels"] == planned["kernels"] == len(Measurements.load(record).invocations)
    assert main(["profile", "judge", str(record), "--json"]) == 0
    judged = json.loads(capsys.readouterr().out)
    assert [one["network"] for one in judged["networks"]] == ["narrow", "wide"] and not judged["simulated"]
    for one in judged["networks"]:
        error = abs(one["predicted_ms"] / one["measured_ms"] - 1) * 100
        assert one["latency_percent"] == pytest.approx(error, abs=0.5) and one["energy_percent"] is None
    assert main(["profile", "judge", str(record)]) == 0
    shown = capsys.readouterr().out
    assert "measured ms" in shown and "mean latency error" in shown and "no other device was seen" in shown


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["collect", "model.onnx", *IMAGE, "--out", "r.npz"], 2, "not a file that PyTorch runs; valid: .pt, .pt2"),
        (["collect", str(REFERENCE / "resnet18.pt"), "--out", "r.npz"], 2, "say the shape of its inputs"),
        (["collect", "nowhere.pt", *IMAGE, "--out", "r.npz"], 3, "nowhere.pt"),
        (["collect", "resnet18", "--out", "nowhere/r.npz"], 3, "nowhere is not a folder"),
        (["collect", "resnet18", "--out", "r.npz", "--python", "/nowhere/python"], 3, "/nowhere/python cannot be started"),
        (["judge", "nowhere.npz"], 3, "nowhere.npz"),
    ],
)
def test_what_cannot_be_measured_or_judged_is_one_line(
    words: list[str], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["profile", *words]) == code
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_python_without_torch_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = tmp_path / "python"
    bare.write_text('#!/bin/sh\necho \'{"error": "python has no torch"}\'\n')
    bare.chmod(0o755)
    assert main(["profile", "collect", "resnet18", "--out", str(tmp_path / "r.npz"), "--python", str(bare)]) == 3
    assert capsys.readouterr().err.count("\n") == 1
