# SPDX-License-Identifier: Apache-2.0
"""Real kernels held out: both recipes on tables of the published form, and on the published ones where they are at hand."""

from __future__ import annotations

import gzip
import json
import random
from itertools import product
from pathlib import Path

import pytest

from jetdvfs.profiles.lab.cli import main

HEADERS = {
    "linear": "Device,latency_ms,M,N,K", "bmm": "Device,latency_ms,B,M,N,K", "add": "Device,latency_ms,B,H",
    "relu": "Device,latency_ms,B,H",
    "conv": "Device,latency_ms,B,Input_Channel,Output_Channel,Kernel_Size,Input_Size,Stride,Padding",
}  # fmt: skip
MAPPED = ("--mapping", "gpu-kernels")
FLOOR_MS = 0.01
DRIFT_MS = 0.001


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Kernels of a V100 that take a launch, their bytes at a third of its bandwidth and their operations at half its rate; with
    each convolution that is measured, in no order, the harness adds more."""
    sizes = (16, 40, 64, 128, 256, 400)
    rows: dict[str, list[str]] = {name: [] for name in HEADERS}

    def add(name: str, elements: int, flops: int, *values: int) -> None:
        took = FLOOR_MS + 3 * 4 * elements / 900e6 + 2 * flops / 14e9
        rows[name].append(",".join(["Tesla V100-PCIE-32GB", f"{took:.6f}", *map(str, values)]))

    for m, n, k in product(sizes, repeat=3):
        add("linear", m * k + k * n + m * n, 2 * m * n * k, m, n, k)
        if m < 128:
            add("bmm", m * (n * k + k * 64 + n * 64), 128 * m * n * k, m, n, 64, k)
            add("conv", m * n * 64 + m * k * 64 + 9 * n * k, 18 * m * n * k * 64, m, n, k, 3, 8, 1, 1)
    for batch, width in product(range(10, 500, 20), (8, 100, 500, 2000)):
        add("relu", 2 * batch * width, 0, batch, width)
        add("add", 3 * batch * width, 0, batch, width)
    random.Random(0).shuffle(rows["conv"])
    for place, row in enumerate(rows["conv"]):
        gpu, took, *values = row.split(",")
        rows["conv"][place] = ",".join([gpu, f"{float(took) + DRIFT_MS * place:.6f}", *values])
    for name, header in HEADERS.items():
        (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress("\n".join([header, *rows[name], ""]).encode()))
    return tmp_path


def test_what_is_learned_of_the_bound_and_its_floor_beats_sizes_as_they_stand(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("xgboost", reason="training needs xgboost")
    code = main(["compare", "kernels", "--data", str(data), "--threads", "1", "--json"])
    found = {pair["table"]: pair for pair in json.loads(capsys.readouterr().out)}
    assert set(found) == set(HEADERS) and {pair["gpu"] for pair in found.values()} == {"v100"}
    assert code == (0 if all(pair["passed"] for pair in found.values()) else 4)
    for pair in found.values():
        assert pair["own_percent"] < pair["plain_percent"], pair
        assert pair["table"] != "conv" or pair["own_percent"] < 20  # 45% by models that do not know when it was measured
        assert (pair["forest_percent"] is None) == (pair["table"] != "conv")  # Jung et al.'s estimator of single convolutions
        assert pair["forest_percent"] is None or pair["own_percent"] < pair["forest_percent"] < 60
        assert pair["passed"] == (pair["own_percent"] <= min(pair["plain_percent"], pair["goal_percent"]))
    tables = [str(data / f"{name}.csv.gz") for name in ("conv", "relu")]
    asked = ["train", "--from-csv", *tables, *MAPPED, "--device", "V100", "--threads", "1"]
    assert main([*asked, "--json"]) == 0
    trained = json.loads(capsys.readouterr().out)
    assert not trained["written"] and [pair["table"] for pair in trained["kernels"]] == ["conv", "relu"]
    for pair in trained["kernels"]:
        assert pair == {name: value for name, value in found[pair["table"]].items() if name != "passed"}


def test_of_a_table_alone_the_errors_are_printed_and_nothing_is_written(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("xgboost", reason="training needs xgboost")
    before = sorted(data.iterdir())
    asked = ["train", "--from-csv", str(data / "relu.csv.gz"), *MAPPED, "--threads", "1"]
    assert main([*asked, "--dry-run"]) == 0
    assert capsys.readouterr().out.split()[-4:] == ["relu.csv.gz", "v100", "100", "0"]
    assert main(asked) == 0
    shown = capsys.readouterr().out
    assert "left out of training; no profile comes of it" in shown and shown.splitlines()[-1].split()[:4] == [
        "relu", "v100", "relu", "100",
    ]  # fmt: skip
    assert sorted(data.iterdir()) == before


def test_clocks_and_types_that_a_table_has_are_told_to_both_recipes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("xgboost", reason="training needs xgboost")
    (tmp_path / "mapping.yaml").write_text(
        "source: me\ndevice: orin-nano-8gb\ntime: {column: ms, unit: ms}\nclocks: {gpu_hz: {column: mhz, unit: MHz}}\n"
        "kernel: {form: elements, kind: tanh, dtype: {column: type}, sizes: {rows: rows, columns: columns}}\n"
    )
    lines = [
        f"{0.02 + rows * 2e-3 * (1.0 if dtype == 'float16' else 2.0) * 1020 / mhz},{mhz},{dtype},{rows},512"
        for rows in range(20, 2000, 40)
        for mhz in (306, 612, 1020)
        for dtype in ("float16", "float32")
    ]
    (tmp_path / "own.csv").write_text("\n".join(["ms,mhz,type,rows,columns", *lines, ""]))
    asked = ["train", "--from-csv", str(tmp_path / "own.csv"), "--mapping", str(tmp_path / "mapping.yaml")]
    assert main([*asked, "--threads", "1", "--json"]) == 0
    (pair,) = json.loads(capsys.readouterr().out)["kernels"]
    assert (pair["table"], pair["gpu"], pair["kind"], pair["kernels"]) == ("own", "orin-nano-8gb", "elementwise", 300)
    assert max(pair["own_percent"], pair["plain_percent"]) < 15


def test_a_table_that_cannot_be_trained_on_is_told_in_one_line(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    relu, record = data / "relu.csv.gz", data / "out"
    rows = gzip.decompress(relu.read_bytes()).decode()
    (data / "bad").mkdir()
    (data / "bad" / "relu.csv").write_text(f"{rows}Tesla V100-PCIE-32GB,nan,1,1\n")
    (data / "bad" / "add.csv").write_text("\n".join(["Device,latency_ms,B,H", *["Tesla V100-PCIE-32GB,0.01,640,640"] * 6, ""]))
    for words, code, said in (
        ([str(data / "bad" / "relu.csv"), *MAPPED], 3, "line 102: latency_ms 'nan' is no number"),
        ([str(data / "bad" / "add.csv"), *MAPPED], 3, "fewer than 20 kernels of every kind"),
        ([str(relu), *MAPPED, "--device", "p4"], 3, "no rows of p4"),
        ([str(relu), *MAPPED, "--out", str(record)], 3, "no networks measured as a whole and no issue times of the host"),
        ([str(relu)], 2, "--from-csv needs --mapping NAME|FILE"),
        ([str(relu), *MAPPED, "--quick"], 2, "--quick: does not go with --from-csv"),
    ):
        assert main(["train", "--from-csv", *words]) == code
        told = capsys.readouterr().err
        assert said in told and told.count("\n") == 1 and not record.exists()
    assert main(["train", "--simulated", "--board", "tx2", "--mapping", "ncu", "--out", str(record)]) == 2
    assert "valid: --from-csv TABLE" in capsys.readouterr().err
    assert main(["train", "--simulated", "--board", "tx2"]) == 2
    assert "--out: expected a new folder" in capsys.readouterr().err


def test_a_folder_without_the_tables_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "kernels", "--data", str(tmp_path), "--json"]) == 3
    said = capsys.readouterr().err
    assert "linear.csv.gz" in said and said.count("\n") == 1
