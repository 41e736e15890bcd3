# SPDX-License-Identifier: Apache-2.0
"""Layers of networks left out, on a table of the published form whose times follow a rule."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from jetdvfs.daemon.cli import main
from jetdvfs.profiles.studies.comparison.agx_orin import LAYERS, MODES
from jetdvfs.profiles.studies.comparison.real.layers import nearest

COLUMNS = (
    "calib_dir", "model", "batch", "precision", "thermal_profile", "date", "fusion_pattern", "op_type", "flops", "total_bytes",
    "lat_mean_ms", "nodes",
)  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three networks whose layers take an interpreter's time, their operations and their bytes."""
    random, lines = np.random.default_rng(3), [",".join(COLUMNS)]
    for model in ("one", "two", "three"):
        sizes = np.exp(random.uniform(np.log(1e6), np.log(1e9), 40))
        for batch in (1, 16):
            for name, mode in MODES.items():
                for flops in sizes * batch:
                    took = 0.3 * 2.2e9 / mode.cpu_hz + 2e3 * flops / (mode.sm_count * 256 * mode.gpu_hz) + flops / 50 / 2e8
                    case = (f"run_{name}", model, batch, "FP32", name, "today", "Conv2d_BatchNorm2d", "conv2d")
                    row = (*case, int(flops), int(flops / 50))
                    lines.append(",".join(map(str, (*row, f"{took:.6f}", "conv|bn"))))
    (tmp_path / LAYERS).write_bytes(gzip.compress("\n".join([*lines, ""]).encode()))
    return tmp_path


def test_networks_are_predicted_from_the_layers_of_others(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("xgboost", reason="training needs xgboost")
    code = main(["profile", "layers", "--data", str(data), "--threads", "1", "--json"])
    told = json.loads(capsys.readouterr().out)
    pairs = {(row["network"], row["batch"]) for row in told["networks"]}
    assert pairs == {(name, batch) for name in ("one", "two", "three") for batch in (1, 16)}
    assert all(row["cases"] == 4 and row["percent"] < 15 for row in told["networks"])
    assert code == (0 if all(one["percent"] <= one["goal"] for one in told["batches"].values()) else 4)


def test_campaigns_that_measured_the_same_network_say_how_near_a_prediction_could_be(data: Path) -> None:
    assert nearest(data) == {}
    begun, *lines = gzip.decompress((data / LAYERS).read_bytes()).decode().splitlines()
    took = COLUMNS.index("lat_mean_ms")
    again = []
    for line in (line for line in lines if line.split(",")[2] == "16"):
        cells = line.split(",")
        cells[0], cells[took] = "elsewhere", str(1.25 * float(cells[took]))
        again.append(",".join(cells))
    (data / LAYERS).write_bytes(gzip.compress("\n".join([begun, *lines, *again, ""]).encode()))
    assert nearest(data) == {16: pytest.approx(100 * 0.2 / 2)}


def test_a_folder_without_the_table_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "layers", "--data", str(tmp_path)]) == 3
    told = capsys.readouterr().err
    assert LAYERS in told and told.count("\n") == 1
