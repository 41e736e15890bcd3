# SPDX-License-Identifier: Apache-2.0
"""Rates fitted to whole networks: what they find where rates rule, and beyond what was learnt."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from jetdvfs.kernels.graph import PerformanceGraph, graph_of
from jetdvfs.kernels.network import Network
from jetdvfs.profiles.errors import RecordError
from jetdvfs.profiles.lab.networks.predictors.encodings import OUTPUTS, tiles
from jetdvfs.profiles.lab.networks.predictors.rates import RateEstimator, part_of
from jetdvfs.profiles.lab.networks.record import MeasuredQuery, Query
from jetdvfs.tests.support.profiles.measured_networks import DEVICES, chain, samples


@pytest.fixture(autouse=True)
def _fitted_by_scipy() -> None:
    pytest.importorskip("scipy", reason="fits the rates")


def truth(graph: PerformanceGraph, device: Sequence[float]) -> dict[str, float]:
    """Twice the operations of convolutions, 30,000 cycles of the host a launch, outputs once; the greatest moment of memory."""
    host, gflops, gbytes, _ = device
    latency_ms = sum(
        0.03 / host + (2 * node.flops / gflops / 1e6 if node.kind == "conv2d" else 0) + node.output_bytes / gbytes / 1e6
        for node in graph.nodes
    )
    moment = max(
        live + (node.access_bytes / 2 if node.kind == "conv2d" else 0)
        for node, live in zip(graph.nodes, graph.live_bytes, strict=True)
    )
    return {"latency_ms": latency_ms, "peak_mib": 2 + (graph.memory.weight_bytes + moment) / (1 << 20)}


def known(count: int, seed: int = 0) -> list[MeasuredQuery]:
    return [msgspec.structs.replace(one, values=truth(one.graph, one.device)) for one in samples(count, seed=seed)]


def off(made: RateEstimator, graph: PerformanceGraph) -> NDArray[np.float64]:
    """By what part each metric is off on each device."""
    wanted = np.array([list(truth(graph, device).values()) for device in DEVICES])
    return np.asarray(np.abs(made.predict([Query(graph, device) for device in DEVICES]) / wanted - 1))


def renamed(network: Network, kind: str) -> PerformanceGraph:
    """The same network with another operator in place of relu."""
    launches = tuple(msgspec.structs.replace(one, kind=kind) if one.kind == "relu" else one for one in network.launches)
    return graph_of(Network(network.name, network.inputs, launches, reads=network.reads))


def test_rates_that_rule_are_found_and_hold_for_networks_unlike_those_learnt() -> None:
    made = RateEstimator()
    with pytest.raises(RecordError, match="not fitted"):
        made.predict([])
    made.fit(known(60))
    asked = known(10, seed=5)
    wanted = np.array([list(one.values.values()) for one in asked])
    assert np.abs(made.predict(asked) / wanted - 1).max() < 0.05
    assert (off(made, graph_of(chain("long", (64,) * 12, image=64))) < 0.08).all()  # larger, longer, wider than all of them


def test_a_library_that_computes_whole_tiles_is_found_out() -> None:
    """As a GPU's, where a convolution of one channel takes as long as one of 64."""

    def latency_ms(query: Query) -> float:
        made = [2 * depth * count * OUTPUTS**2 for node in query.graph.nodes for depth, count in [tiles(node)] if node.kernel]
        return sum(0.001 / query.device[0] + one / query.device[1] / 1e6 for one in made)

    learnt, asked = (samples(count, seed=seed) for count, seed in ((60, 0), (10, 5)))
    made = RateEstimator()
    made.fit([msgspec.structs.replace(one, values={"latency_ms": latency_ms(one)}) for one in learnt])
    assert_allclose(made.predict(asked)[:, 0], [latency_ms(one) for one in asked], rtol=0.05)


def test_an_operator_that_no_network_had_takes_the_rates_of_all() -> None:
    made = RateEstimator()
    made.fit(known(60))
    network = chain("plain", (24,) * 6)
    plain, strange = graph_of(network), renamed(network, "softmax")
    assert {part_of(node) for node in strange.nodes} == {"conv2d 3", "softmax", "add"}
    first = Network("first", network.inputs, network.launches[:1], reads=network.reads[:1])
    both = [graph_of(first), renamed(Network("both", network.inputs, network.launches[:2], reads=network.reads[:2]), "softmax")]
    alone, followed, one, other = (made.predict([Query(graph, DEVICES[0])])[0, 0] for graph in (*both, plain, strange))
    assert followed > 1.2 * alone and 0.5 < other / one < 4  # not for nothing


def test_energy_is_least_between_the_clocks_where_it_is_in_truth() -> None:
    def energy_mj(graph: PerformanceGraph, gflops: float) -> float:
        return sum(node.flops / 1e6 * (20 / gflops + gflops / 1e4) for node in graph.nodes if node.kind == "conv2d")

    levels = (100.0, 200.0, 400.0, 800.0, 1600.0)
    asked = samples(20, [(1.0, gflops, 50.0, 32.0) for gflops in levels])
    made = RateEstimator()
    made.fit([msgspec.structs.replace(one, values={"energy_mj": energy_mj(one.graph, one.device[1])}) for one in asked])
    graph = graph_of(chain("asked", (40,) * 6))
    swept = made.predict([Query(graph, (1.0, gflops, 50.0, 32.0)) for gflops in levels])[:, 0]
    assert_allclose(swept, [energy_mj(graph, gflops) for gflops in levels], rtol=0.1)
    assert swept.argmin() == 2
