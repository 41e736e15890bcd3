# SPDX-License-Identifier: Apache-2.0
"""A record of an NVIDIA H200: five networks, the time of each of their kernels, power of a few (``tests/fixtures/records``).

Networks ran as CUDA graphs; PyTorch 2.11, CUDA 13.
"""

from __future__ import annotations

import math

import pytest

from jetdvfs.profiles.adapt.measurements import Measurements
from jetdvfs.profiles.lab.train.held_out import measured_kinds
from jetdvfs.tests.support.paths import ROOT


@pytest.fixture(scope="module")
def record() -> Measurements:
    return Measurements.load(ROOT / "tests" / "fixtures" / "records" / "h200.npz")


def test_kernels_that_are_timed_one_by_one_take_together_what_their_graph_takes(record: Measurements) -> None:
    times, latencies = record.tables["kernel_ms"], record.tables["network_ms"]
    taken_ms = {record.invocations[what].signature: value for what, value in zip(times.what, times.value, strict=True)}
    for what, latency_ms in zip(latencies.what, latencies.value, strict=True):
        together_ms = sum(taken_ms[launch.signature] for launch in record.networks[what].launches)
        assert together_ms == pytest.approx(latency_ms, rel=0.1)


def test_kinds_without_a_power_are_trained_on_their_times_and_draw_what_kernels_usually_do(record: Measurements) -> None:
    pytest.importorskip("xgboost", reason="trains models")
    from jetdvfs.profiles.lab.train.kernel_models import Recipe, TrainingOptions, train_kind

    kinds, powers = measured_kinds(record), record.tables["kernel_mw"]
    powered = {record.invocations[what].kind for what in powers.what}
    assert "batch_norm" in kinds and "batch_norm" not in powered
    options = TrainingOptions({"": (Recipe(3, 0.3, min_child_weight=1.0, rounds=20),)}, most_rounds=20)
    trained = train_kind(record, record.described, "batch_norm", options, set())
    assert trained.power is not None and trained.time.samples > 0 and trained.power.samples == 0
    assert trained.power.sigma == pytest.approx(_spread(powers.value.tolist()), rel=1e-6)


def _spread(powers_mw: list[float]) -> float:
    """Root mean square of the logarithm of the ratio to the middle one."""
    logarithms = sorted(math.log(power_mw) for power_mw in powers_mw)
    half = len(logarithms) // 2
    middle = (logarithms[half] + logarithms[~half]) / 2
    return math.sqrt(sum((one - middle) ** 2 for one in logarithms) / len(logarithms))
