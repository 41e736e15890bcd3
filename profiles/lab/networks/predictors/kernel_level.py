# SPDX-License-Identifier: Apache-2.0
"""Estimators without networks in training, but with a fitted factor per metric."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .....kernels.cost.model import surface
from .....kernels.graph import PerformanceGraph
from .....kernels.surface import Surface
from ....bundle.bundle import Bundle
from ....errors import RecordError
from ..record import MeasuredQuery, Query, device_levels
from . import estimator
from .estimator import ProgressCallback, silent


class ScaledEstimator:
    """Estimator that scales given predictions by a median factor per metric."""

    def __init__(self) -> None:
        self.metrics: tuple[str, ...] = ()
        self._factors = np.zeros(0)

    @property
    def parameters(self) -> int:
        return len(self._factors)

    def fit(self, samples: Sequence[MeasuredQuery], on_progress: ProgressCallback = silent) -> None:
        metrics, values = estimator.table_of(samples)
        self._factors = np.median(values / self._bare(samples, metrics), axis=0)
        self.metrics = metrics

    def predict(self, queries: Sequence[Query]) -> NDArray[np.float64]:
        estimator.check_fitted(self.metrics)
        return np.asarray(self._bare(queries, self.metrics) * self._factors)

    def _bare(self, queries: Sequence[Query], metrics: Sequence[str]) -> NDArray[np.float64]:
        raise NotImplementedError


class KernelLevel(ScaledEstimator):
    """Surfaces of a bundle, at the nearest configuration. Raises RecordError for other metrics."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__()
        self._cost = bundle.cost
        self._levels = device_levels(bundle.cost.chip, bundle.cost.grid)
        self._surfaces: dict[int, tuple[PerformanceGraph, Surface]] = {}

    def _bare(self, queries: Sequence[Query], metrics: Sequence[str]) -> NDArray[np.float64]:
        strange = set(metrics) - {"latency_ms", "energy_mj", "power_mw"}
        if strange:
            raise RecordError(f"the kernel-level method does not predict {', '.join(sorted(strange))}")
        found = np.empty((len(queries), len(metrics)))
        for number, query in enumerate(queries):
            if id(query.graph) not in self._surfaces:
                self._surfaces[id(query.graph)] = (query.graph, surface(query.graph.network, self._cost))
            own = self._surfaces[id(query.graph)][1]
            at = tuple(
                int(np.abs(levels - figure).argmin()) for levels, figure in zip(self._levels, query.device, strict=False)
            )
            found[number] = [getattr(own, metric)[at] for metric in metrics]
        return found


class Roofline(ScaledEstimator):
    """Lower bound: the longer of each launch's operations or transfers; memory of the graph."""

    def _bare(self, queries: Sequence[Query], metrics: Sequence[str]) -> NDArray[np.float64]:
        found = np.empty((len(queries), len(metrics)))
        for number, query in enumerate(queries):
            flops, moved = np.array([[node.flops, node.access_bytes] for node in query.graph.nodes], np.float64).T
            bound_ms = np.maximum(flops / query.device[1], moved / query.device[2]).sum() / 1e6
            memory_mib = query.graph.memory.total_bytes / (1 << 20)
            found[number] = [memory_mib if metric.endswith("_mib") else bound_ms for metric in metrics]
        return found
