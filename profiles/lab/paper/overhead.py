# SPDX-License-Identifier: Apache-2.0
"""Cost of a prediction relative to its kernel (MIRAGE, SEC '21, section 6.5, Figures 6 and 7).

The paper timed predictions on the board; these run on this machine, by the daemon's code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ....kernels.cost.features import feature_rows
from ....kernels.trees.ensemble import TreeEnsemble
from ...adapt.measurements import Measurements
from ..train.host_fit import clocks_mhz
from ..train.kernel_models import TARGETS, TrainedKind, bounds_at_ms, ensemble_of, floor_of
from .published import NAMES

BATCHES = (1, 2, 5, 10, 20, 50, 100)
_PREDICTIONS = 1000
_TIMED = 200
_REPETITIONS = 3


class Overhead(Struct, frozen=True):
    """Cost of predicting one kind's time or power.

    Attributes:
        relative: time of one prediction over the predicted runtime, of random kernels and clocks, (n,).
        batch_us: time per prediction in batches of :data:`BATCHES`.
        sweep_us: time per prediction over the whole grid at once.
    """

    kind: str
    target: str
    relative: NDArray[np.float64]
    batch_us: tuple[float, ...]
    sweep_us: float


def overheads(record: Measurements, trained: Mapping[str, TrainedKind], seed: int = 0) -> list[Overhead]:
    board, found = record.described, []
    for kind in NAMES:
        calls = [kernel for kernel in record.invocations if kernel.kind == kind]
        if not calls or (models := trained.get(kind)) is None:
            continue
        random = np.random.default_rng([seed, 65])
        of_row = random.integers(0, len(calls), _PREDICTIONS)
        clocks = clocks_mhz(random.integers(0, board.grid.size, _PREDICTIONS), board.grid)
        own = feature_rows(kind, calls)
        features = own[of_row]
        features[:, -3:] = np.stack(clocks, axis=1)
        time_model = ensemble_of(models.time)
        runtime_ms = np.exp(np.asarray(time_model.predict(features), np.float64)) * bounds_at_ms(
            calls, of_row, clocks, board, floor_of(record, board)
        )
        for target in TARGETS:
            if (one := models.of(target)) is None:
                continue
            model = time_model if target == "time" else ensemble_of(one)
            singles_ms = np.array([_shortest_ms(model, features[index : index + 1]) for index in range(_TIMED)])
            batches = tuple(1e3 * _shortest_ms(model, features[:size]) / size for size in BATCHES)
            found.append(Overhead(kind, target, singles_ms / runtime_ms[:_TIMED], batches, _sweep_us(model, own[:8], record)))
    return found


def _sweep_us(model: TreeEnsemble, rows: NDArray[np.float32], record: Measurements) -> float:
    cpu, gpu, emc = (np.asarray(axis, np.float32) for axis in record.described.grid.levels_mhz())
    took_ms = _shortest(lambda: model.sweep(rows, (cpu, gpu, emc)))
    return 1e3 * took_ms / (len(rows) * record.described.grid.size)


def _shortest_ms(model: TreeEnsemble, rows: NDArray[np.float32]) -> float:
    return _shortest(lambda: model.predict(rows))


def _shortest(work: Callable[[], object]) -> float:
    took = []
    for _ in range(_REPETITIONS):
        began = perf_counter()
        work()
        took.append(perf_counter() - began)
    return 1e3 * min(took)
