# SPDX-License-Identifier: Apache-2.0
"""Predictors of whole networks: what they learn, and what they ignore."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from jetdvfs.kernels.graph import graph_of
from jetdvfs.profiles.errors import RecordError
from jetdvfs.profiles.lab.networks.predictors.architectures import Anee, Architecture, LaunchSum, Pmgns, SeerNet, unseen
from jetdvfs.profiles.lab.networks.predictors.batches import FeatureBatch, Scalings, make_batch
from jetdvfs.profiles.lab.networks.predictors.combined import RandomSearch, RatesAndLaunches
from jetdvfs.profiles.lab.networks.predictors.encodings import DIPPM, ENCODINGS, JUNG, PERFSEER, PERFSEER_GROUPS, jung_features
from jetdvfs.profiles.lab.networks.predictors.estimator import Estimator
from jetdvfs.profiles.lab.networks.predictors.graph_network import GraphNetwork, launches
from jetdvfs.profiles.lab.networks.predictors.kernel_level import Roofline
from jetdvfs.profiles.lab.networks.predictors.layers import Operations
from jetdvfs.profiles.lab.networks.predictors.loading import PREDICTORS
from jetdvfs.profiles.lab.networks.predictors.rates import RateEstimator
from jetdvfs.profiles.lab.networks.predictors.training import NetworkTrainingOptions
from jetdvfs.profiles.lab.networks.predictors.trees import FeatureAddition, GlobalTrees
from jetdvfs.profiles.lab.networks.record import Query
from jetdvfs.tests.support.profiles.measured_networks import DEVICES, chain, samples

ARCHITECTURES: tuple[Architecture, ...] = (
    SeerNet(width=16),
    SeerNet(width=16, synmm=False, gnpb=False, without=("proportions", "edge shape", "batch size")),
    Anee(rounds=2, hidden=(16, 8)),
    Anee(encoder="gat", readout="mean", hidden=(8,)),
    Anee(hidden=(8,), own=True, readout="edges", scaling="zscore", costs=False),
    Pmgns(width=16),
    Pmgns(width=16, conv="gcn"),
    LaunchSum(width=16),
)


def percent(estimator: Estimator, seed: int) -> float:
    """Mean absolute percentage error on samples that it has not seen."""
    asked = samples(20, seed=seed)
    wanted = np.array([list(sample.values.values()) for sample in asked])
    return float(100 * np.abs(estimator.predict(asked) / wanted - 1).mean())


def forward(network: Architecture, batch: FeatureBatch, outputs: int) -> NDArray[np.float32]:
    ops = Operations()
    weights = {name: ops.array(value) for name, value in network.initial(outputs, np.random.default_rng(0)).items()}
    return np.asarray(network.forward(ops, weights, batch, outputs))


def test_features_count_by_hand() -> None:
    graph = graph_of(chain("c", (8, 8)))
    assert len(JUNG) == 31 and len(DIPPM.node) == 32 and len(DIPPM.whole) == 5
    found = dict(zip(JUNG, jung_features(graph), strict=True))
    pixels = 16 * 16
    assert found["conv_layers"] == 2 and found["activation_layers"] == 2 and found["elementwise_layers"] == 1
    assert found["conv_weights"] == 4 * 9 * (3 * 8 + 8 * 8) and found["conv_ops"] == 2 * 9 * (3 * 8 + 8 * 8) * pixels
    assert found["elementwise_inputs"] == 2 * 4 * 8 * pixels and found["pointwise_conv_layers"] == 0
    macs, batch, convolutions, dense, relus = DIPPM.encode(graph).whole
    assert (macs, batch, convolutions, dense, relus) == (9 * (3 * 8 + 8 * 8) * pixels, 1, 2, 0, 2)
    assert (DIPPM.encode(graph).nodes[:, : len(DIPPM.node) - 12].sum(1) == 1).all()  # one mark for each operator


@pytest.mark.torch
@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=str)
def test_graph_networks_learn(architecture: Architecture) -> None:
    pytest.importorskip("torch", reason="what trains")
    made = GraphNetwork(architecture, NetworkTrainingOptions(epochs=12, batch=16, rate=3e-3), together=True)
    with pytest.raises(RecordError, match="not fitted"):
        made.predict([])
    made.fit(samples(30))
    asked = samples(5, seed=7)
    assert made.metrics == ("latency_ms", "peak_mib") and made.parameters > 0
    # Alone or with others, on one device or several: the same.
    assert_allclose(made.predict(asked)[3:4], made.predict(asked[3:4]), rtol=1e-4)


@pytest.mark.torch
def test_launches_that_add_up_are_learnt_from_their_sums_and_hold_for_longer_networks() -> None:
    pytest.importorskip("torch", reason="what trains")
    learnt = [msgspec.structs.replace(one, values={"latency_ms": one.values["latency_ms"]}) for one in samples(30)]
    made = launches(epochs=30, batch=16, rate=1e-2)
    made.fit(learnt)
    long = graph_of(chain("long", (24,) * 12))
    wanted = [
        sum(max(node.flops / gflops, node.access_bytes / gbytes) / 1e6 + 0.005 / host for node in long.nodes)
        for host, gflops, gbytes, _ in DEVICES
    ]
    found = made.predict([Query(long, device) for device in DEVICES])[:, 0]
    assert_allclose(found, wanted, rtol=0.4)  # with over twice as many launches as any that it knows


@pytest.mark.torch
def test_what_rates_say_of_launches_larger_than_any_learnt_does_not_count() -> None:
    pytest.importorskip("torch", reason="what trains")
    learnt = [msgspec.structs.replace(one, values={"latency_ms": one.values["latency_ms"]}) for one in samples(30)]
    both, alone, rates = RatesAndLaunches(networks=1), launches(seed=0), RateEstimator()
    for one in (both, alone, rates):
        one.fit(learnt)
    known, large = ([Query(graph, DEVICES[0])] for graph in (learnt[0].graph, graph_of(chain("large", (256,) * 12))))
    assert rates.familiar(known, "latency_ms") == 1 and rates.familiar(large, "latency_ms") < 0.1
    assert_allclose(both.predict(large), alone.predict(large), rtol=1e-3)
    own, *parts = (one.predict(known).item() for one in (both, alone, rates))
    assert min(parts) < own < max(parts)


@pytest.mark.torch
def test_rates_and_launches_predict_memory_as_rates_do() -> None:
    pytest.importorskip("torch", reason="what trains")
    made, rates = RatesAndLaunches(networks=1), RateEstimator()
    asked = samples(5, seed=7)
    for one in (made, rates):
        one.fit([msgspec.structs.replace(sample, values={"peak_mib": sample.values["peak_mib"]}) for sample in samples(30)])
    assert_allclose(made.predict(asked), rates.predict(asked))


def test_a_search_takes_its_time_and_the_best_of_what_it_tried() -> None:
    pytest.importorskip("xgboost", reason="grows the trees")
    clock = iter([0.0, 1.0, 2.0, 3.0])
    made = RandomSearch(GlobalTrees, 2.5, now=lambda: next(clock))
    made.fit(samples(30))
    assert made.settings.startswith("3 trials, rounds ") and made.metrics == ("latency_ms", "peak_mib")
    plain = RandomSearch(Roofline, 2.5)
    plain.fit(samples(10))
    assert not plain.settings  # nothing to search


@pytest.mark.torch
def test_several_metrics_are_trained_together_with_projected_gradients() -> None:
    pytest.importorskip("torch", reason="what trains")
    options = NetworkTrainingOptions(epochs=40, batch=32, rate=3e-3, pcgrad=True)
    made = GraphNetwork(SeerNet(width=16), options, together=True)
    made.fit(samples(40))
    assert percent(made, 3) < 25


@pytest.mark.parametrize("method", ["rf", "gb", "xgb"])
def test_trees_learn(method: Any) -> None:
    pytest.importorskip("xgboost", reason="grows the trees")
    made = GlobalTrees(method)
    made.fit(samples(60))
    assert percent(made, 3) < 40


def test_a_roofline_learns_a_factor_alone() -> None:
    bare = Roofline()
    bare.fit(samples(60))
    assert percent(bare, 3) > 30 and bare.parameters == 2


def test_features_are_added_while_they_help() -> None:
    pytest.importorskip("xgboost", reason="grows the trees")
    made = GlobalTrees("gb", FeatureAddition(runs=2, least=0.01))
    made.fit(samples(60))
    assert len(made.features) < 20
    assert percent(made, 3) < 40


def test_what_cannot_be_learnt_from_is_refused_in_one_line() -> None:
    pytest.importorskip("xgboost", reason="grows the trees")
    made = GlobalTrees()
    with pytest.raises(RecordError, match="no samples"):
        made.fit([])
    with pytest.raises(RecordError, match="not fitted"):
        made.predict([Query(samples(1)[0].graph, DEVICES[0])])


@pytest.mark.torch
def test_what_a_group_of_features_says_changes_nothing_where_it_is_left_out() -> None:
    pytest.importorskip("torch", reason="what runs them")
    asked = samples(3)
    encoded = [ENCODINGS["perfseer"].encode(sample.graph) for sample in asked]
    devices = np.array([sample.device for sample in asked])
    scalings = Scalings.fit("standard", PERFSEER, encoded, devices)
    batch = make_batch(PERFSEER, scalings, scalings.scaled(encoded), devices)
    for group, names in PERFSEER_GROUPS.items():
        place = {"edge": "edge_rows", "graph": "whole", "global": "whole", "batch": "whole"}.get(group.split()[0], "nodes")
        columns = {"nodes": PERFSEER.node, "edge_rows": PERFSEER.edge, "whole": PERFSEER.whole}[place]
        other = getattr(batch, place).copy()
        other[:, [columns.index(name) for name in names]] += 1
        changed = msgspec.structs.replace(batch, **{place: other})
        for network, same in ((SeerNet(width=8, without=(group,)), True), (SeerNet(width=8), False)):
            found = [forward(network, one, 1) for one in (batch, changed)]
            assert np.array_equal(found[0], found[1]) == same, group


@pytest.mark.torch
def test_dnnperf_does_not_see_a_networks_end_unless_launches_lead_to_themselves() -> None:
    """The last convolution of a chain, as the classes of a VGG-11, has 10 or 1,000 channels."""
    pytest.importorskip("torch", reason="what runs them")
    graphs = [graph_of(chain("headed", (8, 16, 16, classes))) for classes in (10, 1000)]
    assert unseen(graphs[0], 3).tolist() == [False] * 5 + [True] * 3
    devices = np.array([DEVICES[0]] * 2)
    encoded = [ENCODINGS["dnnperf"].encode(graph) for graph in graphs]
    scalings = Scalings.fit("minmax", ENCODINGS["dnnperf"], encoded, devices)
    batch = make_batch(ENCODINGS["dnnperf"], scalings, scalings.scaled(encoded), devices)
    small, large = (forward(network, batch, 1) for network in (Anee(), Anee(own=True)))
    assert_allclose(small[0], small[1], rtol=1e-6)
    assert abs(large[0, 0] - large[1, 0]) > 1e-3


def test_every_predictor_has_its_papers_settings() -> None:
    made = {name: make() for name, make in PREDICTORS.items()}
    assert set(made) >= {"forest", "boosting", "xgboost", "seernet", "seernet-multi", "dnnperf", "dippm"}
    weights = SeerNet().initial(1, np.random.default_rng(0))
    assert sum(array.size for array in weights.values()) == pytest.approx(1.02e6, rel=0.1)  # PerfSeer, section 4.3
