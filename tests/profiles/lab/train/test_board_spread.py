# SPDX-License-Identifier: Apache-2.0
"""Spread over the boards of a merged record, and the profile that tells it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import astuple, replace

from jetdvfs.daemon.cli import main
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.cost.totals import BottleneckShares
from jetdvfs.profiles.adapt.measurements import TABLES, MeasurementRows, Measurements
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.bundle.bundle import Bundle, load_bundle
from jetdvfs.profiles.bundle.manifest import FleetEntry
from jetdvfs.profiles.bundle.writing import write_manifest
from jetdvfs.profiles.errors import MeasurementError
from jetdvfs.profiles.lab.train.board_spread import LEAST_BOARDS, fleet_of, widest
from jetdvfs.profiles.lab.train.making import copy_bundle
from jetdvfs.profiles.reference import reference_model, reference_network

BOARD = load_board("orin-nano-8gb")
NETWORKS = tuple(map(reference_network, ("resnet18", "squeezenet1_0")))


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return load_bundle(f"{BOARD.name}-sim")


def record(bundle: Bundle, boards: int, spread: float, bias: float = 0.0) -> Measurements:
    """Boards that each take a common factor longer than predicted, of which the first two tell no power."""
    random, tables = np.random.default_rng(5), {name: list[MeasurementRows]() for name in TABLES}
    slower = spread * random.standard_normal(boards)
    for what, network in enumerate(NETWORKS):
        predicted = surface(network, bundle.cost)
        for node in range(boards):
            cells = random.choice(BOARD.grid.size, 8, replace=False)
            factor = np.exp(slower[node] + bias)
            places = np.full(8, what), np.full(8, node), cells
            tables["network_ms"].append(MeasurementRows(*places, predicted.latency_ms.ravel()[cells] * factor))
            if node > 1:
                tables["network_mw"].append(MeasurementRows(*places, predicted.power_mw.ravel()[cells]))
    joined = {name: MeasurementRows.joined(rows) for name, rows in tables.items()}
    return Measurements(BOARD.name, "test", 45.0, BOARD.energy_rails, (), (), NETWORKS, joined)


def test_a_spread_is_that_of_the_boards_and_not_the_profiles_own_error(bundle: Bundle) -> None:
    alike, apart = (fleet_of(bundle.cost, record(bundle, 40, spread, bias=0.2)) for spread in (0.0, 0.1))
    assert alike is not None and apart is not None
    assert max(astuple(alike.latency)) < 0.01 and 0.05 < max(astuple(apart.latency)) < 0.2
    assert (apart.boards, apart.learned) == (40, 40)
    assert "40 boards (40 by learned observations), which differ in latency by host" in str(apart)


def test_few_boards_have_no_spread(bundle: Bundle) -> None:
    assert fleet_of(bundle.cost, record(bundle, LEAST_BOARDS - 1, 0.1)) is None


def test_power_of_a_network_whose_latency_was_not_measured_is_refused(bundle: Bundle) -> None:
    whole = record(bundle, LEAST_BOARDS, 0.1)
    timed = whole.tables["network_ms"]
    without = replace(whole, tables={**whole.tables, "network_ms": timed.where((timed.what != 1) | (timed.node != 3))})
    with pytest.raises(MeasurementError, match="squeezenet1_0: latency and power are not both measured"):
        fleet_of(bundle.cost, without)


def test_the_prior_of_corrections_is_at_least_the_spread() -> None:
    assert widest(BottleneckShares(0.1, 0.0, 0.05), BottleneckShares(0.02, 0.04, 0.05)) == BottleneckShares(0.1, 0.04, 0.05)


def test_predict_and_show_tell_the_spread(bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = FleetEntry(200, 100, BottleneckShares(0.08, 0.02, 0.01), BottleneckShares(0.04, 0.06, 0.0))
    copy_bundle(bundle, tmp_path / "fleet")
    write_manifest(tmp_path / "fleet", replace(bundle.manifest, name="fleet", fleet=fleet), bundle.manifest.checksums)
    assert load_bundle(tmp_path / "fleet").manifest.fleet == fleet
    told = "trained on 200 boards (100 by learned observations), which differ in latency by host 8.0%, computation 2.0%"
    words = [str(reference_model("squeezenet1_0")), "--input", "1x3x224x224", "--profile", str(tmp_path / "fleet")]
    assert main(["predict", *words]) == 0
    assert told in capsys.readouterr().out
    assert main(["profile", "show", str(tmp_path / "fleet"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fleet"]["latency"]["host"] == 0.08
    assert main(["profile", "show", str(tmp_path / "fleet")]) == 0
    assert told.removeprefix("trained on ") in capsys.readouterr().out
