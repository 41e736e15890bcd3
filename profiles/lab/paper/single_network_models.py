# SPDX-License-Identifier: Apache-2.0
"""Models of one network each, by clocks only (MIRAGE, SEC '21, sections 6.3, Figure 5, and 6.4, Table 8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ....kernels.grid import FrequencyGrid
from ...adapt.measurements import MeasurementRows, Measurements
from ...errors import MeasurementError
from ..train.host_fit import clocks_mhz
from .accuracy import PredictionComparison, PredictionErrors
from .published import Improvement, ImprovementRange

Progress = Callable[[int, int, str], None]
FIGURES: Mapping[str, str] = {"runtime": "network_ms", "power": "network_mw"}
"""Predicted figures, and their tables."""

_DEGREE = 2
_ROUNDS, _DEPTH, _RATE, _LEAST_IN_LEAF = 150, 4, 0.05, 4.0
_RIDGE = 1e-3


class SingleNetworkModel:
    """One network's latency or power over the clocks: a polynomial of log clocks, and trees."""

    def __init__(self, rows: MeasurementRows, grid: FrequencyGrid, seed: int = 0) -> None:
        import xgboost

        self._grid, label = grid, np.log(rows.value)
        terms = self._terms(rows.configuration)
        self._weights = np.linalg.solve(terms.T @ terms + _RIDGE * np.eye(terms.shape[1]), terms.T @ label)
        settings = {
            "max_depth": _DEPTH, "learning_rate": _RATE, "min_child_weight": _LEAST_IN_LEAF, "subsample": 0.8,
            "tree_method": "hist", "nthread": 1, "seed": seed, "verbosity": 0,
        }  # fmt: skip
        left = label - terms @ self._weights
        self._data: Callable[[NDArray[np.int64]], object] = lambda at: xgboost.DMatrix(self._clocks(at), nthread=1)
        self._trees = xgboost.train(
            settings, xgboost.DMatrix(self._clocks(rows.configuration), left, nthread=1), num_boost_round=_ROUNDS
        )

    def predict(self, configuration: NDArray[np.int64]) -> NDArray[np.float64]:
        """Predictions at flat grid indices (n,), in the trained unit."""
        left = np.asarray(self._trees.predict(self._data(configuration)), np.float64)
        return np.asarray(np.exp(self._terms(configuration) @ self._weights + left))

    def _clocks(self, configuration: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.stack(clocks_mhz(configuration, self._grid), axis=1)

    def _terms(self, configuration: NDArray[np.int64]) -> NDArray[np.float64]:
        highest = np.array([float(levels[-1]) for levels in self._grid.levels_mhz()])
        logs = np.log(self._clocks(configuration) / highest)
        powers = [(a, b, c) for a in range(_DEGREE + 1) for b in range(_DEGREE + 1 - a) for c in range(_DEGREE + 1 - a - b)]
        return np.stack([np.prod(logs ** np.array(each), axis=1) for each in powers], axis=1)


def left_out_boards(
    record: Measurements, left_out: Sequence[int], progress: Progress, seed: int = 0
) -> dict[str, dict[str, PredictionComparison]]:
    """Predictions for held-out boards by one-network models: "runtime" in ms and "energy" in J, by network.

    Raises MeasurementError if the record has one board.
    """
    if len(record.nodes) < 2:
        raise MeasurementError("the record is of one board; leaving one out takes two or more")
    found: dict[str, dict[str, list[PredictionComparison]]] = {}
    for number, node in enumerate(left_out):
        progress(number, len(left_out), f"models of one network each, without board {node}")
        for what, network in enumerate(record.networks):
            predicted: dict[str, NDArray[np.float64]] = {}
            observed: dict[str, NDArray[np.float64]] = {}
            for figure, table in FIGURES.items():
                rows = _of(record, table, what)
                known, strange = rows.where(rows.node != node), rows.where(rows.node == node)
                if len(known) and len(strange):
                    predicted[figure] = SingleNetworkModel(known, record.described.grid, seed).predict(strange.configuration)
                    observed[figure] = strange.value
            both = found.setdefault(network.name, {"runtime": [], "energy": []})
            if "runtime" in predicted:
                board = np.full(len(predicted["runtime"]), node)
                both["runtime"].append(PredictionComparison(predicted["runtime"], observed["runtime"], board))
                if "power" in predicted:
                    used_j, drawn_j = (each["runtime"] * each["power"] / 1e6 for each in (predicted, observed))
                    both["energy"].append(PredictionComparison(used_j, drawn_j, board))
    return {
        network: {figure: PredictionComparison.joined(parts) for figure, parts in both.items() if parts}
        for network, both in found.items()
    }


class MultiBoardGain(Struct, frozen=True):
    """Relative improvement for one network by training on several boards, in percent: range over training and test boards.

    Attributes:
        figure: "runtime" in ms or "power" in W.
        with_all: trained on all data of the other boards, as in the paper.
        mean, mean_as_many: mean improvements, in the order of :class:`~.published.Improvement`; by all data, and by as many
            measurements as one board has, which isolates board diversity.
    """

    network: str
    figure: str
    with_all: Improvement
    mean: tuple[float, ...]
    mean_as_many: tuple[float, ...]


def one_against_many(record: Measurements, tested: Sequence[int], progress: Progress, seed: int = 0) -> list[MultiBoardGain]:
    """Models of one board and of the rest, tested on unknown boards. Raises MeasurementError."""
    if len(record.nodes) < 3:
        raise MeasurementError(
            f"the record is of {len(record.nodes)} board{'s' if len(record.nodes) > 1 else ''}; one against many takes three "
            "or more, one of them to be tested on"
        )
    grid, found = record.described.grid, []
    for number, (what, network) in enumerate(enumerate(record.networks)):
        for figure, table in FIGURES.items():
            progress(number, len(record.networks), f"one board against many: {network.name}")
            rows = _of(record, table, what)
            if not len(rows):
                continue
            all_of, as_many = [], []
            for node in tested:
                strange, others = rows.where(rows.node == node), rows.where(rows.node != node)
                per_board = len(others) // len(np.unique(others.node))
                drawn = np.random.default_rng([seed, node, what]).permutation(len(others))[:per_board]
                few = others.where(np.isin(np.arange(len(others)), drawn))
                many, some = (_tested(part, strange, grid, figure, seed) for part in (others, few))
                for one in np.unique(others.node):
                    single = _tested(others.where(others.node == one), strange, grid, figure, seed)
                    all_of.append(improvement(single, many))
                    as_many.append(improvement(single, some))
            found.append(MultiBoardGain(network.name, figure, _range(all_of), _mean(all_of), _mean(as_many)))
    return found


def improvement(single: PredictionErrors, many: PredictionErrors) -> tuple[float, float, float, float]:
    least = 100.0 / single.count  # one prediction: where none is within, an improvement would be without bound
    shares = [100.0 * (better - worse) / max(worse, least) for worse, better in zip(single.within, many.within, strict=True)]
    rmse, mae = (100.0 * (1.0 - better / worse) for worse, better in ((single.rmse, many.rmse), (single.mae, many.mae)))
    return shares[0], shares[1], rmse, mae


def _tested(known: MeasurementRows, strange: MeasurementRows, grid: FrequencyGrid, figure: str, seed: int) -> PredictionErrors:
    unit = 1e3 if figure == "power" else 1.0
    predicted = SingleNetworkModel(known, grid, seed).predict(strange.configuration)
    return PredictionComparison(predicted / unit, strange.value / unit, strange.node).accuracy()


def _range(each: Sequence[tuple[float, ...]]) -> Improvement:
    return Improvement(*(ImprovementRange(min(column), max(column)) for column in zip(*each, strict=True)))


def _mean(each: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(float(np.mean(column)) for column in zip(*each, strict=True))


def _of(record: Measurements, table: str, what: int) -> MeasurementRows:
    rows = record.tables[table]
    return rows.where(rows.what == what)
