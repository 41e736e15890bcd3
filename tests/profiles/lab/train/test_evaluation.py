# SPDX-License-Identifier: Apache-2.0
"""Comparing surfaces with measured networks."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.kernels.cost.features import MODELLED_KINDS
from jetdvfs.kernels.surface import Surface
from jetdvfs.profiles.adapt.network_errors import NetworkError, NetworkMeasurement, compare, summary
from jetdvfs.profiles.bundle.bundle import bundle_bytes, load_bundle, read_manifest
from jetdvfs.profiles.bundle.finding import SHIPPED, find_bundles, resolve_bundle
from jetdvfs.profiles.errors import TwinError
from jetdvfs.profiles.lab.measure.one_twin import measure_twin
from jetdvfs.profiles.lab.train import production
from jetdvfs.profiles.lab.train.evaluation import coverage, measure_network, table
from jetdvfs.profiles.lab.train.production import EVALUATION_NODES, evaluate_simulated, plan_simulated
from jetdvfs.profiles.reference import reference_names, reference_network
from jetdvfs.profiles.twin.silicon.chip import Clocks
from jetdvfs.profiles.twin.silicon.silicon import Silicon
from jetdvfs.tests.support.profiles.synthetic_meter import BOARD, SyntheticMeter, network

NETWORK = network("net", [100_000])


def perfect(factor: float = 1.0, sigma: float = 0.1) -> Surface:
    """A surface that is the measured one, times a factor."""
    everywhere = list(BOARD.grid)
    meter = SyntheticMeter()
    latency = meter.network_latency_ms(NETWORK, everywhere).reshape(BOARD.grid.shape) * factor
    energy = meter.network_rails_mw(NETWORK, everywhere)["GPU"].reshape(BOARD.grid.shape) * latency / 1e3
    sigmas = np.full(BOARD.grid.shape, sigma)
    return Surface(
        grid=BOARD.grid,
        latency_ms=latency,
        power_mw=energy / latency * 1e3,
        energy_mj=energy,
        idle_mw=np.ones(BOARD.grid.shape),
        latency_sigma=sigmas,
        energy_sigma=sigmas,
        method="timeline",
    )


def measured(configurations: int = 120) -> NetworkMeasurement:
    return measure_network(NETWORK, BOARD.grid, BOARD.energy_rails, SyntheticMeter(), configurations, seed=3)


def test_configurations_are_distinct_and_random() -> None:
    index = measured().index
    assert len(set(index.tolist())) == 120
    assert all(len(set(axis)) > 5 for axis in np.unravel_index(index, BOARD.grid.shape))


def test_a_perfect_prediction_has_no_error_and_covers_all() -> None:
    error = compare(perfect(), measured())
    assert error.latency_percent == pytest.approx(0, abs=1e-9) and error.energy_percent == pytest.approx(0, abs=1e-9)
    assert error.latency_covered == 1 and error.configurations == 120


def test_coverage_names_the_network_that_is_covered_least_and_how_sharp_the_surface_is() -> None:
    errors = [compare(perfect(sigma=0.1), measured()), replace(compare(perfect(0.8), measured()), network="poor")]
    latency, energy = coverage(errors).splitlines()
    assert "covers 50.0% of all, 0.0% of poor" in latency and "1.18 times" in latency  # exp(1.645 x 0.1)
    assert "energy surface" in energy


def test_a_prediction_too_low_is_reported_as_such() -> None:
    error = compare(perfect(0.8), measured())
    assert error.latency_percent == pytest.approx(20) and error.latency_bias_percent == pytest.approx(-20)
    assert error.latency_covered == 0  # 0.8 x exp(1.64 x 0.1) stays under the measurement
    assert compare(perfect(0.8, sigma=0.2), measured()).latency_covered == 1


def test_the_table_shows_every_network_and_the_mean() -> None:
    errors = [compare(perfect(0.9), measured()), compare(perfect(1.3), measured())]
    assert summary(errors)["timeline"]["latency_percent"] == pytest.approx(20)
    shown = table(errors[:1])
    assert "net" in shown and "10.0%" in shown and "mean" in shown


def test_the_shipped_profile_predicts_networks_on_boards_it_was_not_trained_on() -> None:
    bundle = load_bundle("agx-xavier-sim")
    assert not set(EVALUATION_NODES) & set(bundle.manifest.nodes)
    networks = [reference_network(name) for name in reference_names()]
    errors = evaluate_simulated(bundle, networks, EVALUATION_NODES, configurations=100)
    means = summary(errors)
    assert means["timeline"]["latency_percent"] <= 8 and means["timeline"]["energy_percent"] <= 8
    assert means["timeline"]["latency_percent"] < means["sum"]["latency_percent"]
    for recorded in bundle.manifest.evaluation["unseen_board"]["networks"]:
        same = [error.to_json() for error in errors if error.network == recorded["network"]]
        assert any(error == pytest.approx(recorded, abs=0.3) for error in same)


@pytest.mark.parametrize("name", sorted(find_bundles([SHIPPED])))
def test_each_shipped_profile_is_marked_simulated_small_and_of_the_silicon_there_is_now(name: str) -> None:
    bundle = load_bundle(name)
    assert bundle.manifest.simulated and bundle.manifest.silicon_version == Silicon(board=bundle.manifest.board).version
    assert not set(EVALUATION_NODES) & set(bundle.manifest.nodes)
    assert bundle_bytes(bundle.path, bundle.manifest) <= 5_000_000
    assert set(MODELLED_KINDS) <= set(bundle.manifest.kinds)
    small = "--quick" in bundle.manifest.command
    quick = "--quick " if small else ""
    assert f"jetdvfs-lab train --board {bundle.manifest.board} --simulated {quick}--name {name}" in bundle.manifest.command
    own = summary(evaluate_simulated(bundle, [reference_network("resnet18")], EVALUATION_NODES, configurations=40))["timeline"]
    assert own["latency_percent"] <= (16 if small else 8) and own["energy_percent"] <= (16 if small else 12)


def test_idle_power_is_measured_of_the_silicon_that_the_manifest_names(monkeypatch: pytest.MonkeyPatch) -> None:
    few = replace(production.QUICK, random_kernels={}, random_kernels_default=2)  # idle power is enough
    monkeypatch.setattr(production, "QUICK", few)
    plan = plan_simulated("tx2", "tx2-sim", "command", quick=True)
    idle_first = replace(plan.campaign, units=plan.campaign.units[:1])
    measurements = measure_twin(idle_first, None, lambda done, total, text: None)
    board = Silicon(0, "tx2")
    assert measurements.silicon_version == board.version
    grid, rails = plan.campaign.board.grid, plan.campaign.board.energy_rails
    true = board.sensed(board.idle_rails_w(Clocks.of(list(grid))))
    expected = 1e3 * sum((true[rail] for rail in rails), np.zeros(grid.size))
    assert np.median(measurements.tables["idle_mw"].value / expected) == pytest.approx(1.0, abs=0.005)


def test_a_profile_of_another_silicon_is_not_evaluated() -> None:
    bundle = load_bundle("agx-xavier-sim")
    alien = replace(bundle, manifest=replace(bundle.manifest, silicon_version="agx-xavier-1"))
    with pytest.raises(TwinError, match="no simulated silicon 'agx-xavier-1'; valid: agx-xavier-"):
        evaluate_simulated(alien, [reference_network("squeezenet1_0")], EVALUATION_NODES[:1], configurations=30)


def test_the_shipped_profiles_95_percent_latency_surface_keeps_its_promise_where_nothing_was_seen_before() -> None:
    """As recorded in training: networks and boards that the predicting models were trained without."""
    recorded = read_manifest(resolve_bundle("agx-xavier-sim")).evaluation["unseen_board_and_network"]["networks"]
    errors = [NetworkError.from_json(item) for item in recorded]
    assert {error.network for error in errors} == set(reference_names())
    by_network = {name: [error for error in errors if error.network == name] for name in reference_names()}
    assert 0.93 <= np.mean([error.latency_covered for error in errors]) <= 0.98
    assert all(np.mean([error.latency_covered for error in own]) >= 0.8 for own in by_network.values())
    assert np.median([error.latency_high for error in errors]) <= 1.1
