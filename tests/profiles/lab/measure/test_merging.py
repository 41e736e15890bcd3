# SPDX-License-Identifier: Apache-2.0
"""Records of several owners: what leaves them, and what comes of them together."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.profiles.adapt.measurements import MeasurementRows, Measurements
from jetdvfs.profiles.errors import MeasurementError
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.measure.merging import merged, shareable
from jetdvfs.profiles.lab.measure.one_twin import measure_twin, one_board_size, plan_twin
from jetdvfs.profiles.reference import reference_network

BOARD = "agx-xavier"


def measured(node: int, *names: str) -> Measurements:
    size = replace(one_board_size(node, 1), idle_configurations=4, warm_configurations=2)
    campaign = plan_twin(BOARD, [reference_network(name) for name in names], size)
    return measure_twin(campaign, None, lambda done, total, text: None)


@pytest.fixture(scope="module")
def mine() -> Measurements:
    return measured(3, "resnet18", "alexnet")


@pytest.fixture(scope="module")
def theirs() -> Measurements:
    return measured(8, "alexnet", "squeezenet1_0")


def real(record: Measurements) -> Measurements:
    """The record as if it were of a real board, which its owner calls number 0."""
    tables = {name: replace(rows, node=np.zeros_like(rows.node)) for name, rows in record.tables.items()}
    return replace(record, silicon_version="", tables=tables)


def figures(record: Measurements, table: str, kinds: set[str]) -> dict[tuple[object, int, int], float]:
    """What a table says of each kernel, board and configuration."""
    rows = record.tables[table]
    each = zip(rows.what, rows.node, rows.configuration, rows.value, strict=True)
    kernels = record.invocations
    return {(kernels[w].signature, int(n), int(c)): float(v) for w, n, c, v in each if kernels[w].kind in kinds}


def test_a_merged_record_says_of_each_board_what_its_own_record_said(mine: Measurements, theirs: Measurements) -> None:
    both, parts = merged({"mine": mine, "theirs": theirs})
    assert both.nodes == (3, 8) and [part.nodes for part in parts.values()] == [(3,), (8,)]
    assert [network.name for network in both.networks] == ["resnet18", "alexnet", "squeezenet1_0"]
    assert len(both.invocations) < len(mine.invocations) + len(theirs.invocations)
    for table in ("kernel_ms", "kernel_mw"):
        expected = figures(mine, table, {"conv2d"}) | figures(theirs, table, {"conv2d"})
        assert figures(both, table, {"conv2d"}) == expected
    for name, rows in both.tables.items():
        assert len(rows) == len(mine.tables[name]) + len(theirs.tables[name])
    squeezenet = both.tables["network_ms"].where(both.tables["network_ms"].what == 2)
    own = theirs.tables["network_ms"].where(theirs.tables["network_ms"].what == 1)
    assert np.array_equal(squeezenet.value, own.value)


@pytest.mark.parametrize(
    ("table", "like"),
    [
        ("graph_ms", "network_ms"),
        ("fixed_network_ms", "network_ms"),
        ("fixed_kernel_ms", "kernel_ms"),
        ("kernel_events", "kernel_ms"),
    ],
)
def test_every_table_of_networks_and_kernels_keeps_its_subject(
    mine: Measurements, theirs: Measurements, table: str, like: str
) -> None:
    copied = [replace(one, tables={**one.tables, table: one.tables[like]}) for one in (mine, theirs)]
    both, _ = merged({"mine": copied[0], "theirs": copied[1]})
    assert np.array_equal(both.tables[table].what, both.tables[like].what)


def test_real_boards_of_several_owners_get_numbers_of_their_own(mine: Measurements, theirs: Measurements) -> None:
    both, parts = merged({"mine": real(mine), "theirs": real(theirs)})
    assert both.nodes == (0, 1) and [part.nodes for part in parts.values()] == [(0,), (1,)]


def test_networks_of_one_name_that_are_not_the_same_are_told_apart(mine: Measurements, theirs: Measurements) -> None:
    renamed = replace(theirs, networks=tuple(replace(network, name="model") for network in theirs.networks))
    own = replace(mine, networks=tuple(replace(network, name="model") for network in mine.networks[:1]))
    own = replace(
        own, tables={**own.tables, "network_ms": MeasurementRows.joined([]), "network_mw": MeasurementRows.joined([])}
    )
    both, _ = merged({"mine": own, "theirs": renamed})
    assert [network.name for network in both.networks] == ["model", "model-2", "model-3"]


def test_what_leaves_its_owner_names_no_host(mine: Measurements) -> None:
    environment = {"meter": "PyTorch and NVML", "torch": "2.9", "boards": {"0": "lab-rack-7"}, "table": "/home/me/a.csv"}
    left = shareable(replace(mine, environment=environment))
    assert left.environment["torch"] == "2.9" and "jetdvfs" in left.environment
    assert "lab-rack-7" not in json.dumps(left.environment) and "/home/me" not in json.dumps(left.environment)
    assert left.tables is mine.tables


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda one: replace(one, board="nano"), "a and b: of different board: agx-xavier and nano"),
        (lambda one: replace(one, silicon_version=""), "of different silicon: agx-xavier-. and real"),
        (lambda one: replace(one, rails=("GPU",)), "of different rails"),
        (lambda one: replace(one, environment={"matmul_tf32": True}), "matmul_tf32 was on for one of them"),
        (lambda one: replace(one, temperature_c=80.0), "measured with dies of .* and 80 C"),
    ],
)
def test_records_that_do_not_belong_together_are_refused(
    spoil: Callable[[Measurements], Measurements], said: str, mine: Measurements, theirs: Measurements
) -> None:
    mine = replace(mine, environment={**mine.environment, "matmul_tf32": False})
    with pytest.raises(MeasurementError, match=said):
        merged({"a": mine, "b": spoil(theirs)})


def test_figures_of_a_board_do_not_count_twice(mine: Measurements, theirs: Measurements) -> None:
    both, _ = merged({"mine": mine, "theirs": theirs})
    with pytest.raises(MeasurementError, match="board 3 of mine and board 3 of both: are the same figures"):
        merged({"both": both, "mine": mine})


def test_the_command_line_exports_and_merges(
    mine: Measurements, theirs: Measurements, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / name for name in ("mine.npz", "theirs.npz", "left.npz", "both.npz")]
    own, other, left, both = map(str, paths)
    mine.save(paths[0])
    theirs.save(paths[1])
    assert main(["table", "export", own, "--out", left, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["boards"] == 1
    assert main(["table", "merge", left, other, "--out", both, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["boards"] == [3, 8]
    assert Measurements.load(paths[3]).nodes == (3, 8)
    assert main(["table", "merge", left, other, "--out", both]) == 3
    assert main(["table", "merge", left, "--out", str(tmp_path / "one.npz")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and "is there already" in said[0] and "two or more" in said[1]
