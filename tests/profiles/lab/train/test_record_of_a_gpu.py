# SPDX-License-Identifier: Apache-2.0
"""A record of NVIDIA H200s (``tests/fixtures/records``): 53 networks, eager and as CUDA graphs, times and powers of kernels.

PyTorch 2.11, CUDA 13, November 2026.
"""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.kernels.cost.features import feature_rows
from jetdvfs.profiles.adapt.measurements import Measurements
from jetdvfs.profiles.device import Device
from jetdvfs.profiles.lab.measure.gpus import off_graphs
from jetdvfs.profiles.lab.train.assembly import AssemblyFold, inside_networks, train_all
from jetdvfs.profiles.lab.train.held_out import measured_kinds, whole_networks
from jetdvfs.profiles.lab.train.kernel_models import Recipe, TrainingOptions, ensemble_of, floor_of, train_kind
from jetdvfs.tests.support.paths import ROOT


@pytest.fixture(scope="module")
def record() -> Measurements:
    return Measurements.load(ROOT / "tests" / "fixtures" / "records" / "h200.npz")


def test_kernels_timed_one_by_one_add_up_to_their_graph(record: Measurements) -> None:
    errors = [abs(error) for error in off_graphs(record)]
    assert len(errors) > 35 and sum(errors) / len(errors) < 0.04 and max(errors) < 0.11


def test_the_start_of_a_graph_is_fitted_to_the_networks(record: Measurements) -> None:
    pytest.importorskip("xgboost", reason="trains models")
    options = TrainingOptions({"": (Recipe(3, 0.3, min_child_weight=1.0, rounds=20),)}, most_rounds=20)
    some = whole_networks(record)
    few = tuple(network for network in some.networks if len(network.launches) < 100)
    fold = AssemblyFold(tuple(network for network in some.networks if network not in few), ())
    trained = train_all(some, some.described, some.networks, measured_kinds(some), options, lambda *_: None, fold=fold)
    found = inside_networks(some, some.described, some.networks, trained, fold)
    assert 10 < found.host_us["graph"] < 60 and 0 <= found.host_us["graph.launch"] < 1 and 0 < found.host_us["eager"] < 150
    assert 0.9 < found.time < 1.2 and found.waiting == found.host_traffic == 0.0


def test_a_gpu_with_a_memory_of_its_own_computes_whole_tiles(record: Measurements) -> None:
    device = record.described
    assert floor_of(record, device).tile == 128
    assert isinstance(device, Device) and floor_of(record, replace(device, own_memory=False)).tile == 1


def test_kinds_without_a_power_draw_as_kernels_of_as_much_work_within_the_spread_of_all(record: Measurements) -> None:
    pytest.importorskip("xgboost", reason="trains models")
    powers = record.tables["kernel_mw"]
    powers = powers.where(np.array([record.invocations[what].kind != "batch_norm" for what in powers.what]))
    record = replace(record, tables={**record.tables, "kernel_mw": powers})
    options = TrainingOptions({"": (Recipe(3, 0.3, min_child_weight=1.0, rounds=20),)}, most_rounds=20)
    trained = train_kind(record, record.described, "batch_norm", options, set())
    assert trained.power is not None and trained.time.samples > 0 and trained.power.samples == 0
    noise_mw = 0.02 * float(np.median(record.tables["idle_mw"].value))
    assert trained.power.sigma == pytest.approx(np.log(np.maximum(powers.value, noise_mw)).std(), rel=0.05)
    kernels = [one for one in record.invocations if one.kind == "batch_norm" and one.dtype == "float32"]
    ends = [min(kernels, key=lambda one: one.bytes), max(kernels, key=lambda one: one.bytes)]
    rows = feature_rows("batch_norm", ends)
    rows[:, -3:] = [axis[0] for axis in record.described.grid.levels_mhz()]
    least, most = np.exp(np.asarray(ensemble_of(trained.power).predict(rows), np.float64))
    assert most > 2 * least
