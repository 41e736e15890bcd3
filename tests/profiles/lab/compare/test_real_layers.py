# SPDX-License-Identifier: Apache-2.0
"""Layers of networks left out, on a table of the published form whose times follow a rule."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from jetdvfs.profiles.errors import ComparisonDataError
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.compare.agx_orin import LAYERS, MODES
from jetdvfs.profiles.lab.compare.fit import read_rows
from jetdvfs.profiles.lab.compare.real.layers import MAPPING, BatchMeans, NetworkRow, left_out, means, nearest, read_layers
from jetdvfs.profiles.lab.compare.real.nodes import KINDS, fitted_ms, works
from jetdvfs.tests.support.paths import SHARED_DATA
from jetdvfs.tests.support.profiles.layer_table import COLUMNS, write_layers


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_layers(tmp_path)
    return tmp_path


def test_networks_are_predicted_from_the_layers_of_others(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("xgboost", reason="training needs xgboost")
    code = main(["compare", "layers", "--data", str(data), "--threads", "1", "--json"])
    told = json.loads(capsys.readouterr().out)
    pairs = {(row["network"], row["batch"]) for row in told["networks"]}
    assert pairs == {(name, batch) for name in ("one", "two", "three") for batch in (1, 16)}
    assert all(row["cases"] == 4 and row["percent"] < 15 for row in told["networks"])
    assert code == (0 if all(one["percent"] <= one["goal"] for one in told["batches"].values()) else 4)
    asked = ["train", "--from-csv", str(data / LAYERS), "--mapping", MAPPING, "--threads", "1", "--json"]
    assert main(asked) == 0
    assert json.loads(capsys.readouterr().out) == told


def _again(data: Path, network: str, first: float, second: float) -> None:
    """A network's times are multiplied by the first factor, and there is another campaign of it with the second."""
    begun, *lines = gzip.decompress((data / LAYERS).read_bytes()).decode().splitlines()
    took, written = COLUMNS.index("lat_mean_ms"), []
    for line in lines:
        cells = line.split(",")
        if cells[COLUMNS.index("model")] != network:
            written.append(line)
            continue
        for campaign, factor in ((cells[0], first), (f"{cells[0]}_again", second)):
            changed = [campaign, *cells[1:]]
            changed[took] = str(factor * float(cells[took]))
            written.append(",".join(changed))
    (data / LAYERS).write_bytes(gzip.compress("\n".join([begun, *written, ""]).encode()))


def _row(data: Path, network: str, batch: int) -> NetworkRow:
    return next(row for row in left_out(read_layers(data / LAYERS), threads=1) if (row.network, row.batch) == (network, batch))


def test_runs_that_scatter_make_up_for_each_other_together_and_remain_in_hindsight(data: Path) -> None:
    pytest.importorskip("xgboost", reason="training needs xgboost")
    _again(data, "one", 0.7, 1.3)
    row = _row(data, "one", 16)
    assert row.together_percent < 10 < 20 < min(row.percent, row.scatter_percent)


def test_a_network_that_is_slower_than_others_tell_is_so_together_and_hardly_scatters(data: Path) -> None:
    pytest.importorskip("xgboost", reason="training needs xgboost")
    _again(data, "one", 1.5, 1.5)
    row = _row(data, "one", 16)
    assert row.scatter_percent < 5 < 20 < min(row.percent, row.together_percent)
    assert means([row])[16] == BatchMeans(row.percent, row.together_percent, row.scatter_percent)


def test_campaigns_that_measured_the_same_network_say_how_near_a_prediction_could_be(data: Path) -> None:
    assert nearest(read_layers(data / LAYERS)) == {}
    begun, *lines = gzip.decompress((data / LAYERS).read_bytes()).decode().splitlines()
    took = COLUMNS.index("lat_mean_ms")
    again = []
    for line in (line for line in lines if line.split(",")[2] == "16"):
        cells = line.split(",")
        cells[0], cells[took] = "elsewhere", str(1.25 * float(cells[took]))
        again.append(",".join(cells))
    (data / LAYERS).write_bytes(gzip.compress("\n".join([begun, *lines, *again, ""]).encode()))
    assert nearest(read_layers(data / LAYERS)) == {16: pytest.approx(100 * 0.2 / 2)}


def test_a_folder_without_the_table_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "layers", "--data", str(tmp_path)]) == 3
    told = capsys.readouterr().err
    assert LAYERS in told and told.count("\n") == 1


def _rows(model: str, nodes: str, batch: int = 1, **changed: str) -> list[dict[str, str]]:
    """A layer in every mode, as the published table has it."""
    row = {"model": model, "nodes": nodes, "batch": str(batch), "precision": "FP32", "flops": "0", "total_bytes": "0"}
    return [{**row, "thermal_profile": mode, **changed} for mode in MODES]


def test_the_sizes_of_a_layer_follow_from_the_names_of_its_nodes() -> None:
    nodes = "layer1_0_conv1|layer1_0_bn1|layer1_0_relu"
    one, many = (works(_rows("resnet18", nodes, batch)) for batch in (1, 16))
    for kind in ("conv", "norm", "activation"):
        assert (one.calls[:, KINDS.index(kind)] == 1).all()
    assert (one.calls == many.calls).all() and (one.weights == many.weights).all()
    assert many.operations.sum() == 16 * one.operations.sum() and many.elements == pytest.approx(16 * one.elements)
    pixels = 56 * 56  # 64 filters of 3x3x64
    assert (one.operations[:, KINDS.index("conv")] == 2 * pixels * 64 * 64 * 9).all()
    assert one.size[0].tolist() == [64, 64, pixels, 3, 1] and many.size[0, 2] == 16 * pixels
    depthwise = works(_rows("mobilenet_v2", "features_1_conv_0_0"))
    assert depthwise.operations[:, KINDS.index("depthwise")].all()


def test_a_layer_of_a_network_that_is_not_known_is_what_its_row_tells() -> None:
    work = works(_rows("own", "a|b|c", flops="5000", total_bytes="800"))
    assert (work.operations.sum(1) == 5000).all() and (work.elements == 200).all() and (work.calls.sum(1) == 3).all()


def test_rates_that_some_layers_tell_give_the_times_of_others() -> None:
    pytest.importorskip("scipy", reason="rates are fitted by SciPy")
    block = "layer{0}_1_conv1|layer{0}_1_bn1|layer{0}_1_relu"
    rows = [row for part in (1, 2, 3, 4) for batch in (1, 16) for row in _rows("resnet34", block.format(part), batch)]
    rows += [row for part in (1, 2) for row in _rows("resnet34", f"add_{part}")]
    work = works(rows)
    most, modes = MODES["MAXN"], [MODES[row["thermal_profile"]] for row in rows]
    host = np.array([most.cpu_hz / mode.cpu_hz for mode in modes])
    gpu = np.array([most.gpu_hz * most.sm_count / (mode.gpu_hz * mode.sm_count) for mode in modes])
    took_ms = host * (0.1 + 0.2 * work.calls.sum(1)) + gpu * work.operations.sum(1) / 5e9
    known = np.array([row["nodes"] != block.format(3) for row in rows])
    found = fitted_ms(work, rows, took_ms, known.astype(float))
    assert np.abs(found[~known] / took_ms[~known] - 1).max() < 0.1
    # What was left out had no say.
    assert fitted_ms(work, rows, np.where(known, took_ms, 99.0), known.astype(float)) == pytest.approx(found)


@pytest.mark.shared_data
def test_operations_by_the_names_of_nodes_are_those_that_were_published() -> None:
    try:
        rows = [
            row for row in read_rows(SHARED_DATA, LAYERS) if row["fusion_pattern"] in ("Conv2d_BatchNorm2d", "Linear_Dropout")
        ]
    except ComparisonDataError as error:
        pytest.skip(str(error))
    published = np.array([float(row["flops"]) for row in rows])
    assert len({row["model"] for row in rows}) > 3
    assert works(rows).operations.sum(1) == pytest.approx(published)
