# SPDX-License-Identifier: Apache-2.0
"""What engines cost is found from networks as engines run them, and added to a finished profile."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

import numpy as np
import pytest
from msgspec.structs import asdict, replace

from jetdvfs.kernels.cost.board import UNSCALED, BoardCost
from jetdvfs.kernels.cost.engines import EngineCosts, EngineRates
from jetdvfs.kernels.cost.host import HostModel
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.cost.roofline import LaunchFloor
from jetdvfs.kernels.cost.totals import NO_SHARES
from jetdvfs.kernels.network import Network
from jetdvfs.profiles.adapt.measurements import MeasurementRows
from jetdvfs.profiles.adapt.network_errors import NetworkMeasurement
from jetdvfs.profiles.bundle.bundle import Bundle, load_bundle
from jetdvfs.profiles.bundle.manifest import Manifest
from jetdvfs.profiles.errors import MeasurementError
from jetdvfs.profiles.lab.measure.meters.simulated import engines_of
from jetdvfs.profiles.lab.train import engines
from jetdvfs.profiles.lab.train.engines import add_engines, evaluation_of, fit_rates, fit_start
from jetdvfs.profiles.lab.train.listed_networks import left_out_networks
from jetdvfs.profiles.lab.train.production import EVALUATION_NODES, evaluate_simulated
from jetdvfs.tests.support.profiles.analytic import GRID, board, conv2d, matmul, network, pointwise, relu

pytest.importorskip("scipy", reason="fitting needs scipy")

TRUE = EngineRates(0.4, 0.8, 0.9, 0.6, 0.5, 0.7, 0.2, 0.7, 0.4, 1.2, 0.9)
STARTS = HostModel({"engine": (20.0, 40_000.0, 0, 0), "engine.launch": (1.0, 1000.0, 0, 0)}, (0, 10_000.0, 0, 0))
COST = replace(board(), floor=LaunchFloor(5.0, 2000.0), host=STARTS)


def networks() -> list[Network]:
    made = []
    for size in range(1, 9):
        convolutions = [
            conv2d(16 * (size % 4 + 1)),
            *[pointwise(32 << size % 5)] * (size % 3),
            *[conv2d(64, groups=64)] * (size % 2),
        ]
        calls = [matmul(100 * size), *convolutions, *[relu(1 << (10 + size))] * size]
        copies = [replace(relu(1 << (20 - size)), kind="clone")] * (size % 3)
        made.append(replace(network(*calls, *copies, name=f"net{size}"), runtime="TensorRT"))
    return made


def measured(cost: BoardCost, noise: float = 0.0, halved: Collection[str] = ()) -> Sequence[NetworkMeasurement]:
    random, taken = np.random.default_rng(2), []
    for full in networks():
        one = replace(full, calls=tuple(replace(c, dtype="float16") if c.kind in halved else c for c in full.launches))
        found = surface(one, cost)
        off = np.exp(noise * random.standard_normal((2, GRID.size)))
        figures = (found.latency_ms.ravel() * off[0], found.energy_mj.ravel() * off[0] * off[1])
        taken.append(NetworkMeasurement(one, np.arange(GRID.size), *figures))
    return taken


def test_the_factors_that_made_measurements_are_found_in_them() -> None:
    rates = EngineCosts({"float32": TRUE}, UNSCALED, NO_SHARES, NO_SHARES, 0.0, 0.0, None)
    for noise, near in ((0.0, 0.01), (0.002, 0.1)):
        found = fit_rates(COST, measured(replace(COST, engines=rates), noise))
        for name, factor in asdict(TRUE).items():
            assert getattr(found, name) == pytest.approx(factor, rel=near, abs=near), (name, noise)


def test_kernels_of_a_type_whose_factors_are_known_keep_them() -> None:
    own = replace(TRUE, windows=0.6, pointwise=0.3, groups=0.8, floor=0.5, weights=0.2, activations=0.1, product_power=0.8)
    both = {"float32": TRUE, "float16": own}
    costs = EngineCosts(both, UNSCALED, NO_SHARES, NO_SHARES, 0.0, 0.0, None)
    found = fit_rates(COST, measured(replace(COST, engines=costs), halved=["conv2d"]), {"float32": TRUE})
    for name in ("floor", "windows", "pointwise", "groups", "weights", "activations", "product_power"):
        assert getattr(found, name) == pytest.approx(getattr(own, name), rel=0.01, abs=0.01), name
    assert found.products == found.others == found.copies == found.other_power == 1.0  # no kernel tells


def test_starts_are_taken_apart_into_what_each_kernel_costs_and_the_rest() -> None:
    flat = np.arange(GRID.size)
    cpu_mhz = GRID.levels_mhz()[0].astype(float)[np.unravel_index(flat, GRID.shape)[0]]
    rows, launches = [], []
    for count in (10, 60, 200):
        us = 20.0 + 40_000 / cpu_mhz + count * (1.0 + 1000 / cpu_mhz)
        rows.append(MeasurementRows(np.zeros(len(flat), np.int64), np.zeros(len(flat), np.int64), flat, us))
        launches.append(np.full(len(flat), count))
    found = fit_start(board().host, MeasurementRows.joined(rows), np.concatenate(launches), GRID)
    assert found.knows("engine") and not found.knows("graph")
    levels = GRID.levels_mhz()
    start = found.start_us("engine", levels[0], levels[2])[:, 0]
    each = found.handed_us("engine", [relu(1)], levels[0], levels[2])[-1, :, 0]
    np.testing.assert_allclose(start, 20 + 40_000 / levels[0], rtol=1e-4)
    np.testing.assert_allclose(each, 1 + 1000 / levels[0], rtol=1e-4)
    with pytest.raises(MeasurementError, match="starts of 1 sizes were measured; expected 2 or more"):
        fit_start(board().host, rows[0], launches[0], GRID)


def test_nothing_and_no_power_are_refused() -> None:
    with pytest.raises(MeasurementError, match="engines: no network was measured"):
        fit_rates(COST, [])
    (first, *_) = measured(COST)
    with pytest.raises(MeasurementError, match="engines: power of network net1 was not measured"):
        fit_rates(COST, [replace(first, energy_mj=None)])


def quiet(done: int, total: int, text: str) -> None:
    """No progress bar."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, Bundle]:
    """A shipped profile, and the same with what engines cost, found on few boards."""
    old = load_bundle("tx2-sim")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "FITTED_NODES", 1)
        patch.setattr(engines, "JUDGED_NODES", engines.JUDGED_NODES[:4])
        patch.setattr(engines, "CONFIGURATIONS", 6)
        patch.setattr(engines, "EVALUATION_NODES", EVALUATION_NODES[:1])
        return old, add_engines(old, tmp_path_factory.mktemp("engines") / "new", 0, quiet)


@pytest.mark.slow
def test_a_profile_learns_what_engines_cost_and_keeps_everything_else(found: tuple[Bundle, Bundle]) -> None:
    old, new = found
    again = load_bundle(new.path)
    assert again.manifest == new.manifest == Manifest.from_json(json.loads(json.dumps(new.manifest.to_json())))
    assert again.cost.host.knows("engine") and again.cost.engines is not None
    assert list(again.cost.engines.rates) == ["float32", "float16"]
    assert again.manifest.kinds == old.manifest.kinds and "jetdvfs-lab train tx2-sim" in again.manifest.command
    changed = {name for name, digest in again.manifest.checksums.items() if old.manifest.checksums[name] != digest}
    assert changed == {"host.json"}
    one = networks()[0]
    before, after = (surface(replace(one, runtime=""), each.cost) for each in (old, again))
    np.testing.assert_array_equal(before.latency_ms, after.latency_ms)
    assert surface(one, again.cost).execution_note == ""


@pytest.mark.slow
def test_engines_of_families_and_boards_left_out_are_nearer_and_keep_their_bounds(found: tuple[Bundle, Bundle]) -> None:
    old, new = found
    for compiled in engines_of("tx2"):
        name = evaluation_of(compiled)
        record = [row for row in new.manifest.evaluation[name]["networks"] if row["method"] == "timeline"]
        assert len(record) == 20
        assert np.mean([row["latency_percent"] for row in record]) < 12
        assert np.mean([row["energy_percent"] for row in record]) < 12
        assert np.mean([min(row["latency_covered"], row["energy_covered"]) >= 0.9 for row in record]) > 0.9
        few = left_out_networks()[:3]
        unaware = replace(old, cost=replace(old.cost, engines=None))
        before = evaluate_simulated(unaware, few, EVALUATION_NODES[:1], configurations=20, compiled=compiled)
        assert np.mean([row.latency_percent for row in before]) > 15
