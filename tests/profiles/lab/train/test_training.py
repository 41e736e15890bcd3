# SPDX-License-Identifier: Apache-2.0
"""Campaigns and training, on a board whose figures are known exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from jetdvfs.kernels.cost.board import BoardCost
from jetdvfs.kernels.cost.guesses import UNMODELLED_SIGMA
from jetdvfs.kernels.cost.host import HostModel
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.cost.region import ModelPair
from jetdvfs.kernels.kinds import ELEMENTWISE
from jetdvfs.kernels.network import HostOp, KernelInvocation, Network
from jetdvfs.profiles.adapt.measurements import MeasurementRows, Measurements
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.bundle.files import BoardArrays
from jetdvfs.profiles.errors import MeasurementError
from jetdvfs.profiles.lab.measure.campaign import Campaign, CampaignSize, plan_campaign
from jetdvfs.profiles.lab.measure.sized_kernels import kernel_of
from jetdvfs.profiles.lab.measure.steps import run_campaign
from jetdvfs.profiles.lab.measure.variation import spread_over_sizes
from jetdvfs.profiles.lab.train.assembly import (
    Uncertainty,
    board_cost,
    left_out_uncertainty,
    make_folds,
    manifest_of,
    models_of,
    regions_of,
    train_all,
)
from jetdvfs.profiles.lab.train.host_fit import (
    clocks_mhz,
    fit_host_active_mw,
    fit_host_model,
    fit_idle_mw,
    fit_issue_time,
    fit_leakage,
)
from jetdvfs.profiles.lab.train.kernel_models import FEW_KERNELS, Recipe, TrainingOptions, table_of
from jetdvfs.profiles.lab.train.making import bundle_from_record, write_bundle
from jetdvfs.profiles.lab.train.network_factors import NetworkFactors
from jetdvfs.profiles.lab.train.region_fit import fit_region
from jetdvfs.tests.support.profiles.synthetic_meter import (
    BOARD,
    HOST_ACTIVE_MW,
    LEAKAGE_FOLD_C,
    OneRailMeter,
    SyntheticMeter,
    leakage_mw,
    network,
    pointwise,
)

NETWORKS: tuple[Network, ...] = (
    network("small", [20_000, 50_000]),
    network("middle", [100_000, 300_000]),
    network("large", [700_000, 1_500_000]),
)
KINDS = ("relu", "add")
SIZE = CampaignSize(
    nodes=(0, 1, 2, 3),
    random_kernels={},
    random_kernels_default=24,
    configurations=12,
    network_configurations=16,
    whole_network_configurations=6,
    host_configurations=16,
    warm_configurations=60,
)
WARMER_C = (25.0, 85.0)
OPTIONS = TrainingOptions({"": (Recipe(5, 0.2, 1.0),)}, most_rounds=80, patience=10)


def quiet(done: int, total: int, text: str) -> None:
    """No progress bar."""


def random_kernels(kind: str, count: int) -> Sequence[KernelInvocation]:
    rng = np.random.default_rng([len(kind), count])
    return [pointwise(kind, int(elements)) for elements in np.exp(rng.uniform(np.log(1e4), np.log(2e6), count))]


def campaign() -> Campaign:
    return plan_campaign(
        BOARD, NETWORKS, random_kernels, SIZE, kinds=KINDS, temperature_c=45.0, warmer_c=WARMER_C, silicon_version="synthetic"
    )


@pytest.fixture(scope="module")
def measurements() -> Measurements:
    return run_campaign(campaign(), SyntheticMeter)


@pytest.fixture(scope="module")
def trained_cost(measurements: Measurements) -> BoardCost:
    pytest.importorskip("xgboost", reason="training needs xgboost")
    return board_cost(measurements, BOARD, train_all(measurements, BOARD, NETWORKS, KINDS, OPTIONS, quiet))


def same(left: MeasurementRows, right: MeasurementRows) -> bool:
    return all(np.array_equal(getattr(left, name), getattr(right, name)) for name in ("what", "node", "configuration", "value"))


def test_an_interrupted_campaign_goes_on_and_finds_the_same(measurements: Measurements, tmp_path: Path) -> None:
    units = len(campaign().units)

    def interrupt(done: int, total: int, text: str) -> None:
        if done == units // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_campaign(campaign(), SyntheticMeter, tmp_path, interrupt)
    kept = sorted(tmp_path.glob("*/unit-*.npz"))
    assert len(kept) == units // 2
    kept[3].write_bytes(kept[3].read_bytes()[:50])
    before = [path.stat().st_mtime_ns for path in kept]
    resumed = run_campaign(campaign(), SyntheticMeter, tmp_path)
    assert all(same(resumed.tables[name], measurements.tables[name]) for name in measurements.tables)
    assert [path.stat().st_mtime_ns == time for path, time in zip(kept, before, strict=True)].count(False) == 1


def test_another_campaign_in_the_same_folder_is_measured_anew(tmp_path: Path) -> None:
    run_campaign(campaign(), SyntheticMeter, tmp_path)
    other = replace(campaign(), silicon_version="other")
    seen: list[SyntheticMeter] = []

    def meter(node: int) -> SyntheticMeter:
        seen.append(SyntheticMeter(node))
        return seen[-1]

    run_campaign(other, meter, tmp_path)
    assert len(seen) == len(SIZE.nodes)


def test_measurements_survive_a_file(measurements: Measurements, tmp_path: Path) -> None:
    measurements.save(tmp_path / "m.npz")
    loaded = Measurements.load(tmp_path / "m.npz")
    assert loaded.invocations == measurements.invocations and loaded.calls == measurements.calls
    assert all(same(loaded.tables[name], measurements.tables[name]) for name in measurements.tables)
    (tmp_path / "m.npz").write_bytes((tmp_path / "m.npz").read_bytes()[:500])
    with pytest.raises(MeasurementError, match=r"m\.npz"):
        Measurements.load(tmp_path / "m.npz")


def test_every_network_kernel_is_measured_on_every_board_and_random_ones_on_one(measurements: Measurements) -> None:
    rows = measurements.tables["kernel_ms"]
    of_networks = {launch.signature for network in NETWORKS for launch in network.launches}
    for what, kernel in enumerate(measurements.invocations):
        boards = set(rows.node[rows.what == what])
        assert len(boards) == (len(SIZE.nodes) if kernel.signature in of_networks else 1)


def test_host_costs_and_idle_power_are_recovered(measurements: Measurements) -> None:
    host = fit_host_model(measurements, BOARD.grid)
    mean = np.mean([SyntheticMeter(node).factor for node in SIZE.nodes])
    assert set(host.calls) == {"relu", "add", "view"}
    cpu_mhz, _, emc_mhz = BOARD.grid.levels_mhz()
    fitted = host.issue_us([pointwise("add", 7)], cpu_mhz, emc_mhz)[0]
    expected = mean * 20 * (0.1 + 0.7 * 2265.6 / cpu_mhz[:, None] + 0.2 * 2133 / emc_mhz)
    assert np.abs(fitted / expected - 1).max() < 0.01
    idle = fit_idle_mw(measurements.tables["idle_mw"], BOARD.grid)
    top = sum(float(rail[0]) for rail in SyntheticMeter(0).idle_rails_mw([BOARD.grid.top]).values())
    assert idle[-1, -1, -1] == pytest.approx(mean * top, rel=1e-4)
    active = fit_host_active_mw(measurements.tables["host_active_mw"], BOARD.grid)
    assert active == pytest.approx(np.full(29, mean * HOST_ACTIVE_MW), rel=1e-3)


def issued(us: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]) -> MeasurementRows:
    """What issuing a call takes everywhere on the grid, of CPU and memory clock in MHz."""
    everywhere = np.arange(BOARD.grid.size)
    cpu_mhz, _, emc_mhz = clocks_mhz(everywhere, BOARD.grid)
    none = np.zeros(BOARD.grid.size, np.int64)
    return MeasurementRows(none, none, everywhere, us(cpu_mhz, emc_mhz))


def test_that_slow_cores_hide_a_part_of_each_miss_is_found() -> None:
    rows = issued(lambda cpu_mhz, emc_mhz: 3 + 20_000 / cpu_mhz + (2000 + 0.8 * cpu_mhz) / emc_mhz)
    call, _ = fit_issue_time(rows, np.zeros(len(rows), np.int64), BOARD.grid)
    assert call == pytest.approx((3, 20_000, 2000, 0.8), rel=0.01)


def test_no_call_takes_longer_at_a_higher_cpu_clock_whatever_was_measured() -> None:
    rows = issued(lambda cpu_mhz, emc_mhz: 5 + 5000 / cpu_mhz + 3 * cpu_mhz / emc_mhz)
    call, _ = fit_issue_time(rows, np.zeros(len(rows), np.int64), BOARD.grid)
    cpu_mhz, _, emc_mhz = BOARD.grid.levels_mhz()
    taken = HostModel({}, call).issue_us([HostOp("view", "")], cpu_mhz, emc_mhz)[0]
    assert call[3] > 0 and (np.diff(taken, axis=0) <= 1e-9).all() and (np.diff(taken, axis=1) <= 0).all()


def test_where_one_rail_feeds_all_the_host_and_the_kernels_are_still_told_apart(measurements: Measurements) -> None:
    board = replace(BOARD, energy_rails=("IN",))
    plan = plan_campaign(board, NETWORKS, random_kernels, SIZE, kinds=KINDS, temperature_c=45.0, silicon_version="synthetic")
    together = run_campaign(plan, OneRailMeter)
    for table in ("host_active_mw", "kernel_mw"):
        mean, apart = (found.tables[table].value.mean() for found in (together, measurements))
        assert mean == pytest.approx(apart, rel=1e-3)


def test_idle_power_of_the_whole_grid_follows_from_a_hundred_configurations(measurements: Measurements) -> None:
    rows, whole = measurements.tables["idle_mw"], fit_idle_mw(measurements.tables["idle_mw"], BOARD.grid)
    some = np.random.default_rng(1).choice(BOARD.grid.size, 100, replace=False)
    fitted = fit_idle_mw(rows.where(np.isin(rows.configuration, some)), BOARD.grid)
    assert np.abs(fitted / whole - 1).mean() < 0.01
    with pytest.raises(MeasurementError, match="at 20 of 3654 configurations; expected 30 or more"):
        fit_idle_mw(rows.where(np.isin(rows.configuration, some[:20])), BOARD.grid)


def test_what_leaks_is_found_in_idle_power_at_several_temperatures(measurements: Measurements, trained_cost: BoardCost) -> None:
    assert measurements.temperatures_c == WARMER_C
    assert trained_cost.heat is not None and trained_cost.leakage_mw is not None
    assert trained_cost.heat.fold_c == pytest.approx(LEAKAGE_FOLD_C, rel=0.02) and trained_cost.heat.temperature_c == 45
    mean = np.mean([SyntheticMeter(node).factor for node in SIZE.nodes])
    everywhere = np.broadcast_to(np.asarray(BOARD.grid.gpu_hz, float)[:, None], BOARD.grid.shape)
    np.testing.assert_allclose(trained_cost.leakage_mw, mean * leakage_mw(everywhere), rtol=0.05)


def test_predictions_follow_the_temperature_of_the_die(trained_cost: BoardCost) -> None:
    predicted = surface(NETWORKS[1], trained_cost)
    for temperature_c in (30.0, 60.0, 85.0):
        rails = SyntheticMeter(1).idle_rails_mw(list(BOARD.grid), temperature_c)
        idle = np.sum(list(rails.values()), axis=0).reshape(BOARD.grid.shape)
        assert np.abs(predicted.warmed(temperature_c).idle_mw / idle - 1).max() < 0.03
        assert np.abs(predicted.idle_mw / idle - 1).max() > 0.05


def test_a_campaign_at_one_temperature_says_nothing_of_others(measurements: Measurements) -> None:
    none = measurements.tables["warm_idle_mw"].where(np.zeros(len(measurements.tables["warm_idle_mw"]), bool))
    idle_mw = fit_idle_mw(measurements.tables["idle_mw"], BOARD.grid)
    assert fit_leakage(none, (), idle_mw, 45.0, BOARD.grid) is None


def test_trained_models_predict_networks_of_kernels_they_have_seen(trained_cost: BoardCost) -> None:
    for tested in NETWORKS:
        predicted = surface(tested, trained_cost)
        configurations = list(BOARD.grid)[::37]
        meter = SyntheticMeter(2)
        latency = meter.network_latency_ms(tested, configurations)
        energy = meter.network_rails_mw(tested, configurations)["GPU"] * latency / 1e3
        assert np.abs(predicted.latency_ms.ravel()[::37] / latency - 1).mean() < 0.06
        assert np.abs(predicted.energy_mj.ravel()[::37] / energy - 1).mean() < 0.08


def test_a_handful_of_random_kernels_does_not_outweigh_those_of_networks(measurements: Measurements) -> None:
    own = {launch.signature for one in NETWORKS for launch in one.launches}

    def part_of_networks(record: Measurements) -> float:
        table = table_of(record, BOARD, "relu", "time", own)
        signatures = [one.signature for one in record.invocations if one.kind == "relu"]
        theirs = np.array([signature in own for signature in signatures])[table.kernel]
        return float(table.weight[theirs].sum() / table.weight.sum())

    random = [what for what, one in enumerate(measurements.invocations) if one.signature not in own]
    times = measurements.tables["kernel_ms"]
    few = replace(measurements, tables={**measurements.tables, "kernel_ms": times.where(~np.isin(times.what, random[4:]))})
    assert part_of_networks(few) > 0.5
    assert part_of_networks(measurements) >= 1 / 3 - 1e-9
    of_many = replace(few, invocations=(*few.invocations, *random_kernels("add", FEW_KERNELS)))
    assert part_of_networks(of_many) == pytest.approx(1 / 3)


def test_training_is_reproducible(measurements: Measurements) -> None:
    pytest.importorskip("xgboost", reason="training needs xgboost")
    first, second = (train_all(measurements, BOARD, NETWORKS, ("relu",), OPTIONS, quiet) for _ in range(2))
    assert first["relu"].time.treelite == second["relu"].time.treelite


def test_random_kernels_are_spread_over_sizes() -> None:
    many = [pointwise("relu", 1_000_000 + index) for index in range(200)]
    few = [pointwise("relu", 1000 + index) for index in range(10)]
    chosen = spread_over_sizes(many + few, 40)
    assert len(chosen) == 40 and len({kernel.signature for kernel in chosen}) == 40
    assert sum(kernel.bytes < 100_000 for kernel in chosen) == 10


def test_random_kernels_of_few_channels_are_among_many_of_as_many_bytes() -> None:
    broad = [
        kernel_of("linear", "matmul", {"m": 1000 + index, "n": 1000, "k": 1000, "bias": 0}, "float32") for index in range(200)
    ]
    narrow = [kernel_of("linear", "matmul", {"m": 3000 + index, "n": 4, "k": 1000, "bias": 0}, "float32") for index in range(4)]
    assert {kernel.bytes.bit_length() for kernel in broad} == {kernel.bytes.bit_length() for kernel in narrow}
    assert set(map(id, narrow)) <= set(map(id, spread_over_sizes([*broad, *narrow], 40, 0.25)))


def test_folds_leave_every_network_and_never_every_board_out() -> None:
    folds = make_folds(NETWORKS, SIZE.nodes, 3, seed=0)
    assert sorted(network.name for fold in folds for network in fold.networks) == ["large", "middle", "small"]
    assert all(0 < len(fold.nodes) < len(SIZE.nodes) for fold in folds)


def test_a_trained_bundle_says_how_uncertain_it_is_and_predicts_as_trained(measurements: Measurements, tmp_path: Path) -> None:
    pytest.importorskip("xgboost", reason="training needs xgboost")
    trained = train_all(measurements, BOARD, NETWORKS, KINDS, OPTIONS, quiet)
    folds = make_folds(NETWORKS, measurements.nodes, 3, seed=0)
    uncertainty = left_out_uncertainty(measurements, BOARD, NETWORKS, trained, folds, OPTIONS, quiet)
    assert isinstance(uncertainty, Uncertainty) and {error.network for error in uncertainty.errors} == {
        "small",
        "middle",
        "large",
    }
    assert max(asdict(uncertainty.latency).values()) < 0.5 and 0.005 < uncertainty.time["relu"] < 0.5
    cost = board_cost(measurements, BOARD, trained, uncertainty, inside=NetworkFactors(waiting=0.2))
    regions = regions_of(measurements, BOARD, NETWORKS, trained, uncertainty, OPTIONS, quiet)
    manifest = manifest_of("test", measurements, BOARD, trained, uncertainty, regions, "jetdvfs-lab train", {"tool": "1"}, cost)
    assert manifest.simulated and manifest.silicon_version == "synthetic" and manifest.nodes == SIZE.nodes
    arrays = BoardArrays(cost.idle_mw, cost.host_active_mw, cost.leakage_mw)
    write_bundle(tmp_path / "test", manifest, models_of(trained), cost.host, arrays)
    loaded = load_bundle(tmp_path / "test", cache_dir=tmp_path / "cache").cost
    left, right = surface(NETWORKS[0], cost), surface(NETWORKS[0], loaded)
    assert np.allclose(left.latency_ms, right.latency_ms, rtol=1e-4) and np.allclose(left.energy_mj, right.energy_mj, rtol=1e-4)
    assert np.allclose(left.latency_sigma, right.latency_sigma, rtol=1e-3)
    assert np.allclose(left.energy_sigma, right.energy_sigma, rtol=1e-3)
    assert not right.guessed  # its own networks are where it was trained
    beyond = surface(network("beyond", [60_000_000]), loaded)
    assert (beyond.guessed_share == 1).all() and (beyond.latency_sigma > right.latency_sigma).all()


def test_what_a_model_errs_beyond_what_it_was_trained_on_is_found_by_leaving_it_out(measurements: Measurements) -> None:
    pytest.importorskip("xgboost", reason="training needs xgboost")
    models = train_all(measurements, BOARD, NETWORKS, ("relu",), OPTIONS, quiet)["relu"]
    familiar = {launch.signature for whole in NETWORKS for launch in whole.launches}
    region = fit_region(measurements, BOARD, models, OPTIONS, familiar, ModelPair(0.01, 0.01))
    # All kernels are of one form and variety, so that nothing is known of others.
    assert set(region.spans) == {"1 tensors"}
    assert set(region.kinds) == {"relu"}
    assert region.kind_sigma == region.form_sigma == region.variety_sigma == ModelPair(UNMODELLED_SIGMA, UNMODELLED_SIGMA)
    assert 0 < region.doubling_sigma.time < UNMODELLED_SIGMA


def test_what_a_model_errs_for_kinds_that_it_was_not_trained_on_is_found_by_leaving_them_out(
    measurements: Measurements,
) -> None:
    """Negations that take four times as long as all other pointwise kernels of their size."""
    pytest.importorskip("xgboost", reason="training needs xgboost")
    familiar = {launch.signature for whole in NETWORKS for launch in whole.launches}
    few = [number for number, call in enumerate(measurements.invocations) if call.kind == "relu"][::3]
    calls = [replace(call, kind="neg") if number in few else call for number, call in enumerate(measurements.invocations)]
    rows = measurements.tables["kernel_ms"]
    slow = replace(rows, value=np.where(np.isin(rows.what, few), 4 * rows.value, rows.value))
    found = []
    for tables in (measurements.tables, {**measurements.tables, "kernel_ms": slow}):
        record = replace(measurements, invocations=tuple(calls), tables=tables)
        models = train_all(record, BOARD, NETWORKS, (ELEMENTWISE,), OPTIONS, quiet)[ELEMENTWISE]
        found.append(fit_region(record, BOARD, models, OPTIONS, familiar, ModelPair(0.01, 0.01)))
    alike, unlike = found
    assert set(alike.kinds) == {"add", "neg", "relu"} and alike.kinds["neg"] == {"float32": len(few)}
    assert unlike.kind_sigma.time > 2 * alike.kind_sigma.time


def test_nothing_is_trained_on_power_of_a_die_whose_temperature_nobody_knows(
    measurements: Measurements, tmp_path: Path
) -> None:
    unknown = replace(measurements, temperature_c=float("nan"))
    with pytest.raises(MeasurementError, match="how warm the die was"):
        bundle_from_record(unknown, "test", "jetdvfs-lab train", tmp_path / "test", quiet)
    assert not (tmp_path / "test").exists()
