# SPDX-License-Identifier: Apache-2.0
"""Where the host is the bottleneck, the timeline predicts simulated boards well and the sum does not; elsewhere both do."""

from __future__ import annotations

import pytest

from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.reference import reference_network
from jetdvfs.tests.bench.timeline_and_sum import Row, compared


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str], Row]:
    bundle = load_bundle("agx-xavier-sim")
    networks = [reference_network(name) for name in ("shufflenet_v2_x1_0", "vgg16")]
    return {(row.network, row.clocks): row for row in compared(bundle, networks, nodes=(12,))}


@pytest.mark.parametrize("clocks", ["low", "middle", "top"])
def test_a_network_of_many_small_kernels_needs_the_timeline(rows: dict[tuple[str, str], Row], clocks: str) -> None:
    row = rows["shufflenet_v2_x1_0", clocks]
    assert row.latency_percent["timeline"] < 10 and row.energy_percent["timeline"] < 15
    assert row.latency_percent["sum"] > 2 * row.latency_percent["timeline"]


def test_the_lower_the_cpu_clock_the_worse_the_sum(rows: dict[tuple[str, str], Row]) -> None:
    low, middle, top = (rows["shufflenet_v2_x1_0", clocks].latency_percent["sum"] for clocks in ("low", "middle", "top"))
    assert low > 50 and low > middle > top


def test_where_the_gpu_is_the_bottleneck_both_are_near(rows: dict[tuple[str, str], Row]) -> None:
    row = rows["vgg16", "top"]
    assert max(row.latency_percent.values()) < 5
