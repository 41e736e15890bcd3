# SPDX-License-Identifier: Apache-2.0
"""Where time and energy go, as explain tells it."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from jetdvfs.tests.support.profiles.analytic import GRID
from jetdvfs.tests.support.verbs import run, run_json


def test_explain_prints_the_kernels_what_bounds_them_and_each_step(
    model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "explain", model, "--profile", "small-sim", "--config", "1000,400,1600")
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
    data = run_json(capsys, "explain", model, "--profile", "small-sim")
    assert data["prediction"]["configuration"] == GRID.top._asdict() and data["simulated"] is True
    parts = data["idle_mj"] + data["host_mj"] + data["kernels_mj"]
    assert parts == pytest.approx(data["prediction"]["energy_mj"], rel=1e-5)
    assert {part["kernel"]["kind"] for part in data["kernels"]} == {"conv2d", "relu", "matmul", "cumsum"}
    assert [(step["axis"], step["direction"]) for step in data["steps"]] == [
        ("cpu_khz", "down"), ("gpu_hz", "down"), ("emc_hz", "down"),
    ]  # fmt: skip
