# SPDX-License-Identifier: Apache-2.0
"""A record with a figure that cannot be is refused as it is read, by table, thing and clocks; good ones are taken."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.profiles.adapt.measurements import TABLES, Measurements
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.errors import MeasurementError
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.measure.one_twin import measure_twin, one_board_size, plan_twin
from jetdvfs.profiles.reference import reference_network

BOARD = "agx-xavier"
FAR = "within 1,000 times the middle one"


def record_of(board: str) -> Measurements:
    size = replace(one_board_size(2, 1), idle_configurations=8, warm_configurations=4)
    networks = [reference_network(name) for name in ("resnet18", "squeezenet1_0")]
    return measure_twin(plan_twin(board, networks, size), None, lambda done, total, text: None)


@pytest.fixture(scope="module")
def good() -> Measurements:
    record = record_of(BOARD)
    times = record.tables["kernel_ms"]
    counted = replace(times, value=np.full(len(times), 2.0))
    return replace(record, tables={**record.tables, "kernel_events": counted})


def with_figure(record: Measurements, table: str, value: float, place: int = 5) -> Measurements:
    rows = record.tables[table]
    values = rows.value.copy()
    values[place] = value
    return replace(record, tables={**record.tables, table: replace(rows, value=values)})


def saved(record: Measurements, folder: Path) -> Path:
    record.save(folder / "record.npz")
    return folder / "record.npz"


@pytest.mark.parametrize("board", ["agx-thor", "agx-xavier", "nano", "orin-nano-8gb", "tx2"])
def test_what_a_simulated_board_measured_is_taken_as_it_is(board: str, tmp_path: Path) -> None:
    record = record_of(board)
    found = Measurements.load(saved(record, tmp_path))
    for name in TABLES:
        assert np.array_equal(found.tables[name].value, record.tables[name].value)


@pytest.mark.parametrize(
    ("table", "value", "said"),
    [
        ("kernel_ms", math.nan, "nan ms, expected a finite figure above zero"),
        ("kernel_ms", 0.0, "0 ms, expected a finite figure above zero"),
        ("kernel_ms", -1.0, "-1 ms, expected a finite figure above zero"),
        ("kernel_ms", 1e12, "1e+12 ms, expected at most an hour"),
        ("kernel_ms", 3e6, f"3e+06 ms, expected {FAR}'s distance from its bound"),
        ("kernel_ms", 1e-9, f"1e-09 ms, expected {FAR}'s distance from its bound"),
        ("kernel_mw", math.inf, "inf mW, expected a finite figure"),
        ("kernel_mw", 1e12, "1e+12 mW, expected at most 90 W of agx-xavier"),
        ("kernel_mw", -1e12, "-1e+12 mW, expected at most 90 W of agx-xavier"),
        ("gap_us", math.nan, "nan us, expected a finite figure"),
        ("timing_us", 1e12, "1e+12 us, expected at most a second"),
        ("kernel_events", 0.0, "0 events, expected a finite figure above zero"),
        ("kernel_events", 1e5, "100000 events, expected at most 10,000"),
        ("host_us", 0.0, "0 us, expected a finite figure above zero"),
        ("host_us", 1e-9, f"1e-09 us, expected {FAR}"),
        ("host_active_mw", math.nan, "nan mW, expected a finite figure"),
        ("idle_mw", math.nan, "nan mW, expected a finite figure above zero"),
        ("idle_mw", 0.0, "0 mW, expected a finite figure above zero"),
        ("idle_mw", 1e-9, f"1e-09 mW, expected {FAR}"),
        ("warm_idle_mw", 0.0, "0 mW, expected a finite figure above zero"),
        ("network_ms", 3.7e6, "3.7e+06 ms, expected at most an hour"),
        ("network_ms", 3e6, f"3e+06 ms, expected {FAR}'s distance from its bound"),
        ("network_mw", 0.0, "0 mW, expected a finite figure above zero"),
        ("network_mw", math.nan, "nan mW, expected a finite figure above zero"),
    ],
)
def test_one_figure_that_cannot_be_is_named_by_its_table_and_clocks(
    table: str, value: float, said: str, good: Measurements, tmp_path: Path
) -> None:
    path = saved(with_figure(good, table, value), tmp_path)
    with pytest.raises(MeasurementError) as refused:
        Measurements.load(path)
    grid = load_board(BOARD).grid
    clocks = grid.configuration(np.unravel_index(good.tables[table].configuration[5], grid.shape))
    told = str(refused.value)
    assert told.startswith(f"{path}: {table} ") and f" at {clocks}: {said}" in told and "\n" not in told


def test_kernels_networks_and_calls_are_named_and_others_that_are_wrong_counted(good: Measurements, tmp_path: Path) -> None:
    kernel = good.invocations[int(good.tables["kernel_ms"].what[5])]
    warm_c = good.temperatures_c[int(good.tables["warm_idle_mw"].what[5])]
    for table, named in (
        ("kernel_ms", f"kernel_ms of {kernel.kind} ("),
        ("network_ms", "network_ms of network resnet18 at"),
        ("warm_idle_mw", f"warm_idle_mw at {warm_c:g} C at"),
    ):
        wrong = with_figure(with_figure(good, table, math.nan), table, math.nan, 6)
        with pytest.raises(MeasurementError, match=r", and 1 more; nothing was taken from it$") as refused:
            Measurements.load(saved(wrong, tmp_path))
        assert named in str(refused.value)


def test_differences_that_noise_takes_below_zero_are_taken(good: Measurements, tmp_path: Path) -> None:
    for table in ("kernel_mw", "host_active_mw", "gap_us", "timing_us"):
        found = Measurements.load(saved(with_figure(good, table, -1.0), tmp_path))
        assert found.tables[table].value[5] == -1.0


def test_rows_of_kernels_or_clocks_that_there_are_not_are_refused(good: Measurements, tmp_path: Path) -> None:
    rows = good.tables["kernel_ms"]
    for wrong in (
        replace(rows, what=rows.what + len(good.invocations)),
        replace(rows, configuration=rows.configuration - 10**6),
        replace(rows, node=rows.node[1:]),
        replace(rows, value=rows.value.astype(np.int64)),
    ):
        path = saved(replace(good, tables={**good.tables, "kernel_ms": wrong}), tmp_path)
        with pytest.raises(MeasurementError, match="kernel_ms: expected what, node, configuration, value of one length"):
            Measurements.load(path)


def test_nothing_is_trained_judged_copied_or_merged_of_such_a_record(
    good: Measurements, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, path = tmp_path / "whole.npz", saved(with_figure(good, "idle_mw", math.nan), tmp_path)
    good.save(whole)
    out = tmp_path / "out"
    for words in (
        ["train", str(path), "--out", str(out)],
        ["cross-validate", str(path)],
        ["table", "export", str(path), "--out", str(out)],
        ["table", "merge", str(whole), str(path), "--out", str(out)],
    ):
        assert main(words) == 3
        told = capsys.readouterr().err
        assert "idle_mw at CPU" in told and told.count("\n") == 1 and not out.exists()
