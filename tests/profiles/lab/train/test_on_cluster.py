# SPDX-License-Identifier: Apache-2.0
"""Trees grown on a Dask cluster of two processes, beside the same grown here."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from jetdvfs.profiles.lab.train.kernel_models import Recipe, Table, boosted_on_cluster, boosting_parameters

xgboost = pytest.importorskip("xgboost", reason="training needs xgboost")
distributed = pytest.importorskip("distributed", reason="a cluster needs dask and distributed")
pytest.importorskip("pyarrow", reason="xgboost.dask needs Dask's data frames, which need pyarrow")
PARAMETERS = boosting_parameters(Recipe(4, 0.2, 1.0, subsample=1.0, colsample_bytree=1.0), 1, 0)
ROUNDS = 30


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**options, silence_logs=logging.CRITICAL) as cluster, distributed.Client(cluster) as client:
        yield client


def rows_of(features: NDArray[np.float32], label: NDArray[np.float64], weight: NDArray[np.float64]) -> Table:
    alike = np.zeros(len(label), np.int64)
    return Table(features, label, weight, alike, alike)


def drawn(count: int, seed: int) -> Table:
    rng = np.random.default_rng(seed)
    features = rng.random((count, 5)).astype(np.float32)
    return rows_of(features, np.sin(6 * features[:, 0]) + features[:, 1] * features[:, 2], rng.random(count) + 0.5)


def test_a_cluster_grows_trees_that_predict_as_well_as_those_grown_here(client: Any) -> None:
    rows, other = drawn(5_000, 0), drawn(1_000, 1)
    here = xgboost.train(PARAMETERS, xgboost.DMatrix(rows.features, rows.label, weight=rows.weight), ROUNDS)
    there = boosted_on_cluster(client, PARAMETERS, rows, ROUNDS)
    off = [float(np.abs(one.predict(xgboost.DMatrix(other.features)) - other.label).mean()) for one in (here, there)]
    assert off[1] < 1.1 * off[0] < 0.1 and there.num_boosted_rounds() == ROUNDS


def test_a_cluster_stops_where_the_rows_held_out_gain_no_more(client: Any) -> None:
    noise = rows_of(drawn(3_000, 2).features, np.random.default_rng(3).normal(size=3_000), np.ones(3_000))
    stopped = boosted_on_cluster(client, PARAMETERS, noise, 200, drawn(1_000, 4), patience=3)
    assert stopped.best_iteration < 150 and stopped.num_boosted_rounds() < 200
