# SPDX-License-Identifier: Apache-2.0
"""Graph networks as estimators, by PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from .....kernels.graph import PerformanceGraph
from ..record import MeasuredQuery, Query
from . import estimator
from .architectures import Anee, Architecture, LaunchSum, Pmgns, SeerNet
from .batches import FeatureBatch, Scalings, make_batch
from .encodings import ENCODINGS, EncodedGraph
from .estimator import ProgressCallback, Targets, silent
from .layers import Initial, Operations
from .training import NetworkTrainingOptions, train

_ROWS = 1 << 15  # of nodes at a time, so that data between layers takes tens of megabytes


class GraphNetwork:
    """An :class:`~jetdvfs.profiles.lab.networks.predictors.estimator.Estimator`.

    Args:
        together: one network for all metrics instead of one each.
    """

    def __init__(self, architecture: Architecture, options: NetworkTrainingOptions, together: bool = False) -> None:
        self.architecture, self.options, self.together = architecture, options, together
        self.metrics: tuple[str, ...] = ()
        self._weights: list[Initial] = []
        self._scalings: Scalings | None = None
        self._targets = Targets(np.zeros(0), np.ones(0))

    @property
    def parameters(self) -> int:
        return sum(array.size for weights in self._weights for array in weights.values())

    def setting(self, metrics: int) -> tuple[Architecture, NetworkTrainingOptions, bool]:
        """Everything that distinguishes its training on this number of metrics."""
        together = self.together and metrics > 1
        return self.architecture, replace(self.options, pcgrad=self.options.pcgrad and together), together

    def fit(self, samples: Sequence[MeasuredQuery], on_progress: ProgressCallback = silent) -> None:
        metrics, values = estimator.table_of(samples)
        encoding = ENCODINGS[self.architecture.encoding]
        encoded = self._encoded(samples)
        devices = np.array([sample.device for sample in samples])
        self._scalings = scalings = Scalings.fit(self.architecture.scaling, encoding, encoded, devices)
        self._targets = Targets.fit(values)
        if isinstance(self.architecture, LaunchSum):  # parts add up in the metric's own unit alone
            self._targets = Targets(self._targets.mean, np.ones(len(metrics)))
        scaled = self._targets.scaled(values)
        encoded = scalings.scaled(encoded)

        def batches(numbers: NDArray[np.int64]) -> FeatureBatch:
            return make_batch(encoding, scalings, [encoded[number] for number in numbers], devices[numbers])

        columns = [list(range(len(metrics)))] if self.together else [[column] for column in range(len(metrics))]
        groups = [sample.name for sample in samples]
        self._weights = [
            train(self.architecture, self.options, batches, scaled[:, own], groups, on_progress) for own in columns
        ]
        self.metrics = metrics

    def predict(self, queries: Sequence[Query]) -> NDArray[np.float64]:
        estimator.check_fitted(self.metrics)
        assert self._scalings is not None
        encoding, encoded = ENCODINGS[self.architecture.encoding], self._scalings.scaled(self._encoded(queries))
        devices = np.array([query.device for query in queries])
        found, at = np.empty((len(queries), len(self.metrics))), 0
        outputs, ops = len(self.metrics) if self.together else 1, Operations()
        weights = [{name: ops.array(value) for name, value in own.items()} for own in self._weights]
        while at < len(queries):
            end, rows = at + 1, len(encoded[at].nodes)
            while end < len(queries) and rows + len(encoded[end].nodes) <= _ROWS:
                rows += len(encoded[end].nodes)
                end += 1
            batch = make_batch(encoding, self._scalings, encoded[at:end], devices[at:end])
            parts = [self.architecture.forward(ops, own, batch, outputs).numpy() for own in weights]
            found[at:end] = self._targets.back(np.concatenate(parts, axis=1))
            at = end
        return found

    def _encoded(self, queries: Sequence[Query]) -> list[EncodedGraph]:
        encode = ENCODINGS[self.architecture.encoding].encode
        kept: dict[int, tuple[PerformanceGraph, EncodedGraph]] = {}
        for query in queries:
            if id(query.graph) not in kept:
                kept[id(query.graph)] = (query.graph, encode(query.graph))
        return [kept[id(query.graph)][1] for query in queries]


def seernet(**changes: Any) -> GraphNetwork:
    """PerfSeer's SeerNet, one network per metric, with the paper's settings (section 4.1)."""
    return GraphNetwork(SeerNet(), replace(NetworkTrainingOptions(), **changes))


def seernet_multi(**changes: Any) -> GraphNetwork:
    """SeerNet-Multi: one network with a head per metric, trained with PCGrad."""
    return GraphNetwork(SeerNet(), replace(NetworkTrainingOptions(pcgrad=True), **changes), together=True)


def dnnperf(**changes: Any) -> GraphNetwork:
    """DNNPerf with the paper's settings for time (section IV-C)."""
    return GraphNetwork(Anee(), replace(NetworkTrainingOptions(epochs=250, batch=64, rate=1e-4, patience=0), **changes))


def dnnperf_own(**changes: Any) -> GraphNetwork:
    made = dnnperf(**changes)
    made.architecture = Anee(own=True)
    return made


def dippm(**changes: Any) -> GraphNetwork:
    """DIPPM's PMGNS with the paper's settings (table 3, which omits the batch size), all metrics together."""
    options = NetworkTrainingOptions(epochs=500, batch=64, rate=2.754e-5, patience=0, loss="huber")
    return GraphNetwork(Pmgns(), replace(options, **changes), together=True)


def launches(**changes: Any) -> GraphNetwork:
    options = NetworkTrainingOptions(epochs=120, batch=32, rate=3e-3, cycle=True, loss="huber", knee=0.05, validation=0.0)
    return GraphNetwork(LaunchSum(), replace(options, **changes))
