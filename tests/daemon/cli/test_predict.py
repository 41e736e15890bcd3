# SPDX-License-Identifier: Apache-2.0
"""predict as a person or a script runs it, and what an execution and a frame's other work add to it."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.units import Method
from jetdvfs.tests.support.profiles.analytic import GRID
from jetdvfs.tests.support.profiles.only import COST, NETWORK
from jetdvfs.tests.support.verbs import run, run_json


def test_predict_shows_what_stands_out_and_says_that_it_is_simulated(
    model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "predict", model, "--profile", "small-sim")
    fastest = surface(NETWORK, COST).latency_ms.min()
    assert code == 0 and "simulated" in out
    assert re.search(rf"^lowest latency .* {fastest:.2f} ", out, re.MULTILINE)
    assert "no model for cumsum (1 launch," in out and "is used instead" not in out
    simulated.simulated = False
    simulated.name = "small"
    assert "simulated" not in run(capsys, "predict", model, "--profile", "small")[1]


@pytest.mark.parametrize("method", ["timeline", "sum"])
def test_predict_saves_the_surface_of_the_method(
    method: Method, model: str, simulated: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "surface.npz"
    assert run(capsys, "predict", model, "--profile", "small-sim", "--method", method, "--save", str(saved))[0] == 0
    with np.load(saved) as arrays:
        np.testing.assert_array_equal(arrays["energy_mj"], surface(NETWORK, COST, method).energy_mj)


def test_predict_answers_at_a_configuration_in_mhz_or_the_kernels_units(
    model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    points = [
        run_json(capsys, "predict", model, "--profile", "small-sim", "--config", text)["points"][-1]
        for text in ("1000,800,1600", "1000000,800000000,1600000000")
    ]
    assert points[0] == points[1]
    assert points[0]["configuration"] == {"cpu_khz": 1_000_000, "gpu_hz": 800_000_000, "emc_hz": 1_600_000_000}
    assert points[0]["latency_ms"] == surface(NETWORK, COST).latency_ms[1, 2, 1]


def test_predict_answers_at_the_highest_and_the_lowest_clocks_of_the_profile(
    model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--config", "max", "--config", "min", "--config", "min,max,1600"]
    points = run_json(capsys, "predict", model, "--profile", "small-sim", *options)["points"][-3:]
    lowest = GRID.configuration((0, 0, 0))
    expected = [GRID.top, lowest, lowest._replace(gpu_hz=GRID.gpu_hz[-1], emc_hz=1_600_000_000)]
    assert [point["configuration"] for point in points] == [one._asdict() for one in expected]
    code, _, told = run(capsys, "predict", model, "--profile", "small-sim", "--config", "top")
    assert code == 2 and "each may be max or min" in told


def test_predict_json_holds_the_whole_surface(
    model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    data = run_json(capsys, "predict", model, "--profile", "small-sim")
    assert data["simulated"] is True and data["unmodelled"][0]["kind"] == "cumsum"
    assert np.shape(data["latency_ms"]) == GRID.shape and data["grid"]["cpu_khz"] == list(GRID.cpu_khz)


def test_execution_and_what_a_frame_takes_besides_are_told(
    simulated: SimpleNamespace, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("predict", model, "--profile", "small-sim", "--execution", "graph", "--host-ms", "3")
    found = run_json(capsys, *asked)
    assert found["execution"] == "graph" and found["beside"] == {"host_ms": 3.0, "copied_bytes": 0}
    assert found["execution_note"].startswith("the host's cost of starting a graph was not measured on this board")
    bare = run_json(capsys, "predict", model, "--profile", "small-sim")
    assert bare["execution"] == "eager" and bare["points"][0]["latency_ms"] + 2 < found["points"][0]["latency_ms"]
    code, out, _ = run(capsys, *asked)
    assert code == 0 and f"executed as graph: {found['execution_note']}" in out
    code, out, _ = run(capsys, "predict", "--explain", model, "--profile", "small-sim", "--execution", "engine")
    assert code == 0 and "the host starts one engine in" in out
    code, _, err = run(capsys, "plan", model, "--profile", "small-sim", "--target", "min-energy", "--host-ms", "-1")
    assert code == 3 and "host_ms=-1" in err
