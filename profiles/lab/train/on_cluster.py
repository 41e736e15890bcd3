# SPDX-License-Identifier: Apache-2.0
"""Trees trained on a Dask cluster, each worker with part of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .kernel_models import Table

_LEAST_ROWS = 1_000  # in a part: below, the workers wait for each other more than they work


def boosted(
    client: Any,
    parameters: Mapping[str, Any],
    training: Table,
    rounds: int,
    held: Table | None = None,
    patience: int = 0,
) -> Any:
    import dask.array
    from xgboost import dask as on_dask

    parts = max(len(client.scheduler_info(n_workers=-1)["workers"]), 1)

    def spread(rows: Table) -> Any:
        chunk = max(-(-len(rows.label) // parts), _LEAST_ROWS)
        features = dask.array.from_array(rows.features, chunks=(chunk, -1))
        label, weight = (dask.array.from_array(one, chunks=chunk) for one in (rows.label, rows.weight))
        return on_dask.DaskDMatrix(client, features, label, weight=weight)

    stopping = {} if held is None else {"evals": [(spread(held), "held")], "early_stopping_rounds": patience}
    found = on_dask.train(client, dict(parameters), spread(training), rounds, verbose_eval=False, **stopping)
    return found["booster"]
