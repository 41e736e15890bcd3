# SPDX-License-Identifier: Apache-2.0
"""Rates fitted to whole networks: what they find where rates rule, beyond what was learnt, and after a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from jetdvfs.kernels.graph import PerformanceGraph, graph_of
from jetdvfs.kernels.network import Network
from jetdvfs.profiles.errors import RecordError
from jetdvfs.profiles.lab.networks.predictors.estimator import read, save
from jetdvfs.profiles.lab.networks.predictors.kernel_level import Stack
from jetdvfs.profiles.lab.networks.predictors.loading import load
from jetdvfs.profiles.lab.networks.predictors.rates import Rates, part_of
from jetdvfs.profiles.lab.networks.predictors.trees import GlobalTrees
from jetdvfs.profiles.lab.networks.record import Query, Sample
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
        live + (node.output_bytes if node.kind == "conv2d" else 0)
        for node, live in zip(graph.nodes, graph.live_bytes, strict=True)
    )
    return {"latency_ms": latency_ms, "peak_mib": 2 + (graph.memory.weight_bytes + moment) / (1 << 20)}


def known(count: int, seed: int = 0) -> list[Sample]:
    return [dataclasses.replace(one, values=truth(one.graph, one.device)) for one in samples(count, seed=seed)]


def off(made: Rates, graph: PerformanceGraph) -> NDArray[np.float64]:
    """By what part each metric is off on each device."""
    wanted = np.array([list(truth(graph, device).values()) for device in DEVICES])
    return np.asarray(np.abs(made.predict([Query(graph, device) for device in DEVICES]) / wanted - 1))


def renamed(network: Network, kind: str) -> PerformanceGraph:
    """The same network with another operator in place of relu."""
    launches = tuple(dataclasses.replace(one, kind=kind) if one.kind == "relu" else one for one in network.launches)
    return graph_of(Network(network.name, network.inputs, launches, reads=network.reads))


def test_rates_that_rule_are_found_and_hold_for_networks_unlike_those_learnt() -> None:
    made = Rates()
    with pytest.raises(RecordError, match="not fitted"):
        made.predict([])
    made.fit(known(60))
    asked = known(10, seed=5)
    wanted = np.array([list(one.values.values()) for one in asked])
    assert np.abs(made.predict(asked) / wanted - 1).max() < 0.05
    assert (off(made, graph_of(chain("long", (64,) * 12, image=64))) < 0.08).all()  # larger, longer, wider than all of them


def test_an_operator_that_no_network_had_takes_the_rates_of_all() -> None:
    made = Rates()
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
    made = Rates()
    made.fit([dataclasses.replace(one, values={"energy_mj": energy_mj(one.graph, one.device[1])}) for one in asked])
    graph = graph_of(chain("asked", (40,) * 6))
    swept = made.sweep(graph, [np.array([1.0]), np.array(levels), np.array([50.0])], 32.0)[0, 0, :, 0]
    assert_allclose(swept, [energy_mj(graph, gflops) for gflops in levels], rtol=0.1)
    assert swept.argmin() == 2
    assert_allclose(made.predict([Query(graph, (1.0, gflops, 50.0, 32.0)) for gflops in levels])[:, 0], swept)


def test_a_grid_is_one_sweep_and_the_same_as_one_by_one() -> None:
    made = Rates()
    made.fit(known(40))
    graph = samples(1, seed=9)[0].graph
    levels = [np.array(axis) for axis in ((1.0, 2.0), (250.0, 500.0, 1000.0), (50.0, 100.0))]
    swept = made.sweep(graph, levels, 32.0)
    assert swept.shape == (2, 2, 3, 2)
    asked = [Query(graph, (a, b, c, 32.0)) for a in levels[0] for b in levels[1] for c in levels[2]]
    assert_allclose(np.moveaxis(swept, 0, -1).reshape(-1, 2), made.predict(asked), rtol=1e-9)


def test_rates_and_what_is_stacked_on_them_come_back_from_a_file(tmp_path: Path) -> None:
    pytest.importorskip("xgboost", reason="grows the trees")
    asked = samples(5, seed=7)
    for made in (Rates(), Stack(Rates(), GlobalTrees("xgb"))):
        made.fit(samples(40))
        save(made, tmp_path / "one.npz")
        again = load(tmp_path / "one.npz")
        assert again.metrics == ("latency_ms", "peak_mib") and again.parameters == made.parameters > 0
        assert_allclose(again.predict(asked), made.predict(asked))


def test_rates_of_another_release_are_refused(tmp_path: Path) -> None:
    made = Rates()
    made.fit(known(20))
    about, arrays = made.packed()
    for changed in ({**about, "parts": about["parts"][:-1]}, {name: value for name, value in about.items() if name != "parts"}):
        with pytest.raises(RecordError, match="another release"):
            Rates.restored(changed, arrays)
    with pytest.raises(RecordError, match="another release"):
        Rates.restored(about, {**arrays, "of/peak_mib": arrays["of/peak_mib"][:-1]})
    save(made, tmp_path / "rates.npz")
    assert read(tmp_path / "rates.npz", "rates")[0]["kind"] == "rates"
