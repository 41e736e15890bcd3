# SPDX-License-Identifier: Apache-2.0
"""Profiles that are carried to another board, and adapted to it by a few observations of networks."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.kernels.correction.observation import Observation
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.network import Network
from jetdvfs.profiles.adapt.adapting import bundle_adapted, disagreement
from jetdvfs.profiles.adapt.measurements import TABLES, MeasurementRows, Measurements
from jetdvfs.profiles.adapt.prior import adapted, by_factors, prior_of
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.errors import BundleError, MeasurementError
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.measure.meters.simulated import TwinMeter
from jetdvfs.profiles.reference import reference_network
from jetdvfs.profiles.twin.silicon.silicon import Silicon

PRIOR = load_bundle("agx-orin-64gb-sim")
BOARD = load_board("orin-nano-8gb")
NETWORKS = tuple(map(reference_network, ("resnet18", "mobilenet_v2", "squeezenet1_0")))


def record(count: int, networks: int = 3) -> Measurements:
    """Networks of a simulated Orin Nano at random configurations."""
    meter, random = TwinMeter(Silicon(2, BOARD.name), 1), np.random.default_rng(1)
    tables = {name: MeasurementRows.joined([]) for name in TABLES}
    for what, network in enumerate(NETWORKS[:networks]):
        flat = random.choice(BOARD.grid.size, count, replace=False)
        configurations = [
            BOARD.grid.configuration([int(at) for at in np.unravel_index(index, BOARD.grid.shape)]) for index in flat
        ]
        rails = meter.network_rails_mw(network, configurations)
        power = np.sum([rails[rail] for rail in BOARD.energy_rails], axis=0)
        for name, value in (("network_ms", meter.network_latency_ms(network, configurations)), ("network_mw", power)):
            rows = MeasurementRows(np.full(count, what), np.zeros(count, np.int64), flat, value)
            tables[name] = MeasurementRows.joined([tables[name], rows])
    return Measurements(BOARD.name, "orin-nano-8gb-2", 45.0, BOARD.energy_rails, (), (), NETWORKS[:networks], tables)


def test_a_profile_on_its_own_board_predicts_what_it_did_before() -> None:
    same = prior_of(PRIOR, load_board(PRIOR.manifest.board))
    before, after = (surface(NETWORKS[0], cost) for cost in (PRIOR.cost, same.cost))
    assert after.latency_ms == pytest.approx(before.latency_ms) and after.energy_mj == pytest.approx(before.energy_mj)
    assert same.carried.clocks == (1.0, 1.0, 1.0)


def test_without_observations_nothing_changes() -> None:
    prior = prior_of(PRIOR, BOARD)
    assert adapted(prior, BOARD, []) is prior


def test_factors_that_explain_what_was_observed_agree_with_it_and_others_do_not() -> None:
    prior, network = prior_of(PRIOR, BOARD), NETWORKS[2]
    predicted, random = surface(network, prior.cost), np.random.default_rng(3)
    places = [BOARD.grid.configuration([int(random.integers(length)) for length in BOARD.grid.shape]) for _ in range(10)]

    def observed(*slower: float) -> list[Observation]:
        expected = map(predicted.at, places)
        factors = itertools.cycle(slower)
        return [Observation(one.configuration, one.latency_ms * next(factors), one.power_mw, frames=100) for one in expected]

    assert disagreement(prior, BOARD, [(network, observed(1.1)[:3])]) == float("inf")
    assert disagreement(prior, BOARD, [(network, observed(1.1))]) < 0.05
    assert disagreement(prior, BOARD, [(network, observed(1.0, 1.6))]) > 0.15


def test_an_adapted_bundle_predicts_networks_it_has_not_seen_better_than_the_one_it_came_from(tmp_path: Path) -> None:
    found = bundle_adapted(PRIOR, record(12), "nano", "command", tmp_path / "nano")
    again = load_bundle(tmp_path / "nano")
    assert again.manifest == found.manifest and again.manifest.board == BOARD.name
    carried = again.manifest.carried
    assert carried is not None and carried.profile == PRIOR.manifest.name and carried.observations == 36
    mean = again.manifest.evaluation["unseen_network"]["mean"]["timeline"]
    strange, meter = reference_network("googlenet"), TwinMeter(Silicon(2, BOARD.name), 9)
    every = list(BOARD.grid)
    true_ms = meter.network_latency_ms(strange, every)
    rails = meter.network_rails_mw(strange, every)
    true_mw = np.sum([rails[rail] for rail in BOARD.energy_rails], axis=0)
    errors = []
    for cost in (prior_of(PRIOR, BOARD).cost, again.cost):
        seen = surface(strange, cost)
        errors.append(
            [
                float(np.abs(seen.latency_ms.ravel() / true_ms - 1).mean()),
                float(np.abs(seen.power_mw.ravel() / true_mw - 1).mean()),
            ]
        )
    print(f"before {errors[0]}, after {errors[1]}, left out {mean}")
    assert errors[1][0] < errors[0][0] and errors[1][1] < errors[0][1]


def test_one_network_adapts_a_profile_that_then_claims_less(tmp_path: Path) -> None:
    one = bundle_adapted(PRIOR, record(6, networks=1), "one", "command", tmp_path / "one")
    assert not one.manifest.evaluation
    assert one.manifest.sigma_latency > PRIOR.manifest.sigma_latency


def test_what_cannot_be_adapted_is_told(tmp_path: Path) -> None:
    first = bundle_adapted(PRIOR, record(4, networks=1), "one", "command", tmp_path / "one")
    with pytest.raises(BundleError, match="was carried itself; valid: agx-orin-64gb-sim"):
        bundle_adapted(first, record(4, networks=1), "two", "command", tmp_path / "two")
    nothing = replace(record(4), tables={name: MeasurementRows.joined([]) for name in TABLES})
    with pytest.raises(MeasurementError, match="no network with known launches"):
        bundle_adapted(PRIOR, nothing, "two", "command", tmp_path / "two")


def test_adapt_says_where_a_profile_comes_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "record.npz"
    record(5, networks=2).save(path)
    assert main(["adapt", PRIOR.manifest.name, str(path), "--out", str(tmp_path / "nano")]) == 0
    said, progress = capsys.readouterr()
    assert progress.splitlines() == [
        "  0% 2 networks",
        " 33% resnet18 from the others",
        " 67% mobilenet_v2 from the others",
        "100% done",
    ]
    assert "carried from  agx-orin-64gb-sim" in said and "10 observations of 2 networks" in said
    assert main(["adapt", PRIOR.manifest.name, str(path), "--out", str(tmp_path / "nano")]) == 3
    assert "is not empty" in capsys.readouterr().err


def test_transfer_shows_errors_that_fall_with_observations(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "transfer", PRIOR.manifest.name, "resnet18", "squeezenet1_0", "--board", BOARD.name, "--json"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["simulated"] and [row["observations"] for row in told["rows"]] == [0, 3, 10, 30, 100]
    first, last = told["rows"][0], told["rows"][-1]
    for figure in ("latency", "power"):
        assert last[f"own_{figure}_percent"] < 0.5 * first[f"own_{figure}_percent"]
        assert first[f"others_{figure}_percent"] == first[f"own_{figure}_percent"]
    # One other network, however often it is observed, is not taken for the board.
    assert all(row["others_latency_percent"] < 1.2 * first["others_latency_percent"] for row in told["rows"])
    assert first["overlap_latency_percent"] is None
    assert last["own_latency_percent"] < min(last["overlap_latency_percent"], last["rates_latency_percent"])


def test_with_one_network_there_are_no_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "transfer", PRIOR.manifest.name, "squeezenet1_0", "--board", BOARD.name]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.lstrip()[:1].isdigit()]
    assert [row[:2] for row in rows] == [[count, "-"] for count in ("0", "3", "10", "30", "100")]


def test_few_networks_say_less_of_a_board_than_many() -> None:
    prior = prior_of(PRIOR, BOARD)
    places = [BOARD.grid.configuration((cpu, gpu, -1)) for cpu in (5, -1) for gpu in range(0, len(BOARD.grid.gpu_hz), 2)]

    def slower(network: Network) -> list[Observation]:
        """As a board computes that takes 1.5 times as long, and moves memory and issues calls as expected."""
        computing = by_factors(prior, BOARD, {"compute": 1.5})
        expected = surface(network, computing.cost)
        return [Observation(one, expected.at(one).latency_ms, expected.at(one).power_mw, frames=100) for one in places]

    one, three = (
        adapted(prior, BOARD, [(network, slower(network)) for network in networks]).carried.factors.compute
        for networks in (NETWORKS[:1], NETWORKS)
    )
    assert 1.1 < one < three < 1.5
