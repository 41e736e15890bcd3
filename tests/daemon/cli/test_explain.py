# SPDX-License-Identifier: Apache-2.0
"""Where time and energy go, as explain tells it."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from jetdvfs.tests.support.models.handmade_engine import account, profile, small
from jetdvfs.tests.support.profiles.analytic import GRID
from jetdvfs.tests.support.verbs import run, run_json


def test_explain_prints_the_kernels_what_bounds_them_and_each_step(
    model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "predict", "--explain", model, "--profile", "small-sim", "--config", "1000,400,1600")
    assert code == 0
    assert "handmade on agx-xavier, profile small-sim, at CPU 1000.0 MHz, GPU 400.00 MHz, EMC 1600.0 MHz" in out
    assert "simulated" in out
    assert re.search(r"^conv2d +conv +1x64x56x56 +compute +1 +1\.156 ", out, re.MULTILINE)
    assert re.search(r"^cumsum .* no model$", out, re.MULTILINE)
    assert re.search(r"^bound by compute \d\d\.\d%, ", out, re.MULTILINE)
    assert re.search(r"^  GPU up to 800 MHz +[\d.]+ +-\d", out, re.MULTILINE)
    assert "EMC up" not in out  # it is at its top


def test_explain_json_holds_the_whole_and_its_parts(
    model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    data = run_json(capsys, "predict", "--explain", model, "--profile", "small-sim")
    assert data["prediction"]["configuration"] == GRID.top._asdict() and data["simulated"] is True
    parts = data["idle_mj"] + data["host_mj"] + data["kernels_mj"]
    assert parts == pytest.approx(data["prediction"]["energy_mj"], rel=1e-5)
    assert {part["kernel"]["kind"] for part in data["kernels"]} == {"conv2d", "relu", "matmul", "cumsum"}
    assert [(step["axis"], step["direction"]) for step in data["steps"]] == [
        ("cpu_khz", "down"), ("gpu_hz", "down"), ("emc_hz", "down"),
    ]  # fmt: skip


def test_what_was_measured_of_an_engines_layers_stands_beside_their_prediction(
    simulated: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine, times = tmp_path / "engine.json", tmp_path / "profile.json"
    engine.write_bytes(account(small(), "x", "y"))
    times.write_bytes(profile([made["Name"] for made in small()]))
    asked = ["predict", "--explain", str(engine), "--measured", str(times), "--profile", "small-sim"]
    code, out, _ = run(capsys, *asked)
    assert code == 0 and re.search(r"^kernel .* measured ms$", out, re.MULTILINE) and "measured by trtexec: " in out
    kernels = run_json(capsys, *asked)["kernels"]
    listed = run_json(capsys, "decompose", str(engine), "--measured", str(times))["measured_ms"]
    assert sum(kernel["measured_ms"] for kernel in kernels) == pytest.approx(sum(listed)) and sum(listed) > 0
    assert "measured_ms" not in run_json(capsys, *asked[:3], *asked[5:])["kernels"][0]


def test_times_of_an_engine_are_not_another_models(
    model: str, simulated: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "profile.json").write_bytes(profile(["r"]))
    code, _, error = run(
        capsys, "predict", "--explain", model, "--measured", str(tmp_path / "profile.json"), "--profile", "small-sim"
    )
    assert code == 2 and "its times are of an engine's layers, and the model is no engine" in error and error.count("\n") == 1
